"""Two pipelines write to one table, and it is lost: a rebuild of one never takes the other's rows."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable
from tests.support import crash

import floodmark as fm
from floodmark.failpoints import FailpointReached
from floodmark.model.state import OnLostTarget

from .conftest import Append
from .test_lost_targets import copying, ids


class Shared:
    """p copies the rows 1, 2, ... and q the rows 101, 102, ... to one target."""

    def __init__(self, coordinator: fm.Coordinator, grow: Append, target: str) -> None:
        self.c, self.target, self._grow = coordinator, target, grow
        self.sources = {"p": grow("a", 1), "q": grow("b", 101)}
        for pipeline, source in self.sources.items():
            coordinator.register(pipeline, [source])
        self.batch_id = self.plan()
        for pipeline in self.sources:
            self.run(pipeline)
        coordinator.finalize_batch(self.batch_id)

    def plan(self) -> str:
        return str(self.c.create_batch().batch_id)

    def next_batch(self, number: int) -> None:
        self._grow("a", number)
        self._grow("b", 100 + number)
        self.batch_id = self.plan()

    def run(self, pipeline: str, choice: OnLostTarget | None = None) -> None:
        function = copying(self.sources[pipeline], self.target)
        self.c.run_pipeline(pipeline, self.batch_id, function, on_lost_target=choice)


@pytest.fixture
def shared(coordinator: fm.Coordinator, grow: Append, tmp_path: Path) -> Shared:
    return Shared(coordinator, grow, str(tmp_path / "both"))


def test_a_dropped_target_is_rebuilt_by_each_of_its_pipelines(shared: Shared) -> None:
    shutil.rmtree(shared.target)
    shared.next_batch(2)

    shared.run("p", "rebuild")
    shared.run("q", "rebuild")

    assert ids(shared.target) == [1, 2, 101, 102]


def test_an_emptied_target_of_two_pipelines_is_not_rebuilt_by_one(shared: Shared) -> None:
    DeltaTable(shared.target).delete()
    shared.next_batch(2)
    shared.run("q", "accept")

    with pytest.raises(fm.FloodmarkError, match="FM-SINK-018"):
        shared.run("p", "rebuild")

    assert ids(shared.target) == [102]


def test_a_rebuild_that_was_settled_gives_way_to_rows_that_came_meanwhile(
    coordinator: fm.Coordinator, grow: Append, tmp_path: Path
) -> None:
    target, a, b = str(tmp_path / "both"), grow("a", 1), grow("b", 101)
    coordinator.register("p", [a])
    first = str(coordinator.create_batch().batch_id)
    coordinator.run_pipeline("p", first, copying(a, target))
    coordinator.finalize_batch(first)
    DeltaTable(target).delete()
    grow("a", 2)
    second = str(coordinator.create_batch([a]).batch_id)
    with crash.armed("sink.before_commit"), pytest.raises(FailpointReached):
        coordinator.run_pipeline("p", second, copying(a, target), on_lost_target="rebuild")
    coordinator.register("q", [b])
    third = str(coordinator.create_batch([b]).batch_id)
    coordinator.run_pipeline("q", third, copying(b, target))

    with pytest.raises(fm.FloodmarkError, match="FM-SINK-018"):
        coordinator.run_pipeline("p", second, copying(a, target))
    assert ids(target) == [101]
    coordinator.run_pipeline("p", second, copying(a, target), on_lost_target="accept")

    assert ids(target) == [2, 101]
