"""A merge inside a Structured Streaming job: each micro-batch once, whatever is repeated."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import floodmark as fm
from floodmark.deltalog import DeltaLog
from floodmark.errors import ConfigError
from floodmark.testing import crash
from floodmark.testing.node_projects import table_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def run_stream(spark: SparkSession, root: Path, apply: Any, **options: str) -> None:
    """One micro-batch for each file, until everything is read."""
    rows = spark.readStream.format("delta").option("maxFilesPerTrigger", 1).options(**options)
    query = (
        rows.load(str(root / "lake/orders"))
        .writeStream.foreachBatch(apply)
        .option("checkpointLocation", str(root / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def receipts(target: Path) -> list[int]:
    """The micro-batches that commits hold, in their order."""
    log = DeltaLog(str(target))
    commits = log.versions(0, log.facts().latest_version)
    return [seq for commit in commits for seq in commit.transactions.values()]


def test_micro_batches_are_merged_once_and_a_repeated_one_changes_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    target = tmp_path / "lake/latest"
    crash.append_rows(tmp_path, "lake/orders", [(1, 10), (2, 20)])
    crash.append_rows(tmp_path, "lake/orders", [(2, 21), (3, 30)])
    merge = fm.stream_merge(str(target), stream="latest", keys=["id"])

    def dies_after_the_commit(frame: DataFrame, batch_id: int) -> None:
        merge(frame, batch_id)
        if batch_id == 1:
            raise RuntimeError("killed before Spark could write down that the batch is done")

    with pytest.raises(StreamingQueryException):
        run_stream(spark, tmp_path, dies_after_the_commit)
    run_stream(spark, tmp_path, merge)

    assert table_rows(target) == [(1, 10), (2, 21), (3, 30)]
    assert receipts(target) == [0, 1]
    (app_id,) = DeltaLog(str(target)).transactions()
    assert uuid.UUID(app_id.rpartition("/")[2]).version == 4  # of the checkpoint
    crash.append_rows(tmp_path, "lake/orders", [(3, 31)])
    run_stream(spark, tmp_path, merge)
    assert table_rows(target) == [(1, 10), (2, 21), (3, 31)]
    assert receipts(target) == [0, 1, 2]


def test_a_stream_of_a_change_feed_deletes_softly_and_keeps_newer_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    target = tmp_path / "lake/latest"
    crash.append_rows(tmp_path, "lake/orders", [(1, 10), (2, 20)])
    crash.open_table(tmp_path, "lake/orders").update({"amount": "5"}, predicate="id = 1")
    crash.open_table(tmp_path, "lake/orders").delete("id = 2")
    merge = fm.stream_merge(
        str(target), stream="latest", keys="id", deletes="soft", sequence_by="amount"
    )

    run_stream(spark, tmp_path, merge, readChangeFeed="true", startingVersion="0")

    assert table_rows(target, "id, amount, is_deleted") == [(1, 10, False), (2, 20, True)]
    assert receipts(target) == [0, 1, 2]


def test_a_stream_needs_a_name() -> None:
    with pytest.raises(ConfigError) as caught:
        fm.stream_merge("./t", stream="a/b", keys="id")

    assert caught.value.code == "FM-CONFIG-007"
