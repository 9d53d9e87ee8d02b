"""What the log must show before a window is read; the same for every Delta source."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.support.windows import planned_window

from floodmark.deltalog import DeltaLog
from floodmark.errors import SourceError
from floodmark.model.window import VersionWindow
from floodmark.testing.arrow import ArrowSource

FEED = {"delta.enableChangeDataFeed": "true"}


def append(path: Path, *ids: int) -> None:
    write_deltalake(path, pa.table({"id": pa.array(ids, pa.int64())}), mode="append")


@pytest.fixture
def upstream(tmp_lake: Path) -> Path:
    """Versions 0 to 3: three inserts, then a delete."""
    path = tmp_lake / "up"
    first = pa.table({"id": pa.array([1], pa.int64())})
    write_deltalake(path, first, configuration=FEED)
    append(path, 2)
    append(path, 3)
    DeltaTable(path).delete("id = 2")
    return path


def refused(window: VersionWindow) -> SourceError:
    with pytest.raises(SourceError) as caught:
        ArrowSource().check(window)
    error = caught.value
    assert error.state is not None
    assert "nothing was read or written" in error.state
    assert error.next
    return error


def test_a_feed_window_gives_exactly_its_changes(upstream: Path) -> None:
    table = ArrowSource().read(planned_window(upstream, "feed", 1, 3))

    assert table.column_names == ["id", "_change_type", "_commit_version", "_commit_timestamp"]
    rows = zip(*(table[name].to_pylist() for name in table.column_names[:3]), strict=True)
    assert sorted(rows) == [(2, "delete", 3), (3, "insert", 2)]


def test_a_snapshot_gives_its_rows_as_inserts(upstream: Path) -> None:
    table = ArrowSource().read(planned_window(upstream, "snapshot", -1, 2))

    at = DeltaLog(upstream).versions(2, 2)[0].committed_at
    assert sorted(table["id"].to_pylist()) == [1, 2, 3]
    assert set(table["_change_type"].to_pylist()) == {"insert"}
    assert set(table["_commit_version"].to_pylist()) == {2}
    assert set(table["_commit_timestamp"].to_pylist()) == {at}


def test_no_news_gives_an_empty_frame_of_the_same_schema(upstream: Path) -> None:
    source = ArrowSource()

    empty = source.read(planned_window(upstream, "feed", 3, 3))

    assert empty.num_rows == 0
    assert empty.schema == source.read(planned_window(upstream, "feed", 1, 3)).schema


def test_the_whole_table_as_of_a_version_has_no_change_columns(upstream: Path) -> None:
    source, window = ArrowSource(), planned_window(upstream, "feed", 1, 3)

    assert sorted(source.table(window, 1)["id"].to_pylist()) == [1, 2]
    assert sorted(source.table(window, 3)["id"].to_pylist()) == [1, 3]
    assert source.table(window, -1).num_rows == 0
    assert source.table(window, -1).column_names == ["id"]


def test_another_table_in_its_place_is_refused(upstream: Path) -> None:
    window = replace(planned_window(upstream, "feed", 1, 3), table_id="another")

    assert refused(window).code == "FM-SOURCE-003"


def test_a_range_beyond_the_table_is_refused(upstream: Path) -> None:
    window = replace(planned_window(upstream, "feed", 1, 3), through=4)

    assert refused(window).code == "FM-SOURCE-001"


def test_a_hole_in_the_range_is_refused_and_named(upstream: Path) -> None:
    window = planned_window(upstream, "feed", 0, 3)
    (upstream / "_delta_log" / f"{2:020d}.json").unlink()

    error = refused(window)

    assert error.code == "FM-SOURCE-002"
    assert error.found is not None


def test_a_cleaned_start_is_refused_and_the_window_told(upstream: Path) -> None:
    window = planned_window(upstream, "feed", 0, 3)
    DeltaTable(upstream).create_checkpoint()
    for version in (0, 1):
        (upstream / "_delta_log" / f"{version:020d}.json").unlink()

    error = refused(window)

    assert error.code == "FM-SOURCE-002"
    assert error.details["window"] == "versions 1 to 3 by feed"
    assert error.found is not None
    assert "missing: 1" in error.found


def test_a_snapshot_that_cannot_be_reached_is_refused(upstream: Path) -> None:
    window = planned_window(upstream, "snapshot", -1, 1)
    DeltaTable(upstream).create_checkpoint()
    (upstream / "_delta_log" / f"{0:020d}.json").unlink()

    assert refused(window).code == "FM-SOURCE-002"
    ArrowSource().check(planned_window(upstream, "snapshot", -1, 3))


def test_a_range_that_begins_before_the_feed_is_refused(tmp_lake: Path) -> None:
    path = tmp_lake / "late"
    write_deltalake(path, pa.table({"id": pa.array([1], pa.int64())}))
    append(path, 2)
    DeltaTable(path).alter.set_table_properties(FEED)
    append(path, 3)

    assert refused(planned_window(path, "feed", 0, 3)).code == "FM-SOURCE-004"
    ArrowSource().check(planned_window(path, "feed", 1, 3))


def test_a_feed_switched_off_inside_the_range_is_refused(upstream: Path) -> None:
    DeltaTable(upstream).alter.set_table_properties({"delta.enableChangeDataFeed": "false"})
    append(upstream, 9)

    error = refused(planned_window(upstream, "feed", 1, 5))

    assert error.code == "FM-SOURCE-004"
    assert error.found == "the feed was switched off at version 4"
    ArrowSource().check(planned_window(upstream, "feed", 1, 3))


def test_another_schema_at_the_end_is_refused(upstream: Path) -> None:
    window = replace(planned_window(upstream, "feed", 1, 3), schema_fingerprint="other")

    assert refused(window).code == "FM-SOURCE-007"


def test_missing_data_files_are_told_as_lost(upstream: Path) -> None:
    window = planned_window(upstream, "snapshot", -1, 3)
    for file in upstream.glob("*.parquet"):
        file.unlink()

    with pytest.raises(SourceError) as caught:
        ArrowSource().read(window)

    assert caught.value.code == "FM-SOURCE-006"
