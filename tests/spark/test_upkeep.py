"""Upkeep and recovery as Spark sees them: its readers, and targets that it wrote."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import floodmark as fm
from floodmark.control.published.tables import TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from floodmark.run.context import Run

pytestmark = pytest.mark.spark


def add_order(lake: Path, number: int) -> None:
    write_deltalake(
        str(lake / "orders"),
        pa.table({"id": pa.array([number], pa.int64()), "amount": pa.array([10], pa.int64())}),
        mode="append",
        configuration={"delta.enableChangeDataFeed": "true"},
    )


def step(coordinator: fm.Coordinator, lake: Path) -> fm.Batch:
    """Plan, run, finalize: the orders merged into one target and appended to another."""
    source = str(lake / "orders")

    def copy(inputs: Mapping[str, DataFrame], run: Run) -> None:
        run.write(inputs[source], f"{lake}/merged", mode="merge", keys=["id"])
        run.write(inputs[source], f"{lake}/log", mode="append", changes="log")

    batch = coordinator.create_batch([source])
    if batch.batch_id:
        coordinator.run_pipeline("copy", batch.batch_id, copy)
        coordinator.finalize_batch(batch.batch_id)
    return batch


@pytest.fixture
def coordinator(spark: SparkSession, tmp_lake: Path) -> fm.Coordinator:
    """Two finished batches."""
    made = opened(spark, tmp_lake)
    for number in (1, 2):
        add_order(tmp_lake, number)
        made.register("copy", [str(tmp_lake / "orders")])
        step(made, tmp_lake)
    return made


def opened(spark: SparkSession, lake: Path) -> fm.Coordinator:
    return fm.Coordinator(str(lake / "_control"), spark, actor="t", lease_ttl=2, schema=None)


def rows(spark: SparkSession, path: str) -> list[Any]:
    return sorted(spark.read.format("delta").load(path).collect(), key=str)


def test_spark_reads_every_published_row_after_an_upkeep(
    spark: SparkSession, tmp_lake: Path, coordinator: fm.Coordinator
) -> None:
    paths = [f"{coordinator.control}/{table.name}" for table in TABLES]
    for _ in range(12):  # enough commits for checkpoints, below which commits can go
        coordinator.register("other", [str(tmp_lake / "orders"), "/a"], scope="other")
        coordinator.register("other", [str(tmp_lake / "orders")], scope="other")
    before = [rows(spark, path) for path in paths]

    done = coordinator.admin.upkeep(0, allow_short=True)

    assert done.removed_files > 20
    assert not Path(coordinator.control, "history/_delta_log", f"{0:020d}.json").exists()
    spark.catalog.clearCache()
    assert [rows(spark.newSession(), path) for path in paths] == before


def test_a_store_is_rebuilt_from_targets_that_spark_wrote(
    spark: SparkSession, tmp_lake: Path, coordinator: fm.Coordinator
) -> None:
    before = coordinator.look.state()
    shutil.rmtree(coordinator.control)

    restored = opened(spark, tmp_lake)
    restored.admin.rebuild_from_targets([str(tmp_lake / "merged"), str(tmp_lake / "log")])

    marks = {key: mark.version for key, mark in restored.look.state().marks.items()}
    assert marks == {key: mark.version for key, mark in before.marks.items()}
    assert restored.look.state().control_id == before.control_id
    assert step(restored, tmp_lake).status == "NOOP"
    add_order(tmp_lake, 3)
    assert step(restored, tmp_lake).seq == 3
    assert [row.id for row in rows(spark, f"{tmp_lake}/merged")] == [1, 2, 3]
    assert sorted(row.id for row in rows(spark, f"{tmp_lake}/log")) == [1, 2, 3]
    assert [finding for finding in restored.verify() if not finding.ok] == []
    assert DeltaTable(tmp_lake / "merged").version() >= 2
