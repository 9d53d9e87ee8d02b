from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.outsides import fold_journal

import floodmark as fm

Append = Callable[..., str]


def finish(coordinator: fm.Coordinator, batch: fm.Batch) -> tuple[str, ...]:
    for pipeline in batch.pipelines:
        coordinator.record_run(pipeline, str(batch.batch_id), status="SUCCESS")
    return coordinator.finalize_batch(str(batch.batch_id))


def test_first_batch_is_a_snapshot_of_the_newest_version(
    coordinator: fm.Coordinator, grow: Append
) -> None:
    orders = grow("orders", 1, 2)
    grow("orders", 3)
    coordinator.register("p", [orders])

    batch = coordinator.create_batch([orders])

    window = batch.window(orders)
    assert (window.method, window.start, window.end) == ("snapshot", 0, 1)
    assert (window.rows, window.status, batch.seq) == (3, "PENDING", 1)


def test_second_batch_reads_only_the_change(coordinator: fm.Coordinator, grow: Append) -> None:
    orders = grow("orders", 1, 2)
    coordinator.register("p", [orders])
    finish(coordinator, coordinator.create_batch([orders]))
    grow("orders", 3)

    window = coordinator.create_batch([orders]).window(orders)

    assert (window.method, window.start, window.end, window.rows) == ("feed", 1, 1, 1)


def test_an_open_batch_is_returned_again_with_its_ranges(
    coordinator: fm.Coordinator, grow: Append
) -> None:
    orders = grow("orders", 1)
    coordinator.register("p", [orders])
    first = coordinator.create_batch([orders])
    grow("orders", 2)

    second = coordinator.create_batch([orders])

    assert second.reused
    assert second.batch_id == first.batch_id
    assert second.window(orders).end == 0


def test_no_news_journals_nothing(coordinator: fm.Coordinator, grow: Append) -> None:
    orders = grow("orders", 1)
    coordinator.register("p", [orders])
    finish(coordinator, coordinator.create_batch([orders]))
    before = coordinator.look.state().seq

    batch = coordinator.create_batch([orders])

    assert (batch.status, batch.batch_id, batch.seq) == ("NOOP", None, None)
    assert coordinator.look.state().seq == before


def test_max_versions_limits_a_feed_window_exactly_but_never_a_snapshot(
    coordinator: fm.Coordinator, grow: Append
) -> None:
    orders = grow("orders", 1)
    grow("orders", 2)
    coordinator.register("p", [orders])
    first = coordinator.create_batch([orders], max_versions=1)
    finish(coordinator, first)
    for number in range(3, 8):
        grow("orders", number)

    second = coordinator.create_batch([orders], max_versions=2)

    assert (first.window(orders).start, first.window(orders).end) == (0, 1)
    assert (second.window(orders).start, second.window(orders).end) == (2, 3)
    assert "limited to 2 versions" in second.window(orders).reason


def test_a_batch_covers_every_upstream_of_its_pipelines(
    coordinator: fm.Coordinator, grow: Append
) -> None:
    a, b, c, d = (grow(name, 1) for name in "abcd")
    coordinator.register("p", [a, b])
    coordinator.register("q", [b, c])
    coordinator.register("r", [d])

    batch = coordinator.create_batch([a])

    assert {w.upstream for w in batch.windows} == {a, b, c}
    assert batch.pipelines == ("p", "q")


def test_planning_another_upstream_of_a_held_pipeline_returns_the_open_batch(
    coordinator: fm.Coordinator, grow: Append
) -> None:
    a, b = grow("a", 1), grow("b", 1)
    coordinator.register("p", [a])
    coordinator.register("q", [a, b])
    batch = coordinator.create_batch([a])
    coordinator.record_run("q", str(batch.batch_id), status="SUCCESS")
    assert coordinator.finalize_batch(str(batch.batch_id)) == (b,)
    grow("b", 2)

    again = coordinator.create_batch([b])

    assert (again.reused, again.batch_id, again.unplanned) == (True, batch.batch_id, (b,))


def test_a_failed_dependent_holds_the_watermark_and_names_itself(
    coordinator: fm.Coordinator, grow: Append
) -> None:
    a, b = grow("a", 1), grow("b", 1)
    coordinator.register("p", [a, b])
    coordinator.register("q", [b])
    batch_id = str(coordinator.create_batch([a, b]).batch_id)
    coordinator.record_run("p", batch_id, status="SUCCESS")
    coordinator.record_run("q", batch_id, status="FAILED", error="no")

    outcome = coordinator.finalize(batch_id)

    assert outcome.advanced == (a,)
    assert [(h.upstream, h.waiting_for) for h in outcome.held] == [(b, ("q",))]
    assert coordinator.status(batch_id)[0].window_status(b) == "FAILED"


def test_finalizing_twice_equals_once(coordinator: fm.Coordinator, grow: Append) -> None:
    orders = grow("orders", 1)
    coordinator.register("p", [orders])
    batch = coordinator.create_batch([orders])
    assert finish(coordinator, batch) == (orders,)
    events = coordinator.look.state().seq

    assert coordinator.finalize_batch(str(batch.batch_id)) == ()
    assert coordinator.look.state().seq == events


