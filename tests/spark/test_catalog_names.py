"""Upstreams by catalog name: resolved once through Spark, remembered, and checked."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.outsides import fold_journal

import floodmark as fm

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from floodmark.run.context import Run

pytestmark = pytest.mark.spark


@pytest.fixture
def orders(spark: SparkSession, tmp_lake: Path) -> Iterator[str]:
    """The path of the table `shop.orders`."""
    spark.sql("CREATE SCHEMA IF NOT EXISTS shop")
    spark.sql(
        f"CREATE TABLE shop.orders (id INT) USING delta LOCATION '{tmp_lake}/new orders' "
        "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    )
    spark.sql("INSERT INTO shop.orders VALUES (1)")
    yield f"{tmp_lake}/new orders"
    spark.sql("DROP SCHEMA shop CASCADE")


def opened(tmp_lake: Path, spark: SparkSession | None = None) -> fm.Coordinator:
    control = f"{tmp_lake}/_control"
    return fm.Coordinator(control, spark, actor="tester", lease_ttl=2, schema=None)


def code_of(error: pytest.ExceptionInfo[fm.FloodmarkError]) -> str:
    return error.value.code


def test_a_name_is_resolved_once_and_planned_without_spark_from_then_on(
    spark: SparkSession, tmp_lake: Path, orders: str
) -> None:
    with_spark = opened(tmp_lake, spark)
    with_spark.register("p", ["shop.orders"])
    without = opened(tmp_lake)
    batch = without.create_batch(["shop.orders"])

    def copy(inputs: Mapping[str, DataFrame], run: Run) -> None:
        assert inputs["shop.orders"].count() == inputs[orders].count() == 1
        assert run.table("shop.orders").count() == 1
        run.write(inputs["shop.orders"], f"{tmp_lake}/copy", mode="append")

    with_spark.run_pipeline("p", str(batch.batch_id), copy)

    assert [window.upstream for window in batch.windows] == [orders]
    assert without.finalize_batch(str(batch.batch_id)) == (orders,)
    assert [c.version for c in without.checkpoints(["shop.orders"])] == [1]
    assert [e.kind for e in without.history()].count("NAME") == 1
    assert [f.text for f in without.verify() if not f.ok] == []


def test_a_preview_resolves_a_name_and_writes_nothing(
    spark: SparkSession, tmp_lake: Path, orders: str
) -> None:
    batch = opened(tmp_lake, spark).preview(["shop.orders"])

    assert [window.upstream for window in batch.windows] == [orders]
    assert not (tmp_lake / "_control").exists()


def test_a_name_outlives_a_compaction_of_the_journal(
    spark: SparkSession, tmp_lake: Path, orders: str
) -> None:
    coordinator = opened(tmp_lake, spark)
    coordinator.register("p", ["shop.orders"])
    assert fold_journal(coordinator.control)

    assert opened(tmp_lake).look.stored_name("shop.orders") == orders


def test_a_name_and_a_path_of_one_table_are_one_upstream(
    spark: SparkSession, tmp_lake: Path, orders: str
) -> None:
    coordinator = opened(tmp_lake, spark)

    with pytest.raises(fm.FloodmarkError) as twice:
        coordinator.register("p", ["shop.orders", orders])

    assert code_of(twice) == "FM-PLAN-003"


def test_names_that_cannot_be_resolved_are_told_apart(
    spark: SparkSession, tmp_lake: Path, orders: str
) -> None:
    spark.sql("CREATE TABLE shop.plain (id INT) USING parquet")
    spark.sql("CREATE VIEW shop.seen AS SELECT * FROM shop.orders")
    found = {}
    for name in ("shop.nothing", "nowhere.orders", "shop.plain", "shop.seen", "shop.`x"):
        with pytest.raises(fm.FloodmarkError) as caught:
            opened(tmp_lake, spark).register("p", [name])
        found[name] = code_of(caught)
    with pytest.raises(fm.FloodmarkError) as no_session:
        opened(tmp_lake).register("p", ["shop.orders"])

    assert found == {
        "shop.nothing": "FM-PLAN-001",
        "nowhere.orders": "FM-PLAN-001",
        "shop.plain": "FM-PLAN-002",
        "shop.seen": "FM-PLAN-002",
        "shop.`x": "FM-PLAN-001",
    }
    assert code_of(no_session) == "FM-PLAN-030"
    assert not (tmp_lake / "_control").exists()


def test_a_table_that_moved_is_followed_and_read_where_it_is(
    spark: SparkSession, tmp_lake: Path, orders: str
) -> None:
    coordinator = opened(tmp_lake, spark)
    coordinator.register("p", ["shop.orders"])
    first = str(coordinator.create_batch().batch_id)
    coordinator.record_run("p", first, status="SUCCESS")
    coordinator.finalize_batch(first)
    spark.sql("DROP TABLE shop.orders")
    place = f"{tmp_lake}/moved"
    shutil.move(orders, place)
    spark.sql(f"CREATE TABLE shop.orders USING delta LOCATION '{place}'")
    spark.sql("INSERT INTO shop.orders VALUES (2)")

    batch = coordinator.create_batch(["shop.orders"])

    def copy(inputs: Mapping[str, DataFrame], run: Run) -> None:
        assert [row["id"] for row in inputs["shop.orders"].collect()] == [2]
        assert inputs[place].count() == inputs[orders].count() == 1
        assert run.table("shop.orders").count() == 2
        run.write(inputs["shop.orders"], f"{tmp_lake}/copy", mode="append")

    coordinator.run_pipeline("p", str(batch.batch_id), copy)
    window = batch.window(orders)
    assert (window.start, window.end, window.method) == (2, 2, "feed")
    assert opened(tmp_lake).finalize_batch(str(batch.batch_id)) == (orders,)
    assert [e.kind for e in coordinator.history()].count("MOVE") == 1
    assert [f.text for f in coordinator.verify() if not f.ok] == []


def test_a_path_that_moved_and_is_named_now_is_the_same_upstream(
    spark: SparkSession, tmp_lake: Path, orders: str
) -> None:
    coordinator = opened(tmp_lake, spark)
    coordinator.register("p", [orders])
    first = str(coordinator.create_batch().batch_id)
    coordinator.record_run("p", first, status="SUCCESS")
    coordinator.finalize_batch(first)
    spark.sql("DROP TABLE shop.orders")
    place = f"{tmp_lake}/moved"
    shutil.move(orders, place)
    spark.sql(f"CREATE TABLE shop.orders USING delta LOCATION '{place}'")
    spark.sql("INSERT INTO shop.orders VALUES (2)")

    coordinator.register("p", ["shop.orders"])

    assert (
        coordinator.look.stored_name("shop.orders") == coordinator.look.stored_name(place) == orders
    )
    assert coordinator.create_batch(["shop.orders"]).window(orders).start == 2


def test_a_name_that_stands_for_another_table_is_refused(
    spark: SparkSession, tmp_lake: Path, orders: str
) -> None:
    coordinator = opened(tmp_lake, spark)
    coordinator.register("p", ["shop.orders"])
    spark.sql("DROP TABLE shop.orders")
    shutil.rmtree(orders)
    spark.sql(f"CREATE TABLE shop.orders (id INT) USING delta LOCATION '{tmp_lake}/other'")

    with pytest.raises(fm.FloodmarkError) as caught:
        coordinator.create_batch(["shop.orders"])

    assert code_of(caught) == "FM-PLAN-031"
    assert "baseline" not in str(caught.value.next)


def test_a_whole_schema_is_planned_and_what_is_no_delta_table_is_named(
    spark: SparkSession, tmp_lake: Path, orders: str
) -> None:
    spark.sql(f"CREATE TABLE shop.customers (id INT) USING delta LOCATION '{tmp_lake}/customers'")
    spark.sql("CREATE VIEW shop.recent AS SELECT * FROM shop.orders")
    coordinator = opened(tmp_lake, spark)

    batch = coordinator.plan_schemas(["shop"])

    assert {window.upstream for window in batch.windows} == {orders, f"{tmp_lake}/customers"}
    assert batch.unplanned == ("shop.recent",)
    with pytest.raises(fm.FloodmarkError) as caught:
        coordinator.plan_schemas(["nowhere"])
    assert code_of(caught) == "FM-PLAN-001"
