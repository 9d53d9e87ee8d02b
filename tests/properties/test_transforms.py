"""Every transform does what plain Python says, whatever its columns are called and hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.properties.transform_cases import STRATEGIES, Case, cases
from tests.properties.transform_frames import applied, quick, rows_of, unordered

from floodmark.transforms import standard

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SHUFFLING = (
    "aggregate",
    "deduplicate",
    "join",
    "pivot",
    "sort",
    "limit",
    "union",
    "window_calculation",
)
"""A use of these costs a job with several stages, so fewer are drawn."""


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    return quick(spark)


def test_every_transform_has_an_oracle() -> None:
    assert set(STRATEGIES) == set(standard())


@pytest.mark.parametrize("name", standard())
def test_it_does_what_the_oracle_says(name: str, session: SparkSession, full_size: bool) -> None:
    count = (4 if name in SHUFFLING else 6) * (25 if full_size else 1)

    wrong = [found for case in cases(name, count) if (found := difference(name, case, session))]

    assert not wrong, min(wrong, key=len)


def difference(name: str, case: Case, session: SparkSession) -> str | None:
    """What is wrong with the result, in words; None if nothing is."""
    frame = applied(session, [{name: case.params}], case.given, case.others)
    found, expected = rows_of(frame), case.rows
    is_same = list(map(repr, found)) == list(map(repr, expected))
    if not case.in_order:
        is_same = unordered(found) == unordered(expected)
    if is_same and frame.columns == list(case.columns):
        return None
    return told(case, frame.columns, found)


def told(case: Case, columns: list[str], found: Any) -> str:
    return "\n".join(
        (
            f"params   {case.params!r}",
            f"given    {case.given!r} {case.others!r}",
            f"found    {columns} {found!r}",
            f"expected {list(case.columns)} {case.rows!r}",
        )
    )
