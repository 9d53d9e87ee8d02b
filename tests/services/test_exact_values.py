"""Values that a real PostgreSQL has and Spark may change: read exactly, or refused by column."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from floodmark.engines.postgres_server import PostgresServer
from floodmark.errors import SourceError
from floodmark.model.sql_names import qualified
from floodmark.postgres import connector
from floodmark.sources.cursor import JdbcConnection, Parts, SqlReader, SqlRelation, told_values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

NOON = datetime.fromisoformat("2026-01-01 12:00")
HOLE = datetime.fromisoformat("2026-03-29 02:30:00.000001")
EXACT: list[tuple[str, str, str, Any]] = [
    ("numeric", "1.123456789012345678000", "decimal(38,18)", Decimal("1.123456789012345678")),
    ("numeric", "-0.1", "decimal(38,18)", Decimal("-0.1")),
    ("numeric", "12345678901234567890", "decimal(38,18)", Decimal(12345678901234567890)),
    ("numeric(10,2)", "1.10", "decimal(10,2)", Decimal("1.10")),
    ("numeric[]", "{1.5,NULL,-2}", "array<decimal(38,18)>", [Decimal("1.5"), None, Decimal(-2)]),
    ("numeric[]", "{}", "array<decimal(38,18)>", []),
    ("numeric(10,2)[]", "{1.10}", "array<decimal(10,2)>", [Decimal("1.10")]),
    (
        "time",
        "10:00:00.123456",
        "timestamp_ntz",
        datetime.fromisoformat("1970-01-01 10:00:00.123456"),
    ),
    ("time", "24:00:00", "timestamp_ntz", datetime.fromisoformat("1970-01-02")),
    ("timetz", "10:00:00.5+00", "timestamp", datetime.fromisoformat("1970-01-01 10:00:00.5")),
    ("date", "9999-12-31", "date", date(9999, 12, 31)),
    ("timestamp", "2026-01-01 12:00", "timestamp_ntz", NOON),
    ("timestamptz", "2026-01-01 12:00Z", "timestamp", NOON),
    ("date[]", "{9999-12-31,NULL}", "array<date>", [date(9999, 12, 31), None]),
    ("timestamp[]", "{2026-01-01 12:00}", "array<timestamp_ntz>", [NOON]),
    ("timestamptz[]", "{2026-01-01 14:00+02}", "array<timestamp>", [NOON]),
    ("timestamp[]", "{2026-03-29 02:30:00.000001}", "array<timestamp_ntz>", [HOLE]),
    ("real", "0.1", "float", pytest.approx(0.1)),
    ("interval", "1 day 2 hours", "string", "1 day 02:00:00"),
    ("money", "12.34", "string", "$12.34"),
    ("int4range", "[1,5)", "string", "[1,5)"),
    ("int[]", "{1,NULL,3}", "array<int>", [1, None, 3]),
]
REFUSED = [
    ("numeric", "1.12345678901234567890123"),
    ("numeric", "1e-20"),
    ("numeric", "12345678901234567890123456789"),
    ("numeric", "NaN"),
    ("numeric", "-Infinity"),
    ("numeric(10,2)", "NaN"),
    ("numeric(50,10)", "1234567890123456789012345678901234567890.5"),
    ("numeric(40,39)", "1.123456789012345678901234567890123456789"),
    ("numeric(3,-2)", "12345"),
    ("numeric[]", "{1.1,1.123456789012345678901}"),
    ("numeric[]", "{{1,2},{3,4}}"),
    ("timetz", "10:00:00+02"),
    ("timetz[]", "{10:00:00+02}"),
    ("date", "infinity"),
    ("date", "-infinity"),
    ("timestamp", "infinity"),
    ("timestamptz", "infinity"),
    ("timestamptz", "-infinity"),
    ("date[]", "{2026-01-01,infinity}"),
    ("timestamp[]", "{-infinity}"),
    ("timestamptz[]", "{infinity}"),
]  # fmt: skip


class Values:
    """A schema whose tables have one value each."""

    def __init__(self, server: PostgresServer, schema: str, spark: SparkSession) -> None:
        self.server, self.schema, self.spark = server, schema, spark

    def reader(self, kind: str, value: str, parts: Parts | None = None) -> SqlReader:
        table = qualified("postgres", (self.schema, 'odd "v'))
        with psycopg.connect(self.server.dsn, autocommit=True) as connection:
            connection.execute(f"DROP TABLE IF EXISTS {table}".encode())
            connection.execute(f'CREATE TABLE {table} (id int, "v.\'x" {kind})'.encode())
            connection.execute(f"INSERT INTO {table} VALUES (1, %s), (2, NULL)".encode(), [value])
        access = JdbcConnection(
            "postgres",
            self.server.host,
            self.server.database,
            self.server.port,
            user=self.server.user,
            password=self.server.password,
        )
        relation = SqlRelation("postgres", None, table=table)
        connect = connector(self.server.dsn)
        return SqlReader("sql://erp/t", relation, lambda: access, connect, parts=parts)

    def rows(self, reader: SqlReader) -> tuple[str, list[Any]]:
        """The type of the column, and its values."""
        with told_values("sql://erp/t"):
            frame = reader.frame(self.spark, None)
            found = sorted((row[0], row[1]) for row in frame.collect())
        return frame.dtypes[1][1], [value for _, value in found]


@pytest.fixture
def values(postgres: PostgresServer, pg_schema: str, spark: SparkSession) -> Values:
    return Values(postgres, pg_schema, spark)


def test_what_the_type_of_spark_holds_is_read_exactly_and_keeps_its_type(values: Values) -> None:
    found = [(kind, text, *values.rows(values.reader(kind, text))) for kind, text, *_ in EXACT]

    expected = [(kind, text, of_spark, [value, None]) for kind, text, of_spark, value in EXACT]
    assert found == expected


def test_what_it_cannot_hold_is_refused_by_column_and_never_changed(values: Values) -> None:
    told = {}
    for kind, text in REFUSED:
        reader = values.reader(kind, text)
        try:
            told[kind, text] = str(values.rows(reader))
        except SourceError as error:
            is_by_column = error.where == "sql://erp/t, column v.'x" and not error.retryable
            told[kind, text] = error.code if is_by_column else str(error)

    assert told == dict.fromkeys(REFUSED, "FM-SOURCE-066")


def test_reads_in_parts_and_domains_are_no_way_around_it(
    values: Values, postgres: PostgresServer
) -> None:
    domain = qualified("postgres", (values.schema, "amount"))
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute(f"CREATE DOMAIN {domain} AS numeric".encode())

    for reader in (
        values.reader("timestamptz", "infinity", Parts('"v.\'x"', 3)),
        values.reader("numeric", "NaN", Parts("id", 2)),
        values.reader(domain, "1e-20"),
    ):
        with pytest.raises(SourceError) as caught:
            values.rows(reader)
        assert caught.value.code == "FM-SOURCE-066"


def test_a_column_without_rows_has_the_type_that_its_rows_have(values: Values) -> None:
    for kind in ("numeric", "time", "numeric[]", "timestamptz"):
        reader = values.reader(kind, None)  # type: ignore[arg-type]

        nothing = reader.no_rows(values.spark, None)

        assert nothing.dtypes == reader.frame(values.spark, None).dtypes, kind
        assert nothing.collect() == []
