"""Backfill and reset of upstreams without versions: by values of their time column."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from tests.unit.coordinator.test_time_windows import INSTANT, NOON, Lake, at, compacted, mark

import floodmark as fm
from floodmark.errors import FloodmarkError


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Three rows, one a minute, all processed in two batches."""
    lake = Lake(tmp_path)
    lake.add((1, 1), (2, 2))
    lake.register()
    lake.step()
    lake.add((3, 3))
    lake.step()
    lake.calls.clear()
    return lake


def backfill(lake: Lake, start: Any, end: Any, **options: Any) -> fm.Batch:
    pipelines = options.pop("pipelines", ["copy"])
    return lake.c.backfill(str(lake.up), start=start, end=end, pipelines=pipelines, **options)


def run(lake: Lake, batch: fm.Batch, pipeline: str = "copy") -> None:
    lake.c.run_pipeline(pipeline, str(batch.batch_id), lake.copy(pipeline))
    lake.c.finalize_batch(str(batch.batch_id))


def refused(call: Any, code: str) -> FloodmarkError:
    with pytest.raises(FloodmarkError) as caught:
        call()
    assert caught.value.code == code
    return caught.value


# Backfill -----------------------------------------------------------------------------------------


def test_both_ends_of_a_range_are_included_and_the_watermark_stays(lake: Lake) -> None:
    batch = backfill(lake, at(2), at(3).isoformat(), allow_duplicates=True)
    run(lake, batch)

    (window,) = batch.windows
    assert (batch.kind, window.end_mark) == ("backfill", mark(3))
    assert window.start_mark == mark(2 - 1e-6 / 60)
    assert lake.calls == [("copy", [2, 3])]
    assert lake.c.checkpoints()[0].mark == mark(3)
    assert all(finding.ok for finding in lake.c.verify()), lake.c.verify()


def test_a_late_row_that_no_window_saw_comes_with_a_backfill(lake: Lake) -> None:
    lake.add((4, 1.5))
    assert lake.step().status == "NOOP"

    run(lake, backfill(lake, at(1.5), at(1.5), allow_duplicates=True))

    assert lake.ids() == [1, 2, 3, 4]


def test_an_append_that_would_double_rows_is_refused(lake: Lake) -> None:
    batch = backfill(lake, at(1), at(2))

    refused(lambda: run(lake, batch), "FM-SINK-021")
    assert lake.ids() == [1, 2, 3]


def test_a_merge_of_a_range_that_ends_before_the_mark_could_bring_older_rows_back(
    lake: Lake,
) -> None:
    def merge(inputs: Mapping[str, Any], run: Any) -> None:
        run.write(
            inputs[str(lake.up)], str(lake.root / "sinks" / "copy"), mode="merge", keys=["id"]
        )

    before, through = backfill(lake, at(1), at(2)), backfill(lake, at(1), at(3))

    refused(lambda: lake.c.run_pipeline("copy", str(before.batch_id), merge), "FM-SINK-022")
    lake.c.run_pipeline("copy", str(through.batch_id), merge)
    assert lake.ids() == [1, 2, 3]


def test_a_day_means_all_of_it(lake: Lake) -> None:
    lake.add((5, 24 * 60 + 1))
    lake.clock.at = at(3 * 24 * 60)
    lake.step()

    run(lake, backfill(lake, date(2026, 3, 1), "2026-03-01", allow_duplicates=True))

    assert lake.calls[-1] == ("copy", [1, 2, 3])


