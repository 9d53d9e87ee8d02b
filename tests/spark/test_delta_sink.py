"""What only the Delta sink on Spark has to get right; the rest is in the contract suite."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable as RustTable

from floodmark.deltalog import DeltaLog
from floodmark.errors import SinkError
from floodmark.model.receipt import Receipt
from floodmark.model.window import VersionWindow
from floodmark.model.write import WriteSpec
from floodmark.sinks import changes
from floodmark.sinks.delta.write import LOCK_FILE, DeltaSink, _receipt_session
from floodmark.sources.delta.read import DeltaSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

RECEIPT_SETTINGS = (
    "spark.databricks.delta.write.txnAppId",
    "spark.databricks.delta.write.txnVersion",
    "spark.databricks.delta.commitInfo.userMetadata",
)


def receipt(seq: int) -> Receipt:
    return Receipt("app", seq, f'{{"seq":{seq}}}')


def feed_window(path: Path, after: int) -> VersionWindow:
    facts = DeltaLog(path).facts()
    return VersionWindow(
        upstream=str(path),
        method="feed",
        after=after,
        through=facts.latest_version,
        reason="",
        table_id=facts.table_id,
        feed_enabled=True,
        schema_fingerprint=facts.schema_fingerprint,
        latest_version=facts.latest_version,
        changes=frozenset(("insert", "update", "delete")),
    )


def spec(target: Path, mode: Any, **options: Any) -> WriteSpec:
    return WriteSpec(target=str(target), mode=mode, name="out", **options)


def test_changes_of_a_real_table_are_merged_and_can_be_read_on(
    spark: SparkSession, tmp_lake: Path
) -> None:
    from delta.tables import DeltaTable

    upstream, target = tmp_lake / "up", tmp_lake / "out 1"
    first = spark.createDataFrame([(i, "a") for i in range(6)], "`Key x` long, v string")
    # The space needs column mapping, which the sink sees to.
    DeltaSink(spark, spec(upstream, "append"), ()).write(first, receipt(1))
    source = DeltaSource(spark)
    window = feed_window(upstream, -1)
    sink = DeltaSink(spark, spec(target, "merge", keys=("Key x",)), (window,))
    sink.write(source.read(window), receipt(1))
    table = DeltaTable.forPath(spark, str(upstream))
    table.update("`Key x` < 2", {"`Key x`": "`Key x` + 10"})
    table.delete("`Key x` = 5")
    table.update("`Key x` = 4", {"v": "'b'"})
    window = feed_window(upstream, 1)

    result = DeltaSink(spark, spec(target, "merge", keys=("Key x",)), (window,)).write(
        source.read(window), receipt(2)
    )

    def rows(path: Path) -> list[Any]:
        return sorted(map(tuple, spark.read.format("delta").load(str(path)).collect()))

    assert rows(target) == rows(upstream) == [(2, "a"), (3, "a"), (4, "b"), (10, "a"), (11, "a")]
    assert DeltaLog(target).facts().properties["delta.columnMapping.mode"] == "name"
    # Inserted 10 and 11, updated 4, deleted 0, 1 and 5; an update is two rows of the feed.
    assert (result.version, result.rows_written) == (2, 6)
    assert source.read(feed_window(target, 1)).count() == 7


def test_the_lock_file_disturbs_neither_vacuum_nor_creation(
    spark: SparkSession, tmp_lake: Path
) -> None:
    from delta.tables import DeltaTable

    target = tmp_lake / "out"
    target.mkdir()
    (target / LOCK_FILE).touch()
    frame = spark.createDataFrame([(1,)], "id long")
    DeltaSink(spark, spec(target, "append"), ()).write(frame, receipt(1))

    DeltaTable.forPath(spark, str(target)).vacuum(1000)

    assert (target / LOCK_FILE).read_bytes() == b""
    assert RustTable(target).to_pyarrow_table().num_rows == 1
    assert spark.read.format("delta").load(str(target)).count() == 1


def test_an_overwrite_is_whole_whatever_the_session_says(
    spark: SparkSession, tmp_lake: Path
) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    target = tmp_lake / "out"
    sink = DeltaSink(session, spec(target, "overwrite", partition_by=("p",)), ())
    sink.write(session.createDataFrame([(1, "a"), (2, "b")], "id long, p string"), receipt(1))

    sink.write(session.createDataFrame([(3, "a")], "id long, p string"), receipt(2))

    assert RustTable(target).to_pyarrow_table()["id"].to_pylist() == [3]


def test_a_merge_runs_with_the_settings_of_its_session_and_leaves_them_alone(
    spark: SparkSession,
) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "3")

    with _receipt_session(session, receipt(7)) as child:
        inside = [child.conf.get(name) for name in RECEIPT_SETTINGS]
        partitions = child.conf.get("spark.sql.shuffle.partitions")
        outside = [session.conf.get(name, None) for name in RECEIPT_SETTINGS]

    assert inside == ["app", "7", '{"seq":7}']
    assert partitions == "3"
    assert outside == [None, None, None]


def test_a_merge_that_delta_cannot_do_is_refused_before_it_begins(
    spark: SparkSession, tmp_lake: Path
) -> None:
    target = tmp_lake / "out"
    frame = spark.createDataFrame([(1, "x")], "id long, `a``b` string")
    DeltaSink(spark, spec(target, "append"), ()).write(frame, receipt(1))

    with pytest.raises(SinkError) as caught:
        DeltaSink(spark, spec(target, "merge", keys=("id",)), ()).write(frame, receipt(2))

    assert caught.value.code == "FM-SINK-011"
    assert DeltaLog(target).facts().feed_enabled


def test_rows_with_maps_can_tie(spark: SparkSession, tmp_lake: Path) -> None:
    frame = spark.createDataFrame([(1, {"a": 1}), (1, {"b": 2})], "id long, m map<string,int>")

    result = DeltaSink(spark, spec(tmp_lake / "out", "merge", keys=("id",)), ()).write(
        frame, receipt(1)
    )

    assert result.metrics["ties"] == "1"
    assert result.rows_written == 1


def test_an_unknown_change_type_stops_the_write(spark: SparkSession, tmp_lake: Path) -> None:
    target = tmp_lake / "out"
    sink = DeltaSink(spark, spec(target, "merge", keys=("id",)), ())
    frame = spark.createDataFrame(
        [(1, "upsert", 1)], "id long, _change_type string, _commit_version long"
    )

    with pytest.raises(Exception, match="not a change type of Delta: upsert"):
        sink.write(frame, receipt(1))

    assert sink.committed(receipt(1)) is None


def test_upserts_and_deletes_are_rows_of_their_kind_unreduced(spark: SparkSession) -> None:
    kinds = ["insert", "update_preimage", "update_postimage", "delete"]
    frame = spark.createDataFrame(
        [(1, kind, 1, None) for kind in kinds],
        "id long, _change_type string, _commit_version long, _commit_timestamp timestamp",
    )

    assert [tuple(row) for row in changes.upserts(frame).collect()] == [(1,), (1,)]
    assert [tuple(row) for row in changes.deletes(frame).collect()] == [(1,)]
