"""Marks of upstreams without versions: values of a column, typed, so that none of them is guessed.

A mark is stored as JSON text, `{"type":"timestamp","value":"2026-11-15T08:12:00.000001Z"}`: exact to
the microsecond, and with its zone where the type has one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Literal, get_args

from floodmark.model.clock import epoch_micros

TimeType = Literal["timestamp", "timestamp_ntz", "date"]
"""timestamp: an instant. timestamp_ntz: a wall time of no zone. date: a day of no zone."""

FARTHEST_ZONE = timedelta(hours=14)
"""So far ahead of UTC a wall time of no zone can be without lying in the future."""


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class TimeMark:
    """A point of a time column; marks of one type are ordered by their value."""

    type: TimeType
    value: datetime | date
    """An aware datetime, a naive one, or a date, as the type says."""

    @property
    def text(self) -> str:
        """The value as ISO text, with all microseconds; an instant in UTC."""
        if not isinstance(self.value, datetime):
            return self.value.isoformat()
        naive = self.value.astimezone(UTC).replace(tzinfo=None) if self.value.tzinfo else self.value
        return naive.isoformat(timespec="microseconds") + ("Z" if self.type == "timestamp" else "")

    @property
    def instant(self) -> datetime:
        """The value as an instant, for records and ages: without a zone it is taken as UTC."""
        if not isinstance(self.value, datetime):
            return datetime.combine(self.value, time(), UTC)
        return self.value if self.value.tzinfo else self.value.replace(tzinfo=UTC)

    @property
    def number(self) -> int:
        """Microseconds since 1970, or days for a date: marks of one type are ordered by it."""
        if self.type == "date":
            return (self.instant - _EPOCH).days
        return epoch_micros(self.instant)

    @property
    def just_before(self) -> TimeMark:
        """The last value before this one: a microsecond earlier, or a day."""
        return numbered(self.type, self.number - 1)

    def encoded(self) -> str:
        """The JSON text under which the mark is stored."""
        return json.dumps({"type": self.type, "value": self.text}, separators=(",", ":"))


def decoded(text: str) -> TimeMark:
    """The mark of a stored text; raises ValueError if it is none of time."""
    said = json.loads(text)
    if not isinstance(said, dict) or said.get("type") not in get_args(TimeType):
        raise ValueError(f"not a mark of time: {text[:200]!r}")
    return typed(said["type"], str(said["value"]))


def decoded_if_any(text: str | None) -> TimeMark | None:
    return None if text is None else decoded(text)


def typed(kind: TimeType, text: str) -> TimeMark:
    """ISO text as a mark of a type; raises ValueError where it is not of that type."""
    if kind == "date":
        return TimeMark(kind, date.fromisoformat(text))
    value = datetime.fromisoformat(text)
    if (value.tzinfo is None) == (kind == "timestamp"):
        raise ValueError(f"{text!r} has {'no' if value.tzinfo is None else 'a'} zone")
    return TimeMark(kind, value.astimezone(UTC) if value.tzinfo else value)


def numbered(kind: TimeType, number: int) -> TimeMark:
    """The mark of a number; what no calendar has becomes the first of its days."""
    try:
        at = _EPOCH + (timedelta(days=number) if kind == "date" else timedelta(microseconds=number))
    except OverflowError:
        at = datetime.min.replace(tzinfo=UTC)
    values: dict[TimeType, datetime | date] = {
        "timestamp": at,
        "timestamp_ntz": at.replace(tzinfo=None),
        "date": at.date(),
    }
    return TimeMark(kind, values[kind])


def first_of(kind: TimeType, said: str | date) -> TimeMark:
    """The first value that somebody means who says so: a day begins at midnight, an instant's in UTC.

    `said` is ISO text, a date or a datetime; raises ValueError where it is not of the type.

    >>> first_of("timestamp", "2026-03-01").text, last_of("timestamp", "2026-03-01").text
    ('2026-03-01T00:00:00.000000Z', '2026-03-01T23:59:59.999999Z')
    """
    return _said(kind, said, time.min)


def last_of(kind: TimeType, said: str | date) -> TimeMark:
    """The last value that is meant: a day goes to its end. See `first_of`."""
    return _said(kind, said, time.max)


def _said(kind: TimeType, said: str | date, at: time) -> TimeMark:
    value = _read(said) if isinstance(said, str) else said
    if kind == "date":
        if isinstance(value, datetime):
            raise ValueError(f"{said} is a time, the column holds days")
        return TimeMark(kind, value)
    if not isinstance(value, datetime):
        value = datetime.combine(value, at, UTC if kind == "timestamp" else None)
    return typed(kind, value.isoformat())


def _read(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return datetime.fromisoformat(text)


def settled_through(kind: TimeType, now: datetime, settle_seconds: float | None) -> TimeMark:
    """The latest value that may be taken: what lies behind it can still get company.

    Values of the future wait: taken, they would put the mark where it passes over all that comes.
    A day is taken once it is over.
    """
    at = (now - timedelta(seconds=settle_seconds or 0.0)).astimezone(UTC)
    if kind == "timestamp":
        return TimeMark(kind, at)
    if kind == "date":
        return TimeMark(kind, at.date() - timedelta(days=1))
    ahead = FARTHEST_ZONE if settle_seconds is None else timedelta()
    return TimeMark(kind, (at + ahead).replace(tzinfo=None))
