"""Pipelines that join late, pause, leave, get another name or load again: no row missed or doubled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, QueryBuilder

import floodmark as fm

Append = Callable[..., str]


class Lake:
    """Pipelines that copy each of their upstreams to a target of their own, by append."""

    def __init__(self, coordinator: fm.Coordinator, root: Path) -> None:
        self.coordinator = coordinator
        self.root = root
        self.broken: set[str] = set()

    def function(self, pipeline: str, **options: Any) -> Callable[..., None]:
        def copy(inputs: Mapping[str, Any], run: Any) -> None:
            for upstream, rows in inputs.items():
                if pipeline in self.broken and upstream == list(inputs)[-1]:
                    raise RuntimeError("broken on purpose")
                name = Path(upstream).name
                run.write(rows, self.target(pipeline, name), **{"mode": "append", **options})

        return copy

    def target(self, pipeline: str, upstream: str) -> str:
        return str(self.root / "copies" / pipeline / upstream)

    def begin(self, grow: Append, *pipelines: str) -> str:
        """The pipelines have processed the first row of `orders`."""
        orders = grow("orders", 1)
        for pipeline in pipelines:
            self.coordinator.register(pipeline, [orders])
        self.work()
        return orders

    def work(self, **options: Any) -> fm.Batch:
        """What `floodmark run` does: plan, then run and finalize what is open, oldest first."""
        batch = self.coordinator.create_batch()
        for planned in self.coordinator.current_plan():
            paused = [
                p.name for p in self.coordinator.look.state().pipelines.values() if p.is_paused
            ]
            for pipeline in [p for p in planned.pipelines if p not in paused]:
                self.run(pipeline, str(planned.batch_id), **options)
            self.coordinator.finalize_batch(str(planned.batch_id))
        return batch

    def run(self, pipeline: str, batch_id: str, **options: Any) -> None:
        if pipeline in self.broken:
            with pytest.raises(RuntimeError, match="on purpose"):
                self.coordinator.run_pipeline(
                    pipeline, batch_id, self.function(pipeline, **options)
                )
        else:
            self.coordinator.run_pipeline(pipeline, batch_id, self.function(pipeline, **options))

    def ids(self, pipeline: str, upstream: str) -> list[int]:
        table = DeltaTable(self.target(pipeline, upstream))
        rows = QueryBuilder().register("t", table).execute("SELECT id FROM t").read_all()
        return sorted(rows["id"].to_pylist())

    def unsound(self) -> list[str]:
        return [f"{f.name}: {f.text}" for f in self.coordinator.verify() if not f.ok]


@pytest.fixture
def lake(coordinator: fm.Coordinator, tmp_path: Path) -> Lake:
    return Lake(coordinator, tmp_path)


def test_a_newcomer_is_first_brought_to_the_watermark(lake: Lake, grow: Append) -> None:
    orders = lake.begin(grow, "p")
    grow("orders", 2)
    lake.work()
    lake.coordinator.register("late", [orders])
    grow("orders", 3)

    batch = lake.coordinator.create_batch()
    kinds = [(b.kind, b.seq, b.pipelines) for b in lake.coordinator.current_plan()]
    lake.work()

    assert (batch.kind, batch.seeds) == ("forward", ("late",))
    assert kinds == [("seed", 3, ("late",)), ("forward", 4, ("p", "late"))]
    assert lake.ids("late", "orders") == lake.ids("p", "orders") == [1, 2, 3]
    assert lake.unsound() == []


def test_batches_of_a_pipeline_are_run_in_their_order(lake: Lake, grow: Append) -> None:
    orders = lake.begin(grow, "p")
    lake.coordinator.register("late", [orders])
    grow("orders", 2)
    batch = lake.coordinator.create_batch()
    seed = lake.coordinator.current_plan()[0]

    with pytest.raises(fm.FloodmarkError) as caught:
        lake.coordinator.run_pipeline("late", str(batch.batch_id), lake.function("late"))

    assert caught.value.code == "FM-CONTROL-008"
    assert caught.value.next == f"floodmark retry {seed.batch_id}"
    lake.coordinator.run_pipeline("late", str(seed.batch_id), lake.function("late"))
    lake.coordinator.run_pipeline("late", str(batch.batch_id), lake.function("late"))


def test_a_newcomer_is_seeded_even_if_nothing_is_new(lake: Lake, grow: Append) -> None:
    orders = lake.begin(grow, "p")
    lake.coordinator.register("late", [orders])

    preview = lake.coordinator.preview()
    batch = lake.work()

    assert (preview.kind, preview.status, preview.batch_id) == ("seed", "PENDING", None)
    assert batch.kind == "seed"
    assert lake.ids("late", "orders") == [1]
    assert lake.coordinator.create_batch().status == "NOOP"


def test_a_seed_waits_while_a_window_is_open(lake: Lake, grow: Append) -> None:
    orders = lake.begin(grow, "p")
    grow("orders", 2)
    lake.broken = {"p"}
    open_batch = lake.work()
    lake.coordinator.register("late", [orders])

    assert lake.coordinator.create_batch().batch_id == open_batch.batch_id
    lake.broken = set()
    lake.work()
    lake.work()

    assert lake.ids("late", "orders") == [1, 2]
    assert lake.unsound() == []


def test_a_pipeline_that_reads_one_more_upstream_gets_all_of_it(lake: Lake, grow: Append) -> None:
    orders, customers = grow("orders", 1), grow("customers", 10)
    lake.coordinator.register("p", [orders])
    lake.coordinator.register("q", [customers])
    lake.work()
    lake.coordinator.register("p", [orders, customers])
    grow("orders", 2)

    # In the seed orders have no news, so nothing can double; the sink cannot know and asks.
    lake.work(allow_full=True)

    assert lake.ids("p", "orders") == [1, 2]
    assert lake.ids("p", "customers") == [10]
    assert lake.unsound() == []


def test_a_seed_under_a_later_batch_cannot_be_cancelled(lake: Lake, grow: Append) -> None:
    orders = lake.begin(grow, "p")
    lake.coordinator.register("late", [orders])
    grow("orders", 2)
    lake.coordinator.create_batch()
    seed = lake.coordinator.current_plan()[0]

    with pytest.raises(fm.FloodmarkError) as caught:
        lake.coordinator.cancel(str(seed.batch_id))

    assert caught.value.code == "FM-CONTROL-010"
    lake.work()
    assert lake.ids("late", "orders") == [1, 2]


def test_a_paused_pipeline_holds_nothing_and_catches_up_when_resumed(
    lake: Lake, grow: Append
) -> None:
    lake.begin(grow, "p", "q")
    lake.coordinator.pause("q")
    lake.coordinator.pause("q")
    for number in (2, 3):
        grow("orders", number)
        lake.work()
    before = lake.ids("q", "orders")
    lake.coordinator.resume("q")
    grow("orders", 4)

    batch = lake.work()

    assert before == [1]
    assert batch.seeds == ("q",)
    assert lake.ids("q", "orders") == lake.ids("p", "orders") == [1, 2, 3, 4]
    assert lake.unsound() == []


def test_a_batch_that_was_begun_before_the_pause_is_finished_first(
    lake: Lake, grow: Append
) -> None:
    orders, customers = grow("orders", 1), grow("customers", 10)
    lake.coordinator.register("p", [orders])
    lake.coordinator.register("q", [orders, customers])
    lake.broken = {"q"}  # writes orders, fails before customers
    first = lake.work()
    lake.coordinator.pause("q")
    advanced = lake.coordinator.finalize_batch(str(first.batch_id))
    grow("orders", 2)
    lake.work()
    lake.broken = set()
    lake.coordinator.resume("q")
    owed = lake.coordinator.create_batch()
    lake.work()
    lake.work()

    assert advanced == (orders,)
    assert (owed.batch_id, owed.reused) == (first.batch_id, True)
    assert lake.ids("q", "orders") == [1, 2]
    assert lake.ids("q", "customers") == [10]
    assert lake.unsound() == []


def test_pausing_gives_a_window_back_that_nobody_has_begun(lake: Lake, grow: Append) -> None:
    orders = grow("orders", 1)
    lake.coordinator.register("p", [orders])
    batch = lake.coordinator.create_batch()
    lake.coordinator.pause("p")
    status = lake.coordinator.status(str(batch.batch_id))[0].status
    lake.coordinator.resume("p")

    lake.work()

    assert status == "CANCELLED"
    assert lake.ids("p", "orders") == [1]
    assert lake.unsound() == []


def test_a_pipeline_that_is_running_cannot_be_paused_or_removed(lake: Lake, grow: Append) -> None:
    orders = grow("orders", 1)
    lake.coordinator.register("p", [orders])
    batch = lake.coordinator.create_batch()
    lake.coordinator.record_run("p", str(batch.batch_id), status="RUNNING")

    for operation in (lake.coordinator.pause, lake.coordinator.unregister):
        with pytest.raises(fm.FloodmarkError) as caught:
            operation("p")
        assert caught.value.code == "FM-CONTROL-006"


def test_a_paused_pipeline_is_not_run(lake: Lake, grow: Append) -> None:
    orders = grow("orders", 1)
    lake.coordinator.register("p", [orders])
    lake.broken = {"p"}
    batch = lake.work()
    lake.coordinator.pause("p")

    with pytest.raises(fm.FloodmarkError) as caught:
        lake.coordinator.run_pipeline("p", str(batch.batch_id), lake.function("p"))

    assert caught.value.code == "FM-CONTROL-018"


def test_a_removed_pipeline_no_longer_holds_anything(lake: Lake, grow: Append) -> None:
    orders = grow("orders", 1)
    lake.coordinator.register("p", [orders])
    lake.coordinator.register("q", [orders])
    lake.broken = {"q"}
    batch = lake.work()
    lake.coordinator.unregister("q")
    lake.coordinator.unregister("q")

    assert lake.coordinator.finalize_batch(str(batch.batch_id)) == (orders,)
    assert list(lake.coordinator.look.state().pipelines) == ["p"]
    assert lake.unsound() == []


def test_a_pipeline_that_comes_back_after_its_removal_starts_from_the_beginning(
    lake: Lake, grow: Append
) -> None:
    orders = lake.begin(grow, "p", "q")
    lake.coordinator.unregister("q")
    grow("orders", 2)
    lake.work()
    lake.coordinator.register("q", [orders])

    lake.work(mode="overwrite")

    assert lake.ids("q", "orders") == [1, 2]
    assert lake.unsound() == []


def test_a_renamed_pipeline_goes_on_where_it_stands(lake: Lake, grow: Append) -> None:
    lake.begin(grow, "old")

    lake.coordinator.admin.rename("old", "new")
    grow("orders", 2)
    batch = lake.work()

    assert batch.pipelines == ("new",)
    assert (lake.ids("old", "orders"), lake.ids("new", "orders")) == ([1], [2])
    with pytest.raises(fm.FloodmarkError) as caught:
        lake.coordinator.admin.rename("new", "old")
    assert caught.value.code == "FM-CONTROL-019"


def test_a_refresh_loads_one_pipeline_again_and_moves_no_watermark(
    lake: Lake, grow: Append
) -> None:
    orders = lake.begin(grow, "p", "q")
    grow("orders", 2)
    lake.work()
    mark = lake.coordinator.checkpoints([orders])[0].version

    lake.coordinator.admin.refresh("q")
    batch = lake.work(mode="overwrite")

    assert (batch.kind, batch.pipelines) == ("seed", ("q",))
    assert lake.ids("q", "orders") == [1, 2]
    assert lake.coordinator.checkpoints([orders])[0].version == mark
    assert lake.unsound() == []


def test_a_refresh_waits_for_open_batches(lake: Lake, grow: Append) -> None:
    orders = grow("orders", 1)
    lake.coordinator.register("p", [orders])
    lake.coordinator.create_batch()

    with pytest.raises(fm.FloodmarkError) as caught:
        lake.coordinator.admin.refresh("p")

    assert caught.value.code == "FM-CONTROL-020"


@pytest.fixture
def processed(lake: Lake, grow: Append) -> str:
    """Three batches of one upstream, versions 0, 1 and 2, processed by p."""
    orders = lake.begin(grow, "p")
    for number in (2, 3):
        grow("orders", number)
        lake.work()
    return orders


def test_a_backfill_reads_the_range_again_and_leaves_the_watermark(
    lake: Lake, processed: str
) -> None:
    batch = lake.coordinator.backfill(
        processed, start=1, end=1, pipelines=["p"], allow_duplicates=True
    )
    lake.run("p", str(batch.batch_id))
    lake.run("p", str(batch.batch_id))

    assert (batch.kind, batch.window(processed).start, batch.window(processed).end) == (
        "backfill",
        1,
        1,
    )
    assert lake.ids("p", "orders") == [1, 2, 2, 3]
    assert lake.coordinator.checkpoints([processed])[0].version == 2
    assert lake.coordinator.status(str(batch.batch_id))[0].status == "COMPLETED"
    assert lake.unsound() == []


def test_a_backfill_into_an_append_target_is_refused_unless_duplicates_are_allowed(
    lake: Lake, processed: str
) -> None:
    batch = lake.coordinator.backfill(processed, start=1, end=1, pipelines=["p"])

    with pytest.raises(fm.FloodmarkError) as caught:
        lake.coordinator.run_pipeline("p", str(batch.batch_id), lake.function("p"))

    assert caught.value.code == "FM-SINK-021"
    assert lake.ids("p", "orders") == [1, 2, 3]


@pytest.mark.parametrize(("start", "end"), [(2, 1), (-1, 1), (1, 3)])
def test_only_what_is_committed_can_be_backfilled(
    lake: Lake, processed: str, start: int, end: int
) -> None:
    with pytest.raises(fm.FloodmarkError) as caught:
        lake.coordinator.backfill(processed, start=start, end=end, pipelines=["p"])

    assert caught.value.code == "FM-PLAN-014"


def test_a_pipeline_that_does_not_read_the_upstream_has_nothing_to_backfill(
    lake: Lake, processed: str, grow: Append
) -> None:
    """Seed 1115782 of a million: the pipeline was registered anew while the command planned."""
    lake.coordinator.register("p", [grow("customers", 1)])
    history = len(lake.coordinator.history())

    with pytest.raises(fm.FloodmarkError) as caught:
        lake.coordinator.backfill(processed, start=1, end=1, pipelines=["p"])

    assert caught.value.code == "FM-PLAN-014"
    assert "p reads" in str(caught.value.found)
    assert len(lake.coordinator.history()) == history


def test_an_old_range_merged_over_newer_rows_is_refused(lake: Lake, processed: str) -> None:
    batch = lake.coordinator.backfill(processed, start=1, end=1, pipelines=["p"])
    merge = lake.function("p", mode="merge", keys=["id"])

    with pytest.raises(fm.FloodmarkError) as caught:
        lake.coordinator.run_pipeline("p", str(batch.batch_id), merge)

    assert caught.value.code == "FM-SINK-022"


def test_a_range_that_ends_at_the_watermark_may_be_merged(lake: Lake, processed: str) -> None:
    batch = lake.coordinator.backfill(processed, start=1, end=2, pipelines=["p"])

    lake.run("p", str(batch.batch_id), mode="merge", keys=["id"])

    assert lake.ids("p", "orders") == [1, 2, 3]


def test_a_replay_is_the_same_batch_again_with_a_receipt_of_its_own(
    lake: Lake, processed: str, grow: Append
) -> None:
    first = lake.coordinator.status()[-1]

    batch = lake.coordinator.replay(first.batch_id, allow_duplicates=True)
    lake.run("p", str(batch.batch_id), allow_full=True)
    grow("orders", 4)
    lake.work()

    assert [w.end for w in batch.windows] == [w.end for w in first.windows.values()]
    assert lake.ids("p", "orders") == [1, 1, 2, 3, 4]
    assert lake.unsound() == []


def test_an_open_batch_cannot_be_replayed(lake: Lake, processed: str, grow: Append) -> None:
    grow("orders", 4)
    batch = lake.coordinator.create_batch()

    with pytest.raises(fm.FloodmarkError) as caught:
        lake.coordinator.replay(str(batch.batch_id))

    assert caught.value.code == "FM-PLAN-015"


def test_a_replay_does_not_run_beside_a_forward_run(
    lake: Lake, processed: str, grow: Append
) -> None:
    batch = lake.coordinator.replay(lake.coordinator.status()[0].batch_id, allow_duplicates=True)
    grow("orders", 4)
    forward = lake.coordinator.create_batch()
    lake.coordinator.record_run("p", str(forward.batch_id), status="RUNNING")

    with pytest.raises(fm.FloodmarkError) as caught:
        lake.coordinator.run_pipeline("p", str(batch.batch_id), lake.function("p"))

    assert caught.value.code == "FM-CONTROL-006"


def test_a_notebook_gets_the_exact_frames_of_a_run(lake: Lake, processed: str) -> None:
    batch_id = lake.coordinator.status()[0].batch_id

    frames = lake.coordinator.inputs(batch_id, "p")
    tables = lake.coordinator.open_frozen(batch_id)

    assert frames[processed].column("id").to_pylist() == [3]
    assert sorted(tables[processed].column("id").to_pylist()) == [1, 2, 3]
    assert lake.coordinator.frozen_set(batch_id) == {processed: 2}


def test_a_registry_as_a_mapping_is_registered_with_the_plan(lake: Lake, grow: Append) -> None:
    orders = grow("orders", 1)

    batch = lake.coordinator.create_batch([orders], registry={"p": [orders], "q": [orders]})
    held = lake.coordinator.finalize(str(batch.batch_id)).held

    assert batch.pipelines == ("p", "q")
    assert held[0].waiting_for == ("p", "q")


def test_without_readers_an_upstream_is_held_unless_the_weaker_rule_was_said(
    lake: Lake, grow: Append
) -> None:
    orders = grow("orders", 1)
    strict = lake.coordinator.create_batch([orders])
    held = lake.coordinator.finalize(str(strict.batch_id)).held
    lake.coordinator.cancel(str(strict.batch_id))

    batch = lake.coordinator.create_batch([orders], fallback="any_success")
    waiting = lake.coordinator.finalize(str(batch.batch_id)).held
    lake.run("anybody", str(batch.batch_id))

    assert held[0].reason == "no pipeline is registered for it"
    assert batch.fallback == "any_success"
    assert "no pipeline has succeeded yet" in waiting[0].reason
    assert lake.coordinator.finalize_batch(str(batch.batch_id)) == (orders,)
    assert lake.unsound() == []


def test_a_lookup_is_frozen_with_the_batch_but_neither_holds_nor_triggers_it(
    lake: Lake, grow: Append
) -> None:
    orders, rates = grow("orders", 1), grow("rates", 7)
    lake.coordinator.register("p", [orders], lookups=[rates])
    seen: list[list[int]] = []

    def join(inputs: Mapping[str, Any], run: Any) -> None:
        seen.append(sorted(run.table(rates).column("id").to_pylist()))
        run.write(inputs[orders], lake.target("p", "orders"), mode="append")

    batch = lake.coordinator.create_batch()
    grow("rates", 8)
    lake.coordinator.run_pipeline("p", str(batch.batch_id), join)
    advanced = lake.coordinator.finalize_batch(str(batch.batch_id))

    assert seen == [[7]]
    assert advanced == (orders,)
    assert lake.coordinator.frozen_set(str(batch.batch_id)) == {orders: 0, rates: 0}
    assert lake.coordinator.create_batch().status == "NOOP"


def test_a_newcomer_starts_at_the_baseline_of_its_scope(lake: Lake, grow: Append) -> None:
    orders = grow("orders", 1)
    grow("orders", 2)
    upstream = fm.Upstream(orders, baseline=0)
    lake.coordinator.register("p", [upstream])
    lake.work()
    lake.coordinator.register("late", [upstream])

    lake.work()

    assert lake.ids("p", "orders") == lake.ids("late", "orders") == [2]
    assert lake.unsound() == []


def test_giving_up_what_nobody_reads_does_not_forgive_a_debt(lake: Lake, grow: Append) -> None:
    orders, unread = grow("orders", 1), grow("unread", 5)
    lake.coordinator.register("p", [orders])
    lake.coordinator.register("q", [orders])
    batch = lake.coordinator.create_batch([orders, unread])
    lake.broken = {"q"}
    for pipeline in ("p", "q"):
        lake.run(pipeline, str(batch.batch_id))
    lake.coordinator.pause("q")
    lake.coordinator.finalize_batch(str(batch.batch_id))

    lake.coordinator.cancel(str(batch.batch_id))
    lake.coordinator.cancel(str(batch.batch_id))
    lake.coordinator.resume("q")
    owed = lake.coordinator.create_batch([orders])

    assert (owed.batch_id, owed.reused) == (batch.batch_id, True)
    assert lake.coordinator.status(str(batch.batch_id))[0].window_status(unread) == "CANCELLED"


def test_what_a_paused_pipeline_has_begun_stays_with_it_when_the_other_reader_is_paused_too(
    lake: Lake, grow: Append
) -> None:
    orders = grow("orders", 1)
    lake.coordinator.register("p", [orders])
    lake.coordinator.register("q", [orders])
    batch = lake.coordinator.create_batch()
    lake.broken = {"q"}
    lake.run("q", str(batch.batch_id))
    lake.coordinator.pause("q")
    lake.coordinator.pause("p")
    lake.broken = set()

    lake.coordinator.resume("q")
    lake.coordinator.resume("p")
    lake.work()
    grow("orders", 2)
    lake.work()

    assert lake.coordinator.status(str(batch.batch_id))[0].status == "COMPLETED"
    assert lake.ids("p", "orders") == lake.ids("q", "orders") == [1, 2]
    assert lake.unsound() == []


def test_a_backfill_that_was_refused_can_be_given_up(lake: Lake, processed: str) -> None:
    batch = lake.coordinator.backfill(processed, start=1, end=1, pipelines=["p"])
    with pytest.raises(fm.FloodmarkError):
        lake.coordinator.run_pipeline("p", str(batch.batch_id), lake.function("p"))

    lake.coordinator.cancel(str(batch.batch_id))
    lake.coordinator.cancel(str(batch.batch_id))

    assert lake.coordinator.status(str(batch.batch_id))[0].status == "CANCELLED"
    assert lake.coordinator.current_plan() == ()
    assert lake.unsound() == []


def test_a_commit_that_only_sets_a_property_does_not_end_the_catch_up_by_feed(
    lake: Lake, grow: Append
) -> None:
    orders = lake.begin(grow, "p", "q")
    lake.coordinator.pause("q")
    grow("orders", 2)
    DeltaTable(orders).alter.set_table_properties({"note": "x"}, raise_if_not_exists=False)
    grow("orders", 3)
    lake.work()
    lake.coordinator.resume("q")

    batch = lake.work()

    assert [(w.method, w.start, w.end) for w in batch.windows] == [("feed", 1, 3)]
    assert lake.ids("q", "orders") == [1, 2, 3]


def test_a_replay_of_a_function_looks_up_the_version_of_its_batch(lake: Lake, grow: Append) -> None:
    orders, rates = grow("orders", 1), grow("rates", 7)
    lake.coordinator.register("p", [orders], lookups=[rates])
    seen: list[list[int]] = []

    def join(inputs: Mapping[str, Any], run: Any) -> None:
        seen.append(sorted(run.table(rates).column("id").to_pylist()))

    first = lake.coordinator.create_batch()
    lake.coordinator.run_pipeline("p", str(first.batch_id), join)
    lake.coordinator.finalize_batch(str(first.batch_id))
    grow("rates", 8)

    for batch in (
        lake.coordinator.replay(str(first.batch_id)),
        lake.coordinator.backfill(orders, start=0, end=0, pipelines=["p"]),
    ):
        lake.coordinator.run_pipeline("p", str(batch.batch_id), join)
        lake.coordinator.finalize_batch(str(batch.batch_id))

    assert seen == [[7], [7], [7, 8]]
