"""The queries of a window, run by a real PostgreSQL: by its driver, and by Spark over JDBC."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from operator import le
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.properties.edge_model import Edge, fresh, next_edge
from tests.window_queries import window_query

from floodmark.engines.postgres_server import PostgresServer
from floodmark.errors import SetupError, SourceError
from floodmark.model.cursor_marks import CursorMark, mark_of
from floodmark.model.sql_names import qualified, quoted_for
from floodmark.postgres import connector
from floodmark.sources.cursor import jdbc
from floodmark.sources.cursor.edges import Identity
from floodmark.sources.cursor.sql.literals import literal
from floodmark.sources.cursor.sql.parameters import bound
from floodmark.sources.cursor.sql.parts import Parts
from floodmark.sources.cursor.sql.probes import probe_postgres
from floodmark.sources.cursor.sql.queries import SqlRelation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.postgres

AT = datetime(2026, 11, 15, 8, 12, 0, 1, tzinfo=UTC)
CURSORS = ("id", "at", "wall", "amount")
TICK = timedelta(microseconds=1)


class Database:
    """A schema of a test."""

    def __init__(self, server: PostgresServer, schema: str) -> None:
        self.dsn = server.dsn
        self.table = qualified("postgres", (schema, "Orders"))
        self.connect = connector(server.dsn)

    def run(self, text: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(text.encode())
            return cursor.fetchall() if cursor.description else []

    def relation(self, cursor: str = "at", **more: Any) -> SqlRelation:
        table = None if "query" in more else self.table
        return SqlRelation("postgres", cursor, table=table, **more)


@pytest.fixture
def database(postgres: PostgresServer, pg_schema: str) -> Database:
    return Database(postgres, pg_schema)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("bigint", [1, 2**53 + 1, 2**63 - 1]),
        ("numeric(30,10)", [Decimal("-1.5"), Decimal("0.0000000001"), Decimal("1e15")]),
        ("date", [date(1, 1, 1), date(2026, 1, 1), date(9999, 12, 31)]),
        ("timestamptz", [AT, AT + TICK, AT + 2 * TICK]),
        ("timestamp", [(AT + n * TICK).replace(tzinfo=None) for n in range(3)]),
        ('text COLLATE "en-x-icu"', ["A\\", "B'", "a"]),
    ],
)
def test_marks_of_every_type_bound_the_window_exactly(
    database: Database, kind: str, values: list[Any]
) -> None:
    marks = [mark_of(value, "binary") for value in values]
    rows = ", ".join(f"({literal('postgres', mark)})" for mark in marks)
    database.run(
        f"CREATE TABLE {database.table} (at {kind}); INSERT INTO {database.table} VALUES {rows}"
    )
    relation = database.relation(order="binary" if "text" in kind else None)

    seen = probe_postgres(database.connect, relation)
    first = database.run(window_query(relation, None, marks[0]))
    second = database.run(window_query(relation, marks[1], marks[2]))

    assert seen.newest == marks[2]
    assert [row[0] for row in first] == values[:1]
    assert sorted(row[0] for row in second) == values[1:]


@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.text(st.characters(exclude_characters="\0", codec="utf-8"))
    | st.integers(-(2**63), 2**63 - 1)
    | st.decimals(-(10**20), 10**20, places=10)
    | st.dates()
    | st.datetimes()
    | st.datetimes().map(lambda at: at.replace(tzinfo=UTC))
)
def test_a_literal_is_the_value_itself(database: Database, value: Any) -> None:
    mark = mark_of(value, "binary")

    assert selected(database, "on", mark) == selected(database, "off", mark) == value


def selected(database: Database, conforming: str, mark: CursorMark) -> Any:
    with psycopg.connect(database.dsn) as connection:
        connection.execute(f"SET standard_conforming_strings = {conforming}".encode())
        row = connection.execute(f"SELECT {literal('postgres', mark)}".encode()).fetchone()
    return row[0] if row else None


pieces = st.lists(
    st.sampled_from(
        [":window_start", "@last_run_timestamp", "'", '"', "--", "/*", "*/", "\\", "$$"]
    )
    | st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=4)
).map("".join)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(pieces, pieces, pieces)
def test_parameters_are_bound_beside_any_text_and_never_in_it(
    database: Database, text: str, name: str, note: str
) -> None:
    safe_note = note.replace("*/", "").replace("/*", "").replace("*", "").replace("/", "")
    quoted_name = quoted_for("postgres", (name or "x")[:15])
    query = (
        f"SELECT {literal('postgres', mark_of(text, 'binary'))} AS {quoted_name} /* {safe_note} */,"
        f":window_start AS a -- {' '.join(note.splitlines())}\n, :window_end AS b"
    )

    bound_query = bound("postgres", query, {"window_start": "1", "window_end": "2"})

    assert database.run(bound_query) == [(text, 1, 2)]


def test_an_empty_table_has_no_mark(database: Database) -> None:
    database.run(f"CREATE TABLE {database.table} (at timestamptz)")

    assert probe_postgres(database.connect, database.relation()).newest is None


def test_a_ceiling_leaves_the_future_for_later(database: Database) -> None:
    database.run(f"CREATE TABLE {database.table} (at timestamptz)")
    database.run(f"INSERT INTO {database.table} VALUES ('{AT}'), ('2999-01-01 00:00:00+00')")

    seen = probe_postgres(database.connect, database.relation(), None, mark_of(AT + TICK))

    assert seen.newest == mark_of(AT)


def test_rows_without_a_cursor_are_refused_unless_something_is_said(database: Database) -> None:
    database.run(
        f"CREATE TABLE {database.table} (at int); INSERT INTO {database.table} VALUES (NULL), (1)"
    )

    with pytest.raises(SourceError) as caught:
        probe_postgres(database.connect, database.relation())
    ignored = database.relation(on_null_cursor="ignore")
    included = database.relation(on_null_cursor="include")

    assert caught.value.code == "FM-SOURCE-032"
    assert probe_postgres(database.connect, ignored).rows_without_cursor == 1
    assert database.run(window_query(ignored, None, mark_of(1))) == [(1,)]
    assert len(database.run(window_query(included, mark_of(1), mark_of(1)))) == 2


@pytest.mark.parametrize(
    ("kind", "value", "code"),
    [
        ("float8", "1.5", "FM-SOURCE-033"),
        ("numeric", "'NaN'", "FM-SOURCE-033"),
        ("timestamptz", "'infinity'", "FM-SOURCE-033"),
        ("text", "'a'", "FM-SOURCE-033"),
        ("json", "'{}'", "FM-SOURCE-031"),
    ],
)
def test_what_gives_no_mark_is_refused(
    database: Database, kind: str, value: str, code: str
) -> None:
    database.run(
        f"CREATE TABLE {database.table} (at {kind}); INSERT INTO {database.table} VALUES ({value})"
    )

    with pytest.raises(SourceError) as caught:
        probe_postgres(database.connect, database.relation())

    assert caught.value.code == code


def test_a_database_that_does_not_answer_is_never_no_news(database: Database) -> None:
    nowhere = connector("host=127.0.0.1 port=1")

    with pytest.raises(SourceError) as caught:
        probe_postgres(nowhere, database.relation())
    assert (caught.value.code, caught.value.retryable) == ("FM-SOURCE-031", True)


def test_what_the_database_does_not_have_is_not_worth_a_retry(database: Database) -> None:
    def refusal(cursor: str = "at") -> SourceError:
        with pytest.raises(SourceError) as caught:
            probe_postgres(database.connect, database.relation(cursor))
        assert (caught.value.code, caught.value.retryable) == ("FM-SOURCE-031", False)
        return caught.value

    assert "no such table" in refusal().title
    database.run(f"CREATE TABLE {database.table} (at json)")
    assert "does not understand" in refusal().title  # no max of it
    gone = refusal("gone")
    assert "no such column" in gone.title
    assert "SQLSTATE 42703" in str(gone.found)
    assert str(gone.next).startswith("correct cursor, keys or query")


def test_a_query_is_bound_and_bounded(database: Database) -> None:
    database.run(f"CREATE TABLE {database.table} (id int, at timestamptz)")
    database.run(
        f"INSERT INTO {database.table} SELECT n, '{AT}'::timestamptz + n * interval '1 minute'"
        " FROM generate_series(1, 10) n"
    )
    relation = database.relation(
        query=f"SELECT id, at, ':window_end' AS said FROM {database.table}"
        " WHERE at > :window_start -- @last_run_timestamp\n;",
        first_run_query=f"SELECT id, at FROM {database.table}",
        overlap=timedelta(minutes=2),
    )
    low, high = mark_of(AT + timedelta(minutes=5)), mark_of(AT + timedelta(minutes=8))

    first = database.run(window_query(relation, None, high))
    second = database.run(window_query(relation, low, high))

    assert [row[0] for row in first] == list(range(1, 9))
    assert [row[0] for row in second] == [4, 5, 6, 7, 8]
    assert {row[2] for row in second} == {":window_end"}


def test_windows_of_a_table_apply_every_row_once(database: Database) -> None:
    """First run, no news, ties and late ties at the edge, a late row within the overlap."""
    database.run(f"CREATE TABLE {database.table} (id int, at int)")
    relation = database.relation(overlap=2)
    identity, edge, low = Identity("at", ("id",)), Edge(), None
    applied: list[int] = []
    steps = ["(1, 10), (2, 10)", "", "(3, 10)", "(4, 8), (5, 12)", "(6, 12), (7, 11)", ""]

    for step in steps:
        if step:
            database.run(f"INSERT INTO {database.table} VALUES {step}")
        high = probe_postgres(database.connect, relation, low).newest
        assert high is not None
        found = database.run(window_query(relation, low, high))
        rows = [dict(zip(("id", "at"), row, strict=True)) for row in found]
        applied += [row["id"] for row in fresh(rows, edge, identity)]
        edge = next_edge(rows, identity, partial(le, int(str(high.value)) - 2))
        low = high

    assert applied == [1, 2, 3, 4, 5, 6, 7]


def test_a_window_is_planned_by_the_values_that_are_read_whatever_the_zone_of_the_server(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query may make instants of wall times: by the zone of the session that asks."""
    database.run(f"CREATE TABLE {database.table} (id int, wall timestamp)")
    database.run(f"INSERT INTO {database.table} VALUES (1, '2026-01-01 12:00')")
    monkeypatch.setenv("PGTZ", "America/New_York")
    query = f"SELECT id, wall::timestamptz AS at FROM {database.table}"

    newest = probe_postgres(database.connect, SqlRelation("postgres", "at", query=query)).newest

    assert newest == mark_of(datetime(2026, 1, 1, 12, tzinfo=UTC))
    options = jdbc.read_options(jdbc.JdbcConnection("postgres"), query)
    assert options["sessionInitStatement"] == "SET TIME ZONE 'UTC'"
    own = jdbc.JdbcConnection("postgres", options={"sessionInitStatement": "SELECT 1"})
    assert jdbc.read_options(own, query)["sessionInitStatement"] == "SELECT 1"


