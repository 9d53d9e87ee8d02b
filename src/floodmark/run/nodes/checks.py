"""The checks of a node as Spark expressions: which rows break which of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from floodmark.config.project import Expectation
from floodmark.model import CHANGE_COLUMNS
from floodmark.model.names import quoted
from floodmark.sinks import UPSERTS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BROKEN = "_landed_broken"
"""A column with the numbers of the checks that a row breaks."""

_TYPE, _VERSION, _ = CHANGE_COLUMNS


def title_of(check: Expectation) -> str:
    """A check by its name, or as it is written."""
    if check.name:
        return check.name
    kind = check.kind
    said = getattr(check, kind)
    if isinstance(said, list):
        return f"{kind}({', '.join(said)})"
    return f"{kind}({getattr(said, 'column', said) if kind != 'row_count' else ''})"


def flagged(frame: DataFrame, checks: Sequence[Expectation]) -> DataFrame:
    """The frame with BROKEN; no row is lost, and nothing runs before the rows are asked for.

    Only rows that will be there are looked at: deletes and pre-images of a change feed pass.
    """
    from pyspark.sql import functions as fn

    numbers = [
        fn.when(will_be_there(frame) & ~fn.coalesce(_holds(frame, check), fn.lit(False)), number)  # noqa: FBT003
        for number, check in enumerate(checks)
        if check.row_count is None
    ]
    broken = fn.array_compact(fn.array(*numbers)) if numbers else fn.array().cast("array<int>")
    return frame.select("*", broken.cast("array<int>").alias(BROKEN))


def will_be_there(frame: DataFrame) -> Column:
    """Whether a row is one that a write leaves behind."""
    from pyspark.sql import functions as fn

    if _TYPE not in frame.columns:
        return fn.expr("true")
    return fn.col(_TYPE).isin(*UPSERTS)


def breaks(numbers: Sequence[int]) -> Column:
    """Whether a flagged row breaks one of these checks."""
    from pyspark.sql import functions as fn

    return fn.arrays_overlap(fn.col(BROKEN), fn.array(*map(fn.lit, numbers)))


def sums(numbers: Sequence[int]) -> list[Column]:
    """For each check how many of the flagged rows break it."""
    from pyspark.sql import functions as fn

    return [fn.sum(fn.when(breaks([n]), 1).otherwise(0)).alias(f"broken_{n}") for n in numbers]


def counted(frame: DataFrame, expect: Sequence[Expectation]) -> dict[int, int | None]:
    """Rows that break each check; for row_count how many rows there are."""
    from pyspark.sql import functions as fn

    of_rows = [n for n, check in enumerate(expect) if check.row_count is None]
    there = fn.sum(fn.when(will_be_there(frame), 1).otherwise(0)).alias("rows")
    found = frame.agg(there, *sums(of_rows)).collect()[0].asDict()
    counts: dict[int, int | None] = {n: int(found[f"broken_{n}"] or 0) for n in of_rows}
    whole = {n: int(found["rows"] or 0) for n, c in enumerate(expect) if c.row_count is not None}
    return {**counts, **whole}


def is_broken(check: Expectation, count: int | None) -> bool:
    """Whether a check is broken by so many rows; of a row_count, whether they are too few or too many."""
    if check.row_count is None:
        return bool(count)
    low, high = check.row_count.min, check.row_count.max
    rows = count or 0
    return (low is not None and rows < low) or (high is not None and rows > high)


def _holds(frame: DataFrame, check: Expectation) -> Column:
    """Whether a check holds for a row; NULL counts as broken.

    Only not_null and check look at NULL: to the others a missing value is none of their business.
    """
    from pyspark.sql import functions as fn

    if check.check is not None:
        return fn.expr(check.check)
    if check.not_null is not None:
        return _all([_column(name).isNotNull() for name in check.not_null])
    if check.unique is not None:
        return _is_alone(frame, check.unique)
    if check.accepted_values is not None:
        value = _column(check.accepted_values.column)
        return value.isNull() | value.isin(*check.accepted_values.values)
    if check.regex is not None:
        value = _column(check.regex.column)
        return value.isNull() | fn.regexp_like(value.cast("string"), fn.lit(check.regex.pattern))
    assert check.range is not None  # noqa: S101  # the models have seen to it
    value = _column(check.range.column)
    low, high = check.range.min, check.range.max
    bounds = [value >= fn.lit(low)] if low is not None else []
    bounds += [value <= fn.lit(high)] if high is not None else []
    return value.isNull() | _all(bounds)


def _is_alone(frame: DataFrame, columns: Sequence[str]) -> Column:
    """No other row of the same version has these values; rows with a NULL among them are alone."""
    from pyspark.sql import Window as Over
    from pyspark.sql import functions as fn

    keys = [_column(name) for name in columns]
    of_version = [fn.col(_VERSION)] if _VERSION in frame.columns else []
    same = Over.partitionBy(*keys, *of_version)
    rows = fn.sum(fn.when(will_be_there(frame), 1).otherwise(0)).over(same)
    has_null = ~_all([key.isNotNull() for key in keys])
    return has_null | (rows == 1)


def _all(conditions: Sequence[Column]) -> Column:
    from pyspark.sql import functions as fn

    whole = fn.expr("true")
    for condition in conditions:
        whole = whole & condition
    return whole


def _column(name: str) -> Column:
    from pyspark.sql import functions as fn

    return fn.col(quoted(name))
