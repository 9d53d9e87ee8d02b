"""Marks of time: exact, typed, and never past what can still come."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.model.marks import TimeMark, TimeType, decoded, numbered, settled_through, typed

NAIVE = st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30))  # noqa: DTZ001
ZONES = st.integers(-14 * 60, 14 * 60).map(lambda m: timezone(timedelta(minutes=m)))
MARKS = st.one_of(
    st.builds(lambda at, zone: TimeMark("timestamp", at.replace(tzinfo=zone)), NAIVE, ZONES),
    NAIVE.map(lambda at: TimeMark("timestamp_ntz", at)),
    st.dates().map(lambda day: TimeMark("date", day)),
)


@given(MARKS)
def test_a_mark_survives_its_text_and_its_number_exactly(mark: TimeMark) -> None:
    again = decoded(mark.encoded())

    assert (again.type, again.instant) == (mark.type, mark.instant)
    assert decoded(again.encoded()) == again
    assert numbered(mark.type, mark.number).instant == mark.instant


@given(MARKS, MARKS)
def test_marks_order_like_their_numbers(one: TimeMark, other: TimeMark) -> None:
    if one.type == other.type:
        assert (one.instant < other.instant) == (one.number < other.number)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("timestamp", "2026-01-01T00:00:00"),
        ("timestamp_ntz", "2026-01-01T00:00:00Z"),
        ("date", "2026-01-01T00:00:00Z"),
        ("timestamp", "soon"),
    ],
)
def test_a_text_of_another_type_is_not_guessed_at(kind: TimeType, text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        typed(kind, text)


@pytest.mark.parametrize("text", ["{}", "[]", '{"type":"int","value":"1"}', "1"])
def test_what_is_no_mark_of_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a mark of time"):
        decoded(text)


def test_what_may_be_taken_stays_behind_now() -> None:
    now = datetime(2026, 3, 2, 9, 30, tzinfo=timezone(timedelta(hours=2)))
    wall = datetime(2026, 3, 2, 7, 30)  # noqa: DTZ001

    assert settled_through("timestamp", now, None).value == datetime(2026, 3, 2, 7, 30, tzinfo=UTC)
    assert settled_through("timestamp", now, 60.0).value == now - timedelta(minutes=1)
    assert settled_through("timestamp_ntz", now, None).value == wall + timedelta(hours=14)
    assert settled_through("timestamp_ntz", now, 60.0).value == wall - timedelta(minutes=1)
    assert settled_through("date", now, None).value == date(2026, 3, 1)
    assert settled_through("date", now, 8 * 3600.0).value == date(2026, 2, 28)
