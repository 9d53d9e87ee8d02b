"""A small lake, two pipelines and the normal commands over them: what crash tests kill and repeat.

Processes are forked from a server that has imported everything and started no thread: delta-rs
does not survive a fork once its threads run, and importing it takes longer than a whole case.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pyarrow as pa

from floodmark import failpoints
from floodmark.control.published.reading import read_published
from floodmark.control.upkeep import upkeep
from floodmark.coordinator import Coordinator, Outside
from floodmark.deltalog import DeltaLog, Storage
from floodmark.errors import FloodmarkError
from floodmark.model.results import Batch
from floodmark.model.write import WriteMode
from floodmark.run.context import Run
from floodmark.run.runner import PipelineFunction
from floodmark.testing import ArrowEngine

MODES: tuple[WriteMode, ...] = ("append", "merge", "overwrite")
ORDERS, CUSTOMERS = "./lake/orders", "./lake/customers"
PIPELINES: Mapping[str, tuple[str, ...]] = {"copy": (ORDERS,), "wide": (ORDERS, CUSTOMERS)}
WRITES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "copy": ((ORDERS, "./sinks/first"), (ORDERS, "./sinks/second")),
    "wide": ((ORDERS, "./sinks/orders"), (CUSTOMERS, "./sinks/customers")),
}
"""(upstream, target) of each pipeline, in the order they are written."""

COMPACT_AFTER_FILES = 6
"""Few enough that compaction is due in every step of the story."""
LEASE_TTL_SECONDS = 2.0
IMPORTED = (
    __name__,
    "tests.support.soak",
    "tests.support.node_projects",
    "floodmark.project",
    "deltalake",
    "pyarrow.compute",
    "pydantic",
    "pandas",  # pyarrow imports it when it meets a list, wherever it is installed
)
"""What the server has imported that processes are forked from: a second of work for each of them."""


# The lake -----------------------------------------------------------------------------------------


def build_lake(root: Path) -> None:
    """Make the upstreams as they are before the first batch."""
    append_rows(root, ORDERS, [(i, 10 * i) for i in range(1, 7)])
    append_rows(root, ORDERS, [(7, 70)])
    append_rows(root, CUSTOMERS, [(i, i) for i in range(1, 5)])


def grow_lake(root: Path) -> None:
    """Bring the upstreams to where they are before the second batch; again it changes nothing."""
    steps: dict[int, Callable[[], object]] = {
        1: lambda: open_table(root, ORDERS).update({"amount": "amount + 1"}, predicate="id < 3"),
        2: lambda: open_table(root, ORDERS).delete("id = 4"),
        3: lambda: append_rows(root, ORDERS, [(8, 80), (9, 90)]),
    }
    while (version := open_table(root, ORDERS).version()) in steps:
        steps[version]()


def churn_lake(root: Path, number: int) -> None:
    """One more change of every kind; `number` makes its rows distinct."""
    append_rows(root, ORDERS, [(100 + 2 * number, number), (101 + 2 * number, number)])
    open_table(root, ORDERS).update({"amount": "amount + 1"}, predicate="id = 1")
    open_table(root, ORDERS).delete(f"id = {100 + 2 * number}")


def append_rows(root: Path, name: str, rows: Sequence[tuple[int, int]]) -> None:
    """Add (id, amount) rows to an upstream, which is made with the change feed on."""
    from deltalake import write_deltalake

    ids, amounts = zip(*rows, strict=True)
    data = pa.table({"id": pa.array(ids, pa.int64()), "amount": pa.array(amounts, pa.int64())})
    feed: dict[str, str | None] = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(str(root / name), data, mode="append", configuration=feed)


def open_table(root: Path, name: str, version: int | None = None) -> Any:
    """A table of the story, by its name, as delta-rs sees it; without a version the newest."""
    from deltalake import DeltaTable

    return DeltaTable(str(root / name), version)


# The normal commands ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Story:
    """Two batches over the lake in `root`, the first full, the second by feed."""

    root: Path
    mode: WriteMode
    lease_ttl: float = LEASE_TTL_SECONDS
    pipelines: tuple[str, ...] = tuple(PIPELINES)

    def coordinator(self, outside: Outside = Outside(), spark: Any = None) -> Coordinator:  # noqa: B008 a frozen value
        """A coordinator of its own on the store of the story; without a session on delta-rs."""
        if spark is None:
            outside = replace(outside, engine=outside.engine or ArrowEngine())
        return Coordinator(
            str(self.root / "control"),
            spark=spark,
            actor="story",
            lease_ttl=self.lease_ttl,
            base=str(self.root),
            outside=outside,
        )

    def tell(self, coordinator: Coordinator | None = None) -> None:
        """Everything from registering to the second finalize; what is done already is skipped."""
        coordinator = coordinator or self.coordinator()
        self.register(coordinator)
        self.step(coordinator)
        grow_lake(self.root)
        self.step(coordinator)

    def register(self, coordinator: Coordinator) -> None:
        for pipeline in self.pipelines:
            coordinator.register(pipeline, PIPELINES[pipeline])

    def step(self, coordinator: Coordinator, runner: Coordinator | None = None) -> Batch:
        """Plan, run every pipeline, finalize; nothing but the plan if there is no news.

        `runner` runs the pipelines, if that is somebody else.
        """
        batch = coordinator.create_batch()
        if batch.batch_id is not None:
            for pipeline in batch.pipelines:
                runs = runner or coordinator
                runs.run_pipeline(pipeline, batch.batch_id, self.function(pipeline))
            coordinator.finalize_batch(batch.batch_id)
        return batch

    def function(self, pipeline: str) -> PipelineFunction:
        """What a pipeline does: each of its upstreams into its targets, in the story's mode."""

        def write_all(inputs: Mapping[str, Any], run: Run) -> None:
            for upstream, target in WRITES[pipeline]:
                write(run, inputs, upstream, target, self.mode)

        return write_all


