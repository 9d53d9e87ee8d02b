"""The coordinator end to end on real Spark and Delta."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import floodmark as fm

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from floodmark.run.context import Run

pytestmark = pytest.mark.spark

CANDIDATES = """
WITH registry_expanded AS (
  SELECT pipeline_name, explode(upstream_tables) AS table_name
  FROM gold.pipeline_registry
),
batch_wms AS (
  SELECT batch_id, table_name, start_version, end_version, status
  FROM gold.watermarks
  WHERE batch_id = ':BATCH_ID'
    AND status = 'PENDING'
),
expected AS (
  SELECT be.table_name, re.pipeline_name
  FROM batch_wms be
  LEFT JOIN registry_expanded re
    ON be.table_name = re.table_name
),
actual AS (
  SELECT pipeline_name, batch_id, status
  FROM (
    SELECT pipeline_name, batch_id, status,
           row_number() OVER (PARTITION BY pipeline_name, batch_id ORDER BY processed_ts DESC) rn
    FROM gold.pipeline_checkpoints
    WHERE batch_id = ':BATCH_ID'
  ) t
  WHERE rn = 1
),
upstream_status AS (
  SELECT
    e.table_name,
    COUNT(DISTINCT e.pipeline_name) AS expected_pipelines,
    SUM(CASE WHEN a.status = 'SUCCESS' THEN 1 ELSE 0 END) AS succeeded_pipelines,
    MAX(b.end_version) AS end_version
  FROM expected e
  LEFT JOIN actual a
    ON e.pipeline_name = a.pipeline_name
  JOIN batch_wms b
    ON e.table_name = b.table_name
  GROUP BY e.table_name
)
SELECT table_name, expected_pipelines, succeeded_pipelines, end_version
FROM upstream_status
"""
PENDING = """
SELECT table_name, start_version, end_version, status
FROM gold.watermarks
WHERE batch_id = ':BATCH_ID' AND status = 'PENDING'
"""
LATEST = """
SELECT pipeline_name,
       first(status) AS latest_status,
       max(processed_ts) AS last_update
