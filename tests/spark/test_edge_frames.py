from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from floodmark.sources.sql import edges
from floodmark.sources.sql.edge_frames import edge_left_by, fresh_rows
from floodmark.sources.sql.edges import Edge, Identity

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

    edge = edge_left_by(first, identity, first["`a t`"] >= 9)
    fresh = fresh_rows(second, edges.decoded(edge.encoded()), identity)

    assert sorted(edge.applied.values()) == sorted(plain.applied.values())
    assert sorted(map(tuple, fresh.collect())) == sorted(expected)
    assert len(expected) == (3 if keys else 5)
    assert fresh.columns == second.columns
    assert fresh_rows(second, Edge(), identity).count() == len(SECOND)
