"""Upstreams without versions: windows of time, one step of a count each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from tests.support.outsides import ON_ARROW, fold_journal

import floodmark as fm
from floodmark.control.published.reading import read_published
from floodmark.coordinator import Outside
from floodmark.errors import FloodmarkError
from floodmark.model.clock import FrozenClock
from floodmark.model.file_marks import any_mark
from floodmark.model.marks import decoded

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
INSTANT = pa.timestamp("us", "UTC")


def at(minutes: float) -> datetime:
    """A time, in minutes after noon."""
    return NOON + timedelta(minutes=minutes)


def mark(minutes: float) -> str:
    return f'{{"type":"timestamp","value":"{at(minutes):%Y-%m-%dT%H:%M:%S.%f}Z"}}'


class Lake:
    """A folder of Parquet files, a coordinator without Spark, and pipelines that copy."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.up = root / "events"
        self.clock = FrozenClock(at(600))
        self.c = self.coordinator()
        self.calls: list[tuple[str, list[int]]] = []
        """(pipeline, ids it got), in order."""

    def coordinator(self) -> fm.Coordinator:
        return self.opened(str(self.root / "control"))

    def opened(self, control: str, outside: Outside = ON_ARROW) -> fm.Coordinator:
        """A coordinator on another store, at the time of this one."""
        outside = replace(outside, clock=self.clock)
        return fm.Coordinator(control, actor="tester", outside=outside)

    def add(self, *rows: tuple[int, float | None], kind: pa.DataType = INSTANT) -> None:
        """One file with (id, minutes) rows."""
        times = [None if minutes is None else at(minutes) for _, minutes in rows]
        table = pa.table(
            {"id": pa.array([i for i, _ in rows], pa.int64()), "at": pa.array(times, INSTANT)}
        )
        self.write(table.set_column(1, "at", table["at"].cast(kind)))

    def write(self, table: pa.Table, **options: Any) -> None:
        self.up.mkdir(exist_ok=True)
        pq.write_table(table, self.up / f"{len(list(self.up.iterdir())):03}.parquet", **options)

    def upstream(self, **options: Any) -> fm.Upstream:
        return fm.Upstream(str(self.up), **{"time_column": "at", **options})

    def register(self, *pipelines: str, **options: Any) -> None:
        for pipeline in pipelines or ("copy",):
            self.c.register(pipeline, [self.upstream(**options)])

    def copy(self, pipeline: str, *, fails: bool = False) -> Callable[..., None]:
        def function(inputs: Mapping[str, Any], run: Any) -> None:
            frame = inputs[str(self.up)]
            self.calls.append((pipeline, sorted(frame["id"].to_pylist())))
            if fails:
                raise RuntimeError("not today")
            run.write(frame, str(self.root / "sinks" / pipeline), mode="append")

        return function

    def step(self, *pipelines: str) -> fm.Batch:
        """Plan, run every pipeline that is asked for, finalize."""
        batch = self.c.create_batch()
        for open_batch in self.c.look.state().open_batches() if batch.batch_id else ():
            for pipeline in pipelines or open_batch.required:
                if open_batch.upstreams_of(pipeline):
                    self.c.run_pipeline(pipeline, open_batch.batch_id, self.copy(pipeline))
            self.c.finalize_batch(open_batch.batch_id)
        return batch

    def ids(self, pipeline: str = "copy") -> list[int]:
        """What a pipeline's target holds."""
        table = DeltaTable(self.root / "sinks" / pipeline)
        rows = pa.table(QueryBuilder().register("t", table).execute("SELECT id FROM t").read_all())
        return sorted(rows["id"].to_pylist())

    def published(self, table: str) -> list[dict[str, Any]]:
        rows = read_published(f"{self.c.control}/{table}", self.c.storage, "SELECT * FROM t")
        assert rows is not None
        return list(rows.to_pylist())

    def refused(self, code: str) -> FloodmarkError:
        with pytest.raises(FloodmarkError) as caught:
            self.c.create_batch()
        assert caught.value.code == code
        return caught.value


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