FROM (
  SELECT pipeline_name, batch_id, status, processed_ts,
         row_number() OVER (PARTITION BY pipeline_name, batch_id ORDER BY processed_ts DESC) rn
  FROM gold.pipeline_checkpoints
  WHERE batch_id = ':BATCH_ID'
) t
WHERE rn = 1
GROUP BY pipeline_name
"""


@pytest.fixture
def lake(tmp_lake: Path) -> str:
    """Two upstreams with a change feed, empty and then filled: orders and customers."""
    orders = {"id": pa.array([1, 2], pa.int32()), "customer": ["a", "b"]}
    orders["amount"] = pa.array([10, 20], pa.int32())
    for name, rows in {"orders": orders, "customers": {"id": ["a"], "name": ["Ada"]}}.items():
        table, feed = pa.table(rows), {"delta.enableChangeDataFeed": "true"}
        DeltaTable.create(str(tmp_lake / name), table.schema, configuration=feed)
        write_deltalake(str(tmp_lake / name), table, mode="append")
    return str(tmp_lake)


@pytest.fixture
def coordinator(spark: SparkSession, lake: str) -> fm.Coordinator:
    spark.sql("DROP SCHEMA IF EXISTS gold CASCADE")
    return fm.Coordinator(f"{lake}/_control", spark, actor="tester", lease_ttl=2)


def rows(spark: SparkSession, path: str) -> set[tuple[Any, ...]]:
    return {tuple(row) for row in spark.read.format("delta").load(path).collect()}


def test_updates_and_deletes_arrive_exactly_once(
    spark: SparkSession, coordinator: fm.Coordinator, lake: str
) -> None:
    orders, copy = f"{lake}/orders", f"{lake}/copy"
    seen: list[int] = []

    def mirror(inputs: Mapping[str, DataFrame], run: Run) -> Mapping[str, object]:
        seen.append(inputs[orders].count())
        run.write(inputs[orders], copy, mode="merge", keys=["id"])
        return {"note": "mirrored"}

    coordinator.register("mirror", [orders])
    first = coordinator.create_batch([orders])
    result = coordinator.run_pipeline("mirror", str(first.batch_id), mirror)
    assert (result.status, result.rows_read, result.rows_written) == ("SUCCESS", 2, 2)
    assert result.metrics == {"note": "mirrored"}
    assert coordinator.finalize_batch(str(first.batch_id)) == (orders,)
    spark.sql(f"UPDATE delta.`{orders}` SET amount = 11 WHERE id = 1")
    spark.sql(f"DELETE FROM delta.`{orders}` WHERE id = 2")
    spark.sql(f"INSERT INTO delta.`{orders}` VALUES (3, 'c', 30)")

    second = coordinator.create_batch([orders])
    result = coordinator.run_pipeline("mirror", str(second.batch_id), mirror)
    again = coordinator.run_pipeline("mirror", str(second.batch_id), mirror)
    coordinator.finalize_batch(str(second.batch_id))

    assert (second.window(orders).method, second.window(orders).rows) == ("feed", 4)
    assert seen == [2, 4]
    assert (result.rows_read, result.rows_written) == (4, 3)
    assert (again.is_repeat, again.run_id) == (True, result.run_id)
    assert rows(spark, copy) == rows(spark, orders) == {(1, "a", 11), (3, "c", 30)}
    assert [f for f in coordinator.verify() if not f.ok] == []


def test_a_function_that_raises_is_recorded_and_raised_again_and_retried(
    spark: SparkSession, coordinator: fm.Coordinator, lake: str
) -> None:
    orders, copy = f"{lake}/orders", f"{lake}/copy"
    calls: list[str] = []

    def flaky(inputs: Mapping[str, DataFrame], run: Run) -> None:
        calls.append(run.run_id)
        run.write(inputs[orders], copy, mode="append")
        if len(calls) == 1:
            raise ValueError("x" * 10_000)

    coordinator.register("flaky", [orders])
    batch_id = str(coordinator.create_batch([orders]).batch_id)

    with pytest.raises(ValueError, match="xxx"):
        coordinator.run_pipeline("flaky", batch_id, flaky)
    failed = coordinator.status(batch_id)[0]
    held = coordinator.finalize(batch_id).held
    result = coordinator.run_pipeline("flaky", batch_id, flaky)

    assert failed.runs["flaky"].status == "FAILED"
    assert len(failed.runs["flaky"].error or "") == 4_000
    assert held[0].waiting_for == ("flaky",)
    assert (result.status, result.retries, result.rows_written) == ("SUCCESS", 1, 2)
    assert spark.read.format("delta").load(copy).count() == 2


def test_an_upstream_without_news_gives_an_empty_frame_with_its_schema(
    spark: SparkSession, coordinator: fm.Coordinator, lake: str
) -> None:
    orders, customers = f"{lake}/orders", f"{lake}/customers"
    frames: dict[str, DataFrame] = {}

    def look(inputs: Mapping[str, DataFrame], run: Run) -> None:
        frames.update({name: inputs[name] for name in (orders, customers)})
        frames["before"] = run.table(orders, at="before")
        frames["end"] = run.table(orders)

    coordinator.register("look", [orders, customers])
    for _ in range(2):
        batch_id = str(coordinator.create_batch([orders]).batch_id)
        coordinator.run_pipeline("look", batch_id, look)
        coordinator.finalize_batch(batch_id)
        spark.sql(f"INSERT INTO delta.`{orders}` VALUES (9, 'z', 90)")

    changes = ["_change_type", "_commit_version", "_commit_timestamp"]
    assert frames[customers].columns == ["id", "name", *changes]
    assert frames[customers].count() == 0
    assert frames[orders].columns == ["id", "customer", "amount", *changes]
    assert {row["id"] for row in frames["before"].collect()} == {1, 2}
    assert {row["id"] for row in frames["end"].collect()} == {1, 2, 9}


def test_the_published_tables_answer_the_read_only_sql_people_have(
    spark: SparkSession, coordinator: fm.Coordinator, lake: str
) -> None:
    orders, customers = f"{lake}/orders", f"{lake}/customers"
    coordinator.register("pipeline_a", [orders, customers])
    coordinator.register("pipeline_b", [customers])
    batch_id = str(coordinator.create_batch([orders, customers]).batch_id)

    def ask(query: str) -> list[tuple[Any, ...]]:
        return sorted(
            tuple(row) for row in spark.sql(query.replace(":BATCH_ID", batch_id)).collect()
        )

    pending = ask(PENDING)
    coordinator.record_run("pipeline_b", batch_id, status="FAILED", error="no")
    coordinator.record_run("pipeline_b", batch_id, status="SUCCESS")
    candidates = ask(CANDIDATES)
    latest = [row[:2] for row in ask(LATEST)]
    coordinator.record_run("pipeline_a", batch_id, status="SUCCESS")
    coordinator.finalize_batch(batch_id)

    assert pending == [(customers, 0, 1, "PENDING"), (orders, 0, 1, "PENDING")]
    assert candidates == [(customers, 2, 1, 1), (orders, 1, 0, 1)]
    assert latest == [("pipeline_b", "SUCCESS")]
    assert ask(PENDING) == []
    committed = "SELECT table_name, last_committed_version FROM gold.committed_watermarks"
    assert ask(committed) == [(customers, 1), (orders, 1)]
    assert spark.table("gold.history").count() == coordinator.look.state().seq
    types = dict(spark.table("gold.pipeline_checkpoints").dtypes)
    assert types["metrics"] == "map<string,string>"
    assert dict(spark.table("gold.pipeline_registry").dtypes)["upstream_tables"] == "array<string>"


def test_a_function_may_not_write_one_name_twice_nor_ask_for_strangers(
    spark: SparkSession, coordinator: fm.Coordinator, lake: str
) -> None:
    orders = f"{lake}/orders"
    coordinator.register("p", [orders])
    batch_id = str(coordinator.create_batch([orders]).batch_id)

    def twice(inputs: Mapping[str, DataFrame], run: Run) -> None:
        run.write(inputs[orders], f"{lake}/copy", mode="append")
        run.write(inputs[orders], f"{lake}/copy", mode="append")

    def stranger(inputs: Mapping[str, DataFrame], run: Run) -> None:
        run.table(f"{lake}/customers")

    def wrong_return(inputs: Mapping[str, DataFrame], run: Run) -> int:
        return 7

    codes = {}
    for function in (twice, stranger, wrong_return):
        with pytest.raises(fm.FloodmarkError) as caught:
            coordinator.run_pipeline("p", batch_id, function)
        codes[function.__name__] = caught.value.code

    assert codes == {
        "twice": "FM-SINK-006",
        "stranger": "FM-RUN-003",
        "wrong_return": "FM-RUN-002",
    }
    assert spark.read.format("delta").load(f"{lake}/copy").count() == 2
