"""A merge inside a Structured Streaming job: each micro-batch once, whatever is repeated."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from tests.contract import receipt_contract as attacks
from tests.contract.receipt_contract import Attack, DeltaFolder, ReceiptContract
from tests.support import crash
from tests.support.jvm import java, java_context
from tests.support.node_projects import table_rows

import floodmark as fm
from floodmark.deltalog import DeltaLog, Storage
from floodmark.errors import ConfigError, SinkError
from floodmark.model.receipt import Receipt
from floodmark.model.write import WriteSpec
from floodmark.sinks.delta.streams import QUERY_ID, _metadata, last_stream_write
from floodmark.sinks.delta.write import DeltaSink, refuse_unsafe_log
from floodmark.testing.arrow import ArrowSink

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


class MergedStream(DeltaFolder):
    """`fm.stream_merge` in a query that numbers batches from 0; the first four without Spark."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        super().__init__(path)
        self._spark = spark
        self.query = str(uuid.uuid4())
        self.options: dict[str, Any] = {}

    def write(self, number: int) -> None:
        self._merged(number - 1, [number])

    def settle(self, number: int) -> None:
        """Another checkpoint location: the source is read from its beginning."""
        self.query = str(uuid.uuid4())
        self._merged(0, range(1, number + 1))

    def restore(self) -> None:
        DeltaTable(self.path).restore(1)

    def _merged(self, batch_id: int, numbers: Sequence[int]) -> None:
        if batch_id in (1, 2, 3, 0) and len(numbers) == 1:
            app_id = f"floodmark/stream/s/{self.query}"
            receipt = Receipt(app_id, batch_id, _metadata("s", app_id, batch_id))
            spec = WriteSpec(str(self.path), "merge", "s", keys=("n",))
            known = last_stream_write(str(self.path), app_id, Storage())
            ArrowSink(spec, (), known).write(
                pa.table({"n": pa.array(numbers, pa.int64())}), receipt
            )
            return
        merge = fm.stream_merge(str(self.path), stream="s", keys="n", **self.options)
        context = self._spark.sparkContext
        context.setLocalProperty(QUERY_ID, self.query)
        try:
            merge(self._spark.createDataFrame([(n,) for n in numbers], "n long"), batch_id)
        finally:
            context.setLocalProperty(QUERY_ID, cast("Any", None))


class TestStreamMerge(ReceiptContract):
    """A copy of the query and its target, which went its own way, shows the same receipts: the one
    attack that nothing outside of the target tells of."""

    EXPECTED: ClassVar[dict[Attack, str]] = {
        attacks.put_back: "FM-SINK-047",
        attacks.put_back_and_passed: "FM-SINK-047",
        attacks.restored_and_passed: "FM-SINK-009",
        attacks.restored_and_cleaned: "FM-SINK-042",
        attacks.cleaned: "FM-SINK-042",
        attacks.checkpoint_gone: "FM-SOURCE-002",
    }

    @pytest.fixture
    def writer(self, spark: SparkSession, tmp_lake: Path) -> MergedStream:
        return MergedStream(spark, tmp_lake / "out")

    def test_a_target_that_was_dropped_is_not_begun_in_the_middle(
        self, writer: MergedStream
    ) -> None:
        writer.write(1)
        shutil.rmtree(writer.path)

        with pytest.raises(SinkError) as caught:
            writer.write(5)
        writer.options = {"allow_gaps": True}
        writer.write(5)
        writer.clean()
        writer.write(5)

        assert caught.value.code == "FM-SINK-047"
        assert "allow_gaps=True" in str(caught.value.next)
        assert writer.numbers() == [5]


class ConnectSession:
    """What a Spark Connect session shows of itself before it is asked for anything."""

    __module__ = "pyspark.sql.connect.session"


def test_a_session_that_cannot_write_receipts_is_refused_before_the_first_write(
    spark: SparkSession, tmp_lake: Path
) -> None:
    receipt = Receipt("floodmark/c/p/out/0", 1, "{}")
    spec = WriteSpec(str(tmp_lake / "out"), "append", "out")

    with pytest.raises(SinkError) as connect:
        DeltaSink(cast("Any", ConnectSession()), spec, ()).write(cast("Any", None), receipt)
    # What py4j says of packages that are not there, as in a JVM without Delta.
    context = SimpleNamespace(_jvm=java(spark).nowhere, _jsc=java_context(spark))
    without_delta = SimpleNamespace(conf=spark.conf, sparkContext=context)
    with pytest.raises(SinkError) as other:
        DeltaSink(cast("Any", without_delta), spec, ()).write(spark.range(1), receipt)

    assert connect.value.code == other.value.code == "FM-SINK-046"
    assert "local_session()" in str(other.value.next)
    assert not (tmp_lake / "out").exists()


STORE = "io.delta.storage.S3DynamoDBLogStore"


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n"])
def test_spark_writes_to_s3_only_where_no_commit_can_be_lost(
    spark: SparkSession, scheme: str
) -> None:
    receipt = Receipt("floodmark/c/p/out/0", 1, _metadata("s", "batch_1", 1))
    spec = WriteSpec(f"{scheme}://bucket/out", "append", "out")
    key = f"spark.delta.logStore.{scheme}.impl"
    told_too_late = spark.newSession()
    told_too_late.conf.set(key, STORE)

    for session in (spark, told_too_late):
        with pytest.raises(SinkError) as caught:
            DeltaSink(session, spec, ()).write(spark.range(1), receipt)
        assert caught.value.code == "FM-SINK-048"
        assert "allow_single_writer" in str(caught.value.next)

    refuse_unsafe_log(spark, replace(spec, allow_single_writer=True), receipt)
    started_with = java_context(spark).sc().conf()
    started_with.set(key, STORE)
    try:
        refuse_unsafe_log(spark, spec, receipt)
    finally:
        started_with.remove(key)


def test_delta_does_not_look_at_the_log_store_of_a_session(
    spark: SparkSession, tmp_path: Path
) -> None:
    """So floodmark must not believe it."""
    session = spark.newSession()
    session.conf.set("spark.delta.logStore.file.impl", "no.such.Store")

    session.range(3).write.format("delta").save(str(tmp_path / "out"))

    assert session.read.format("delta").load(str(tmp_path / "out")).count() == 3
