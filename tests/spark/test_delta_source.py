"""Windows read by Spark, on real tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType
from tests.support.windows import planned_window

from floodmark.deltalog import DeltaLog
from floodmark.engines.faults import lost_files
from floodmark.errors import SourceError
from floodmark.model.window import Method
from floodmark.model.write import CHANGE_COLUMNS
from floodmark.sources.delta.read import DeltaSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

FEED = {"delta.enableChangeDataFeed": "true"}


def rows_in(frame: DataFrame, *names: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[name] for name in names) for row in frame.collect())


@pytest.fixture
def upstream(tmp_lake: Path) -> Path:
    """Versions 0 to 3: three inserts of one row, then a delete."""
    path = tmp_lake / "up"
    for number in (1, 2, 3):
        rows = pa.table({"id": pa.array([number], pa.int64()), "a.b": ["x"]})
        write_deltalake(path, rows, mode="append", configuration=FEED if number == 1 else None)
    DeltaTable(path).delete("id = 2")
    return path


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    """A child whose settings a test may change."""
    return spark.newSession()


def test_a_feed_window_gives_exactly_its_changes(spark: SparkSession, upstream: Path) -> None:
    frame = DeltaSource(spark).read(planned_window(upstream, "feed", 1, 3))

    assert frame.columns == ["id", "a.b", *CHANGE_COLUMNS]
    at = {each.version: each.committed_at for each in DeltaLog(upstream).versions(2, 3)}
    micros = {version: round(when.timestamp() * 1_000_000) for version, when in at.items()}
    timed = frame.selectExpr("*", "unix_micros(_commit_timestamp) AS micros")
    expected = [(2, "delete", 3, micros[3]), (3, "insert", 2, micros[2])]
    assert rows_in(timed, "id", "_change_type", "_commit_version", "micros") == expected


def test_a_snapshot_gives_inserts_with_its_version_and_commit_time(
    spark: SparkSession, upstream: Path
) -> None:
    frame = DeltaSource(spark).read(planned_window(upstream, "snapshot", -1, 2))

    at = DeltaLog(upstream).versions(2, 2)[0].committed_at
    seconds = frame.selectExpr("*", "unix_micros(_commit_timestamp) AS micros")
    assert frame.columns == ["id", "a.b", *CHANGE_COLUMNS]
    micros = round(at.timestamp() * 1_000_000)
    assert rows_in(seconds, "id", "_change_type", "_commit_version", "micros") == [
        (number, "insert", 2, micros) for number in (1, 2, 3)
    ]


def test_no_news_gives_an_empty_frame_with_the_types_of_a_full_one(
    spark: SparkSession, upstream: Path
) -> None:
    source = DeltaSource(spark)

    empty = source.read(planned_window(upstream, "feed", 3, 3))

    full = source.read(planned_window(upstream, "feed", 1, 3))
    assert empty.collect() == []
    assert empty.dtypes == full.dtypes
    assert empty.dtypes[-3:] == [
        ("_change_type", "string"),
        ("_commit_version", "bigint"),
        ("_commit_timestamp", "timestamp"),
    ]


def test_the_whole_table_as_of_a_version_has_no_change_columns(
    spark: SparkSession, upstream: Path
) -> None:
    source, window = DeltaSource(spark), planned_window(upstream, "feed", 1, 3)

    assert rows_in(source.table(window, 1), "id") == [(1,), (2,)]
    assert rows_in(source.table(window, 3), "id") == [(1,), (3,)]
    before = source.table(window, -1)
    assert before.columns == ["id", "a.b"]
    assert before.collect() == []


def test_columns_added_after_the_window_are_not_in_its_frame(
    spark: SparkSession, upstream: Path
) -> None:
    window = planned_window(upstream, "feed", 1, 3)
    DeltaTable(upstream).alter.add_columns([Field("later", PrimitiveType("string"))])

    frame = DeltaSource(spark).read(window)

    assert frame.columns == ["id", "a.b", *CHANGE_COLUMNS]


def test_a_path_of_odd_characters_is_read(spark: SparkSession, tmp_lake: Path) -> None:
    path = tmp_lake / "a b%20[x]{y}`é*?#"
    rows = spark.createDataFrame([(1,)], "id long")
    writer = rows.write.format("delta").option("delta.enableChangeDataFeed", "true")
    writer.save(str(path))
    rows.write.format("delta").mode("append").save(str(path))
    source = DeltaSource(spark)

    feed = source.read(planned_window(path, "feed", 0, 1))
    snapshot = source.read(planned_window(path, "snapshot", -1, 1))

    assert rows_in(feed, "id", "_commit_version") == [(1, 1)]
    assert rows_in(snapshot, "id", "_commit_version") == [(1, 1), (1, 1)]


@pytest.mark.parametrize("name", ["ignoreMissingFiles", "ignoreCorruptFiles"])
def test_a_session_that_hides_missing_files_is_refused_and_left_alone(
    session: SparkSession, upstream: Path, name: str
) -> None:
    setting = f"spark.sql.files.{name}"
    session.conf.set(setting, "true")

    with pytest.raises(SourceError) as caught:
        DeltaSource(session).read(planned_window(upstream, "feed", 1, 3))

    assert caught.value.code == "FM-SOURCE-005"
    assert caught.value.found == f"{setting} = true"
    assert session.conf.get(setting) == "true"


def test_a_range_that_the_log_refuses_is_not_read(spark: SparkSession, upstream: Path) -> None:
    window = replace(planned_window(upstream, "feed", 1, 3), through=9)

    with pytest.raises(SourceError) as caught:
        DeltaSource(spark).read(window)

    assert caught.value.code == "FM-SOURCE-001"


@pytest.mark.parametrize("method", ["feed", "snapshot"])
def test_lost_files_are_known_by_spark_s_condition(
    spark: SparkSession, upstream: Path, tmp_lake: Path, method: Method
) -> None:
    after = 0 if method == "feed" else -1
    frame = DeltaSource(spark).read(planned_window(upstream, method, after, 2))
    for file in upstream.rglob("*.parquet"):
        file.unlink()

    with pytest.raises(Exception) as collected:  # noqa: PT011 - any class of Spark's
        frame.collect()
    with pytest.raises(Exception) as written:  # noqa: PT011
        frame.drop(*CHANGE_COLUMNS).write.format("delta").save(str(tmp_lake / "copy"))

    assert lost_files(collected.value)
    assert lost_files(written.value)


def test_other_failures_are_not_lost_files(spark: SparkSession) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011
        spark.sql("SELECT raise_error('x')").collect()

    assert not lost_files(caught.value)
    assert not lost_files(ValueError("FAILED_READ_FILE.FILE_NOT_EXIST"))
