"""Nobody waits for ever for PostgreSQL, a refused login is told as one, and no value is shown."""

from __future__ import annotations

import logging
import re
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg.conninfo import make_conninfo
from tests.contract.postgres_places import PgLake, PgPlace
from tests.contract.sink_contract import receipt
from tests.services.stream_places import StreamPlace

from floodmark.engines.postgres_server import PostgresServer
from floodmark.errors import SinkError, SourceError, StreamError
from floodmark.model.write import WriteSpec
from floodmark.postgres import connector, cursor_of
from floodmark.postgres.transactions import sqlstate
from floodmark.run.runner import error_text
from floodmark.sinks.postgres import PostgresSink
from floodmark.sinks.postgres_target import PostgresTarget, lock
from floodmark.sources.cursor.sql.probes import ask_postgres
from floodmark.sources.cursor.sql.queries import SqlRelation

pytestmark = pytest.mark.postgres

ROWS = pa.table({"id": [1]})


@pytest.fixture
def dsn(postgres: PostgresServer) -> str:
    return postgres.dsn


@pytest.fixture
def target(dsn: str, pg_schema: str) -> PgPlace:
    return PgLake(dsn, pg_schema) / "out"


def sink(dsn: str, target: PgPlace) -> PostgresSink:
    return PostgresSink(
        connector(dsn), WriteSpec(str(target), "append", "out"), (), lock_seconds=0.3
    )


def test_the_lock_of_a_runner_that_was_stopped_is_not_waited_for_for_ever(
    dsn: str, target: PgPlace, caplog: pytest.LogCaptureFixture
) -> None:
    """SIGSTOP, or a paused machine, in the middle of COPY: the connection stays."""
    caplog.set_level(logging.INFO, logger="floodmark")
    target.query(f"CREATE TABLE {target.table} (id bigint)")
    stopped = connector(dsn)()
    cursor = cursor_of(stopped)
    lock(cursor, PostgresTarget(str(target), None, connector(dsn)).table(cursor))

    with pytest.raises(SinkError) as caught:
        sink(dsn, target).write(ROWS, receipt(1))

    holder = f"backend {stopped.info.backend_pid} (floodmark, idle in transaction"
    assert (caught.value.code, caught.value.retryable) == ("FM-SINK-014", True)
    assert holder in (caught.value.found or "")
    assert holder in caplog.text
    stopped.close()
    assert sink(dsn, target).write(ROWS, receipt(1)).rows_written == 1


