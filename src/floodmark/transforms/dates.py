"""Dates and times: parts, moving, rounding down, differences, zones."""

from __future__ import annotations

import datetime as dt
from functools import cache
from typing import Annotated, Literal
from zoneinfo import available_timezones

from pydantic import AfterValidator, Field

from floodmark.config.text import nearest
from floodmark.transforms import sql
from floodmark.transforms.params import Name, Params
from floodmark.transforms.registry import Example, Table, transform
from floodmark.transforms.relation import Built, Column, Output, Relation

TIMES = ("timestamp", "timestamp_ntz")
MOMENTS = ("date", *TIMES)

Part = Literal[
    "year", "quarter", "month", "week", "week_year", "day", "day_of_week", "day_of_year",
    "hour", "minute", "second",
]  # fmt: skip
Unit = Literal["year", "quarter", "month", "week", "day", "hour", "minute", "second"]

_PARTS = {
    "year": "YEAR", "quarter": "QUARTER", "month": "MONTH", "week": "WEEKOFYEAR",
    "day": "DAYOFMONTH", "day_of_year": "DAYOFYEAR", "hour": "HOUR", "minute": "MINUTE",
    "second": "SECOND",
}  # fmt: skip
_STEPS = {"week": (7, "DAY"), "quarter": (3, "MONTH")}
_MORNING = dt.datetime.fromisoformat("2026-05-01 08:59:01")
_NOON = dt.datetime.fromisoformat("2026-07-01 12:00:00")
_SMALL = ("hour", "minute", "second")


@cache
def _zones() -> frozenset[str]:
    return frozenset(available_timezones())


def _zone(name: str) -> str:
    known = _zones()
    if known and name not in known:
        close = nearest(name, sorted(known))
        raise ValueError("no time zone is called so" + (f"; nearest: {close}" if close else ""))
    return name


Zone = Annotated[str, AfterValidator(_zone)]


class PartsParams(Params):
    """Which parts."""

    column: Name = Field(description="A date or time.")
    parts: list[Part] = Field(description="Which parts.", min_length=1)
    prefix: str | None = Field(
        None, description="Before the part's name; without it, the column's name and _."
    )


@transform(
    example=Example(
        params={"column": "day", "parts": ["year", "month", "week", "day_of_week"], "prefix": ""},
        given=Table({"day": "date"}, [(dt.date(2027, 1, 1),), (None,)]),
        gives=Table(
            {"day": "date", "year": "int", "month": "int", "week": "int", "day_of_week": "int"},
            [(dt.date(2027, 1, 1), 2027, 1, 53, 5), (None, None, None, None, None)],
        ),
    )
)
def extract_date_parts(input: Relation, params: PartsParams) -> Built:
    """Year, month and other parts of a date or time as numbers.

    Weeks are those of ISO 8601: `week` 1 holds the first Thursday and belongs to `week_year`;
    `day_of_week` is 1 on Monday. Times are taken in the session's zone.
    """
    column = input.column(params.column, *MOMENTS)
    prefix = f"{column.name}_" if params.prefix is None else params.prefix
    outputs = [Output(prefix + part, _part(column, part), "int") for part in params.parts]
    return input.built(input.with_outputs(outputs))


def _part(column: Column, part: str) -> sql.Expr:
    if part == "day_of_week":
        return sql.added(sql.func("WEEKDAY", column.sql), sql.literal(1))
    if part == "week_year":
        return sql.extracted("YEAROFWEEK", column.sql)
    return sql.func(_PARTS[part], column.sql)


class AddParams(Params):
    """How far."""

    column: Name = Field(description="A date or time.")
    amount: int = Field(description="How many units; less than 0 goes back.", ge=-(10**6), le=10**6)
    unit: Unit = Field("day", description="The unit.")
    into: Name = Field(description="The column that gets the result.")


@transform(
    example=Example(
        params={"column": "day", "amount": 1, "unit": "month", "into": "due"},
        given=Table({"day": "date"}, [(dt.date(2026, 1, 31),), (None,)]),
        gives=Table(
            {"day": "date", "due": "date"},
            [(dt.date(2026, 1, 31), dt.date(2026, 2, 28)), (None, None)],
        ),
    )
)
def date_add(input: Relation, params: AddParams) -> Built:
    """A date or time moved by some units; the type stays, and the end of a month is kept to.

    Hours and smaller units need a time.
    """
    column = input.column(params.column, *(TIMES if params.unit in _SMALL else MOMENTS))
    times, unit = _STEPS.get(params.unit, (1, params.unit.upper()))
    value = sql.plus_interval(column.sql, params.amount * times, unit)
    return input.built(input.with_outputs([Output(params.into, value, column.type)]))