# What a batch holds -------------------------------------------------------------------------------


def test_a_first_batch_holds_everything_and_the_next_what_is_new(lake: Lake) -> None:
    lake.add((1, 1), (2, 2))
    lake.register()
    first = lake.step()
    lake.add((3, 2.5), (4, 3))
    second = lake.step()

    assert [lake.ids(), lake.calls] == [[1, 2, 3, 4], [("copy", [1, 2]), ("copy", [3, 4])]]
    (window,) = first.windows
    assert (window.kind, window.method, window.rows) == ("time", "query", 2)
    assert (window.start_mark, window.end_mark) == (None, mark(2))
    (window,) = second.windows
    assert (window.start_mark, window.end_mark, window.start, window.end) == (
        mark(2),
        mark(3),
        1,
        1,
    )
    assert "older value is not seen" in window.reason
    assert all(finding.ok for finding in lake.c.verify()), lake.c.verify()


def test_nothing_new_is_no_batch_and_a_late_row_with_an_older_value_is_not_seen(
    lake: Lake,
) -> None:
    lake.add((1, 1), (2, 2))
    lake.register()
    lake.step()
    lake.add((3, 1.5), (4, 2))

    batch = lake.c.create_batch()

    assert (batch.status, batch.batch_id) == ("NOOP", None)


def test_both_bounds_are_frozen_before_anything_is_read(lake: Lake) -> None:
    lake.add((1, 1), (2, 2))
    lake.register()
    batch = lake.c.create_batch()
    lake.add((3, 3))

    lake.c.run_pipeline("copy", str(batch.batch_id), lake.copy("copy"))

    assert lake.ids() == [1, 2]


def test_a_retry_reads_the_same_rows(lake: Lake) -> None:
    lake.add((1, 1))
    lake.register()
    batch = str(lake.c.create_batch().batch_id)
    with pytest.raises(RuntimeError):
        lake.c.run_pipeline("copy", batch, lake.copy("copy", fails=True))
    lake.add((2, 2))

    lake.c.run_pipeline("copy", batch, lake.copy("copy"))

    assert lake.calls == [("copy", [1]), ("copy", [1])]


def test_values_of_the_future_wait_and_do_not_move_the_mark_past_what_is_to_come(
    lake: Lake,
) -> None:
    lake.add((1, 1), (2, 5_000_000))
    lake.register()

    (window,) = lake.step().windows

    assert (lake.ids(), window.end_mark) == ([1], mark(1))
    assert "1 newer row waits to settle" in window.reason


def test_settle_keeps_the_end_behind_now(lake: Lake) -> None:
    lake.add((1, 590), (2, 595), (3, 600))
    lake.register(settle="5m")
    lake.step()
    lake.clock.at = at(605)
    lake.step()

    assert lake.calls == [("copy", [1, 2]), ("copy", [3])]


def test_a_day_is_taken_once_it_is_over(lake: Lake) -> None:
    days = [date(2026, 2, 28), date(2026, 3, 1)]
    lake.write(pa.table({"id": pa.array([1, 2], pa.int64()), "at": pa.array(days, pa.date32())}))
    lake.register()
    lake.step()
    lake.clock.at = datetime(2026, 3, 2, 0, 0, 1, tzinfo=UTC)
    lake.step()

    assert lake.calls == [("copy", [1]), ("copy", [2])]
    assert lake.c.checkpoints()[0].mark == '{"type":"date","value":"2026-03-01"}'


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (pa.timestamp("ms", "UTC"), "timestamp"),
        (pa.timestamp("us", "Asia/Tokyo"), "timestamp"),
        (pa.timestamp("us"), "timestamp_ntz"),
    ],
)
def test_marks_are_typed_and_exact(lake: Lake, kind: pa.DataType, expected: str) -> None:
    micro = 1e-3 / 60 if kind.unit == "ms" else 1e-6 / 60
    lake.add((1, 1), (2, 1 + micro), kind=kind)
    lake.register()
    lake.step()
    lake.add((3, 1 + 2 * micro), kind=kind)
    lake.step()

    assert lake.calls == [("copy", [1, 2]), ("copy", [3])]
    found = decoded(str(lake.c.checkpoints()[0].mark))
    assert (found.type, found.instant) == (expected, at(1 + 2 * micro))


