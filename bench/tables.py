"""Tables to measure on, written by delta-rs or Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEED_ON = {"delta.enableChangeDataFeed": "true"}


def small_tables(folder: Path, count: int, commits: int = 5) -> list[str]:
    """Small tables with a change feed, one in ten with a checkpoint, as planning meets them."""
    rows = pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"]})
    paths = []
    for number in range(count):
        path = str(folder / f"t{number:04d}")
        for commit in range(commits):
            configuration = FEED_ON if commit == 0 else None
            write_deltalake(path, rows, mode="append", configuration=configuration)
        if number % 10 == 0:
            DeltaTable(path).create_checkpoint()
        paths.append(path)
    return paths


def append_small(path: str) -> None:
    """One more commit, also to a table that has more columns by now."""
    rows = pa.table({"id": [4], "v": ["d"]})
    write_deltalake(path, rows, mode="append", schema_mode="merge")


def spoil(path: str, kind: int) -> None:
    """A fault that planning has to explain: feed off, feed off and on again, or a new column."""
    table = DeltaTable(path)
    if kind % 3 == 2:
        known = {field.name for field in table.schema().fields}
        name = f"c{len(known)}"
        table.alter.add_columns([Field(name, PrimitiveType("string"))])
        return
    append_small(path)
    DeltaTable(path).alter.set_table_properties({"delta.enableChangeDataFeed": "false"})
    append_small(path)
    if kind % 3 == 1:
        DeltaTable(path).alter.set_table_properties(FEED_ON)


def big_table(spark: SparkSession, path: str, rows: int) -> None:
    """A table of `rows` rows in 8 files, change feed on."""
    frame = spark.range(0, rows, numPartitions=8).selectExpr(*columns())
    writer = frame.write.format("delta").option("delta.enableChangeDataFeed", "true")
    writer.mode("overwrite").save(path)


def append_change(spark: SparkSession, path: str, start: int, rows: int) -> None:
    """`rows` new rows as one commit."""
    frame = spark.range(start, start + rows, numPartitions=2).selectExpr(*columns())
    frame.write.format("delta").mode("append").save(path)


def columns() -> list[str]:
    return [
        "id",
        "id % 1000 AS customer",
        "cast(id % 977 AS decimal(12,2)) AS amount",
        "concat('order ', id) AS note",
        "timestamp_seconds(1700000000 + id % 100000) AS updated_at",
    ]
