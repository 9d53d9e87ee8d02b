"""DeltaLog against Spark's own change feed, on tables that Spark writes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from floodmark.deltalog import DeltaLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

KINDS = {
    "insert": "insert",
    "delete": "delete",
    "update_preimage": "update",
    "update_postimage": "update",
}

STEPS = (
    "insert into {t} select id, 'a', cast(id % 2 as int) from range(0, 20, 1, 2)",
    "update {t} set v = 'b' where id < 3",
    "update {t} set v = v where id < 2",
    "delete from {t} where id = 5",
    "delete from {t} where id in (6, 7)",
    (
        "merge into {t} t using (select id, 'm' v, 0 g from range(100, 103)) s on t.id = s.id"
        " when not matched then insert *"
    ),
    (
        "merge into {t} t using (select id, 'm' v, 0 g from range(0, 3)) s on t.id = s.id"
        " when matched and t.id = 0 then delete when matched then update set v = s.v"
    ),
    (
        "merge into {t} t using (select id, 'm' v, 0 g from range(10, 12)) s on t.id = s.id"
        " when matched and t.v = 'nope' then update set v = 'x'"
    ),
    "insert into {t} replace where g = 1 select id, 'r', 1 from range(200, 204)",
    "insert into {t} replace where id >= 300 or id = 8 select id, 'r', 0 from range(300, 303)",
    "optimize {t}",
    "restore table {t} to version as of 3",
    "delete from {t} where g = 0",
    "insert overwrite {t} select id, 'o', 1 from range(400, 403)",
    "alter table {t} set tblproperties ('x' = 'y')",
    "alter table {t} add columns (extra string)",
    "insert into {t} select id, 'a', 1, 'e' from range(3)",
    "delete from {t} where id = 1",
    "delete from {t}",
)
"""One statement each; those that change nothing may commit nothing."""


@pytest.fixture(scope="module")
def built(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """The table of each shape, built when it is first asked for: tests come in any order."""
    folder = tmp_path_factory.mktemp("deltalog")
    return cache(lambda shape: _build(spark, str(folder / shape), shape))


@pytest.fixture(params=["plain", "partitioned with vectors"])
def table(request: pytest.FixtureRequest, built: Callable[[str], str]) -> str:
    return built(request.param)


def _build(spark: SparkSession, path: str, shape: str) -> str:
    vectors = str(shape != "plain").lower()
    partitioned = "partitioned by (g)" if shape != "plain" else ""
    spark.sql(
        f"create table delta.`{path}` (id long, v string, g int) using delta {partitioned}"
        " tblproperties ('delta.enableChangeDataFeed' = 'true',"
        f" 'delta.enableDeletionVectors' = '{vectors}')"
    )
    for step in STEPS:
        spark.sql(step.format(t=f"delta.`{path}`"))
    return path


def _feed(spark: SparkSession, path: str) -> dict[int, Counter[str]]:
    reader = spark.read.format("delta").option("readChangeFeed", "true")
    frame = reader.option("startingVersion", 0).load(path)
    feed: dict[int, Counter[str]] = {}
    for version, kind, count in frame.groupBy("_commit_version", "_change_type").count().collect():
        feed.setdefault(version, Counter())[kind] = count
    return feed


def _history(spark: SparkSession, path: str) -> dict[int, Any]:
    return {row["version"]: row for row in spark.sql(f"describe history delta.`{path}`").collect()}


def test_rows_and_kinds_are_those_of_the_feed(spark: SparkSession, table: str) -> None:
    feed, log = _feed(spark, table), DeltaLog(table)

    versions = log.versions(0, log.facts().latest_version)

    for facts in versions:
        seen = feed.get(facts.version, Counter())
        shown = {KINDS[k] for k in seen}
        assert facts.rows in (None, sum(seen.values())), facts
        assert facts.kinds == shown if facts.rows is not None else facts.kinds >= shown, facts
    # Vectors that a RESTORE puts back are all that the log does not tell for certain.
    assert {f.operation for f in versions if f.rows is None} <= {"RESTORE"}


def test_facts_are_those_of_the_history(spark: SparkSession, table: str) -> None:
    history, log = _history(spark, table), DeltaLog(table)
    detail = spark.sql(f"describe detail delta.`{table}`").collect()[0]

    facts = log.facts()

    assert facts.latest_version == max(history)
    assert facts.table_id == detail["id"]
    assert dict(facts.properties) == detail["properties"]
    assert facts.partition_columns == tuple(detail["partitionColumns"])
    schema = spark.read.format("delta").load(table).schema.json()
    assert json.loads(facts.schema_json) == json.loads(schema)
    for version in log.versions(0, facts.latest_version):
        row = history[version.version]
        assert version.operation == row["operation"]
        assert dict(version.metrics) == (row["operationMetrics"] or {})


def test_snapshot_sizes_are_the_rows_at_each_version(spark: SparkSession, table: str) -> None:
    log = DeltaLog(table)

    for version in (3, 8, 12, log.facts().latest_version):
        frame = spark.read.format("delta").option("versionAsOf", version).load(table)
        # collect, because count() is answered from the same statistics
        assert log.snapshot_size(version).rows == len(frame.collect())


def test_cleaned_log_is_described_by_its_checkpoint(spark: SparkSession, table: str) -> None:
    before = DeltaLog(table).facts()
    for version in range(9):
        Path(table, "_delta_log", f"{version:020d}.json").rename(f"{table}.{version}.json")
    try:
        after = DeltaLog(table).facts()
        size = DeltaLog(table).snapshot_size(after.latest_version)
    finally:
        for version in range(9):
            Path(f"{table}.{version}.json").rename(
                Path(table, "_delta_log", f"{version:020d}.json")
            )

    assert after.earliest_version == 9
    assert (after.schema_json, after.table_id) == (before.schema_json, before.table_id)
    assert size.rows == 0


def test_column_mapping_and_commit_timestamps(spark: SparkSession, tmp_path: Path) -> None:
    name = f"delta.`{tmp_path}/it's é`"
    spark.sql(
        f"create table {name} (id long, v string) using delta tblproperties"
        " ('delta.enableChangeDataFeed' = 'true', 'delta.columnMapping.mode' = 'name',"
        " 'delta.enableInCommitTimestamps' = 'true', 'delta.checkpointPolicy' = 'v2')"
    )
    spark.sql(f"insert into {name} values (1, 'a')")
    spark.sql(f"alter table {name} rename column v to w")
    log = DeltaLog(f"{tmp_path}/it's é")

    facts = log.facts()
    versions = log.versions(0, facts.latest_version)

    changed = [v.version for v in versions if v.schema_fingerprint]
    assert changed == [0, 2]
    assert versions[0].schema_fingerprint != versions[2].schema_fingerprint
    newest = spark.sql(f"describe history {name} limit 1").collect()[0]["timestamp"]
    assert facts.latest_at.timestamp() == pytest.approx(newest.timestamp(), abs=0.001)
    assert "columnMapping" in facts.reader_features or facts.min_reader_version == 2


def test_transaction_of_a_write_is_found(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    for version in range(3):
        writer = spark.range(2).coalesce(1).write.format("delta").mode("append")
        writer.option("txnAppId", "app/é").option("txnVersion", version * 10).save(path)
    log = DeltaLog(path)

    found = log.find_transaction("app/é", 10)

    assert log.transaction_version("app/é") == 20
    assert found is not None
    assert (found.version, found.rows, found.transactions) == (1, 2, {"app/é": 10})
