"""Rows of a Spark frame as Arrow batches, whatever their columns are called."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from floodmark.engines.arrow_frames import arrow_schema, record_batches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("name", ["a.b", "`", "a`b.c", "a b", 'q"q', "select", "ä'", "plain"])
def test_columns_of_every_name_come_with_their_values(spark: SparkSession, name: str) -> None:
    """PySpark's own mapInArrow looks `a.b` up as the field b of a column a."""
    frame = spark.createDataFrame([(1, "x"), (2, None)], "id int, text string").toDF("id", name)

    batches = list(record_batches(frame.orderBy("id")))

    assert [row for batch in batches for row in batch.to_pylist()] == [
        {"id": 1, name: "x"},
        {"id": 2, name: None},
    ]
    assert batches[0].schema.names == arrow_schema(frame).names
