"""A target that was dropped, recreated, restored or emptied: refused, and two ways out of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from tests.support import crash

import floodmark as fm
from floodmark.failpoints import FailpointReached
from floodmark.model.state import OnLostTarget

Append = Callable[..., str]
Function = Callable[[Mapping[str, Any], Any], None]


@pytest.fixture
def target(tmp_path: Path) -> str:
    return str(tmp_path / "copy")


def ids(path: str) -> list[int]:
    rows = QueryBuilder().register("t", DeltaTable(path)).execute("SELECT id FROM t ORDER BY id")
    return [row["id"] for row in pa.table(rows).to_pylist()]


def copying(source: str, *targets: str, mode: str = "append") -> Function:
    keys = {"keys": ["id"]} if mode == "merge" else {}

    def copy(inputs: Mapping[str, Any], run: Any) -> None:
        for target in targets:
            run.write(inputs[source], target, mode=mode, **keys)

    return copy


def applied(
    coordinator: fm.Coordinator,
    source: str,
    function: Function,
    on_lost_target: OnLostTarget | None = None,
) -> str:
    """One batch from plan to finalize; returns its id."""
    batch_id = str(coordinator.create_batch([source]).batch_id)
    coordinator.run_pipeline("p", batch_id, function, on_lost_target=on_lost_target)
    assert coordinator.finalize_batch(batch_id) == (source,)
    return batch_id


def drop(target: str) -> None:
    shutil.rmtree(target)


def recreate(target: str) -> None:
    shutil.rmtree(target)
    write_deltalake(target, pa.table({"id": pa.array([77], pa.int64())}))


def restore(target: str) -> None:
    DeltaTable(target).restore(0)


def truncate(target: str) -> None:
    DeltaTable(target).delete()


def replace_rows(target: str) -> None:
    write_deltalake(target, pa.table({"id": pa.array([88], pa.int64())}), mode="overwrite")


class Attack(NamedTuple):
    """What somebody does to the target, how it is refused, and which rows it leaves."""

    act: Callable[[str], None]
    code: str
    left: list[int]


ATTACKS = [
    Attack(drop, "FM-SINK-007", []),
    Attack(recreate, "FM-SINK-007", [77]),
    Attack(restore, "FM-SINK-009", [1]),
    Attack(truncate, "FM-SINK-016", []),
    Attack(replace_rows, "FM-SINK-016", [88]),
]


def prepared(
    coordinator: fm.Coordinator, grow: Append, target: str, mode: str
) -> tuple[str, Function]:
    """Two batches in the target, a third one ready to be planned."""
    source = grow("orders", 1)
    function = copying(source, target, mode=mode)
    coordinator.register("p", [source])
    applied(coordinator, source, function)
    grow("orders", 2)
    applied(coordinator, source, function)
    grow("orders", 3)
    assert ids(target) == [1, 2]
    return source, function


def refused(coordinator: fm.Coordinator, source: str, function: Function) -> fm.FloodmarkError:
    batch_id = str(coordinator.create_batch([source]).batch_id)
    with pytest.raises(fm.FloodmarkError) as caught:
        coordinator.run_pipeline("p", batch_id, function)
    return caught.value


def problems(coordinator: fm.Coordinator) -> list[str]:
    return [f"{finding.name}: {finding.text}" for finding in coordinator.verify() if not finding.ok]


@pytest.mark.parametrize("mode", ["append", "merge"])
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.act.__name__)
def test_a_lost_target_is_refused_and_then_rebuilt(
    coordinator: fm.Coordinator, grow: Append, target: str, attack: Attack, mode: str
) -> None:
    source, function = prepared(coordinator, grow, target, mode)
    attack.act(target)

    error = refused(coordinator, source, function)
    assert error.code == attack.code
    assert "--on-lost-target rebuild" in str(error.next)
    assert (ids(target) if Path(target).exists() else []) == attack.left

    applied(coordinator, source, function, "rebuild")
    assert ids(target) == [1, 2, 3]
    grow("orders", 4)
    applied(coordinator, source, function)
    assert ids(target) == [1, 2, 3, 4]
    assert problems(coordinator) == []


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.act.__name__)
def test_a_loss_that_is_accepted_stays_and_the_batches_go_on(
    coordinator: fm.Coordinator, grow: Append, target: str, attack: Attack
) -> None:
    source, function = prepared(coordinator, grow, target, "append")
    attack.act(target)
    assert refused(coordinator, source, function).code == attack.code

    applied(coordinator, source, function, "accept")
    assert ids(target) == sorted([3, *attack.left])
    grow("orders", 4)
    applied(coordinator, source, function)
    assert ids(target) == sorted([3, 4, *attack.left])
    assert problems(coordinator) == []


def dying_after_the_commit(coordinator: fm.Coordinator, batch_id: str, function: Function) -> None:
    with crash.armed("sink.after_commit"), pytest.raises(FailpointReached):
        coordinator.run_pipeline("p", batch_id, function)


@pytest.mark.parametrize(("version", "before"), [(1, [1, 2]), (2, [1, 2, 3])])
def test_accepting_a_restore_neither_skips_nor_doubles_the_batch_under_way(
    coordinator: fm.Coordinator, grow: Append, target: str, version: int, before: list[int]
) -> None:
    source, function = prepared(coordinator, grow, target, "append")
    batch_id = str(coordinator.create_batch([source]).batch_id)
    dying_after_the_commit(coordinator, batch_id, function)
    write_deltalake(target, pa.table({"id": pa.array([99], pa.int64())}), mode="append")
    DeltaTable(target).restore(version)
    assert ids(target) == before

    applied(coordinator, source, function, "accept")
    assert ids(target) == [1, 2, 3]
    grow("orders", 4)
    applied(coordinator, source, function)
    assert ids(target) == [1, 2, 3, 4]
    assert problems(coordinator) == []


def test_a_rebuild_that_dies_on_the_way_is_finished_by_the_normal_commands(
    coordinator: fm.Coordinator, grow: Append, target: str
) -> None:
    source, function = prepared(coordinator, grow, target, "append")
    restore(target)
    batch_id = str(coordinator.create_batch([source]).batch_id)
    for point in ("sink.before_commit", "sink.after_commit"):
        with crash.armed(point), pytest.raises(FailpointReached):
            coordinator.run_pipeline("p", batch_id, function, on_lost_target="rebuild")

    applied(coordinator, source, function)

    assert ids(target) == [1, 2, 3]
    assert problems(coordinator) == []


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_rebuild_leaves_the_other_targets_of_the_pipeline_alone(
    coordinator: fm.Coordinator, grow: Append, tmp_path: Path, lost: int
) -> None:
    source = grow("orders", 1)
    targets = [str(tmp_path / name) for name in "abc"]
    function = copying(source, *targets)
    coordinator.register("p", [source])
    applied(coordinator, source, function)
    for target in targets:
        write_deltalake(target, pa.table({"id": pa.array([50], pa.int64())}), mode="append")
    grow("orders", 2)
    drop(targets[lost])

    applied(coordinator, source, function, "rebuild")

    for number, target in enumerate(targets):
        assert ids(target) == ([1, 2] if number == lost else [1, 2, 50])
    assert problems(coordinator) == []


def test_a_rebuild_that_would_leave_out_an_earlier_upstream_is_refused(
    coordinator: fm.Coordinator, grow: Append, target: str
) -> None:
    source, other = grow("orders", 1), grow("other", 7)
    coordinator.register("p", [source, other])
    batch_id = str(coordinator.create_batch().batch_id)
    coordinator.run_pipeline("p", batch_id, copying(source, target))
    coordinator.finalize_batch(batch_id)
    coordinator.register("p", [source])
    grow("orders", 2)
    drop(target)
    batch_id = str(coordinator.create_batch().batch_id)

    with pytest.raises(fm.FloodmarkError) as caught:
        coordinator.run_pipeline("p", batch_id, copying(source, target), on_lost_target="rebuild")
    coordinator.run_pipeline("p", batch_id, copying(source, target), on_lost_target="accept")

    assert (caught.value.code, other in str(caught.value.found)) == ("FM-SINK-018", True)
    assert ids(target) == [2]


def test_a_seed_rebuilds_beside_an_upstream_of_which_nothing_is_processed(
    coordinator: fm.Coordinator, grow: Append, target: str
) -> None:
    source = grow("orders", 1)
    coordinator.register("first", [source])
    batch_id = str(coordinator.create_batch().batch_id)
    coordinator.run_pipeline("first", batch_id, lambda _inputs, _run: None)
    coordinator.finalize_batch(batch_id)
    coordinator.register("p", [source, grow("other", 7)])
    coordinator.create_batch()
    seed = next(str(b.batch_id) for b in coordinator.current_plan() if b.kind == "seed")

    def copy_and_break(inputs: Mapping[str, Any], run: Any) -> None:
        copying(source, target)(inputs, run)
        raise RuntimeError("broken on purpose")

    with pytest.raises(RuntimeError):
        coordinator.run_pipeline("p", seed, copy_and_break)
    drop(target)
    coordinator.run_pipeline("p", seed, copying(source, target), on_lost_target="rebuild")

    assert ids(target) == [1]


def test_a_rebuild_keeps_to_the_baseline(
    coordinator: fm.Coordinator, grow: Append, target: str
) -> None:
    source = grow("orders", 1)
    grow("orders", 2)
    function = copying(source, target, mode="merge")
    coordinator.register("p", [fm.Upstream(source, baseline=0)])
    applied(coordinator, source, function)
    assert ids(target) == [2]
    grow("orders", 3)
    drop(target)

    applied(coordinator, source, function, "rebuild")

    assert ids(target) == [2, 3]
    assert problems(coordinator) == []


def test_the_choice_does_nothing_to_targets_that_lost_nothing(
    coordinator: fm.Coordinator, grow: Append, target: str
) -> None:
    source, function = prepared(coordinator, grow, target, "append")
    applied(coordinator, source, function, "rebuild")

    assert ids(target) == [1, 2, 3]
    assert "TARGET" not in [event.kind for event in coordinator.history()]


def test_a_rebuild_does_not_remove_the_rows_of_another_pipeline(
    coordinator: fm.Coordinator, grow: Append, target: str
) -> None:
    source, function = prepared(coordinator, grow, target, "append")
    other = grow("others", 60)
    coordinator.register("q", [other], scope="other")
    batch_id = str(coordinator.create_batch([other], scope="other").batch_id)

    def add(inputs: Mapping[str, Any], run: Any) -> None:
        run.write(inputs[other], target, mode="append", allow_full=True)

    coordinator.run_pipeline("q", batch_id, add)
    truncate(target)
    DeltaTable(target).restore(0)
    batch_id = str(coordinator.create_batch([source]).batch_id)

    with pytest.raises(fm.FloodmarkError) as caught:
        coordinator.run_pipeline("p", batch_id, function, on_lost_target="rebuild")

    assert caught.value.code == "FM-SINK-018"
    assert ids(target) == [1]
    DeltaTable(target).restore(2)  # put back as it was: nothing is lost any more
    coordinator.run_pipeline("p", batch_id, function)
    assert ids(target) == [1, 2, 3, 60]


def test_deletes_with_a_condition_are_the_business_of_their_owner(
    coordinator: fm.Coordinator, grow: Append, target: str
) -> None:
    source, function = prepared(coordinator, grow, target, "append")
    DeltaTable(target).delete("id = 1")

    applied(coordinator, source, function)

    assert ids(target) == [2, 3]


def test_a_choice_that_does_not_exist_is_refused(coordinator: fm.Coordinator) -> None:
    choice: Any = "rebiuld"
    with pytest.raises(fm.FloodmarkError) as caught:
        coordinator.run_pipeline("p", "batch", lambda *_: None, on_lost_target=choice)

    assert caught.value.code == "FM-CONFIG-007"


@pytest.mark.parametrize("kind", ["backfill", "replay"])
@pytest.mark.parametrize("is_dropped", [False, True], ids=["emptied", "dropped"])
def test_a_lost_target_is_refused_by_a_backfill_too_and_still_by_the_next_batch(
    coordinator: fm.Coordinator, grow: Append, target: str, kind: str, is_dropped: bool
) -> None:
    orders = grow("orders", 1)
    copy = copying(orders, target, mode="merge")
    coordinator.register("p", [orders])
    first = applied(coordinator, orders, copy)
    grow("orders", 2)
    applied(coordinator, orders, copy)
    if is_dropped:
        shutil.rmtree(target)
    else:
        DeltaTable(target).delete()

    if kind == "replay":
        again = coordinator.replay(first, allow_stale=True)
    else:
        again = coordinator.backfill(orders, start=0, end=0, pipelines=["p"], allow_stale=True)
    again_id = str(again.batch_id)
    with pytest.raises(fm.FloodmarkError) as caught:
        coordinator.run_pipeline("p", again_id, copy)
    assert caught.value.code == ("FM-SINK-007" if is_dropped else "FM-SINK-016")
    assert f"floodmark retry {again_id} --on-lost-target accept" in str(caught.value.next)
    with pytest.raises(fm.FloodmarkError) as rebuilt:
        coordinator.run_pipeline("p", again_id, copy, on_lost_target="rebuild")
    assert rebuilt.value.code == "FM-SINK-018"

    coordinator.run_pipeline("p", again_id, copy, on_lost_target="accept")
    coordinator.finalize_batch(again_id)
    assert ids(target) == [1]
    grow("orders", 3)
    with pytest.raises(fm.FloodmarkError) as later:
        applied(coordinator, orders, copy)
    assert later.value.code == caught.value.code
    (batch,) = coordinator.current_plan()
    coordinator.run_pipeline("p", str(batch.batch_id), copy, on_lost_target="rebuild")
    assert ids(target) == [1, 2, 3]
