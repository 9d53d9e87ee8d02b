from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from floodmark.errors import SourceError
from floodmark.sources.sql import edges
from floodmark.sources.sql.edge_frames import applied_rows, edge_left_by, fresh_rows
from floodmark.sources.sql.edges import Identity

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FIRST = [(1, 5, "a"), (2, 9, "b"), (2, 9, "b"), (3, None, "c")]
SECOND = [*FIRST, (2, 9, "b"), (4, 9, "B"), (3, None, "c"), (5, 10, None)]


@pytest.mark.parametrize("keys", [(), ("id",)])
def test_frames_leave_out_the_rows_that_the_plain_function_leaves_out(
    spark: SparkSession, keys: tuple[str, ...]
) -> None:
    schema = "id int, `a t` int, name string"
    identity = Identity("a t", keys)
    first = spark.createDataFrame(FIRST, schema).repartition(3)
    second = spark.createDataFrame(SECOND, schema).repartition(3)
    names = ("id", "a t", "name")
    rows = [[dict(zip(names, row, strict=True)) for row in side] for side in (FIRST, SECOND)]
    plain = edges.next_edge(rows[0], identity, lambda at: at >= 9)
    expected = [tuple(row.values()) for row in edges.fresh(rows[1], plain, identity)]

    edge = edge_left_by(first, identity, first["`a t`"] >= 9).cache()
    fresh = fresh_rows(second, edge, "orders")
    left = [tuple(row) for row in SECOND]
    for row in expected:
        left.remove(row)

    counts = sorted(row["applied"] for row in edge.collect())
    assert counts == sorted([0, *plain.applied.values()])
    assert sorted(map(tuple, fresh.collect())) == sorted(expected)
    applied = applied_rows(second, edge, "orders").collect()
    assert sorted(map(tuple, applied), key=str) == sorted(left, key=str)
    assert len(expected) == (3 if keys else 5)
    assert fresh.columns == second.columns
    assert fresh_rows(second, edge.limit(0), "orders").count() == len(SECOND)


def test_new_columns_and_other_keys_change_nothing_about_what_was_applied(
    spark: SparkSession,
) -> None:
    before = spark.createDataFrame([(1, 9, "a")], "id int, at int, name string")
    after = spark.createDataFrame(
        [(1, 9, "a", None), (2, 9, "a", 1.0)], "id int, at int, name string, x double"
    )
    edge = edge_left_by(before, Identity("at"), before["at"] >= 9)

    assert [row["id"] for row in fresh_rows(after, edge, "orders").collect()] == [2]
    with pytest.raises(SourceError) as caught:
        fresh_rows(after.drop("name"), edge, "orders")
    assert caught.value.code == "FM-SOURCE-036"
    assert "name string" in str(caught.value.found)
