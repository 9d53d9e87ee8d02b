"""What threads, broken tables and careless functions must not be able to do."""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.support.outsides import ON_ARROW, fold_journal

import floodmark as fm
from floodmark.control.journal.delta import DeltaEventLog
from floodmark.control.journal.journal import CommitConflict
from floodmark.control.published.reading import read_published
from floodmark.control.upkeep import upkeep
from floodmark.deltalog import Storage

Append = Callable[..., str]


def rows(path: str) -> int:
    found = read_published(path, Storage(), "SELECT id FROM t")
    return 0 if found is None else found.num_rows


def copying(source: str, target: str, **options: Any) -> Callable[[Mapping[str, Any], Any], None]:
    def copy(inputs: Mapping[str, Any], run: Any) -> None:
        run.write(inputs[source], target, **{"mode": "append", **options})

    return copy


def test_threads_that_compact_lose_no_event(
    coordinator: fm.Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "COMPACT_AFTER_FILES", 1)
    coordinator.register("first", ["./somewhere/a"])
    failures: list[BaseException] = []

    def register(number: int) -> None:
        try:
            for turn in range(8):
                coordinator.register(f"p{number}_{turn}", ["./somewhere/a"])
        except Exception as error:  # noqa: BLE001 a thread hands over whatever it met
            failures.append(error)

    threads = [threading.Thread(target=register, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    fresh = fm.Coordinator(coordinator.control, actor="fresh")
    assert len(fresh.look.state().pipelines) == 33
    assert [event.seq for event in fresh.history()] == list(range(1, fresh.look.state().seq + 1))


def test_a_handle_that_moved_on_is_not_a_compare_and_swap(
    coordinator: fm.Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator.register("p", ["./somewhere/a"])
    handles: list[DeltaTable] = []
    reached: list[str] = []

    class Seen(DeltaTable):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            handles.append(self)

    monkeypatch.setattr("deltalake.DeltaTable", Seen)
    log = DeltaEventLog(coordinator.control, Storage())
    tail = log.read(None)

    def others_come_first(point: str) -> None:
        if point == "journal.after_data_file" and not reached:
            reached.append(point)
            coordinator.register("q", ["./somewhere/a"])
            for handle in handles:
                handle.update_incremental()

    monkeypatch.setattr("floodmark.failpoints.reached", others_come_first)
    with pytest.raises(CommitConflict):
        log.append(tail.events, tail.position)

    assert handles
    assert reached

    assert set(fm.Coordinator(coordinator.control).look.state().pipelines) == {"p", "q"}


def test_a_broken_published_table_is_warned_about_and_changes_no_outcome(
    coordinator: fm.Coordinator, grow: Append, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    orders, target = grow("orders", 1), str(tmp_path / "copy")
    coordinator.register("p", [orders])
    batch_id = str(coordinator.create_batch([orders]).batch_id)
    for table in ("pipeline_checkpoints", "watermarks"):
        commit = Path(coordinator.control) / table / "_delta_log" / f"{0:020d}.json"
        commit.write_text("not json")

    with caplog.at_level(logging.WARNING):
        result = coordinator.run_pipeline("p", batch_id, copying(orders, target))
        advanced = coordinator.finalize_batch(batch_id)

    assert (result.status, advanced) == ("SUCCESS", (orders,))
    assert "FM-CONTROL-015" in caplog.text
    assert coordinator.admin.rebuild_tables()
    assert [finding.name for finding in coordinator.verify() if not finding.ok] == []


def test_a_rebuild_without_all_events_leaves_what_it_cannot_bring_back(
    coordinator: fm.Coordinator, grow: Append, tmp_path: Path
) -> None:
    orders, target = grow("orders", 1), str(tmp_path / "copy")
    coordinator.register("p", [orders])
    batch_id = str(coordinator.create_batch([orders]).batch_id)
    coordinator.run_pipeline("p", batch_id, copying(orders, target))
    coordinator.finalize_batch(batch_id)
    assert fold_journal(coordinator.control)
    shutil.rmtree(Path(coordinator.control) / "history")
    count = "SELECT count(*) AS n FROM t"
    before = read_published(f"{coordinator.control}/pipeline_checkpoints", Storage(), count)

    is_complete = fm.Coordinator(coordinator.control).admin.rebuild_tables()

    after = read_published(f"{coordinator.control}/pipeline_checkpoints", Storage(), count)
    assert not is_complete
    assert before is not None
    assert after is not None
    assert after.to_pylist() == before.to_pylist() == [{"n": 2}]


def test_events_that_history_does_not_hold_are_not_folded_away(
    coordinator: fm.Coordinator,
) -> None:
    coordinator.register("p", ["./somewhere/a"])
    coordinator.register("q", ["./somewhere/a"])
    history = f"{coordinator.control}/history"

    DeltaTable(history).delete("seq = 1")

    assert not fold_journal(coordinator.control)


def test_a_second_name_is_refused_while_the_first_is_open(
    coordinator: fm.Coordinator, grow: Append, tmp_path: Path
) -> None:
    orders = grow("orders", 1)
    coordinator.create_batch([orders])
    (tmp_path / "alias").symlink_to(orders)

    with pytest.raises(fm.FloodmarkError) as caught:
        coordinator.create_batch([str(tmp_path / "alias")])

    assert caught.value.code == "FM-PLAN-003"


def test_a_lost_control_store_does_not_append_everything_again(
    coordinator: fm.Coordinator, grow: Append, tmp_path: Path
) -> None:
    orders, target = grow("orders", 1, 2), str(tmp_path / "copy")
    coordinator.register("p", [orders])
    batch_id = str(coordinator.create_batch([orders]).batch_id)
    coordinator.run_pipeline("p", batch_id, copying(orders, target))
    shutil.rmtree(coordinator.control)
    fresh = fm.Coordinator(coordinator.control, actor="t", outside=ON_ARROW)
    fresh.register("p", [orders])
    batch_id = str(fresh.create_batch([orders]).batch_id)

    with pytest.raises(fm.FloodmarkError) as caught:
        fresh.run_pipeline("p", batch_id, copying(orders, target))

    assert caught.value.code == "FM-SINK-002"
    assert rows(target) == 2


def test_a_write_that_names_its_upstreams_is_judged_by_these_alone(
    coordinator: fm.Coordinator, grow: Append, tmp_path: Path
) -> None:
    orders, lists, target = grow("orders", 1), grow("lists", 7, feed=False), str(tmp_path / "copy")
    coordinator.register("p", [orders, lists])

    def batch(**options: Any) -> None:
        batch_id = str(coordinator.create_batch().batch_id)
        coordinator.run_pipeline("p", batch_id, copying(orders, target, **options))
        coordinator.finalize_batch(batch_id)

    batch()
    grow("orders", 2)
    grow("lists", 8)
    with pytest.raises(fm.FloodmarkError) as unsaid:
        batch()
    with pytest.raises(fm.FloodmarkError) as stranger:
        batch(upstreams=["./elsewhere"])
    batch(upstreams=orders)

    assert [unsaid.value.code, stranger.value.code] == ["FM-SINK-002", "FM-RUN-003"]
    assert "upstreams=" in str(unsaid.value)
    assert rows(target) == 2


def test_every_spelling_of_a_target_is_one_write(
    coordinator: fm.Coordinator, grow: Append, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    orders = grow("orders", 1)
    coordinator.register("p", [orders])
    batch_id = str(coordinator.create_batch([orders]).batch_id)

    def dies(inputs: Mapping[str, Any], run: Any) -> None:
        run.write(inputs[orders], "./lake/copy", mode="append")
        raise ValueError("after the write")

    with pytest.raises(ValueError, match="after the write"):
        coordinator.run_pipeline("p", batch_id, dies)
    coordinator.run_pipeline("p", batch_id, copying(orders, str(tmp_path / "lake" / "copy/")))

    assert rows(str(tmp_path / "lake" / "copy")) == 1


def test_a_write_that_failed_cannot_be_passed_over(
    coordinator: fm.Coordinator, grow: Append, tmp_path: Path
) -> None:
    orders = grow("orders", 1)
    coordinator.register("p", [orders])
    batch_id = str(coordinator.create_batch([orders]).batch_id)

    def careless(inputs: Mapping[str, Any], run: Any) -> None:
        try:
            run.write(inputs[orders], str(tmp_path / "copy"), mode="merge", keys=["nope"])
        except fm.FloodmarkError:
            return

    with pytest.raises(fm.FloodmarkError) as caught:
        coordinator.run_pipeline("p", batch_id, careless)

    assert caught.value.code == "FM-RUN-006"
    assert coordinator.finalize_batch(batch_id) == ()


def test_the_silence_of_a_run_elsewhere_proves_nothing(
    coordinator: fm.Coordinator, grow: Append, tmp_path: Path
) -> None:
    orders = grow("orders", 1)
    coordinator.register("dbt", [orders])
    batch_id = str(coordinator.create_batch([orders]).batch_id)
    coordinator.record_run("dbt", batch_id, status="RUNNING")

    with pytest.raises(fm.FloodmarkError) as caught:
        coordinator.run_pipeline("dbt", batch_id, copying(orders, str(tmp_path / "copy")))

    assert caught.value.code == "FM-CONTROL-006"
    assert coordinator.record_run("dbt", batch_id, status="SUCCESS").status == "SUCCESS"


def test_leaving_by_sys_exit_is_recorded(coordinator: fm.Coordinator, grow: Append) -> None:
    orders = grow("orders", 1)
    coordinator.register("p", [orders])
    batch_id = str(coordinator.create_batch([orders]).batch_id)

    def leave(inputs: Mapping[str, Any], run: Any) -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        coordinator.run_pipeline("p", batch_id, leave)

    assert coordinator.status(batch_id)[0].runs["p"].status == "FAILED"