class TruncParams(Params):
    """To which unit."""

    column: Name = Field(description="A date or time.")
    unit: Unit = Field(description="The unit.")
    into: Name | None = Field(
        None, description="The column that gets the result; without it, the same."
    )


@transform(
    example=Example(
        params={"column": "at", "unit": "hour", "into": "hour"},
        given=Table({"at": "timestamp_ntz"}, [(_MORNING,), (None,)]),
        gives=Table(
            {"at": "timestamp_ntz", "hour": "timestamp_ntz"},
            [(_MORNING, _MORNING.replace(minute=0, second=0)), (None, None)],
        ),
    )
)
def date_trunc(input: Relation, params: TruncParams) -> Built:
    """The begin of the year, week, hour or other unit; the type stays, weeks begin on Monday.

    Hours and smaller units need a time.
    """
    column = input.column(params.column, *(TIMES if params.unit in _SMALL else MOMENTS))
    output = Output(params.into or column.name, _truncated(column, params.unit), column.type)
    return input.built(input.with_outputs([output]))


def _truncated(column: Column, unit: str) -> sql.Expr:
    if column.kind == "date":
        return (
            column.sql
            if unit == "day"
            else sql.func("TRUNC", column.sql, sql.literal(unit.upper()))
        )
    value = sql.func("DATE_TRUNC", sql.literal(unit.upper()), column.sql)
    return sql.cast_to(value, column.type) if column.type else value


class DiffParams(Params):
    """From where to where."""

    start: Name = Field(description="A date or time.")
    end: Name = Field(description="A date or time; later than start gives a positive number.")
    unit: Unit = Field("day", description="The unit.")
    into: Name = Field(description="The column that gets the number.")


@transform(
    example=Example(
        params={"start": "ordered", "end": "paid", "unit": "month", "into": "months"},
        given=Table(
            {"ordered": "date", "paid": "date"},
            [(dt.date(2026, 1, 15), dt.date(2026, 3, 14)), (dt.date(2026, 1, 15), None)],
        ),
        gives=Table(
            {"ordered": "date", "paid": "date", "months": "bigint"},
            [(dt.date(2026, 1, 15), dt.date(2026, 3, 14), 1), (dt.date(2026, 1, 15), None, None)],
        ),
    )
)
def date_diff(input: Relation, params: DiffParams) -> Built:
    """How many whole units lie between two dates or times, cut off towards 0."""
    start, end = (input.column(name, *MOMENTS) for name in (params.start, params.end))
    unit = sql.word(params.unit.upper())
    value = sql.func("TIMESTAMPDIFF", unit, start.sql, end.sql)
    return input.built(input.with_outputs([Output(params.into, value, "bigint")]))


class ZoneParams(Params):
    """From which zone to which."""

    column: Name = Field(description="A time.")
    source: Zone = Field("UTC", alias="from", description="The zone of what the column shows.")
    target: Zone = Field(alias="to", description="The zone wanted.")
    into: Name | None = Field(
        None, description="The column that gets the result; without it, the same."
    )


@transform(
    example=Example(
        params={"column": "at", "from": "UTC", "to": "Europe/Berlin", "into": "local"},
        given=Table({"at": "timestamp_ntz"}, [(_NOON,), (None,)]),
        gives=Table(
            {"at": "timestamp_ntz", "local": "timestamp_ntz"},
            [(_NOON, _NOON.replace(hour=14)), (None, None)],
        ),
    )
)
def convert_timezone(input: Relation, params: ZoneParams) -> Built:
    """What a clock in another zone shows; the type stays.

    A time that a zone skips (summer time begins) is read with the offset before it, one that it
    has twice with the earlier offset.
    """
    column = input.column(params.column, *TIMES)
    wall = sql.cast_to(column.sql, "timestamp_ntz") if column.kind == "timestamp" else column.sql
    zones = (sql.literal(params.source), sql.literal(params.target))
    value = sql.func("CONVERT_TIMEZONE", *zones, wall)
    if column.kind == "timestamp":
        value = sql.cast_to(value, "timestamp")
    return input.built(input.with_outputs([Output(params.into or column.name, value, column.type)]))
