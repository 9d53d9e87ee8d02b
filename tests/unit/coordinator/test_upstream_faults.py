"""Faults of upstreams, from plan to finalize, on tables that delta-rs wrote."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, QueryBuilder, write_deltalake
from deltalake.schema import PrimitiveType
from tests.support.outsides import ON_ARROW

import floodmark as fm
from floodmark.errors import ConfigError, PlanError, SourceError


class Stage:
    """One upstream, one pipeline `p` that merges it by id, one coordinator without Spark."""

    def __init__(self, root: Path) -> None:
        self.up = str(root / "up")
        self.target = str(root / "copy")
        self.c = fm.Coordinator(str(root / "_control"), actor="tester", outside=ON_ARROW)
        self.seen: list[tuple[Any, ...]] = []

    def register(self, pipeline: str = "p", **options: Any) -> None:
        self.c.register(pipeline, [fm.Upstream(self.up, **options)])

    def append(self, *ids: int, feed: bool | None = None) -> None:
        setting = None if feed is None else {"delta.enableChangeDataFeed": str(feed).lower()}
        rows = pa.table({"id": pa.array(ids, pa.int64())})
        write_deltalake(self.up, rows, mode="append", configuration=setting)

    def switch_feed(self, state: str) -> None:
        DeltaTable(self.up).alter.set_table_properties({"delta.enableChangeDataFeed": state})

    def copy(self, inputs: Mapping[str, Any], run: Any) -> None:
        frame = inputs[self.up]
        columns = ("id", "_change_type", "_commit_version")
        self.seen = sorted(zip(*(frame[c].to_pylist() for c in columns), strict=True))
        run.write(frame.select(["id", *frame.column_names[-3:]]), self.target, **MERGE)

    def plan(self, **options: Any) -> fm.Window:
        return self.c.create_batch([self.up], **options).windows[0]

    def run(self, batch_id: str, **options: Any) -> tuple[str, ...]:
        self.c.run_pipeline("p", batch_id, self.copy, **options)
        return self.c.finalize_batch(batch_id)

    def step(self, **options: Any) -> fm.Window:
        """One batch from plan to finalize; returns its window."""
        batch = self.c.create_batch([self.up], **options)
        assert batch.batch_id is not None
        assert self.run(batch.batch_id) == (self.up,)
        return batch.windows[0]

    def ids(self) -> list[int]:
        table = DeltaTable(self.target)
        rows = QueryBuilder().register("t", table).execute("SELECT id FROM t ORDER BY id")
        return [row["id"] for row in pa.table(rows).to_pylist()]

    def log_file(self, version: int) -> Path:
        return Path(self.up) / "_delta_log" / f"{version:020d}.json"

    def problems(self) -> list[str]:
        return [finding.text for finding in self.c.verify() if not finding.ok]


MERGE: Mapping[str, Any] = {"mode": "merge", "keys": ["id"], "missing": "delete"}


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def refused(kind: type[Any], call: Any, *arguments: Any, **options: Any) -> Any:
    with pytest.raises(kind) as caught:
        call(*arguments, **options)
    assert caught.value.state
    assert caught.value.next
    return caught.value


# The feed: late, off, and what is said about it -------------------------------------------------------


@pytest.fixture
def late(stage: Stage) -> Stage:
    """Version 0 is processed; 1 without feed, 2 switches it on, 3 and 4 with it."""
    stage.append(1, 2, feed=False)
    return stage


def grow_with_late_feed(stage: Stage) -> None:
    stage.append(3)
    stage.switch_feed("true")
    stage.append(4)
    DeltaTable(stage.up).delete("id = 1")


def test_a_feed_enabled_late_is_a_snapshot_once_and_then_the_feed(late: Stage) -> None:
    late.register()
    late.step()
    grow_with_late_feed(late)

    window = late.step()

    assert (window.method, window.start, window.end) == ("snapshot", 1, 4)
    assert "is on only since version 2" in window.reason
    assert late.ids() == [2, 3, 4]
    late.append(5)
    assert late.step().method == "feed"
    assert late.ids() == [2, 3, 4, 5]
    assert late.problems() == []


def test_with_method_feed_the_snapshot_is_where_the_feed_was_enabled(late: Stage) -> None:
    late.register(method="feed")
    late.step()
    grow_with_late_feed(late)

    window = late.step()

    assert (window.method, window.start, window.end) == ("snapshot+feed", 1, 4)
    assert (window.rows, window.changes) == (5, frozenset({"insert", "delete"}))
    at_enabling = [(1, "insert", 2), (2, "insert", 2), (3, "insert", 2)]
    assert late.seen == sorted([*at_enabling, (4, "insert", 3), (1, "delete", 4)])
    assert late.ids() == [2, 3, 4]
    assert late.problems() == []


def test_with_method_feed_a_first_run_reads_the_changes_from_the_beginning(stage: Stage) -> None:
    stage.append(1, feed=True)
    stage.append(2)
    stage.register(method="feed")

    window = stage.step()

    assert (window.method, window.start, window.end) == ("feed", 0, 1)
    assert stage.seen == [(1, "insert", 0), (2, "insert", 1)]


def test_a_feed_switched_off_ends_the_window_and_the_next_one_is_a_snapshot(stage: Stage) -> None:
    stage.append(1, feed=True)
    stage.register()
    stage.step()
    stage.append(2)
    stage.switch_feed("false")
    stage.append(3)

    first, second = stage.step(), stage.step()

    assert (first.method, first.end) == ("feed", 1)
    assert "which switches the feed off" in first.reason
    assert (second.method, second.start, second.end) == ("snapshot", 2, 3)
    assert stage.ids() == [1, 2, 3]


def test_a_feed_gap_is_refused_where_a_snapshot_is_not_wanted(stage: Stage) -> None:
    stage.append(1, feed=True)
    stage.register(on_feed_gap="fail")
    stage.step()
    stage.append(2)
    stage.switch_feed("false")
    stage.append(3)
    stage.step()

    error = refused(PlanError, stage.plan)

    assert error.code == "FM-PLAN-020"
    assert "on_feed_gap: snapshot" in error.next
    stage.register(on_feed_gap="snapshot")
    assert stage.step().method == "snapshot"
    assert stage.ids() == [1, 2, 3]


def test_method_snapshot_always_reads_the_whole_table(stage: Stage) -> None:
    stage.append(1, feed=True)
    stage.register(method="snapshot")
    stage.step()
    stage.append(2)

    window = stage.step()

    assert (window.method, window.start, window.end, window.rows) == ("snapshot", 1, 1, 2)
    assert stage.c.create_batch([stage.up]).status == "NOOP"


# Baselines --------------------------------------------------------------------------------------------


def test_a_baseline_reads_what_follows_and_nothing_before(stage: Stage) -> None:
    stage.append(1, feed=True)
    stage.append(2)
    stage.append(3)
    stage.register(baseline=1)

    window = stage.step()

    assert (window.method, window.start, window.end) == ("feed", 2, 2)
    assert stage.ids() == [3]
    assert stage.problems() == []


def test_latest_means_the_newest_version_at_the_first_registration(stage: Stage) -> None:
    stage.append(1, feed=True)
    stage.register(baseline="latest")
    assert stage.c.create_batch([stage.up]).status == "NOOP"
    stage.append(2)
    stage.register(baseline="latest")

    stage.step()

    assert stage.ids() == [2]
    assert stage.problems() == []


def test_a_pipeline_that_joins_a_scope_with_a_baseline_starts_there_too(stage: Stage) -> None:
    stage.append(1, feed=True)
    stage.register(baseline="latest")
    stage.append(2)
    stage.step()
    stage.register("q", baseline="latest")
    stage.append(3)

    batch = stage.c.create_batch([stage.up])

    starts = {b.kind: b.windows[stage.up].start for b in stage.c.status() if b.kind == "seed"}
    assert starts == {"seed": 1}
    assert (batch.windows[0].start, set(batch.pipelines)) == (2, {"p", "q"})


@pytest.mark.parametrize(
    ("baseline", "found"),
    [(9, "newest version 2"), (0, "is on only since version 2")],
    ids=["beyond the table", "before the feed"],
)
def test_a_baseline_that_cannot_be_kept_is_refused(stage: Stage, baseline: int, found: str) -> None:
    stage.append(1, feed=False)
    stage.append(2)
    stage.switch_feed("true")
    stage.register(baseline=baseline)

    error = refused(PlanError, stage.plan)

    assert error.code == "FM-PLAN-021"
    assert found in error.found


def test_pipelines_of_a_scope_must_say_the_same_about_an_upstream(stage: Stage) -> None:
    stage.append(1, feed=True)
    stage.register("p", baseline=0)
    stage.c.register("q", [stage.up])

    error = refused(PlanError, stage.plan)

    assert error.code == "FM-PLAN-022"
    assert "p: baseline=0; q: the defaults" in error.found
    stage.register("q", baseline=0)
    stage.append(2)
    assert stage.plan().start == 1


@pytest.mark.parametrize(
    "options",
    [{"baseline": -1}, {"baseline": "first"}, {"method": "guess"}, {"on_recreated": "drop"}],
)
def test_an_option_that_is_not_there_is_refused(options: dict[str, Any]) -> None:
    error = refused(ConfigError, fm.Upstream, "lake/a", **options)
    assert error.code == "FM-CONFIG-007"
    assert error.allowed


# What is lost before it was planned ---------------------------------------------------------------------


@pytest.fixture
def cleaned(stage: Stage) -> Stage:
    """Version 0 is processed; the commits 1 and 2 are gone, a checkpoint at 3 is left, then 4."""
    stage.append(1, feed=True)
    stage.register()
    stage.step()
    for number in (2, 3, 4):
        stage.append(number)
    DeltaTable(stage.up).create_checkpoint()
    stage.append(5)
    for version in range(3):
        os.unlink(stage.log_file(version))
    return stage


def test_versions_that_are_gone_before_they_were_planned_are_refused(cleaned: Stage) -> None:
    error = refused(PlanError, cleaned.plan)

    assert error.code == "FM-PLAN-006"
    assert "--on-lost-range snapshot" in error.next


def test_a_snapshot_replaces_versions_that_are_gone(cleaned: Stage) -> None:
    window = cleaned.step(on_lost_range="snapshot")

    assert (window.method, window.start, window.end) == ("snapshot", 1, 4)
    assert "versions 1-2 are gone" in window.reason
    assert cleaned.ids() == [1, 2, 3, 4, 5]
    cleaned.append(6)
    assert cleaned.step().method == "feed"
    assert cleaned.problems() == []


def test_an_accepted_loss_is_recorded_and_what_is_left_is_read(cleaned: Stage) -> None:
    window = cleaned.step(on_lost_range="accept")

    assert (window.method, window.start, window.end, window.rows) == ("lost", 1, 4, 2)
    assert "versions 1-2 are gone from the log: the loss was accepted" in window.reason
    assert cleaned.ids() == [1, 4, 5]
    cleaned.append(6)
    assert cleaned.step().method == "feed"
    assert cleaned.ids() == [1, 4, 5, 6]
    assert cleaned.problems() == []


def test_a_policy_of_the_upstream_says_the_same_as_the_call(cleaned: Stage) -> None:
    cleaned.register(on_lost_range="snapshot")
    assert cleaned.step().method == "snapshot"


# What is lost after it was planned ----------------------------------------------------------------------


@pytest.fixture
def planned(stage: Stage) -> Stage:
    """Version 0 is processed, 1 to 3 are planned by feed; 2 deletes a row."""
    stage.append(1, feed=True)
    stage.register()
    stage.step()
    stage.append(2, 20)
    DeltaTable(stage.up).delete("id = 20")
    stage.append(3)
    assert stage.plan().method == "feed"
    return stage


def open_batch(stage: Stage) -> str:
    (batch,) = stage.c.current_plan()
    return str(batch.batch_id)


def lose_commit(stage: Stage) -> None:
    # A checkpoint keeps the table whole; only the history has a hole.
    DeltaTable(stage.up).create_checkpoint()
    os.unlink(stage.log_file(2))


def lose_files(stage: Stage) -> None:
    shutil.rmtree(Path(stage.up) / "_change_data", ignore_errors=True)
    removed = [
        json.loads(line)["remove"]["path"]
        for line in stage.log_file(2).read_text().splitlines()
        if "remove" in json.loads(line)
    ]
    for path in removed:
        os.unlink(Path(stage.up) / path)


LOSSES = {
    "hole in the log": (lose_commit, "FM-SOURCE-002"),
    "VACUUM": (lose_files, "FM-SOURCE-006"),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_lost_range_fails_the_run_before_any_write_and_names_the_way(
    planned: Stage, loss: str
) -> None:
    lose, code = LOSSES[loss]
    lose(planned)
    batch_id = open_batch(planned)

    error = refused(SourceError, planned.run, batch_id)

    assert error.code == code
    assert f"floodmark retry {batch_id} --on-lost-range snapshot" in error.next
    assert planned.ids() == [1]
    assert planned.c.status(batch_id)[0].status == "FAILED"


@pytest.mark.parametrize("loss", LOSSES)
def test_a_lost_range_is_read_as_a_snapshot_of_the_same_batch(planned: Stage, loss: str) -> None:
    lose, code = LOSSES[loss]
    lose(planned)
    batch_id = open_batch(planned)

    assert planned.run(batch_id, on_lost_range="snapshot") == (planned.up,)

    (batch,) = planned.c.status(batch_id)
    assert planned.ids() == [1, 2, 3]
    assert batch.windows[planned.up].method == "feed"
    assert batch.amended["p"][planned.up].method == "snapshot"
    assert code in batch.shown_window(planned.up).reason
    assert [event.kind for event in planned.c.history()].count("AMEND") == 1
    assert planned.problems() == []


@pytest.mark.parametrize("loss", LOSSES)
def test_an_accepted_loss_reads_what_follows_the_last_hole(planned: Stage, loss: str) -> None:
    LOSSES[loss][0](planned)
    batch_id = open_batch(planned)

    planned.run(batch_id, on_lost_range="accept")

    assert planned.seen == [(3, "insert", 3)]
    assert planned.ids() == [1, 3]
    amended = planned.c.status(batch_id)[0].amended["p"][planned.up]
    assert (amended.method, amended.start, amended.end) == ("lost", 1, 3)
    assert planned.c.frozen_set(batch_id) == {planned.up: 3}
    planned.append(4)
    assert planned.step().method == "feed"
    assert planned.problems() == []


def test_an_amendment_stands_for_a_later_retry_of_the_same_pipeline(planned: Stage) -> None:
    lose_files(planned)
    batch_id = open_batch(planned)

    def breaks(inputs: Mapping[str, Any], run: Any) -> None:
        raise RuntimeError("later")

    with pytest.raises(RuntimeError):
        planned.c.run_pipeline("p", batch_id, breaks, on_lost_range="snapshot")
    planned.run(batch_id)

    assert planned.ids() == [1, 2, 3]


def test_a_window_that_can_be_read_is_not_touched_by_on_lost_range(planned: Stage) -> None:
    planned.run(open_batch(planned), on_lost_range="accept")

    assert planned.ids() == [1, 2, 3]
    assert "AMEND" not in [event.kind for event in planned.c.history()]


def test_where_the_snapshot_is_gone_too_only_accepting_is_left(planned: Stage) -> None:
    for file in Path(planned.up).glob("*.parquet"):
        os.unlink(file)
    batch_id = open_batch(planned)

    error = refused(SourceError, planned.run, batch_id, on_lost_range="snapshot")

    assert error.code == "FM-SOURCE-010"
    assert f"floodmark retry {batch_id} --on-lost-range accept" in error.next
    assert planned.run(batch_id, on_lost_range="accept") == (planned.up,)
    assert planned.ids() == [1]


def test_a_range_beyond_the_table_is_refused_or_accepted_as_lost(planned: Stage) -> None:
    os.unlink(planned.log_file(3))
    batch_id = open_batch(planned)

    error = refused(SourceError, planned.run, batch_id)

    assert error.code == "FM-SOURCE-001"
    assert "--on-lost-range accept" in error.next
    assert planned.run(batch_id, on_lost_range="accept") == (planned.up,)
    assert planned.seen == []


def test_an_unknown_way_forward_is_refused(planned: Stage) -> None:
    error = refused(ConfigError, planned.run, open_batch(planned), on_lost_range="hope")
    assert error.code == "FM-CONFIG-007"


# Another table in the same place --------------------------------------------------------------------------


def recreate(stage: Stage, *ids: int) -> None:
    shutil.rmtree(stage.up)
    stage.append(*ids, feed=True)


def test_a_recreated_table_is_refused(stage: Stage) -> None:
    stage.append(1, feed=True)
    stage.register()
    stage.step()
    recreate(stage, 7)

    error = refused(PlanError, stage.plan)

    assert error.code == "FM-PLAN-005"
    assert "on_recreated: reload" in error.next


def test_a_recreated_table_is_loaded_anew_where_that_is_said(stage: Stage) -> None:
    stage.append(1, feed=True)
    stage.append(2)
    stage.register(on_recreated="reload")
    stage.step()
    recreate(stage, 7)

    window = stage.step()

    assert (window.method, window.start, window.end, window.reload) == ("snapshot", 0, 0, True)
    assert "took the place of" in window.reason
    assert stage.ids() == [7]
    stage.append(8)
    assert (stage.step().start, stage.ids()) == (1, [7, 8])
    assert stage.problems() == []


def test_a_newcomer_begins_with_the_table_that_was_recreated(stage: Stage) -> None:
    stage.append(1, feed=True)
    stage.register(on_recreated="reload")
    stage.step()
    recreate(stage, 7)
    stage.register("q", on_recreated="reload")

    batch = stage.c.create_batch([stage.up])

    assert (batch.windows[0].reload, set(batch.pipelines)) == (True, {"p", "q"})
    assert [planned.kind for planned in stage.c.status()] == ["forward", "forward"]


def test_a_pipeline_that_was_paused_while_a_table_was_reloaded_is_brought_to_the_new_one(
    stage: Stage,
) -> None:
    stage.append(1, feed=True)
    stage.append(2)
    stage.register(on_recreated="reload")
    stage.register("q", on_recreated="reload")
    batch_id = str(stage.c.create_batch([stage.up]).batch_id)
    stage.c.run_pipeline("q", batch_id, lambda inputs, run: None)
    stage.run(batch_id)
    stage.c.pause("q")
    recreate(stage, 7)
    stage.step()
    stage.c.resume("q")
    stage.append(8)

    batch = stage.c.create_batch([stage.up])

    (seed,) = [b.windows[stage.up] for b in stage.c.status() if b.kind == "seed"]
    assert (seed.method, seed.start, seed.end) == ("snapshot", 0, 0)
    assert (batch.windows[0].start, set(batch.pipelines)) == (1, {"p", "q"})


def test_a_table_recreated_after_planning_can_be_given_up_and_then_reloaded(planned: Stage) -> None:
    planned.register(on_recreated="reload")
    recreate(planned, 7)
    batch_id = open_batch(planned)

    error = refused(SourceError, planned.run, batch_id)

    assert error.code == "FM-SOURCE-003"
    assert planned.run(batch_id, on_lost_range="accept") == (planned.up,)
    assert planned.step().reload
    assert planned.ids() == [7]
    assert planned.problems() == []


# Commits that change no rows, all rows, or the schema -------------------------------------------------------


def test_a_restored_upstream_gives_its_changes(stage: Stage) -> None:
    stage.append(1, feed=True)
    stage.register()
    stage.append(2)
    stage.step()
    DeltaTable(stage.up).restore(0)

    window = stage.step()

    assert (window.method, window.changes) == ("feed", frozenset({"delete"}))
    assert "restored by version 2" in window.reason
    assert stage.ids() == [1]


def test_an_overwritten_upstream_gives_its_changes(stage: Stage) -> None:
    stage.append(1, 2, feed=True)
    stage.register()
    stage.step()
    write_deltalake(stage.up, pa.table({"id": pa.array([2, 3], pa.int64())}), mode="overwrite")

    assert stage.step().method == "feed"
    assert stage.ids() == [2, 3]


def test_compaction_of_an_upstream_advances_with_no_rows(stage: Stage) -> None:
    stage.append(1, feed=True)
    stage.append(2)
    stage.register()
    stage.step()
    DeltaTable(stage.up).optimize.compact()

    window = stage.step()

    assert (window.method, window.versions, window.rows) == ("feed", 1, 0)
    assert stage.ids() == [1, 2]


def add_column(stage: Stage) -> None:
    DeltaTable(stage.up).alter.add_columns([Field("later", PrimitiveType("string"))])


@pytest.fixture
def widened(stage: Stage) -> Stage:
    """Version 0 is processed; 1 adds a row, 2 a column, 3 a row with it."""
    stage.append(1, feed=True)
    stage.register()
    stage.step()
    stage.append(2)
    add_column(stage)
    rows = pa.table({"id": pa.array([3], pa.int64()), "later": ["x"]})
    write_deltalake(stage.up, rows, mode="append")
    return stage


def test_a_new_column_ends_the_window_and_begins_the_next(widened: Stage) -> None:
    first, second = widened.step(), widened.step()

    assert (first.method, first.start, first.end) == ("feed", 1, 1)
    assert "which changes the schema" in first.reason
    assert (second.method, second.start, second.end) == ("feed", 2, 3)
    assert widened.ids() == [1, 2, 3]


def test_a_changed_schema_waits_for_somebody_to_look(widened: Stage) -> None:
    widened.register(on_schema_change="fail")
    widened.step()

    error = refused(PlanError, widened.plan)

    assert error.code == "FM-PLAN-007"
    assert "version 2 has another schema" in error.found
    widened.register(on_schema_change="evolve")
    assert widened.step().method == "feed"


def test_a_changed_schema_is_loaded_anew_where_that_is_said(widened: Stage) -> None:
    widened.register(on_schema_change="reload")
    widened.step()

    window = widened.step()

    assert (window.method, window.start, window.end) == ("snapshot", 2, 3)
    assert "version 2 changes the schema" in window.reason
    assert widened.ids() == [1, 2, 3]


def change_type(stage: Stage, *ids: str) -> None:
    rows = pa.table({"id": pa.array(ids, pa.string())})
    write_deltalake(stage.up, rows, mode="overwrite", schema_mode="overwrite")


def test_changes_before_a_type_change_are_read_with_their_own_type(stage: Stage) -> None:
    stage.append(1, feed=True)
    stage.register()
    stage.step()
    stage.append(2)
    change_type(stage, "a")

    window = stage.step()

    assert (window.method, window.start, window.end) == ("feed", 1, 1)
    assert "read by delta-rs" in window.reason
    assert stage.seen == [(2, "insert", 1)]


def test_a_type_change_itself_is_read_as_the_whole_table(stage: Stage) -> None:
    stage.append(1, feed=True)
    stage.register()
    stage.step()
    change_type(stage, "a", "b")

    window = stage.plan()

    assert (window.method, window.start, window.end, window.rows) == ("snapshot", 1, 1, 2)
    assert "changes the type of id" in window.reason


def test_a_feature_that_cannot_be_read_is_refused_by_name(stage: Stage) -> None:
    stage.append(1, feed=True)
    first = stage.log_file(0)
    lines = [json.loads(line) for line in first.read_text().splitlines()]
    for line in lines:
        if "protocol" in line:
            line["protocol"] = {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": ["timeTravelInReverse"],
                "writerFeatures": ["timeTravelInReverse"],
            }
    first.write_text("\n".join(map(json.dumps, lines)) + "\n")

    error = refused(PlanError, stage.plan)

    assert error.code == "FM-PLAN-009"
    assert "timeTravelInReverse" in error.found
