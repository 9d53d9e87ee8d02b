"""What is new in a database: the newest mark; of PostgreSQL by its own driver, without Java."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from floodmark.errors import SourceError
from floodmark.model import CursorMark
from floodmark.model.cursor_marks import mark_of
from floodmark.postgres import Connect, cursor_of, run
from floodmark.postgres.transactions import limit_locks, said, sqlstate
from floodmark.sources.cursor.sql.queries import Bounds, SqlRelation, oldest_query, probe_query

if TYPE_CHECKING:
    from floodmark.postgres import Cursor

IN_UTC = "SET TIME ZONE 'UTC'"
"""For every session that asks PostgreSQL: a query or view may turn wall times into instants or days,
and what plans a window and what reads it have to get the same values, whatever the server, the user
or a JVM has as its zone.
"""
_TYPES = "floodmark_types"


@dataclass(frozen=True, slots=True)
class Probe:
    """What one look shows."""

    newest: CursorMark | None
    """The highest value of the cursor; None where there is none."""
    rows_without_cursor: int


def probe_postgres(
    connect: Connect,
    relation: SqlRelation,
    low: CursorMark | None = None,
    ceiling: CursorMark | None = None,
) -> Probe:
    """The newest mark, not above `ceiling`; reads only, and may be repeated.

    Raises FM-SOURCE-031 if the database does not answer, FM-SOURCE-032 for rows without a value
    where that is said to fail, FM-SOURCE-033 for a type that gives no marks.
    """
    value, nulls = _one_row(connect, relation, probe_query(relation, low, ceiling))
    return seen(relation, value, int(nulls))


def oldest_in_postgres(
    connect: Connect, relation: SqlRelation, bounds: Bounds
) -> CursorMark | None:
    """The smallest value between two values; see `probe_postgres`."""
    (value,) = _one_row(connect, relation, oldest_query(relation, bounds))
    return seen(relation, value, 0).newest


def ask_postgres(connect: Connect, relation: SqlRelation, query: str) -> tuple[Any, ...]:
    """The first row of a query about a relation; raises FM-SOURCE-031 if there is no answer."""
    return _one_row(connect, relation, query)


def types_in_postgres(connect: Connect, relation: SqlRelation, query: str) -> dict[str, int]:
    """The columns of a query with the numbers of their types; those of domains are resolved.

    Raises FM-SOURCE-031 if there is no answer.
    """
    with _asking(connect, relation) as cursor:
        columns = run(cursor, f"SELECT * FROM (\n{query}\n) AS {_TYPES} WHERE false").description
    return {column.name: column.type_code for column in columns or ()}


def _one_row(connect: Connect, relation: SqlRelation, query: str) -> tuple[Any, ...]:
    with _asking(connect, relation) as cursor:
        row = run(cursor, query).fetchone()
    return row if row is not None else (None, 0)


@contextmanager
def _asking(connect: Connect, relation: SqlRelation) -> Iterator[Cursor]:
    """A cursor that only reads; whatever goes wrong is told about the relation."""
    import psycopg

    try:
        connection = connect()
        try:
            connection.read_only = True
            cursor = cursor_of(connection)
            limit_locks(cursor)
            run(cursor, IN_UTC)
            yield cursor
        finally:
            connection.close()
    except psycopg.DataError as error:
        # The driver cannot hold `infinity` and dates beyond the year 9999.
        raise no_mark(relation, said(error)) from error
    except psycopg.Error as error:
        raise unasked(relation, said(error), sqlstate(error)) from error


def seen(relation: SqlRelation, value: Any, nulls: int) -> Probe:
    """What the answer to a probe's query means; raises FM-SOURCE-032 and -033."""
    _refuse_nulls(relation, nulls)
    try:
        newest = None if value is None else mark_of(value, relation.order)
    except ValueError as error:
        raise no_mark(relation, str(error)) from error
    return Probe(newest, nulls)


def _refuse_nulls(relation: SqlRelation, nulls: int) -> None:
    if nulls and relation.on_null_cursor == "fail":
        raise SourceError(
            "FM-SOURCE-032",
            "rows have no value in the cursor column",
            where=_where(relation),
            found=f"{nulls} rows where {relation.cursor} is NULL; no window would ever read them",
            allowed="values in every row, or on_null_cursor: skip or include",
            state="nothing was planned or read",
            next="fill the column or say on_null_cursor, then run the same command again",
        )


def no_mark(relation: SqlRelation, found: str) -> SourceError:
    """The error for a cursor whose values cannot be marks."""
    return SourceError(
        "FM-SOURCE-033",
        "the cursor column has a type or value that gives no marks",
        where=_where(relation),
        found=found,
        allowed="integers, decimals, dates, timestamps within the years 1 to 9999, and strings with"
        " a declared order",
        state="nothing was planned or read",
        next="choose another cursor column, or correct the value",
    )


def unasked(relation: SqlRelation, found: str, sqlstate: str = "") -> SourceError:
    """The error for a database that does not answer, or not to this question.

    The state by which the database classifies it tells which, and whether to ask again helps.
    """
    known = [ways for states, ways in _REFUSALS.items() if sqlstate and sqlstate.startswith(states)]
    title, way = known[0] if known else _NO_ANSWER
    return SourceError(
        "FM-SOURCE-031",
        title,
        where=_where(relation),
        found=found,
        state='nothing was planned or read; this was not taken for "no news"',
        next=f"{way}, then run the same command again",
        retryable=not known,
    )


_NO_ANSWER = ("the database could not be asked", "mend what is said above")
_REFUSALS = {
    ("42P01", "42S02", "S0002", "3F000"): (
        "the database has no such table",
        "correct table or query of the node's read, or create the table",
    ),
    ("42703", "42S22"): (
        "the database has no such column",
        "correct cursor, keys or query of the node's read, or put the column back",
    ),
    ("42501",): (
        "the database does not let this user read",
        "grant the user of the connection SELECT there, or say another user",
    ),
    ("28", "3D000"): (
        "the database does not let this connection in",
        "correct database, user or password of the connection",
    ),
    ("42", "S0"): (
        "the database does not understand the question",
        "correct query, table or cursor of the node's read",
    ),
}
"""How SQLSTATEs begin that stay until somebody changes something; the first that fits counts."""


def _where(relation: SqlRelation) -> str:
    what = relation.table or "a query"
    return f"{what}, cursor {relation.cursor}" if relation.has_cursor else what
