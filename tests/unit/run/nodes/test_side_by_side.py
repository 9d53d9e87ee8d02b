"""Nodes side by side: bounded, after their parents, and every error is told."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support import crash
from tests.support.node_projects import open_project, table_rows

from floodmark import failpoints
from floodmark.coordinator import Outside
from floodmark.errors import RunError, SinkError
from floodmark.model.receipt import Receipt, WriteResult
from floodmark.model.state import SinkDone
from floodmark.model.window import Window
from floodmark.model.write import WriteSpec
from floodmark.run.context import Run
from floodmark.run.lost_targets import OtherPass
from floodmark.run.nodes.side_by_side import in_order
from floodmark.sinks import Sink
from floodmark.testing import ArrowEngine
from floodmark.testing.arrow import ArrowSink

DIAMOND = {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c"), "e": ()}
WAIT_SECONDS = 10.0


class Watched:
    """Work that remembers its order and how many were at it."""

    def __init__(self, parents: Mapping[str, tuple[str, ...]]) -> None:
        self.parents = parents
        self.done: list[str] = []
        self.at_once = self.most = 0
        self._guard = threading.Lock()

    def __call__(self, name: str) -> None:
        with self._guard:
            assert set(self.parents[name]) <= set(self.done)
            self.at_once += 1
            self.most = max(self.most, self.at_once)
        time.sleep(0.01)
        with self._guard:
            self.at_once -= 1
            self.done.append(name)


@pytest.mark.parametrize("at_once", [1, 2, 3, 64])
def test_every_node_runs_once_after_its_parents_and_never_too_many_at_once(at_once: int) -> None:
    work = Watched(DIAMOND)

    in_order(DIAMOND, work, at_once)

    assert sorted(work.done) == sorted(DIAMOND)
    assert work.most <= min(at_once, 3)


def test_two_nodes_that_depend_on_nothing_meet() -> None:
    meeting = threading.Barrier(2)

    in_order({"a": (), "b": ()}, lambda _: void(meeting.wait(WAIT_SECONDS)), 2)

    assert not meeting.broken


def void(_: object) -> None:
    """For work that gives something nobody wants."""


def test_an_error_lets_others_end_and_none_begin_and_all_errors_are_told() -> None:
    meeting = threading.Barrier(2)
    begun: list[str] = []

    def work(name: str) -> None:
        begun.append(name)
        meeting.wait(WAIT_SECONDS)
        raise RunError("FM-RUN-005", f"node {name} failed", where=name)

    with pytest.raises(RunError) as caught:
        in_order({"a": (), "b": (), "c": ()}, work, 2)

    assert sorted(begun) == ["a", "b"]
    assert caught.value.where == "a"
    assert "node b failed" in caught.value.details["also"]


def test_an_interrupt_waits_for_nobody() -> None:
    meeting, release = threading.Barrier(2), threading.Event()

    def work(name: str) -> None:
        meeting.wait(WAIT_SECONDS)
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt
        release.wait(WAIT_SECONDS)

    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        in_order({"a": (), "b": ()}, work, 2)

    assert time.monotonic() - begun < WAIT_SECONDS
    release.set()


def test_an_error_comes_before_a_pass_of_the_other_kind() -> None:
    meeting = threading.Barrier(2)

    def work(name: str) -> None:
        meeting.wait(WAIT_SECONDS)
        if name == "a":
            raise OtherPass
        raise RunError("FM-RUN-005", "node b failed")

    with pytest.raises(RunError):
        in_order({"a": (), "b": ()}, work, 2)
    meeting = threading.Barrier(1)
    with pytest.raises(OtherPass):
        in_order({"a": ()}, work, 2)


WIDE = """\
project: shop
connections: {lake: {type: lake, root: lake}}
pipelines:
  - pipeline: wide
    parallel: 3
    nodes:
      - name: recent
        read: {connection: lake, path: orders, incremental: {cursor: at, type: timestamp}}
      - {name: one, depends_on: [recent], write: {connection: lake, path: one, mode: append}}
      - {name: two, depends_on: [recent], write: {connection: lake, path: two, mode: append}}
      - {name: three, depends_on: [recent], write: {connection: lake, path: three, mode: append}}
      - {name: four, depends_on: [one, two], write: {connection: lake, path: four, mode: append}}
"""


@pytest.mark.parametrize("point", [None, "sink.after_commit:3", "landing.after_write"])
def test_nodes_side_by_side_land_a_moving_source_once_and_crash_safely(
    tmp_path: Path, point: str | None
) -> None:
    from tests.support.node_projects import add_events

    add_events(tmp_path, 1, 2, 3)
    (tmp_path / "lake/events").rename(tmp_path / "lake/orders")
    project = open_project(tmp_path, WIDE)
    if point is not None:
        with crash.armed(point), pytest.raises(failpoints.FailpointReached):
            project.run()

    summary = open_project(tmp_path).run()

    assert summary.exit_code == 0, summary.outcomes
    for name in ("one", "two", "three", "four"):
        assert table_rows(tmp_path / "lake" / name, "id") == [(1,), (2,), (3,)]
    assert all(finding.ok for finding in project.verify())


class SlowSink(ArrowSink):
    """A sink whose write waits while somebody else tries the same."""

    meeting: threading.Barrier

    def write(self, frame: Any, receipt: Receipt) -> WriteResult:
        self.meeting.wait(WAIT_SECONDS)
        self.meeting.wait(WAIT_SECONDS)
        return super().write(frame, receipt)


class SlowEngine(ArrowEngine):
    """An engine with such sinks."""

    def __init__(self, meeting: threading.Barrier) -> None:
        self._meeting = meeting

    def sink(self, spec: WriteSpec, windows: Sequence[Window], previous: SinkDone | None) -> Sink:
        sink = SlowSink(spec, tuple(windows), previous)
        sink.meeting = self._meeting
        return sink


def test_one_name_is_written_once_also_by_two_threads_of_a_function(tmp_path: Path) -> None:
    crash.append_rows(tmp_path, crash.ORDERS, [(1, 10)])
    story = crash.Story(tmp_path, "merge", pipelines=("copy",))
    meeting = threading.Barrier(2)
    coordinator = story.coordinator(Outside(engine=SlowEngine(meeting)))
    story.register(coordinator)
    batch = coordinator.create_batch()
    refused: list[str] = []

    def write_in_threads(inputs: Mapping[str, Any], run: Run) -> None:
        def write(amount: int) -> None:
            try:
                if amount == 2:
                    meeting.wait(WAIT_SECONDS)  # this one tries while the other one writes
                run.write(inputs[crash.ORDERS], "./out", mode="merge", name="same", keys=["id"])
            except SinkError as error:
                refused.append(error.code)
            if amount == 2:
                meeting.wait(WAIT_SECONDS)

        threads = [threading.Thread(target=write, args=(n,)) for n in (1, 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    result = coordinator.run_pipeline("copy", batch.batch_id or "", write_in_threads)

    assert result.status == "SUCCESS"
    assert refused == ["FM-SINK-006"]
    assert table_rows(tmp_path / "out") == [(1, 10)]