def test_files_without_statistics_and_those_of_spark_are_looked_into(lake: Lake) -> None:
    table = pa.table(
        {"id": pa.array([1, 2, 3], pa.int64()), "at": pa.array([at(1), at(2), at(9_000)], INSTANT)}
    )
    lake.write(table, use_deprecated_int96_timestamps=True)
    lake.write(table.slice(0, 1), write_statistics=False)
    lake.register()

    (window,) = lake.c.create_batch().windows

    assert (window.rows, window.end_mark) == (3, mark(2))


def test_partitions_hidden_files_and_the_case_of_the_column_are_as_in_spark(lake: Lake) -> None:
    lake.add((1, 1))
    (lake.up / "_SUCCESS").write_bytes(b"")
    (lake.up / ".part.crc").write_bytes(b"x")
    lake.register(time_column="AT")

    assert lake.step().windows[0].rows == 1


# What is refused ----------------------------------------------------------------------------------


def test_rows_without_a_time_are_refused_with_their_number(lake: Lake) -> None:
    lake.add((1, 1), (2, None), (3, None))
    lake.register()

    assert "2 rows" in str(lake.refused("FM-PLAN-024").found)


def test_rows_without_a_time_can_be_left_out_for_good(lake: Lake) -> None:
    lake.add((1, 1), (2, None))
    lake.register(on_null_time="ignore")
    lake.step()

    assert lake.ids() == [1]


def test_a_column_that_is_no_time_is_refused(lake: Lake) -> None:
    lake.add((1, 1))
    lake.register(time_column="id")

    assert "id is of type" in str(lake.refused("FM-PLAN-025").found)


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"id": pa.array([1], pa.int64())}),
        pa.table({"id": pa.array([1]), "at": pa.array([NOON], pa.timestamp("ns", "UTC"))}),
    ],
)
def test_files_that_cannot_be_gone_by_are_refused(lake: Lake, table: pa.Table) -> None:
    lake.write(table)
    lake.register()

    lake.refused("FM-PLAN-025")


def test_a_folder_that_spark_would_pass_over_is_refused(lake: Lake) -> None:
    lake.add((1, 1))
    (lake.up / "more").mkdir()
    lake.register()

    assert "more" in str(lake.refused("FM-PLAN-025").found)


@pytest.mark.parametrize("is_there", [True, False])
def test_a_folder_without_a_file_is_not_taken_for_no_news(lake: Lake, *, is_there: bool) -> None:
    if is_there:
        lake.up.mkdir()
    lake.register()

    lake.refused("FM-PLAN-001")


def test_what_was_processed_by_time_does_not_go_on_by_another_column(lake: Lake) -> None:
    lake.add((1, 1))
    lake.register()
    lake.step()
    lake.register(time_column="AT")

    error = lake.refused("FM-PLAN-023")

    assert "state reset" in str(error.next)


def test_what_was_processed_by_versions_does_not_go_on_by_time_until_it_is_reset(
    lake: Lake,
) -> None:
    rows = pa.table({"id": pa.array([1], pa.int64()), "at": pa.array([at(1)], INSTANT)})
    write_deltalake(lake.up, rows)
    lake.c.register("copy", [str(lake.up)])
    lake.step()
    lake.register()
    lake.refused("FM-PLAN-023")

    lake.c.admin.reset(str(lake.up))

    assert lake.c.create_batch().windows[0].kind == "time"