@pytest.mark.parametrize("statement", ["LOCK TABLE {} IN ACCESS EXCLUSIVE MODE", "TRUNCATE {}"])
def test_a_table_that_somebody_else_locks_is_not_waited_for_for_ever(
    dsn: str, target: PgPlace, statement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("floodmark.sinks.postgres_target.limit_locks", _soon)
    target.query(f"CREATE TABLE {target.table} (id bigint)")
    with psycopg.connect(dsn) as other:
        other.execute(statement.format(target.table).encode())

        with pytest.raises(SinkError) as caught:
            sink(dsn, target).write(ROWS, receipt(1))

    assert caught.value.code in ("FM-SINK-014", "FM-SINK-032")
    assert caught.value.retryable


def _soon(cursor: Any) -> None:
    from floodmark.postgres.transactions import limit_locks

    limit_locks(cursor, 0.3)


def test_a_shorter_limit_of_the_user_stays(dsn: str, target: PgPlace) -> None:
    from floodmark.postgres.transactions import limit_locks

    limits = []
    for own in ("0", "2s", "20min"):
        with connector(dsn)() as connection:
            cursor = cursor_of(connection)
            connection.execute(f"SET lock_timeout = '{own}'".encode())
            limit_locks(cursor)
            row = connection.execute("SHOW lock_timeout").fetchone()
            limits.append(row and row[0])

    assert limits == ["10min", "2s", "10min"]


# Logins -------------------------------------------------------------------------------------------

REFUSED = [({"password": "wrong"}, "28P01"), ({"dbname": "absent"}, "3D000")]


@pytest.mark.parametrize(("change", "state"), REFUSED)
def test_a_refused_login_is_told_by_its_state(
    postgres: PostgresServer, change: dict[str, str], state: str
) -> None:
    with pytest.raises(psycopg.Error) as caught:
        connector(make_conninfo(postgres.dsn, **change))()

    assert sqlstate(caught.value) == state
    assert type(caught.value) is psycopg.errors.lookup(state)


@pytest.mark.parametrize(("change", "state"), REFUSED)
def test_a_refused_login_is_tried_again_by_nobody(
    postgres: PostgresServer, change: dict[str, str], state: str
) -> None:
    place = StreamPlace(make_conninfo(postgres.dsn, **change), "public")
    relation = SqlRelation("postgres", table="t", cursor="c")
    connect = connector(place.dsn)
    spec = WriteSpec("pg:out", "append", "out")

    with pytest.raises(StreamError) as of_stream:
        place.ledger().ensure()
    with pytest.raises(SourceError) as of_source:
        ask_postgres(connect, relation, "SELECT 1")
    with pytest.raises(SinkError) as of_sink:
        PostgresSink(connect, spec, ()).write(ROWS, receipt(1))

    for error in (of_stream.value, of_source.value, of_sink.value):
        assert not error.retryable, error.code
        assert state in (error.found or "")


def test_an_outage_is_still_tried_again(postgres: PostgresServer) -> None:
    away = make_conninfo(postgres.dsn, port="1")
    full = make_conninfo(postgres.dsn, user="nobody_more", password="x")
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute("CREATE ROLE nobody_more LOGIN PASSWORD 'x' CONNECTION LIMIT 0")
        errors = []
        for dsn in (away, full):
            with pytest.raises(StreamError) as caught:
                StreamPlace(dsn, "public").ledger().ensure()
            errors.append(caught.value)
        connection.execute("DROP ROLE nobody_more")

    assert [error.retryable for error in errors] == [True, True]
    assert [error.details["sqlstate"] for error in errors] == ["", "53300"]


# Values -------------------------------------------------------------------------------------------

SECRET = "Kzq\"Wvx'Jqk«Pzy"


@pytest.mark.parametrize(
    ("kind", "value", "left"),
    [
        ("uuid", SECRET, "type uuid"),
        ("mood", SECRET, "enum mood"),
        ("inet", SECRET, "type inet"),
        ("interval", SECRET, "type interval"),
        ("json", SECRET, "json"),
        ("xml", f"<{SECRET}", "SQLSTATE"),
        ("int4range", SECRET, "SQLSTATE"),
        ("oid", "99999999999981", "type oid"),
        ("bit(3)", SECRET, "SQLSTATE"),
        ("timetz", SECRET, "SQLSTATE"),
        ("point", SECRET, "type point"),
        ("name[]", "{" + SECRET, "SQLSTATE"),
        ("tsvector", "'" + SECRET.replace("'", ""), "tsvector"),
        ("tsquery", f"Kzq & & {SECRET}", "tsquery"),
        ("jsonpath", "$." + SECRET, "jsonpath"),
    ],
)
def test_a_value_that_does_not_fit_is_not_shown(
    dsn: str, target: PgPlace, kind: str, value: str, left: str
) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        if kind == "mood":
            connection.execute(
                "DROP TYPE IF EXISTS mood CASCADE; CREATE TYPE mood AS ENUM ('glad')"
            )
        connection.execute(f"CREATE TABLE {target.table} (v {kind})".encode())

    with pytest.raises(SinkError) as caught:
        sink(dsn, target).write(pa.table({"v": [value]}), receipt(1))

    text = error_text(caught.value)
    if caught.value.code != "FM-SINK-011":
        assert (caught.value.code, left in text) == ("FM-SINK-030", True), text
    pieces = [piece for piece in re.split(r"[^0-9A-Za-z]+", value) if piece]
    assert [piece for piece in pieces if piece in text] == []


def test_connections_have_settings_of_their_own_patience(postgres: PostgresServer) -> None:
    with connector(postgres.dsn)() as connection:
        said = connection.info.get_parameters()

    assert (said["connect_timeout"], said["tcp_user_timeout"]) == ("15", "120000")