def test_jdbc_options_name_driver_address_and_rows() -> None:
    options = jdbc.read_options(
        jdbc.JdbcConnection("sqlserver", "db", "my;shop", user="etl", password="secret"),
        "SELECT 1 AS x",
    )

    assert options == {
        "url": "jdbc:sqlserver://db:1433;databaseName={my;shop}",
        "driver": "com.microsoft.sqlserver.jdbc.SQLServerDriver",
        "dbtable": "(SELECT 1 AS x) floodmark_read",
        "fetchsize": "10000",
        "preferTimestampNTZ": "true",
        "loginTimeout": "30",
        "user": "etl",
        "password": "secret",
    }
    assert "secret" not in repr(jdbc.JdbcConnection("mysql", password="secret"))


@pytest.mark.spark
def test_spark_reads_exactly_the_window_over_jdbc(
    database: Database, postgres: PostgresServer, spark: SparkSession
) -> None:
    database.run(
        f"CREATE TABLE {database.table} (id int, at timestamptz, wall timestamp, amount numeric(12,2))"
    )
    database.run(
        f"INSERT INTO {database.table} SELECT n, '{AT}'::timestamptz + n * interval '1 microsecond',"
        " '2026-03-29 02:30:00.000001', n / 4.0 FROM generate_series(0, 9) n"
    )
    connection = jdbc.JdbcConnection(
        "postgres",
        postgres.host,
        postgres.database,
        postgres.port,
        user=postgres.user,
        password=postgres.password,
    )
    relation = database.relation(overlap=TICK)
    query = window_query(relation, mark_of(AT + 3 * TICK), mark_of(AT + 5 * TICK))

    frame = jdbc.read(spark, connection, query)
    rows = sorted(frame.collect())
    whole = f"SELECT * FROM {database.table} UNION ALL SELECT NULL, NULL, NULL, NULL"
    for column in CURSORS:
        in_parts = jdbc.read_in_parts(spark, connection, whole, Parts(column, 4))
        ids = [row["id"] for row in in_parts.select("id").collect()]
        assert sorted(ids, key=str) == sorted([*range(10), None], key=str), column
        assert in_parts.rdd.getNumPartitions() == (1 if column == "wall" else 4)
    with pytest.raises(SetupError) as caught:
        jdbc.read(spark, jdbc.JdbcConnection("oracle"), "SELECT 1 FROM DUAL")

    seen = [jdbc.probe(spark, connection, database.relation(cursor)) for cursor in CURSORS]
    with pytest.raises(SourceError) as unasked:
        jdbc.probe(spark, connection, database.relation("gone"))

    assert [row["id"] for row in rows] == [2, 3, 4, 5]
    assert seen == [probe_postgres(database.connect, database.relation(c)) for c in CURSORS]
    assert (unasked.value.code, unasked.value.retryable) == ("FM-SOURCE-031", False)
    assert "no such column" in unasked.value.title
    assert dict(frame.dtypes) == {
        "id": "int",
        "at": "timestamp",
        "wall": "timestamp_ntz",
        "amount": "decimal(12,2)",
    }
    assert rows[0]["wall"].isoformat() == "2026-03-29T02:30:00.000001"
    assert caught.value.code == "FM-SETUP-008"