def write(run: Run, inputs: Mapping[str, Any], upstream: str, target: str, mode: WriteMode) -> None:
    """One upstream into one target, in any mode and by any engine."""
    if mode == "append":
        run.write(inputs[upstream], target, mode="append", changes="log")
    elif mode == "merge":
        run.write(inputs[upstream], target, mode="merge", keys=["id"])
    else:
        whole = run.table(upstream)
        run.write(whole, target, mode="overwrite", changes="handled", allow_partial=True)


def tell(root: str, mode: WriteMode) -> None:
    """The whole story in this process."""
    Story(Path(root), mode).tell()


# The end state ------------------------------------------------------------------------------------


def end_state(root: str, pipelines: Sequence[str] = tuple(PIPELINES)) -> dict[str, Any]:
    """What must be the same after any crash: nothing in it depends on time, ids or the number of
    attempts.
    """
    place = Path(root)
    coordinator = Coordinator(str(place / "control"), base=root)
    targets = [target for pipeline in pipelines for _, target in WRITES[pipeline]]
    return {
        "rows": {target: _sink_rows(place / target) for target in targets},
        "receipts": {target: receipts_of(place / target) for target in targets},
        "marks": {_short(root, c.upstream): c.version for c in coordinator.checkpoints()},
        "watermarks": _published_watermarks(place),
        "committed": _published(
            place, "committed_watermarks", "SELECT last_committed_version, table_name FROM t"
        ),
        "succeeded": _published_successes(place),
        "problems": [f.text for f in coordinator.verify() if not f.ok],
        "history": _history_problems(coordinator),
    }


def _sink_rows(path: Path) -> list[Any]:
    columns = [field.name for field in open_table(path, ".").schema().fields]
    kept = ", ".join(f'"{c}"' for c in columns if c != "change_ts")
    return _texts(read_published(str(path), Storage(), f"SELECT {kept} FROM t"))


def receipts_of(path: Path) -> list[Any]:
    """(write name, batch number, commits): one commit of each, or a batch was applied twice."""
    log = DeltaLog(str(path), Storage())
    facts = log.facts()
    seen: Counter[tuple[str, int]] = Counter()
    for commit in log.versions(facts.earliest_version, facts.latest_version):
        for app_id, seq in commit.transactions.items():
            seen[app_id.split("/", 2)[2], seq] += 1
    return sorted([name, seq, count] for (name, seq), count in seen.items())


