"""Marks of cursor columns: a value with its type, stored as JSON so that nothing of it is lost.

    {"type":"int","value":"9007199254740993"}
    {"type":"decimal","value":"10.50"}
    {"type":"string","value":"a","order":"binary"}

Times are marks of `floodmark.model.marks`, in the same form. Numbers are texts: a reader of JSON may
round a large one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from decimal import Context, Decimal
from typing import Any, Literal

from floodmark.model import marks
from floodmark.model.marks import TimeMark

StringOrder = Literal["binary", "database"]
"""binary: by code points, as COLLATE "C" does. database: as the column itself is ordered."""

Overlap = timedelta | Decimal | int

MarkType = Literal[marks.TimeType, "int", "decimal", "string"]


@dataclass(frozen=True, slots=True)
class ValueMark:
    """A mark that is no time."""

    type: Literal["int", "decimal", "string"]
    value: int | Decimal | str
    order: StringOrder | None = None
    """Of strings, and said by whoever declared the cursor."""

    @property
    def text(self) -> str:
        """The value, exactly: a decimal without an exponent."""
        return format(self.value, "f") if isinstance(self.value, Decimal) else str(self.value)

    @property
    def instant(self) -> None:
        """A mark that is no time tells no age."""
        return None

    def encoded(self) -> str:
        """The JSON text under which the mark is stored."""
        said = {"type": self.type, "value": self.text}
        if self.order is not None:
            said["order"] = self.order
        return json.dumps(said, separators=(",", ":"))


CursorMark = TimeMark | ValueMark


def mark_of(value: Any, order: StringOrder | None = None) -> CursorMark:
    """The mark of a value as a database driver gives it.

    Raises ValueError for what has no exact order: floats, NaN, booleans, strings without an order.
    """
    if isinstance(value, datetime):
        kind: marks.TimeType = "timestamp" if value.tzinfo else "timestamp_ntz"
        return TimeMark(kind, value.astimezone(UTC) if value.tzinfo else value)
    if isinstance(value, date):
        return TimeMark("date", value)
    if isinstance(value, int) and not isinstance(value, bool):
        return ValueMark("int", value)
    if isinstance(value, Decimal) and value.is_finite():
        return ValueMark("decimal", value)
    if isinstance(value, str) and order is not None:
        return ValueMark("string", value, order)
    raise ValueError(f"no mark can be made of a {type(value).__name__}")


def decoded(text: str) -> CursorMark:
    """The mark of a stored text; raises ValueError if it is none."""
    said = json.loads(text)
    if not isinstance(said, dict) or not isinstance(said.get("value"), str):
        raise ValueError(f"not a mark: {text[:200]!r}")  # noqa: TRY004 - the text is wrong, not its type
    kind, value = said.get("type"), said["value"]
    if kind == "int":
        return ValueMark("int", int(value))
    if kind == "decimal":
        return _decimal(value)
    if kind == "string" and said.get("order") in ("binary", "database"):
        return ValueMark("string", value, said["order"])
    return marks.decoded(text)


def decoded_if_any(text: str | None) -> CursorMark | None:
    return None if text is None else decoded(text)


def guessed(value: float | str, kind: str | None = None) -> CursorMark:
    """The mark of a value as people write it, of the kind they say, or as it looks.

    A number, an ISO date or time, else a string in binary order. Raises ValueError where it is not
    of the kind: integer, decimal, date, timestamp or string.
    """
    if kind == "string":
        return ValueMark("string", str(value), "binary")
    if kind == "integer" or (kind is None and isinstance(value, int)):
        return ValueMark("int", int(str(value)))
    if kind == "decimal" or isinstance(value, float):
        return _decimal(str(value))
    for each in ("date", "timestamp", "timestamp_ntz"):
        try:
            return marks.typed(each, str(value))
        except ValueError:
            continue
    if kind is None:
        return ValueMark("string", str(value), "binary")
    raise ValueError(f"{value!r} is no {kind}")


def as_type_of(mark: CursorMark, like: CursorMark, zone: tzinfo = UTC) -> CursorMark:
    """The same point as a mark of another's type; raises ValueError where that is not exact.

    A date becomes the beginning of its day, a wall time the instant it is in `zone`.
    """
    if mark.type == like.type:
        return mark
    if mark.type == "int" and like.type == "decimal":
        return ValueMark("decimal", Decimal(str(mark.value)))
    if mark.type == "decimal" and like.type == "int" and mark.value == int(mark.value):
        return ValueMark("int", int(mark.value))
    if not isinstance(mark, TimeMark) or like.type not in ("timestamp", "timestamp_ntz"):
        raise ValueError(f"a mark of type {mark.type} is none of type {like.type}")
    value = mark.value
    at = value if isinstance(value, datetime) else datetime.combine(value, time())
    if like.type == "timestamp":
        return TimeMark("timestamp", (at if at.tzinfo else at.replace(tzinfo=zone)).astimezone(UTC))
    return TimeMark("timestamp_ntz", at.astimezone(zone).replace(tzinfo=None) if at.tzinfo else at)


def is_after(one: CursorMark, other: CursorMark) -> bool:
    """Whether a mark lies behind another of its type; strings by code points."""
    return bool(one.value > other.value)  # type: ignore[operator]


EXACT = Context(prec=1_000)
"""Python rounds numbers of more than 28 digits; databases have longer ones."""
WIDEST = 38
"""So many digits a decimal has at most, in most databases and in Spark."""


def first_of(like: CursorMark, said: int | str | date) -> CursorMark:
    """The first value that somebody means who says so, of the type of another mark.

    Raises ValueError where it is not of that type, and for text, of which no range can be told.

    >>> first_of(ValueMark("int", 9), "3").text, first_of(ValueMark("decimal", Decimal(1)), "0.5").text
    ('3', '0.5')
    """
    return _meant(like, said, marks.first_of)


def last_of(like: CursorMark, said: int | str | date) -> CursorMark:
    """The last value that is meant: a day goes to its end. See `first_of`."""
    return _meant(like, said, marks.last_of)


def _meant(
    like: CursorMark,
    said: int | str | date,
    time_of: Callable[[marks.TimeType, str | date], TimeMark],
) -> CursorMark:
    if isinstance(like, TimeMark):
        if isinstance(said, int):
            raise ValueError(f"{said} is a number, the column holds values of type {like.type}")  # noqa: TRY004 - a wrong value, told as the others
        return time_of(like.type, said)
    if like.type == "string":
        raise ValueError(
            "between two texts there is always another one: no range of it can be told"
        )
    if like.type == "decimal":
        return _decimal(str(said))
    try:
        return ValueMark("int", int(str(said)))
    except ValueError:
        raise ValueError(f"{said!r} is no whole number") from None


def just_before(mark: CursorMark) -> CursorMark:
    """A value before this one with none of the column between them; raises ValueError for text."""
    if isinstance(mark, TimeMark):
        return mark.just_before
    if isinstance(mark.value, int):
        return ValueMark("int", mark.value - 1)
    if isinstance(mark.value, str):
        raise ValueError("no text lies just before another")  # noqa: TRY004 - see first_of
    whole = max(mark.value.adjusted() + 1, 1)
    places = max(min(WIDEST - whole, WIDEST // 2), len(mark.text.partition(".")[2]))
    return ValueMark("decimal", EXACT.subtract(mark.value, Decimal(1).scaleb(-places)))


def lowered(mark: CursorMark, overlap: Overlap | None) -> CursorMark:
    """The mark so far before: `low - overlap`; the earliest there is, if that lies before it.

    Raises ValueError where the overlap is negative or not of the mark's kind: a duration for times,
    whole days for dates, a number for numbers; strings have none.
    """
    if not overlap:
        return mark
    if isinstance(overlap, timedelta) and isinstance(mark, TimeMark):
        return _earlier(mark, overlap)
    is_number = isinstance(mark, ValueMark) and not isinstance(mark.value, str)
    if isinstance(overlap, timedelta) or not is_number or overlap < 0:
        raise ValueError(f"an overlap of {overlap} is not one for a mark of type {mark.type}")
    less = EXACT.subtract(Decimal(str(mark.value)), Decimal(overlap))
    if mark.type == "int" and less == less.to_integral_value():
        return ValueMark("int", int(less))
    return ValueMark("decimal", less)


def highest(
    newest: CursorMark, now: datetime, settle: timedelta | int | None, zone: tzinfo
) -> CursorMark | None:
    """The last value that may be taken, by `settle` before now or the newest number; None for any.

    See `marks.settled_through`; wall times are those of a clock in `zone`. Raises ValueError where
    `settle` is not of the mark's kind.
    """
    if not isinstance(newest, TimeMark):
        return lowered(newest, settle) if settle else None
    if isinstance(settle, int) and settle:
        raise ValueError("settle is a number, the cursor is a time")
    seconds = settle.total_seconds() if isinstance(settle, timedelta) else None
    if newest.type == "timestamp_ntz":
        at = (now - timedelta(seconds=seconds or 0.0)).astimezone(zone)
        return TimeMark("timestamp_ntz", at.replace(tzinfo=None))
    return marks.settled_through(newest.type, now, seconds)


def _earlier(mark: TimeMark, overlap: timedelta) -> TimeMark:
    if overlap < timedelta():
        raise ValueError("an overlap is not negative")
    if mark.type == "date" and overlap % timedelta(days=1):
        raise ValueError("an overlap of dates is whole days")
    try:
        return TimeMark(mark.type, mark.value - overlap)
    except OverflowError:
        first = datetime.min.replace(tzinfo=UTC if mark.type == "timestamp" else None)
        return TimeMark(mark.type, date.min if mark.type == "date" else first)


def _decimal(text: str) -> ValueMark:
    try:
        value = Decimal(text)
    except ArithmeticError:
        raise ValueError(f"not a decimal: {text!r}") from None
    if not value.is_finite():
        raise ValueError(f"not a decimal: {text!r}")
    return ValueMark("decimal", value)
