"""Versions older than `delta.deletedFileRetentionDuration`, which Delta refuses for their age."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, Schema, write_deltalake
from deltalake.schema import PrimitiveType
from pyspark.errors import AnalysisException
from tests.spark.test_source_faults import Stage
from tests.support.windows import planned_window

from floodmark.deltalog import RETENTION_RULE
from floodmark.errors import SourceError
from floodmark.model.window import VersionWindow
from floodmark.sources.delta import old_versions
from floodmark.sources.delta.read import DeltaSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DAYS = 20


def aged(table: str | Path, through: int) -> None:
    """Let the commits through a version be 20 days old."""
    then = time.time() - DAYS * 86_400
    for version in range(through + 1):
        os.utime(Path(table) / "_delta_log" / f"{version:020d}.json", (then, then))


def rows(frame: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=str)


@pytest.fixture
def stage(spark: SparkSession, tmp_path: Path) -> Stage:
    """Versions 0 and 1 are processed, 2 and 3 wait for 20 days, 4 came just now."""
    stage = Stage(spark, tmp_path)
    stage.create()
    stage.insert("1, 10")
    stage.register()
    stage.step()
    stage.insert("2, 20")
    stage.sql("UPDATE {} SET x = 21 WHERE id = 2")
    stage.insert("3, 30")
    aged(stage.up, 3)
    return stage


def test_a_pipeline_that_was_held_for_20_days_goes_on_by_feed(stage: Stage) -> None:
    setting = stage.spark.conf.get(RETENTION_RULE)
    tables: dict[str, Any] = {}

    def copy(inputs: Mapping[str, Any], run: Any) -> None:
        tables["end"] = rows(run.table(stage.up))
        tables["before"] = rows(run.table(stage.up, at="before"))
        frame = inputs[stage.up]
        assert frame.sparkSession is stage.spark
        # The frame is planned in the user's session, also where that one leads.
        tables["joined"] = stage.spark.range(9).join(frame, "id").count()
        stage.copy(inputs, run)

    batch = stage.c.create_batch([stage.up])
    stage.insert("4, 40")  # so that the end of the batch is no longer the newest version
    aged(stage.up, 4)
    stage.c.run_pipeline("p", str(batch.batch_id), copy)
    stage.c.finalize_batch(str(batch.batch_id))

    assert (batch.windows[0].method, batch.windows[0].start, batch.windows[0].end) == ("feed", 2, 4)
    assert stage.rows == [
        (2, 20, "insert", 2),
        (2, 20, "update_preimage", 3),
        (2, 21, "update_postimage", 3),
        (3, 30, "insert", 4),
    ]
    assert tables == {
        "before": [(1, 10)],
        "end": [(1, 10), (2, 21), (3, 30)],
        "joined": 4,
    }
    assert stage.ids() == [1, 2, 3]
    assert stage.spark.conf.get(RETENTION_RULE) == setting
    for version in (2, 4):  # the rule was off for these reads alone
        with pytest.raises(AnalysisException, match="BEYOND_DELETED_FILE_RETENTION"):
            old_versions.version_of(stage.spark, stage.up, version).collect()
    # A replay repeats the versions of the old batch.
    again = stage.c.replay(str(batch.batch_id), pipelines=["p"], allow_stale=True)
    stage.c.run_pipeline("p", str(again.batch_id), stage.copy)
    assert len(stage.rows) == 4


def test_a_file_that_is_gone_is_found_before_anything_is_read(stage: Stage) -> None:
    batch_id = str(stage.c.create_batch([stage.up]).batch_id)
    for file in Path(stage.up, "_change_data").glob("*.parquet"):
        file.unlink()

    with pytest.raises(SourceError) as caught:
        stage.c.run_pipeline("p", batch_id, stage.copy)

    assert caught.value.code == "FM-SOURCE-006"
    stage.c.run_pipeline("p", batch_id, stage.copy, on_lost_range="snapshot")
    assert stage.ids() == [1, 2, 3]


def test_delta_rs_reads_what_spark_refuses_still(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(old_versions, "RETENTION_RULE", "spark.floodmark.unknown")
    source = DeltaSource(stage.spark)

    feed = source.read(planned_window(Path(stage.up), "feed", 1, 3))
    whole = source.read(planned_window(Path(stage.up), "snapshot", -1, 3))

    by_spark = stage.spark.read.format("delta").load(stage.up)
    assert rows(feed.select("id", "x", "_change_type", "_commit_version")) == [
        (2, 20, "insert", 2),
        (2, 20, "update_preimage", 3),
        (2, 21, "update_postimage", 3),
    ]
    assert rows(whole.select("id", "x")) == [(1, 10), (2, 21)]
    assert feed.schema["x"].dataType == by_spark.schema["x"].dataType


def test_a_table_is_read_by_name_at_20_days(spark: SparkSession, tmp_path: Path) -> None:
    stage = Stage(spark, tmp_path)
    stage.create()
    stage.insert("1, 10")
    stage.insert("2, 20")
    stage.insert("3, 30")
    aged(stage.up, 2)
    spark.sql("CREATE SCHEMA aged")
    spark.sql(f"CREATE TABLE aged.up USING delta LOCATION '{stage.up}'")
    source = DeltaSource(spark)

    def named(window: VersionWindow) -> VersionWindow:
        from dataclasses import replace

        return replace(window, upstream="aged.up")

    try:
        feed = source.read(named(planned_window(Path(stage.up), "feed", 1, 2)))
        whole = source.read(named(planned_window(Path(stage.up), "snapshot", -1, 2)))

        assert rows(feed.select("id")) == [(2,)]
        assert rows(whole.select("id")) == [(1,), (2,)]
    finally:
        spark.sql("DROP SCHEMA aged CASCADE")


def test_changes_before_a_column_that_became_not_null_are_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    stage = Stage(spark, tmp_path)
    stage.create()
    stage.insert("1, 10")
    stage.register()
    stage.step()
    stage.insert("2, NULL")
    stage.sql("DELETE FROM {} WHERE id = 1")
    strict = Schema(
        [
            Field("id", PrimitiveType("integer"), nullable=False),
            Field("x", PrimitiveType("integer")),
        ]
    )
    row = pa.table({"id": pa.array([3], pa.int32()), "x": pa.array([30], pa.int32())})
    write_deltalake(
        stage.up,
        row.cast(pa.schema(strict.to_arrow())),
        mode="overwrite",
        schema_mode="overwrite",
    )
    assert not DeltaTable(stage.up).schema().fields[0].nullable

    window = stage.step()

    assert (window.method, window.start, window.end) == ("feed", 2, 3)
    assert "makes NOT NULL id" in window.reason
    assert stage.rows == [(1, 10, "delete", 3), (2, None, "insert", 2)]
    stage.step()
    assert stage.ids() == [3]