@pytest.mark.parametrize(
    "options",
    [
        {"baseline": 5},
        {"baseline": "yesterday"},
        {"settle": "soon"},
        {"method": "feed"},
        {"time_column": " "},
        {"time_column": None, "settle": "5m"},
        {"time_column": None, "format": "orc"},
        {"time_column": None, "baseline": "2026-01-01T00:00:00Z"},
    ],
)
def test_options_that_do_not_go_together_are_refused(lake: Lake, options: dict[str, Any]) -> None:
    with pytest.raises(FloodmarkError) as caught:
        lake.upstream(**options)
    assert caught.value.code == "FM-CONFIG-007"


def test_a_delta_table_read_by_time_is_not_reset_to_a_version_before_its_first_batch(
    lake: Lake,
) -> None:
    write_deltalake(lake.up, pa.table({"id": [1], "at": pa.array([at(1)], INSTANT)}))
    lake.register()

    with pytest.raises(FloodmarkError) as caught:
        lake.c.admin.reset(str(lake.up), to_version=0)

    assert caught.value.code == "FM-CONFIG-007"
    assert lake.c.create_batch().windows[0].kind == "time"


def test_a_time_upstream_is_neither_backfilled_nor_reset_by_versions(lake: Lake) -> None:
    lake.add((1, 1))
    lake.register()
    lake.step()
    with pytest.raises(FloodmarkError) as caught:
        lake.c.backfill(str(lake.up), start=0, end=0, pipelines=["copy"])
    assert caught.value.code == "FM-PLAN-014"
    with pytest.raises(FloodmarkError) as caught:
        lake.c.admin.reset(str(lake.up), to_version=0)
    assert caught.value.code == "FM-CONFIG-007"


# Where a batch starts -----------------------------------------------------------------------------


def test_a_baseline_in_time_leaves_out_what_lies_before_it(lake: Lake) -> None:
    lake.add((1, 1), (2, 2), (3, 3))
    lake.register(baseline=f"{at(1):%Y-%m-%dT%H:%M:%SZ}")
    lake.step()

    assert lake.ids() == [2, 3]
    assert all(finding.ok for finding in lake.c.verify())


def test_latest_means_what_follows_the_newest_value_at_registration(lake: Lake) -> None:
    lake.add((1, 1))
    lake.register(baseline="latest")
    lake.add((2, 2))
    lake.register(baseline="latest")
    lake.step()

    assert lake.ids() == [2]


@pytest.mark.parametrize("baseline", ["2026-03-01T12:00:00", "2026-03-01"])
def test_a_baseline_of_another_type_is_refused(lake: Lake, baseline: str) -> None:
    lake.add((1, 1))
    lake.register(baseline=baseline)

    lake.refused("FM-PLAN-025")


def test_a_reset_begins_from_the_beginning(lake: Lake) -> None:
    lake.add((1, 1))
    lake.register()
    lake.step()
    lake.c.admin.reset(str(lake.up))

    (window,) = lake.c.create_batch().windows

    assert (window.start, window.end, window.start_mark, window.rows) == (0, 0, None, 1)


# Pipelines that are behind ------------------------------------------------------------------------


def test_a_newcomer_is_seeded_with_all_that_is_committed(lake: Lake) -> None:
    lake.add((1, 1))
    lake.register("a")
    lake.step()
    lake.add((2, 2))
    lake.step()
    lake.register("a", "b")
    lake.add((3, 3))
    lake.step()

    assert lake.ids("a") == lake.ids("b") == [1, 2, 3]
    assert lake.calls[2:] == [("b", [1, 2]), ("a", [3]), ("b", [3])]


def test_a_paused_pipeline_catches_up_from_the_very_mark_it_stands_at(lake: Lake) -> None:
    lake.add((1, 1))
    lake.register("a", "b")
    lake.step()
    lake.c.pause("b")
    lake.add((2, 2))
    lake.step()
    lake.add((3, 3))
    lake.step()
    compacted(lake)
    lake.c.resume("b")
    lake.step()

    assert lake.ids("a") == lake.ids("b") == [1, 2, 3]
    assert lake.calls[-1] == ("b", [2, 3])
    assert all(finding.ok for finding in lake.c.verify())