def test_finalizing_an_older_batch_again_moves_no_watermark_back(
    coordinator: fm.Coordinator, grow: Append
) -> None:
    orders = grow("orders", 1)
    coordinator.register("p", [orders])
    older = coordinator.create_batch([orders])
    finish(coordinator, older)
    grow("orders", 2)
    newer = coordinator.create_batch([orders])
    finish(coordinator, newer)

    assert coordinator.finalize_batch(str(older.batch_id)) == ()

    assert [lag.committed for lag in coordinator.lag()] == [1]


def test_an_upstream_that_no_pipeline_reads_is_held_with_that_reason(
    coordinator: fm.Coordinator, grow: Append
) -> None:
    orders = grow("orders", 1)
    batch = coordinator.create_batch([orders])

    held = coordinator.finalize(str(batch.batch_id)).held

    assert held[0].reason == "no pipeline is registered for it"


def test_scopes_have_their_own_watermarks(coordinator: fm.Coordinator, grow: Append) -> None:
    orders = grow("orders", 1)
    coordinator.register("p", [orders], scope="one")
    coordinator.register("q", [orders], scope="two")
    one = coordinator.create_batch([orders], scope="one")
    finish(coordinator, one)

    two = coordinator.create_batch([orders], scope="two")

    assert two.status == "PENDING"
    assert two.pipelines == ("q",)
    assert two.seq == 2


def test_a_plan_keeps_the_registry_of_its_moment(coordinator: fm.Coordinator, grow: Append) -> None:
    orders = grow("orders", 1)
    coordinator.register("p", [orders])
    batch = coordinator.create_batch([orders])
    coordinator.register("q", [orders])

    assert finish(coordinator, batch) == (orders,)


def test_cancelled_ranges_are_planned_again_under_a_new_number(
    coordinator: fm.Coordinator, grow: Append
) -> None:
    orders = grow("orders", 1)
    coordinator.register("p", [orders])
    first = coordinator.create_batch([orders])
    coordinator.cancel(str(first.batch_id))
    coordinator.cancel(str(first.batch_id))

    second = coordinator.create_batch([orders])

    assert (second.seq, second.window(orders).start) == (2, 0)
    assert coordinator.status(str(first.batch_id))[0].status == "CANCELLED"


def test_a_leased_batch_cannot_be_cancelled(coordinator: fm.Coordinator, grow: Append) -> None:
    orders = grow("orders", 1)
    coordinator.register("p", [orders])
    batch_id = str(coordinator.create_batch([orders]).batch_id)
    coordinator.record_run("p", batch_id, status="RUNNING")

    with pytest.raises(fm.FloodmarkError) as caught:
        coordinator.cancel(batch_id)

    assert caught.value.code == "FM-CONTROL-012"


def test_preview_writes_nothing(tmp_path: Path, coordinator: fm.Coordinator, grow: Append) -> None:
    orders = grow("orders", 1)

    batch = coordinator.preview([orders], register={"p": [orders]})

    assert (batch.batch_id, batch.pipelines, batch.status) == (None, ("p",), "PENDING")
    assert not (tmp_path / "_control").exists()


@pytest.mark.parametrize("statuses", [["RUNNING", "SUCCESS"], ["SUCCESS"], ["SUCCESS", "SUCCESS"]])
def test_external_runs_may_be_recorded_again(
    coordinator: fm.Coordinator, grow: Append, statuses: list[str]
) -> None:
    orders = grow("orders", 1)
    coordinator.register("dbt", [orders])
    batch_id = str(coordinator.create_batch([orders]).batch_id)

    for status in statuses:
        result = coordinator.record_run("dbt", batch_id, status=status, rows_written=7)  # type: ignore[arg-type]

    assert (result.status, result.rows_written) == ("SUCCESS", 7)


def test_success_is_final(coordinator: fm.Coordinator, grow: Append) -> None:
    orders = grow("orders", 1)
    coordinator.register("dbt", [orders])
    batch_id = str(coordinator.create_batch([orders]).batch_id)
    coordinator.record_run("dbt", batch_id, status="SUCCESS")

    with pytest.raises(fm.FloodmarkError) as caught:
        coordinator.record_run("dbt", batch_id, status="FAILED")

    assert caught.value.code == "FM-CONTROL-013"


def test_a_batch_folded_out_of_the_state_is_still_known(
    coordinator: fm.Coordinator, grow: Append
) -> None:
    orders = grow("orders", 1)
    coordinator.register("p", [orders])
    batch = coordinator.create_batch([orders])
    finish(coordinator, batch)
    grow("orders", 2)
    newest = coordinator.create_batch([orders])
    assert fold_journal(coordinator.control, keep_windows=0)
    later = fm.Coordinator(coordinator.control, actor="later")

    assert list(later.look.state().batches) == [newest.batch_id]
    assert later.frozen_set(str(batch.batch_id)) == {orders: 0}
    assert later.finalize_batch(str(batch.batch_id)) == ()
    repeat = later.run_pipeline("p", str(batch.batch_id), lambda inputs, run: None)
    assert (repeat.status, repeat.is_repeat) == ("SUCCESS", True)
    assert [event.seq for event in later.history()] == list(range(1, later.look.state().seq + 1))
    assert all(finding.ok for finding in later.verify())