def _published_watermarks(root: Path) -> list[Any]:
    columns = "batch_seq, table_name, start_version, end_version, status, last_processed_version"
    return _published(root, "watermarks", f"SELECT {columns} FROM t")


def _published_successes(root: Path) -> list[Any]:
    query = "SELECT pipeline_name, status, rows_read, rows_written FROM t WHERE status = 'SUCCESS'"
    return _published(root, "pipeline_checkpoints", query)


def _published(root: Path, name: str, query: str) -> list[Any]:
    table = read_published(str(root / "control" / name), Storage(), query)
    return [[_short(str(root), text) for text in row] for row in _texts(table)]


def _texts(table: pa.Table | None) -> list[list[str]]:
    rows = [] if table is None else table.to_pylist()
    return sorted([str(value) for value in row.values()] for row in rows)


def _history_problems(coordinator: Coordinator) -> list[str]:
    """Every event is there once, and none is only in a snapshot."""
    numbers = [event.seq for event in coordinator.history()]
    whole = list(range(1, len(numbers) + 1))
    return [] if numbers == whole else [f"events {numbers}"]


def _short(root: str, text: str) -> str:
    return text.replace(root.rstrip("/"), "")


# Processes ----------------------------------------------------------------------------------------


def start(
    function: Callable[..., object],
    *arguments: Any,
    log: Path,
    environment: Mapping[str, str] | None = None,
) -> ForkServerProcess:
    """Start a function in a process of its own, its output going to the end of `log`.

    Its exit code is 0, that of a FloodmarkError, 1 for another error, or minus the signal.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(IMPORTED))
    call = (function, arguments, str(log), dict(environment or {}))
    with _guard:
        process = context.Process(target=_child, args=call)
        process.start()
    return process


_guard = threading.Lock()
"""Starting a process looks at all others: two threads must not take the same exit code."""


def ended(process: ForkServerProcess, timeout: float = 120.0) -> int:
    """The exit code of a process once it has ended; kills it and raises after `timeout`."""
    deadline = time.monotonic() + timeout
    while (code := exit_code(process)) is None:
        if time.monotonic() > deadline:
            process.kill()
            raise TimeoutError(f"process {process.pid} took longer than {timeout} s")
        time.sleep(0.005)
    return code


def exit_code(process: ForkServerProcess) -> int | None:
    """The exit code of a process, None while it runs."""
    with _guard:
        return process.exitcode


def run(
    function: Callable[..., object],
    *arguments: Any,
    log: Path,
    environment: Mapping[str, str] | None = None,
    timeout: float = 120.0,
) -> int:
    """Start a function, wait for its end, and return its exit code."""
    process = start(function, *arguments, log=log, environment=environment)
    return ended(process, timeout)


def result(function: Callable[..., Any], *arguments: Any, log: Path) -> Any:
    """What a function returns, as JSON allows, computed in a process of its own."""
    answer = log.with_suffix(".json")
    code = run(_answer, function, arguments, str(answer), log=log)
    if code != 0:
        raise AssertionError(f"{function.__name__} ended with {code}:\n{log.read_text()[-3000:]}")
    return json.loads(answer.read_text())


def _answer(function: Callable[..., Any], arguments: Sequence[Any], path: str) -> None:
    Path(path).write_text(json.dumps(function(*arguments)))


def _child(
    function: Callable[..., object],
    arguments: Sequence[Any],
    log: str,
    environment: Mapping[str, str],
) -> None:
    output = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ.update(environment)
    failpoints.rearm()
    upkeep.COMPACT_AFTER_FILES = COMPACT_AFTER_FILES
    try:
        function(*arguments)
    except FloodmarkError as error:
        traceback.print_exc()
        sys.exit(error.exit_code)


@contextmanager
def armed(point: str | None, action: str = "raise") -> Iterator[None]:
    """A failpoint armed in this process, `name` or `name:n`; nothing for None."""
    failpoints.rearm()
    if point is not None:
        os.environ.update(FLOODMARK_FAILPOINT=point, FLOODMARK_FAILPOINT_ACTION=action)
    try:
        yield
    finally:
        for name in ("FLOODMARK_FAILPOINT", "FLOODMARK_FAILPOINT_ACTION"):
            os.environ.pop(name, None)
        failpoints.rearm()