def test_a_pipeline_that_is_refreshed_loads_everything_again(lake: Lake) -> None:
    lake.add((1, 1))
    lake.register("a", "b")
    lake.step()
    lake.c.admin.refresh("b")
    batch = lake.c.create_batch()

    (window,) = batch.windows
    assert (batch.kind, window.start_mark, window.end_mark) == ("seed", None, mark(1))
    with pytest.raises(FloodmarkError) as caught:  # appended, its rows would double
        lake.c.run_pipeline("b", str(batch.batch_id), lake.copy("b"))
    assert caught.value.code == "FM-SINK-002"


def test_the_state_keeps_one_mark_for_each_pipeline_and_forgets_those_that_left(
    lake: Lake,
) -> None:
    lake.add((1, 1))
    lake.register("a", "b")
    lake.step()
    lake.add((2, 2))
    lake.step()
    assert lake.c.look.state().seeded_marks == {(p, str(lake.up)): any_mark(mark(2)) for p in "ab"}

    lake.c.admin.rename("b", "c")
    lake.c.unregister("a")
    assert lake.c.look.state().seeded_marks == {("c", str(lake.up)): any_mark(mark(2))}

    lake.c.admin.refresh("c")
    assert lake.c.look.state().seeded_marks == {}


def compacted(lake: Lake) -> None:
    """The journal folded into one SNAPSHOT, seen by a new coordinator."""
    before = lake.c.look.state()
    fold_journal(lake.c.control, keep_windows=0)
    lake.c = lake.coordinator()
    after = lake.c.look.state()
    assert (after.marks, after.seeded_marks) == (before.marks, before.seeded_marks)


def test_an_export_brings_the_marks_along(lake: Lake, tmp_path: Path) -> None:
    lake.add((1, 1))
    lake.register("a", "b")
    lake.step()
    lake.c.admin.export_state(str(tmp_path / "export"))
    other = fm.Coordinator(str(tmp_path / "other"), actor="tester")
    other.admin.import_state(str(tmp_path / "export"))

    assert other.look.state().seeded_marks == lake.c.look.state().seeded_marks
    assert other.checkpoints() == lake.c.checkpoints()


def test_a_lost_store_is_restored_with_its_marks_from_the_targets(
    lake: Lake, tmp_path: Path
) -> None:
    lake.add((1, 1))
    lake.register()
    lake.step()
    lake.add((2, 2))
    lake.step()
    marks, seeded = lake.c.checkpoints(), lake.c.look.state().seeded_marks
    lake.c = lake.opened(str(tmp_path / "restored"))
    lake.c.admin.rebuild_from_targets([str(tmp_path / "sinks" / "copy")])
    lake.register()
    lake.add((3, 3))
    assert [m.mark for m in lake.c.checkpoints()] == [m.mark for m in marks]
    assert lake.c.look.state().seeded_marks == seeded

    lake.step()

    assert lake.ids() == [1, 2, 3]


# What is shown ------------------------------------------------------------------------------------


def test_the_published_tables_show_marks_in_the_place_of_versions(lake: Lake) -> None:
    lake.add((1, 1), (2, 2))
    lake.register()
    lake.step()
    lake.add((3, 3))
    lake.step()

    rows = sorted(lake.published("watermarks"), key=lambda row: row["batch_seq"])
    versions = ("start_version", "end_version", "last_processed_version")
    for row in rows:
        assert [row[c] for c in (*versions, "latest_available_version")] == [-1, -1, -1, -1]
        assert (row["kind"], row["method"], row["status"]) == ("time", "query", "COMPLETED")
        assert "row with at through " in row["notes"] or "rows with at after " in row["notes"]
    assert [(r["start_mark"], r["end_mark"]) for r in rows] == [
        (None, mark(2)),
        (mark(2), mark(3)),
    ]
    assert [r["end_ts"] for r in rows] == [at(2), at(3)]
    (committed,) = lake.published("committed_watermarks")
    assert committed["last_committed_version"] == -1
    assert committed["last_committed_mark"] == mark(3)
    assert lake.c.frozen_set(rows[0]["batch_id"]) == {str(lake.up): -1}


