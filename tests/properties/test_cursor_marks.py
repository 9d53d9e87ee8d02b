from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.model import marks
from floodmark.model.cursor_marks import (
    EXACT,
    decoded,
    first_of,
    just_before,
    last_of,
    lowered,
    mark_of,
)

zones = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
FIRST, LAST = (datetime(year, 1, 1, tzinfo=UTC).replace(tzinfo=None) for year in (2, 9998))
instants = st.datetimes(FIRST, LAST, timezones=zones)
numbers = st.integers() | st.decimals(allow_nan=False, allow_infinity=False)
times = instants | st.datetimes() | st.dates()
values = numbers | times | st.text()


@given(values)
def test_a_mark_comes_back_as_it_went(value: Any) -> None:
    mark = mark_of(value, "binary")

    back = decoded(mark.encoded())

    assert back == mark
    assert back.value == value
    assert type(back.value) is type(value)


@given(times)
def test_marks_of_time_are_those_of_time_columns(value: Any) -> None:
    text = mark_of(value).encoded()

    assert marks.decoded(text) == decoded(text)


@given(st.integers(), st.integers(min_value=0))
def test_a_lowered_number_lies_exactly_so_far_before(value: int, overlap: int) -> None:
    assert lowered(mark_of(value), overlap).value == value - overlap


@given(instants, st.timedeltas(timedelta(), timedelta(days=4_000_000)))
def test_a_lowered_instant_lies_so_far_before_or_at_the_beginning_of_time(
    value: datetime, overlap: timedelta
) -> None:
    low = lowered(mark_of(value), overlap).value

    first = datetime.min.replace(tzinfo=UTC)
    is_before_time = value.astimezone(UTC) - first < overlap
    assert low == (first if is_before_time else value.astimezone(UTC) - overlap)


@pytest.mark.parametrize("value", [True, 1.5, Decimal("NaN"), Decimal("Infinity"), None, b"a"])
def test_what_has_no_exact_order_gives_no_mark(value: Any) -> None:
    with pytest.raises(ValueError, match="no mark"):
        mark_of(value, "binary")


def test_a_string_needs_a_declared_order() -> None:
    with pytest.raises(ValueError, match="no mark"):
        mark_of("a")


@pytest.mark.parametrize(
    ("value", "overlap"),
    [
        ("a", 1),
        ("a", timedelta(1)),
        (1, timedelta(1)),
        (1, -1),
        (date(2026, 1, 1), timedelta(hours=1)),
        (date(2026, 1, 1), 1),
        (datetime(2026, 1, 1, tzinfo=UTC), timedelta(-1)),
    ],
)
def test_an_overlap_of_another_kind_is_refused(value: Any, overlap: Any) -> None:
    with pytest.raises(ValueError, match="overlap"):
        lowered(mark_of(value, "binary"), overlap)


@pytest.mark.parametrize(
    "said",
    [
        [],
        {"type": "int", "value": 5},
        {"type": "int", "value": "5.0"},
        {"type": "decimal", "value": "NaN"},
        {"type": "decimal", "value": "x"},
        {"type": "string", "value": "a"},
        {"type": "timestamp", "value": "2026-01-01T00:00:00"},
        {"type": "float", "value": "1"},
    ],
)
def test_what_is_no_mark_is_refused(said: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        decoded(json.dumps(said))


@given(st.integers() | instants | st.dates(date(2, 1, 1)))
def test_nothing_lies_between_a_value_and_the_one_just_before_it(value: Any) -> None:
    mark: Any = mark_of(value)
    before: Any = just_before(mark)
    steps: dict[type, Any] = {int: 1, date: timedelta(days=1)}

    assert before.value + steps.get(type(value), timedelta(microseconds=1)) == mark.value


@given(st.decimals(-(10**20), 10**20, places=6), st.integers(0, 6))
def test_no_decimal_of_the_column_lies_between_a_value_and_the_one_just_before_it(
    value: Decimal, places: int
) -> None:
    before: Any = just_before(mark_of(value)).value

    assert before < value
    assert EXACT.subtract(value, Decimal(1).scaleb(-places)) < before


@pytest.mark.parametrize(
    ("like", "said", "first", "last"),
    [
        (7, "3", 3, 3),
        (7, 3, 3, 3),
        (Decimal("7.50"), "0.25", Decimal("0.25"), Decimal("0.25")),
        (date(2026, 3, 2), "2026-03-01", date(2026, 3, 1), date(2026, 3, 1)),
        (
            datetime(2026, 3, 2),  # noqa: DTZ001 a wall time
            "2026-03-01",
            datetime(2026, 3, 1),  # noqa: DTZ001
            datetime(2026, 3, 1, 23, 59, 59, 999999),  # noqa: DTZ001
        ),
    ],
)
def test_a_value_is_meant_as_the_type_of_the_column(
    like: Any, said: Any, first: Any, last: Any
) -> None:
    assert first_of(mark_of(like), said).value == first
    assert last_of(mark_of(like), said).value == last


@pytest.mark.parametrize(
    ("like", "said"), [(7, "x"), (7, "1.5"), (Decimal(7), "x"), (date(2026, 3, 2), 3), ("b", "a")]
)
def test_a_value_of_another_type_is_none(like: Any, said: Any) -> None:
    with pytest.raises(ValueError, match=r".+"):
        first_of(mark_of(like, "binary"), said)
