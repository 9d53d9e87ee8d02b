"""The real store on a local disk, step by step in any order, with crashes between any two writes."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest.mock import patch

import hypothesis.core
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.support.outsides import Alone, fold_journal

import floodmark as fm
from floodmark import failpoints
from floodmark.control import ControlReader
from floodmark.control.journal.delta import DeltaEventLog
from floodmark.control.published.projections import Projector
from floodmark.control.published.reading import read_published
from floodmark.control.published.tables import committed_rows, registry_rows, watermark_rows
from floodmark.control.publishing import TablePublisher
from floodmark.control.rules.folding import fold
from floodmark.coordinator import Outside
from floodmark.deltalog import Storage
from floodmark.errors import FloodmarkError
from floodmark.model.state import Holder, PlannedBatch, State
from floodmark.testing import ArrowEngine

pytestmark = pytest.mark.slow

UPSTREAMS = ("a", "b")
PIPELINES = {"P": ("a", "b"), "Q": ("b",)}
Files = dict[str, tuple[int, int]]
CRASHES = [point for point in failpoints.POINTS if not point.startswith("compact.")]


class UserError(Exception):
    pass


@contextmanager
def armed(point: str) -> Iterator[None]:
    """A process that dies when it comes to a point."""
    failpoints.rearm()
    setting = {"FLOODMARK_FAILPOINT": point, "FLOODMARK_FAILPOINT_ACTION": "raise"}
    with patch.dict(os.environ, setting):
        yield


class LazyPublisher(TablePublisher):
    """Keeps the tables up to date only when it is told to; a run is shown at once."""

    def __init__(self, control: str, *, is_lazy: bool) -> None:
        super().__init__(DeltaEventLog(control, Storage()), Projector(control, Storage()))
        self.is_lazy = is_lazy

    def publish(self, store: ControlReader) -> None:
        if not self.is_lazy:
            super().publish(store)


class Store(RuleBasedStateMachine):
    """One lake, one control store, and one process after the other that works on them."""

    def __init__(self) -> None:
        super().__init__()
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.root = Path(tempfile.mkdtemp(prefix="floodmark-machine-", dir=memory))
        self.control = str(self.root / "control")
        self.ids: dict[str, list[int]] = {upstream: [] for upstream in UPSTREAMS}
        self.lake: dict[str, DeltaTable] = {}
        """The upstreams as their one writer holds them: opening them each time takes longer."""
        self.processes = 0
        self.marks: dict[tuple[str, str], int] = {}
        self.plans: dict[str, Any] = {}
        self.agreed: tuple[Files, State] | None = None
        """The files that were last found to agree, and the state they stand for."""
        self.reads: dict[str, tuple[Files, pa.Table]] = {}
        """What tables held, and with which files."""

    def teardown(self) -> None:
        try:
            if self.processes:
                self.reopen()
                self.undisturbed()
                self.everything_agrees()
        finally:
            shutil.rmtree(self.root)

    # Steps ----------------------------------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        for upstream in UPSTREAMS:
            self.grow(upstream, 1)
        self.reopen()
        for pipeline, upstreams in PIPELINES.items():
            self.coordinator.register(pipeline, [self.path(u) for u in upstreams])

    @rule(upstream=st.sampled_from(UPSTREAMS), commits=st.integers(1, 2))
    def grow(self, upstream: str, commits: int) -> None:
        for _ in range(commits):
            self.ids[upstream].append(len(self.ids[upstream]))
            rows = pa.table({"id": pa.array(self.ids[upstream][-1:], pa.int64())})
            if upstream in self.lake:
                write_deltalake(self.lake[upstream], rows, mode="append")
            else:
                feed = {"delta.enableChangeDataFeed": "true"}
                write_deltalake(self.path(upstream), rows, configuration=feed)
                self.lake[upstream] = DeltaTable(self.path(upstream))

    @rule(limit=st.sampled_from([None, None, 1, 2]), named=st.sampled_from([None, ["a"], ["b"]]))
    def plan(self, limit: int | None, named: list[str] | None) -> None:
        upstreams = None if named is None else [self.path(u) for u in named]
        self.attempt(lambda: self.coordinator.create_batch(upstreams, max_versions=limit))

    @precondition(lambda self: self.open_batch())
    @rule(pipeline=st.sampled_from(list(PIPELINES)), raises=st.sampled_from([None, None, 0, 1]))
    def run(self, pipeline: str, raises: int | None) -> None:
        batch = self.open_batch()
        assert batch
        function = self.function(pipeline, raises)
        self.attempt(lambda: self.coordinator.run_pipeline(pipeline, batch.batch_id, function))

    @precondition(lambda self: self.open_batch())
    @rule()
    def finalize(self) -> None:
        batch = self.open_batch()
        assert batch
        self.attempt(lambda: self.coordinator.finalize_batch(batch.batch_id))

    @precondition(lambda self: self.open_batch())
    @rule()
    def cancel(self) -> None:
        batch = self.open_batch()
        assert batch
        self.attempt(lambda: self.coordinator.cancel(batch.batch_id))

    @rule(upstream=st.sampled_from(UPSTREAMS))
    def cycle(self, upstream: str) -> None:
        """What a scheduler does all day, without a fault."""
        self.grow(upstream, 1)
        self.work(list(PIPELINES))

    @rule(point=st.sampled_from(CRASHES), upstream=st.sampled_from([None, *UPSTREAMS]))
    def crash(self, point: str, upstream: str | None) -> None:
        """Work until the process dies at a point, or is done without coming to it."""
        if upstream:
            self.grow(upstream, 1)
        with armed(point):
            try:
                self.work(list(PIPELINES))
            except failpoints.FailpointReached:
                self.reopen()

    @rule()
    def reopen(self) -> None:
        """The next process; the one before is dead, and that can be proven."""
        self.processes += 1
        me = self.processes
        # Most processes leave the tables to `everything_agrees`: publishing is most of the cost.
        self.publisher = LazyPublisher(self.control, is_lazy=me % 3 != 0)
        outside = Outside(
            engine=ArrowEngine(),
            process=Alone(Holder("here", "boot", me, "start")),
            publisher=self.publisher,
        )
        self.coordinator = fm.Coordinator(self.control, actor=f"process {me}", outside=outside)

    @rule(keep_windows=st.sampled_from([2, 4, 1000]), dies=st.booleans())
    def compact(self, keep_windows: int, dies: bool) -> None:
        with armed("compact.after_commit" if dies else "nowhere"):
            try:
                fold_journal(self.control, keep_windows)
            except failpoints.FailpointReached:
                self.reopen()

    # What must hold -------------------------------------------------------------------------------

    @invariant()
    def watermarks_never_move_back(self) -> None:
        if self.processes:
            marks = {key: mark.version for key, mark in self.state().marks.items()}
            assert all(marks[key] >= version for key, version in self.marks.items())
            self.marks = marks

    @invariant()
    def a_plan_never_changes(self) -> None:
        if self.processes:
            for batch in self.state().batches.values():
                planned = (batch.seq, dict(batch.windows), dict(batch.required))
                assert self.plans.setdefault(batch.batch_id, planned) == planned

    @rule()
    def everything_agrees(self) -> None:
        """The journal, the loaded state, the published tables, the checker and the sinks.

        Where no file has changed since they agreed, only what is loaded can be another.
        """
        state = without_old(self.state())
        self.publish()
        files = files_below(self.root)
        if self.agreed is not None and self.agreed[0] == files:
            assert state == self.agreed[1]
            return
        events = DeltaEventLog(self.control, Storage(None)).read(None).events
        assert without_old(fold(events)) == state
        self.tables_show(self.state())
        assert [f for f in self.coordinator.verify() if not f.ok] == []
        self.nothing_is_there_twice()
        self.agreed = files, state

    def publish(self) -> None:
        lazy, self.publisher.is_lazy = self.publisher.is_lazy, False
        with self.coordinator.store.coalesce():
            """The tables are refreshed at the end."""
        self.publisher.is_lazy = lazy

    def tables_show(self, state: State) -> None:
        shown = self.published("committed_watermarks")
        assert sorted(shown, key=str) == sorted(committed_rows(state), key=str)
        assert sorted(self.published("pipeline_registry"), key=str) == sorted(
            registry_rows(state), key=str
        )
        rows = [row for b in state.batches.values() for row in watermark_rows(b)]
        known = [r for r in self.published("watermarks") if r["batch_id"] in state.batches]
        assert sorted(known, key=str) == sorted(rows, key=str)
        seqs = sorted(row["seq"] for row in self.published("history"))
        assert seqs == list(range(1, state.seq + 1))

    def nothing_is_there_twice(self) -> None:
        for pipeline, upstreams in PIPELINES.items():
            for upstream in upstreams:
                count = Counter(self.rows(pipeline, upstream))
                assert max(count.values(), default=0) <= 1, (pipeline, upstream, count)
                committed = self.state().committed_version("default", self.path(upstream))
                assert set(count) >= set(range(committed + 1)), (pipeline, upstream)

    def undisturbed(self) -> None:
        """G10: plan, run, finalize until nothing is new; then each sink holds every row once."""
        for _ in range(10):
            if not self.work(list(PIPELINES)):
                break
        for pipeline, upstreams in PIPELINES.items():
            for upstream in upstreams:
                assert sorted(self.rows(pipeline, upstream)) == self.ids[upstream]

    # ----------------------------------------------------------------------------------------------

    def work(self, pipelines: list[str]) -> bool:
        """Plan, run and finalize once; whether there was something to do."""
        batch = self.coordinator.create_batch()
        if batch.batch_id is None:
            return False
        for pipeline in pipelines:
            if pipeline in batch.pipelines:
                function = self.function(pipeline, None)
                self.coordinator.run_pipeline(pipeline, batch.batch_id, function)
        self.coordinator.finalize_batch(batch.batch_id)
        return True

    def function(self, pipeline: str, raises: int | None) -> Callable[[Any, Any], None]:
        """Writes each input to a target of its own; may raise before one of the writes."""

        def function(inputs: Any, run: Any) -> None:
            for position, upstream in enumerate(PIPELINES[pipeline]):
                if raises == position:
                    raise UserError
                frame = inputs[self.path(upstream)]
                run.write(frame, self.target(pipeline, upstream), mode="append")

        return function

    def attempt(self, command: Callable[[], object]) -> None:
        """A refusal and a user's error are answers, too."""
        try:
            command()
        except (FloodmarkError, UserError):
            return

    def state(self) -> State:
        return self.coordinator.look.state()

    def open_batch(self) -> PlannedBatch | None:
        return next(self.state().open_batches(), None) if self.processes else None

    def path(self, upstream: str) -> str:
        return str(self.root / "lake" / upstream)

    def target(self, pipeline: str, upstream: str) -> str:
        return str(self.root / "sinks" / f"{pipeline}_{upstream}")

    def rows(self, pipeline: str, upstream: str) -> list[int]:
        found = self.table(self.target(pipeline, upstream), "SELECT id FROM t")
        return found.column("id").to_pylist() if found is not None else []

    def published(self, name: str) -> list[dict[str, Any]]:
        columns = "seq" if name == "history" else "*"
        found = self.table(f"{self.control}/{name}", f"SELECT {columns} FROM t")
        assert found is not None
        rows: list[dict[str, Any]] = found.to_pylist()
        return rows

    def table(self, path: str, query: str) -> pa.Table | None:
        """The answer of a table's one query; of the same files it is the same."""
        files = files_below(Path(path))
        if path not in self.reads or self.reads[path][0] != files:
            self.reads[path] = files, read_published(path, Storage(None), query)
        return self.reads[path][1]


def files_below(folder: Path) -> Files:
    """Every file with its size and time, but signs of life."""
    return {
        entry.path: (entry.stat().st_size, entry.stat().st_mtime_ns)
        for where, _, _ in os.walk(folder)
        for entry in os.scandir(where)
        if entry.is_file() and not where.endswith("_heartbeats")
    }


def without_old(state: State) -> State:
    """What a reader must know whether or not it saw the batches that compaction let go of."""
    return replace(state, batches={k: b for k, b in state.batches.items() if b.is_open})


def keep_promises(seed: int, examples: int, steps: int) -> None:
    """Run examples from a seed of their own; the failing one prints itself, shrunk."""
    os.environ["TOKIO_WORKER_THREADS"] = "1"  # delta-rs hands its work to threads, at a price
    hypothesis.core.global_force_seed = seed  # type: ignore[assignment]
    run_state_machine_as_test(
        Store,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.timeout(7200)
def test_the_store_keeps_its_promises_in_any_order_of_steps(full_size: bool) -> None:
    """100 examples of 40 steps, on two processes."""
    examples, steps = (250, 60) if full_size else (50, 40)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        halves = [pool.submit(keep_promises, seed, examples, steps) for seed in (1, 2)]
        for half in halves:
            half.result()