def test_lag_is_the_age_of_the_oldest_row_that_is_not_processed(lake: Lake) -> None:
    lake.add((1, 1))
    lake.register()
    lake.step()
    (before,) = lake.c.lag()
    lake.add((2, 590), (3, 595))
    (after,) = lake.c.lag()

    assert (before.kind, before.seconds_behind, before.versions_behind) == ("time", 0.0, None)
    assert (before.committed_mark, before.latest_mark) == (mark(1), mark(1))
    assert (after.seconds_behind, after.latest_mark) == (600.0, mark(595))
    assert after.reason == "not planned yet"


def test_a_target_that_was_lost_is_rebuilt_through_the_end_of_the_batch(lake: Lake) -> None:
    import shutil

    lake.add((1, 1))
    lake.register()
    lake.step()
    lake.add((2, 2))
    batch = str(lake.c.create_batch().batch_id)
    lake.add((3, 3))
    shutil.rmtree(lake.root / "sinks" / "copy")
    lake.c.run_pipeline("copy", batch, lake.copy("copy"), on_lost_target="rebuild")

    assert lake.ids() == [1, 2]


def test_a_delta_table_can_be_read_by_time_and_shows_rows_that_were_updated(lake: Lake) -> None:
    def write(*rows: tuple[int, float], mode: Any = "append") -> None:
        data = {"id": [i for i, _ in rows], "at": pa.array([at(m) for _, m in rows], INSTANT)}
        write_deltalake(lake.up, pa.table(data), mode=mode)

    write((1, 1), (2, 2))
    lake.register()
    first = lake.step()
    DeltaTable(lake.up).update({"at": "to_timestamp_micros(1772366640000000)"}, predicate="id = 1")
    second = lake.step()

    assert lake.calls == [("copy", [1, 2]), ("copy", [1])]
    assert [w.query.format for b in (first, second) for w in b.windows if w.query] == ["delta"] * 2


def test_a_table_that_took_the_place_of_another_is_refused_or_read_from_its_beginning(
    lake: Lake,
) -> None:
    import shutil

    def write(number: int, minutes: float) -> None:
        times = pa.array([at(minutes)], INSTANT)
        write_deltalake(lake.up, pa.table({"id": pa.array([number], pa.int64()), "at": times}))

    write(1, 5)
    lake.register()
    lake.step()
    shutil.rmtree(lake.up)
    write(2, 1)
    lake.refused("FM-PLAN-005")
    lake.register(on_recreated="reload")
    batch = lake.c.create_batch()
    lake.c.run_pipeline(
        "copy",
        str(batch.batch_id),
        lambda inputs, _: lake.calls.append(("copy", inputs[str(lake.up)]["id"].to_pylist())),
    )
    lake.c.finalize_batch(str(batch.batch_id))

    assert lake.calls == [("copy", [1]), ("copy", [2])]
    assert lake.c.checkpoints()[0].mark == mark(1)


def test_a_join_gets_the_whole_upstream_on_either_side_of_the_window(lake: Lake) -> None:
    lake.add((1, 1))
    lake.register()
    lake.step()
    lake.add((2, 2))
    batch = str(lake.c.create_batch().batch_id)
    lake.add((3, 3))
    seen: list[list[int]] = []

    def function(_: Any, run: Any) -> None:
        sides = [run.table(str(lake.up), at=side) for side in ("before", "end")]
        seen.extend(sorted(table["id"].to_pylist()) for table in sides)

    lake.c.run_pipeline("copy", batch, function)

    assert seen == [[1], [1, 2]]
