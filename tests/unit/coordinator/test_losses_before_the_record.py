"""Rows that were committed, never recorded, and then taken away: found, and settled like any loss."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.support import crash
from tests.support.outsides import AFTER_A_CRASH

import floodmark as fm
from floodmark.errors import SinkError
from floodmark.failpoints import FailpointReached
from floodmark.model.receipt import Receipt
from floodmark.model.state import OnLostTarget
from floodmark.sinks import RecoverableSink
from floodmark.testing import ArrowEngine

from .conftest import Append
from .test_lost_targets import applied, copying, ids


@pytest.mark.parametrize("choice", ["rebuild", "accept"])
def test_the_first_write_crashed_before_its_record_and_then_the_target_was_emptied(
    coordinator: fm.Coordinator, grow: Append, tmp_path: Path, choice: OnLostTarget
) -> None:
    source, target = grow("orders", 1), str(tmp_path / "copy")
    coordinator.register("p", [source])
    batch_id = str(coordinator.create_batch([source]).batch_id)
    function = copying(source, target)
    with crash.armed("run.before_done"), pytest.raises(FailpointReached):
        coordinator.run_pipeline("p", batch_id, function)
    DeltaTable(target).delete()

    with pytest.raises(fm.FloodmarkError, match="FM-SINK-016"):
        coordinator.run_pipeline("p", batch_id, function)
    coordinator.run_pipeline("p", batch_id, function, on_lost_target=choice)

    assert ids(target) == [1]
    assert coordinator.finalize_batch(batch_id) == (source,)
    grow("orders", 2)
    applied(coordinator, source, function)
    assert ids(target) == [1, 2]


def test_a_loss_between_a_settlement_and_its_record_is_found(
    coordinator: fm.Coordinator, grow: Append, tmp_path: Path
) -> None:
    source, target = grow("orders", 1), str(tmp_path / "copy")
    coordinator.register("p", [source])
    function = copying(source, target)
    applied(coordinator, source, function)
    grow("orders", 2)
    batch_id = str(coordinator.create_batch([source]).batch_id)
    shutil.rmtree(target)
    with crash.armed("run.before_done"), pytest.raises(FailpointReached):
        coordinator.run_pipeline("p", batch_id, function, on_lost_target="accept")
    DeltaTable(target).delete()

    with pytest.raises(fm.FloodmarkError, match="FM-SINK-016"):
        coordinator.run_pipeline("p", batch_id, function)
    coordinator.run_pipeline("p", batch_id, function, on_lost_target="accept")
    assert ids(target) == [2]


def renamed(coordinator: fm.Coordinator, source: str, target: str) -> None:
    """A pipeline with one batch in its target gets the name p."""
    coordinator.register("old", [source])
    batch_id = str(coordinator.create_batch([source]).batch_id)
    coordinator.run_pipeline("old", batch_id, copying(source, target))
    coordinator.finalize_batch(batch_id)
    coordinator.admin.rename("old", "p")


def test_a_renamed_pipeline_knows_what_its_targets_lost(
    coordinator: fm.Coordinator, grow: Append, tmp_path: Path
) -> None:
    source, target = grow("orders", 1), str(tmp_path / "copy")
    renamed(coordinator, source, target)
    DeltaTable(target).delete()
    grow("orders", 2)
    function = copying(source, target)
    batch_id = str(coordinator.create_batch([source]).batch_id)

    with pytest.raises(fm.FloodmarkError, match="FM-SINK-016"):
        coordinator.run_pipeline("p", batch_id, function)
    with pytest.raises(fm.FloodmarkError, match="FM-SINK-018"):  # the old name's receipts stand
        coordinator.run_pipeline("p", batch_id, function, on_lost_target="rebuild")
    shutil.rmtree(target)
    coordinator.run_pipeline("p", batch_id, function, on_lost_target="rebuild")
    assert ids(target) == [1, 2]


def test_a_renamed_pipeline_goes_on_in_a_target_that_lost_nothing(
    coordinator: fm.Coordinator, grow: Append, tmp_path: Path
) -> None:
    source, target = grow("orders", 1), str(tmp_path / "copy")
    renamed(coordinator, source, target)
    for number in (2, 3):
        grow("orders", number)
        applied(coordinator, source, copying(source, target))
    assert ids(target) == [1, 2, 3]


def test_a_replay_does_not_put_a_lost_target_back_to_where_it_ends(
    coordinator: fm.Coordinator, grow: Append, tmp_path: Path
) -> None:
    source, target = grow("orders", 1), str(tmp_path / "copy")
    coordinator.register("p", [source])
    function = copying(source, target)
    applied(coordinator, source, function)
    grow("orders", 2)
    second = applied(coordinator, source, function)
    grow("orders", 3)
    applied(coordinator, source, function)
    batch_id = str(coordinator.replay(second, allow_duplicates=True).batch_id)
    with crash.armed("run.after_done"), pytest.raises(FailpointReached):
        coordinator.run_pipeline("p", batch_id, function)
    DeltaTable(target).restore(2)

    with pytest.raises(fm.FloodmarkError, match="FM-SINK-018"):
        coordinator.run_pipeline("p", batch_id, function, on_lost_target="rebuild")

    assert ids(target) == [1, 2, 3]


def test_a_pipeline_that_was_removed_in_the_middle_of_a_run_can_come_back(
    coordinator: fm.Coordinator, after_a_crash: fm.Coordinator, grow: Append, tmp_path: Path
) -> None:
    source, target = grow("orders", 1), str(tmp_path / "copy")
    coordinator.register("p", [source])
    function = copying(source, target, mode="overwrite")
    batch_id = str(coordinator.create_batch([source]).batch_id)
    with crash.armed("run.before_done"), pytest.raises(FailpointReached):
        coordinator.run_pipeline("p", batch_id, function)
    after_a_crash.unregister("p")
    coordinator.register("p", [source])
    grow("orders", 2)

    applied(coordinator, source, function)

    assert ids(target) == [1, 2]


class DroppingWhatIsLost(ArrowEngine):
    """Somebody else drops a lost target right after it was looked at."""

    def sink(self, spec: Any, windows: Any, previous: Any) -> Any:
        inner = super().sink(spec, windows, previous)
        assert isinstance(inner, RecoverableSink)
        look = inner.loss

        def loss(receipt: Receipt) -> SinkError | None:
            found = look(receipt)
            if found is not None:
                shutil.rmtree(spec.target)
            return found

        return SimpleNamespace(
            committed=inner.committed,
            check=inner.check,
            write=inner.write,
            resolved=inner.resolved,
            loss=loss,
        )


def test_a_lost_target_that_is_dropped_while_it_is_settled_is_looked_at_again(
    coordinator: fm.Coordinator, grow: Append, tmp_path: Path
) -> None:
    source, target = grow("orders", 1), str(tmp_path / "copy")
    coordinator.register("p", [source])
    batch_id = str(coordinator.create_batch([source]).batch_id)
    function = copying(source, target)
    with crash.armed("run.before_done"), pytest.raises(FailpointReached):
        coordinator.run_pipeline("p", batch_id, function)
    DeltaTable(target).delete()
    outside = replace(AFTER_A_CRASH, engine=DroppingWhatIsLost())
    dropping = fm.Coordinator(coordinator.control, actor="tester", outside=outside)

    with pytest.raises(fm.FloodmarkError, match=r"FM-SINK-018.*changed while it was looked at"):
        dropping.run_pipeline("p", batch_id, function, on_lost_target="rebuild")
    coordinator.run_pipeline("p", batch_id, function)

    assert ids(target) == [1]
    assert coordinator.finalize_batch(batch_id) == (source,)