BAD_CALLS: dict[str, tuple[str, Callable[[fm.Coordinator, Append], object]]] = {
    "unknown path": ("FM-PLAN-001", lambda c, g: c.create_batch(["./nowhere/table"])),
    "not a Delta table": ("FM-PLAN-002", lambda c, g: c.create_batch([str(Path(g("a")).parent)])),
    "empty list": ("FM-PLAN-004", lambda c, g: c.create_batch([])),
    "nothing registered": ("FM-PLAN-004", lambda c, g: c.create_batch()),
    "named twice": ("FM-PLAN-003", lambda c, g: c.create_batch([g("a"), g("a")])),
    "catalog name": ("FM-PLAN-030", lambda c, g: c.create_batch(["db.table"])),
    "no versions": ("FM-CONFIG-007", lambda c, g: c.create_batch([g("a")], max_versions=0)),
    "unknown pipeline": ("FM-CONTROL-005", lambda c, g: c.create_batch(pipelines=["p"])),
    "unknown batch": ("FM-CONTROL-004", lambda c, g: [c.create_batch([g("a")]), c.finalize("b")]),
    "odd name": ("FM-CONFIG-007", lambda c, g: c.register("a/b", [g("a")])),
    "schemas": ("FM-PLAN-030", lambda c, g: c.plan_schemas(["sales"])),
    "fallback": ("FM-CONFIG-007", lambda c, g: c.create_batch([g("a")], fallback="all")),  # type: ignore[arg-type]
    "bad status": ("FM-CONFIG-007", lambda c, g: c.record_run("p", "b", status="DONE")),  # type: ignore[arg-type]
    "no store": ("FM-CONTROL-001", lambda c, g: c.look.state()),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_calls_get_a_typed_error_that_says_what_state_the_data_is_in(
    coordinator: fm.Coordinator, grow: Append, name: str
) -> None:
    code, call = BAD_CALLS[name]

    with pytest.raises(fm.FloodmarkError) as caught:
        call(coordinator, grow)

    assert caught.value.code == code
    assert caught.value.state
    assert caught.value.next


def test_two_names_of_one_table_are_refused(
    tmp_path: Path, coordinator: fm.Coordinator, grow: Append
) -> None:
    orders = grow("orders", 1)
    (tmp_path / "alias").symlink_to(orders)

    with pytest.raises(fm.FloodmarkError) as caught:
        coordinator.create_batch([orders, str(tmp_path / "alias")])

    assert caught.value.code == "FM-PLAN-003"


def test_a_recreated_upstream_is_refused(
    tmp_path: Path, coordinator: fm.Coordinator, grow: Append
) -> None:
    orders = grow("orders", 1)
    coordinator.register("p", [orders])
    finish(coordinator, coordinator.create_batch([orders]))
    shutil.rmtree(orders)
    grow("orders", 1)
    grow("orders", 2)

    with pytest.raises(fm.FloodmarkError) as caught:
        coordinator.create_batch([orders])

    assert caught.value.code == "FM-PLAN-005"


def test_a_feed_off_upstream_names_the_statement_that_switches_it_on(
    coordinator: fm.Coordinator, grow: Append
) -> None:
    orders = grow("orders", 1, feed=False)
    coordinator.register("p", [orders])
    statement = (
        f"ALTER TABLE delta.`{orders}` SET TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    )

    window = coordinator.create_batch([orders]).window(orders)
    findings = coordinator.admin.doctor([orders])

    assert statement in window.reason
    assert statement in [finding.next for finding in findings]


def test_a_feed_off_upstream_advances_by_snapshots(
    coordinator: fm.Coordinator, grow: Append
) -> None:
    orders = grow("orders", 1, feed=False)
    coordinator.register("p", [orders])
    finish(coordinator, coordinator.create_batch([orders]))
    grow("orders", 2, feed=False)

    batch = coordinator.create_batch([orders])

    window = batch.window(orders)
    assert (window.method, window.start, window.end, window.rows) == ("snapshot", 1, 1, 2)
    assert finish(coordinator, batch) == (orders,)


def test_registering_a_name_in_another_scope_is_refused(
    coordinator: fm.Coordinator, grow: Append
) -> None:
    orders = grow("orders", 1)
    coordinator.register("p", [orders])

    with pytest.raises(fm.FloodmarkError) as caught:
        coordinator.register("p", [orders], scope="other")

    assert caught.value.code == "FM-CONTROL-011"


def test_running_without_spark_says_so_before_any_lease(tmp_path: Path, grow: Append) -> None:
    orders, coordinator = grow("orders", 1), fm.Coordinator(str(tmp_path / "_control"))
    coordinator.register("p", [orders])
    batch_id = str(coordinator.create_batch([orders]).batch_id)

    with pytest.raises(fm.FloodmarkError) as caught:
        coordinator.run_pipeline("p", batch_id, lambda inputs, run: None)

    assert caught.value.code == "FM-RUN-004"
    assert not coordinator.status(batch_id)[0].runs
