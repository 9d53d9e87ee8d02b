"""The SQL of every dialect, as text; PostgreSQL runs it in tests/services."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as st
from tests.window_queries import window_query

from floodmark.errors import SourceError
from floodmark.model.cursor_marks import CursorMark, mark_of
from floodmark.model.sql_names import SqlDialect
from floodmark.sources.cursor.sql.literals import literal
from floodmark.sources.cursor.sql.parameters import bound, parameters_of
from floodmark.sources.cursor.sql.parts import Parts, cuts_between
from floodmark.sources.cursor.sql.queries import (
    SqlRelation,
    everything_query,
    nothing_query,
    probe_query,
)

GOLDEN = Path(__file__).parent / "golden"
DIALECTS = list(get_args(SqlDialect))
AT = datetime(2026, 11, 15, 8, 12, 0, 1, tzinfo=UTC)
MARKS: dict[str, CursorMark] = {
    "int": mark_of(9007199254740993),
    "negative int": mark_of(-5),
    "decimal": mark_of(Decimal("-1E+2")),
    "fraction": mark_of(Decimal("0.10")),
    "date": mark_of(date(1, 2, 3)),
    "instant": mark_of(AT),
    "wall time": mark_of(AT.replace(tzinfo=None)),
    "string": mark_of("it's; --", "binary"),
    "backslash": mark_of("a\\'b", "binary"),
}


def shown(dialect: SqlDialect) -> Iterator[tuple[str, str]]:
    """Every query of a dialect, by name."""
    for name, mark in MARKS.items():
        yield f"literal, {name}", literal(dialect, mark)
    low, high = mark_of(AT), mark_of(AT + timedelta(days=1))
    table = SqlRelation(dialect, "Updated_At", table="Sales.Orders", overlap=timedelta(minutes=15))
    yield "first window of a table", window_query(table, None, high)
    yield "window of a table", window_query(table, low, high)
    yield "probe of a table", probe_query(table)
    settled = SqlRelation(dialect, "updated_at", table="orders", on_null_cursor="include")
    yield "window with NULLs", window_query(settled, low, high)
    yield "probe below a ceiling", probe_query(settled, low, high)
    query = SqlRelation(
        dialect,
        "updated_at",
        query="SELECT o.* FROM orders o WHERE updated_at > :window_start -- not :window_end\n;",
        first_run_query="SELECT * FROM orders",
    )
    yield "window of a query", window_query(query, low, high)
    yield "first window by its own query", window_query(query, None, high)
    words = SqlRelation(dialect, "code", table="orders", order="binary")
    a, b = mark_of("a", "binary"), mark_of("b", "binary")
    yield "window of strings", window_query(words, a, b)
    numbers = SqlRelation(dialect, "id", table="orders", overlap=10)
    yield "window of numbers", window_query(numbers, mark_of(5), mark_of(20))
    whole = SqlRelation(dialect, None, table="Sales.Orders")
    yield "every row of a table", everything_query(whole)
    plain = SqlRelation(dialect, None, query="SELECT * FROM orders -- all\n;")
    yield "every row of a query", everything_query(plain)
    yield "no row", nothing_query(plain, None)
    parts = Parts("Order_Id", 3)
    yield "how far the values of a column go", parts.extent_query(dialect, everything_query(whole))
    for ends in (
        (mark_of(-1), mark_of(11)),
        (low, high),
        (mark_of(Decimal("0.5")), mark_of(Decimal(2))),
    ):
        for number, condition in enumerate(parts.conditions(dialect, *ends), 1):
            yield f"part {number} of a read", f"SELECT * FROM orders WHERE {condition}"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_queries_of_a_dialect_are_the_ones_written_down(dialect: SqlDialect) -> None:
    text = "".join(f"-- {name}\n{query}\n\n" for name, query in shown(dialect))
    golden = GOLDEN / f"{dialect}.sql"
    if os.environ.get("FLOODMARK_UPDATE_GOLDEN"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text, encoding="utf-8")

    assert golden.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_queries_are_one_statement_to_a_parser_of_the_dialect(dialect: SqlDialect) -> None:
    name = {"sqlserver": "tsql"}.get(dialect, dialect)

    for title, query in shown(dialect):
        text = query if query.startswith("SELECT") else f"SELECT {query} AS x"
        assert len(sqlglot.parse(text, dialect=name)) == 1, title


@pytest.mark.parametrize(
    ("dialect", "query"),
    [
        ("postgres", "SELECT ':window_start', a::int FROM t -- :window_end"),
        ("postgres", "SELECT $$:window_start$$, E'\\':window_end' FROM \":window_end\""),
        ("sqlserver", "SELECT [@last_load_timestamp], N'@last_run_timestamp' /* :window_end */"),
        ("mysql", "SELECT `:window_end`, 'it\\'s :window_start' # @last_load_timestamp"),
        ("oracle", "SELECT q'[:window_end]' FROM dual"),
        ("snowflake", "SELECT payload:window_start FROM t"),
        ("bigquery", "SELECT r':window_end', '''@last_run_timestamp''' FROM t"),
    ],
)
def test_what_is_quoted_or_a_comment_or_a_path_is_no_parameter(
    dialect: SqlDialect, query: str
) -> None:
    assert parameters_of(dialect, query) == set()
    assert bound(dialect, query, {}) == query


@pytest.mark.parametrize("dialect", DIALECTS)
def test_both_spellings_are_bound_everywhere(dialect: SqlDialect) -> None:
    query = "SELECT * FROM t WHERE a >:Window_Start AND b <= :window_end AND c>@last_load_timestamp"
    query += " AND d > @last_run_timestamp"
    values: Any = {"window_start": "<1>", "window_end": "<2>"}

    assert bound(dialect, query, values) == (
        "SELECT * FROM t WHERE a ><1> AND b <= <2> AND c><1> AND d > <1>"
    )


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("SELECT * FROM t WHERE a > :window_strat", ":window_strat"),
        ("SELECT * FROM t WHERE a > @last_load_timestmp", "@last_load_timestmp"),
        ("SELECT 'open", "Error tokenizing"),
        ("SELECT 1; SELECT 2", "several statements"),
        ("-- nothing", "nothing"),
        ("DELETE FROM t", "begins with DELETE"),
        ("SELECT :window_start", ":window_start has no value"),
    ],
)
def test_a_query_that_cannot_be_bound_is_refused(query: str, found: str) -> None:
    relation = SqlRelation("postgres", "a", query=query)

    with pytest.raises(SourceError) as caught:
        window_query(relation, None, mark_of(1))

    assert caught.value.code == "FM-SOURCE-030"
    assert found in (caught.value.found or "")


def test_common_table_expressions_nest_where_the_database_lets_them() -> None:
    query = "WITH x AS (SELECT 1 AS a) SELECT * FROM x"

    nested = window_query(SqlRelation("postgres", "a", query=query), None, mark_of(1))
    with pytest.raises(SourceError):
        window_query(SqlRelation("sqlserver", "a", query=query), None, mark_of(1))

    assert query in nested


@given(
    st.integers(-(2**63), 2**63 - 1)
    | st.decimals(-(10**20), 10**20, places=6)
    | st.dates()
    | st.datetimes().map(lambda at: at.replace(tzinfo=UTC)),
    st.data(),
    st.integers(2, 9),
)
def test_parts_share_every_value_and_no_value_twice(
    one: Any, data: st.DataObject, count: int
) -> None:
    same_kind: Any = {
        int: st.integers(-(2**63), 2**63 - 1),
        Decimal: st.decimals(-(10**20), 10**20, places=6),
        date: st.dates(),
        datetime: st.datetimes().map(lambda at: at.replace(tzinfo=UTC)),
    }[type(one)]
    values = sorted([one, data.draw(same_kind)])
    asked = data.draw(same_kind)
    cuts = [cut.value for cut in cuts_between(mark_of(values[0]), mark_of(values[1]), count)]

    assert cuts == sorted(set(cuts))
    assert len(cuts) < count
    assert all(values[0] < cut <= values[1] for cut in cuts)
    edges = [None, *cuts, None]
    holding = [
        1
        for low, high in pairwise(edges)
        if (low is None or asked >= low) and (high is None or asked < high)
    ]
    assert holding == [1]


def test_one_value_or_none_needs_one_connection_and_words_cannot_be_divided() -> None:
    parts = Parts("id", 4)

    assert parts.conditions("postgres", None, None) == []
    assert parts.conditions("postgres", mark_of(7), mark_of(7)) == []
    with pytest.raises(ValueError, match="no parts"):
        parts.conditions("postgres", mark_of("a", "binary"), mark_of("b", "binary"))


def test_strings_that_a_database_cannot_hold_are_refused() -> None:
    with pytest.raises(ValueError, match="no such string"):
        literal("postgres", mark_of("\0", "binary"))
    with pytest.raises(ValueError, match="no such string"):
        literal("oracle", mark_of("", "binary"))
