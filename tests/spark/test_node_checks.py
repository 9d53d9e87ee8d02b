"""Every check of a node, on rows that pass, rows that break it, and NULL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from floodmark.config.project.nodes import Expectation
from floodmark.run.nodes import checks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def said(**check: Any) -> Expectation:
    return Expectation.model_validate(check)


@pytest.fixture
def frame(spark: SparkSession) -> DataFrame:
    rows = [("x1", 1), ("x2", 9), ("y", 5), (None, None), ("x2", 2)]
    return spark.createDataFrame(rows, "code string, n int")


def test_each_check_flags_the_rows_that_break_it(frame: DataFrame) -> None:
    every = [
        said(not_null=["code"]),
        said(unique=["code"]),
        said(accepted_values={"column": "code", "values": ["x1", "x2"]}),
        said(range={"column": "n", "min": 2, "max": 5}),
        said(regex={"column": "code", "pattern": "^x[0-9]$"}),
        said(check="n < 9"),
    ]

    found = checks.flagged(frame, every).collect()

    broken = {(row["code"], row["n"]): row[checks.BROKEN] for row in found}
    assert broken == {
        ("x1", 1): [3],
        ("x2", 9): [1, 3, 5],
        ("y", 5): [2, 4],
        (None, None): [0, 5],
        ("x2", 2): [1],
    }


def test_a_row_count_holds_between_its_bounds(frame: DataFrame) -> None:
    bounds = [said(row_count=b) for b in ({"min": 5, "max": 5}, {"min": 6}, {"max": 4})]

    counts = checks.counted(checks.flagged(frame, bounds), bounds)

    assert counts == {0: 5, 1: 5, 2: 5}
    assert [checks.is_broken(b, counts[n]) for n, b in enumerate(bounds)] == [False, True, True]
