"""Marks as literals of each dialect, typed, exact to the microsecond."""

from __future__ import annotations

from floodmark.model import CursorMark, TimeMark, ValueMark
from floodmark.model.sql_names import SqlDialect

_DATES = {"sqlserver": "CAST('{}' AS date)"}
_INSTANTS = {
    "postgres": "TIMESTAMP WITH TIME ZONE '{} {}+00:00'",
    "sqlserver": "CAST('{}T{}+00:00' AS datetimeoffset(6))",
    "mysql": "TIMESTAMP '{} {}+00:00'",
    "oracle": "TIMESTAMP '{} {} +00:00'",
    "snowflake": "CAST('{} {} +00:00' AS TIMESTAMP_TZ)",
    "bigquery": "TIMESTAMP '{} {}+00:00'",
}
_WALL_TIMES = {
    "postgres": "TIMESTAMP '{} {}'",
    "sqlserver": "CAST('{}T{}' AS datetime2(6))",
    "mysql": "TIMESTAMP '{} {}'",
    "oracle": "TIMESTAMP '{} {}'",
    "snowflake": "CAST('{} {}' AS TIMESTAMP_NTZ)",
    "bigquery": "DATETIME '{} {}'",
}


FINER: dict[SqlDialect, str] = {"sqlserver": "9", "oracle": "999", "snowflake": "999"}
"""Databases whose times go beyond the microseconds to which Spark cuts them, with the digits of the
last value in one: `datetime2` has seven digits unless said, the others have up to nine.
"""


def last_literal(dialect: SqlDialect, mark: CursorMark) -> str:
    """The last value that Spark sees as this mark; for `:window_end` of a query."""
    if dialect not in FINER or not isinstance(mark, TimeMark) or mark.type == "date":
        return literal(dialect, mark)
    # Marks of time are written with all six digits.
    digits = mark.text.removesuffix("Z")[-6:]
    text = literal(dialect, mark).replace(f".{digits}", f".{digits}{FINER[dialect]}")
    return text.replace("(6)", "(7)")


def literal(dialect: SqlDialect, mark: CursorMark) -> str:
    """The mark in SQL; raises ValueError for a string that the database cannot hold."""
    if isinstance(mark, ValueMark):
        return _text(dialect, str(mark.value)) if mark.type == "string" else _number(dialect, mark)
    if mark.type == "date":
        return _DATES.get(dialect, "DATE '{}'").format(mark.text)
    day, _, clock = mark.text.removesuffix("Z").partition("T")
    templates = _INSTANTS if mark.type == "timestamp" else _WALL_TIMES
    return templates[dialect].format(day, clock)


def _number(dialect: SqlDialect, mark: ValueMark) -> str:
    # In brackets: behind a minus of the query, a negative number would begin a comment.
    text = f"({mark.text})" if mark.text.startswith("-") else mark.text
    if dialect == "bigquery" and mark.type == "decimal":
        return f"BIGNUMERIC '{mark.text}'"  # a plain 1.5 is a FLOAT64 there
    return text


def _text(dialect: SqlDialect, value: str) -> str:
    if "\0" in value or (dialect == "oracle" and not value):
        raise ValueError(f"{dialect} has no such string")
    doubled = value.replace("'", "''")
    if dialect == "sqlserver":
        return f"N'{doubled}'"
    if dialect == "oracle":
        return f"'{doubled}'"
    if dialect == "bigquery":
        return _bigquery_text(value)
    if "\\" not in value:
        return f"'{doubled}'"
    return _with_backslash(dialect, value, doubled)


def _with_backslash(dialect: SqlDialect, value: str, doubled: str) -> str:
    """Whether a backslash escapes is a setting of the session in PostgreSQL and MySQL."""
    if dialect == "mysql":
        return f"CONVERT(X'{value.encode().hex()}' USING utf8mb4)"
    escaped = doubled.replace("\\", "\\\\")
    return f"E'{escaped}'" if dialect == "postgres" else f"'{escaped}'"


def _bigquery_text(value: str) -> str:
    escapes = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r"}
    return "'" + "".join(escapes.get(character, character) for character in value) + "'"