def test_days_of_a_column_of_days_are_taken_as_they_are(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    days = [date(2026, 2, day) for day in (1, 2, 3)]
    lake.write(pa.table({"id": pa.array([1, 2, 3], pa.int64()), "at": pa.array(days)}))
    lake.register()
    lake.step()

    batch = backfill(lake, "2026-02-02", date(2026, 2, 3), allow_duplicates=True)
    run(lake, batch)

    assert lake.calls[-1] == ("copy", [2, 3])
    refused(lambda: backfill(lake, "2026-02-02T00:00:00", "2026-02-03"), "FM-PLAN-014")


@pytest.mark.parametrize(
    ("start", "end", "found"),
    [
        (at(2), at(3.5), "2026-03-01T12:03:00.000000Z"),  # not committed
        (at(2), at(1), "2026-03-01T12:03:00.000000Z"),  # ends before it starts
        ("2026-03-01T12:01:00", at(2), "zone"),  # a wall time: nobody knows of which zone
        ("yesterday", at(2), "yesterday"),
        (0, 1, "2026-03-01T12:03:00.000000Z"),  # numbers mean nothing here
        (at(1), 1, "2026-03-01T12:03:00.000000Z"),
    ],
)
def test_what_is_no_committed_range_of_the_column_is_refused_with_what_to_type(
    lake: Lake, start: Any, end: Any, found: str
) -> None:
    error = refused(lambda: backfill(lake, start, end), "FM-PLAN-014")

    assert found in f"{error.title} {error.found} {error.allowed}"
    assert f"floodmark backfill {lake.up} --from " in str(error.next)
    assert not list(lake.c.look.state().open_batches())


def test_values_for_an_upstream_with_versions_are_refused_with_what_to_type(
    tmp_path: Path,
) -> None:
    lake = Lake(tmp_path)
    write_deltalake(lake.up, pa.table({"id": pa.array([1], pa.int64())}))
    lake.c.register("copy", [str(lake.up)])
    lake.step()

    error = refused(lambda: backfill(lake, "2026-03-01", "2026-03-02"), "FM-PLAN-014")

    assert "--start 0 --end 0" in str(error.next)


def test_before_anything_is_committed_nothing_is_backfilled(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.add((1, 1))
    lake.register()

    refused(lambda: backfill(lake, at(0), at(1)), "FM-PLAN-014")


def test_a_backfill_freezes_its_range_like_any_batch(lake: Lake) -> None:
    batch = backfill(lake, at(1), at(2), allow_duplicates=True)
    lake.add((9, 2.5))
    compacted(lake)
    run(lake, batch)

    assert lake.calls == [("copy", [1, 2])]


def test_a_join_gets_what_lay_before_the_range(lake: Lake) -> None:
    batch = backfill(lake, at(2), at(2), allow_duplicates=True)
    seen: list[list[int]] = []

    def function(_: Mapping[str, Any], run: Any) -> None:
        sides = [run.table(str(lake.up), at=side) for side in ("before", "end")]
        seen.extend(sorted(table["id"].to_pylist()) for table in sides)

    lake.c.run_pipeline("copy", str(batch.batch_id), function)

    assert seen == [[1], [1, 2]]


def test_a_backfill_does_not_move_the_mark_of_a_store_that_is_restored(
    lake: Lake, tmp_path: Path
) -> None:
    run(lake, backfill(lake, at(1), at(2), allow_duplicates=True))
    lake.c = lake.opened(str(tmp_path / "restored"))

    lake.c.admin.rebuild_from_targets([str(tmp_path / "sinks" / "copy")])

    assert lake.c.checkpoints()[0].mark == mark(3)


# Reset --------------------------------------------------------------------------------------------


def reset(lake: Lake, to: Any, **options: Any) -> None:
    lake.c.admin.reset(str(lake.up), to=to, **options)


def test_a_reset_back_to_a_value_processes_again_what_follows_it(lake: Lake) -> None:
    reset(lake, at(1))
    assert lake.c.checkpoints()[0].mark == mark(1)

    lake.step()

    assert lake.calls == [("copy", [2, 3])]
    assert lake.c.gaps() == ()
    assert all(finding.ok for finding in lake.c.verify()), lake.c.verify()


def test_a_reset_on_to_a_value_leaves_a_gap_until_it_is_backfilled(lake: Lake) -> None:
    lake.add((4, 4), (5, 5), (6, 6))
    reset(lake, at(5))
    lake.step()

    assert lake.calls == [("copy", [6])]
    (gap,) = lake.c.gaps()
    assert (gap.start_mark, gap.end_mark, gap.pipelines) == (mark(3), mark(5), ("copy",))
    assert (gap.start, gap.end) == (-1, -1)
    assert "reset" in gap.reason

    run(lake, backfill(lake, at(4), at(4), allow_duplicates=True))
    assert [(g.start_mark, g.end_mark) for g in lake.c.gaps()] == [
        (mark(3), mark(4 - 1e-6 / 60)),
        (mark(4), mark(5)),
    ]
    run(lake, backfill(lake, at(3), at(5), allow_duplicates=True))
    assert lake.c.gaps() == ()


def test_the_same_reset_twice_is_one(lake: Lake) -> None:
    reset(lake, at(1))
    before = lake.c.look.state().seq

    reset(lake, at(1).isoformat())

    assert lake.c.look.state().seq == before


def test_a_reset_before_the_first_batch_says_where_to_begin(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.add((1, 1), (2, 2))
    lake.register("a", "b")
    reset(lake, at(1))
    lake.step()

    assert lake.calls == [("a", [2]), ("b", [2])]
    assert lake.c.gaps() == ()


def test_who_stands_at_the_mark_or_beyond_goes_along_and_who_is_behind_catches_up(
    tmp_path: Path,
) -> None:
    lake = Lake(tmp_path)
    lake.add((1, 1))
    lake.register("a", "b", "c")
    lake.step()
    lake.c.pause("b")
    lake.add((2, 2), (3, 3))
    lake.step()
    lake.c.pause("c")
    lake.add((4, 4))
    lake.step()
    reset(lake, at(2))  # b stands before it, c and a beyond
    compacted(lake)
    lake.c.resume("b")
    lake.c.resume("c")
    lake.calls.clear()
    lake.step()

    assert sorted(lake.calls) == [("a", [3, 4]), ("b", [2]), ("b", [3, 4]), ("c", [3, 4])]
    assert all(finding.ok for finding in lake.c.verify()), lake.c.verify()


def test_a_window_beyond_the_mark_is_not_replayed(lake: Lake) -> None:
    batch = lake.c.status()[-1].batch_id
    reset(lake, at(1))

    refused(lambda: lake.c.replay(batch, allow_duplicates=True), "FM-CONTROL-010")


@pytest.mark.parametrize("to", ["2027-01-01T00:00:00Z", "2026-03-01", "2026-03-01T12:00:00", "x"])
def test_a_value_of_the_future_or_of_another_type_is_refused(lake: Lake, to: str) -> None:
    error = refused(lambda: reset(lake, to), "FM-CONFIG-007")

    assert "--to " in str(error.next)
    assert lake.c.checkpoints()[0].mark == mark(3)


def test_a_day_as_the_new_mark_counts_as_processed_to_its_end(lake: Lake) -> None:
    reset(lake, date(2026, 2, 28))

    assert '"2026-02-28T23:59:59.999999Z"' in str(lake.c.checkpoints()[0].mark)


def test_a_version_is_refused_with_the_value_to_type(lake: Lake) -> None:
    error = refused(lambda: lake.c.admin.reset(str(lake.up), to_version=1), "FM-CONFIG-007")

    assert "--to 2026-03-01T12:03:00.000000Z" in str(error.next)


def test_a_value_and_a_version_together_are_refused(lake: Lake) -> None:
    refused(lambda: lake.c.admin.reset(str(lake.up), to_version=1, to=at(1)), "FM-CONFIG-007")


def test_an_upstream_with_versions_is_not_reset_to_a_value(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    write_deltalake(lake.up, pa.table({"id": pa.array([1], pa.int64())}))
    lake.c.register("copy", [str(lake.up)])
    lake.step()

    error = refused(lambda: reset(lake, at(1)), "FM-CONFIG-007")

    assert "--to-version" in str(error.next)


def test_what_was_processed_in_another_way_is_reset_to_its_beginning_first(
    tmp_path: Path,
) -> None:
    lake = Lake(tmp_path)
    rows = {"id": pa.array([1, 2], pa.int64()), "at": pa.array([at(1), at(2)], INSTANT)}
    write_deltalake(lake.up, pa.table(rows))
    lake.c.register("copy", [str(lake.up)])
    lake.step()
    lake.register()

    refused(lambda: reset(lake, at(1)), "FM-PLAN-023")
    lake.c.admin.reset(str(lake.up))
    reset(lake, at(1))

    (window,) = lake.c.create_batch().windows
    assert (window.start_mark, window.end_mark) == (mark(1), mark(2))


def test_an_open_batch_holds_its_upstream(lake: Lake) -> None:
    lake.add((4, 4))
    lake.c.create_batch()

    refused(lambda: reset(lake, at(1)), "FM-CONTROL-023")


def test_the_published_mark_is_the_one_of_the_reset(lake: Lake) -> None:
    reset(lake, datetime.fromisoformat(NOON.isoformat()))

    (row,) = lake.published("committed_watermarks")
    assert (row["last_committed_version"], row["last_committed_mark"]) == (-1, mark(0))
