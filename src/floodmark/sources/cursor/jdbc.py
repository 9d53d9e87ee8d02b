"""Reading databases with Spark over JDBC: options built here, rows read by Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from floodmark.errors import SetupError
from floodmark.model import CursorMark
from floodmark.model.cursor_marks import mark_of
from floodmark.model.names import quoted
from floodmark.model.sql_names import SqlDialect
from floodmark.next_steps import command
from floodmark.sources.cursor.sql.exact_values import (
    exact_values,
    finite_columns,
    inexact_columns,
    with_exact_texts,
)
from floodmark.sources.cursor.sql.parts import Parts
from floodmark.sources.cursor.sql.probes import IN_UTC, Probe, seen, unasked
from floodmark.sources.cursor.sql.queries import SqlRelation, probe_query
from floodmark.sources.cursor.sql.wall_times import cast_back, wall_times, with_texts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FETCH_ROWS = 10_000
"""Rows per round trip; PostgreSQL's driver fetches all of them at once unless told."""

DRIVERS: dict[SqlDialect, str] = {
    "postgres": "org.postgresql.Driver",
    "sqlserver": "com.microsoft.sqlserver.jdbc.SQLServerDriver",
    "mysql": "com.mysql.cj.jdbc.Driver",
    "oracle": "oracle.jdbc.OracleDriver",
    "snowflake": "net.snowflake.client.jdbc.SnowflakeDriver",
    "bigquery": "com.simba.googlebigquery.jdbc.Driver",
}
_PORTS = {"postgres": 5432, "sqlserver": 1433, "mysql": 3306, "oracle": 1521, "snowflake": 443}
_URLS: dict[SqlDialect, str] = {
    "postgres": "jdbc:postgresql://{host}:{port}/{database}",
    "sqlserver": "jdbc:sqlserver://{host}:{port};databaseName={database}",
    "mysql": "jdbc:mysql://{host}:{port}/{database}",
    "oracle": "jdbc:oracle:thin:@//{host}:{port}/{database}",
    "snowflake": "jdbc:snowflake://{host}:{port}/?db={database}",
    "bigquery": "jdbc:bigquery://{host}:443;ProjectId={database}",
}
_PATIENCE: dict[SqlDialect, dict[str, str]] = {
    "postgres": {"connectTimeout": "15", "tcpKeepAlive": "true"},
    "mysql": {"connectTimeout": "15000", "tcpKeepAlive": "true"},
    "sqlserver": {"loginTimeout": "30"},
    "oracle": {"oracle.net.CONNECT_TIMEOUT": "15000", "oracle.net.keepAlive": "true"},
    "snowflake": {"loginTimeout": "60"},
}
"""What drivers would wait for without an end, or too long; options of the connection win."""
_FIRST_STATEMENT: dict[SqlDialect, dict[str, str]] = {
    "postgres": {"sessionInitStatement": IN_UTC},
}
"""What a session begins with, unless the connection has a statement of its own."""
TypesOf = Callable[[str], Mapping[str, int]]
"""What tells the columns of a query with their types, by the numbers that PostgreSQL gives them."""

_ALIAS = "floodmark_read"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class JdbcConnection:
    """How to reach a database; `url` rules over its parts."""

    dialect: SqlDialect
    host: str = "localhost"
    database: str = ""
    port: int | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    url: str | None = field(default=None, repr=False)
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Further options of Spark's JDBC source or of the driver."""

    @property
    def address(self) -> str:
        """The JDBC URL, without user and password."""
        if self.url is not None:
            return self.url
        port = self.port or _PORTS.get(self.dialect, 443)
        in_path = self.dialect in ("postgres", "mysql")
        database = quote(self.database, safe="") if in_path else _braced(self.database)
        return _URLS[self.dialect].format(host=self.host, port=port, database=database)


def read_options(connection: JdbcConnection, query: str) -> dict[str, str]:
    """What Spark's JDBC source is told to read the rows of `query`.

    Wall times stay wall times: a column without a zone becomes timestamp_ntz.
    """
    options = {
        "url": connection.address,
        "driver": DRIVERS[connection.dialect],
        "dbtable": f"({query}) {_ALIAS}",
        "fetchsize": str(FETCH_ROWS),
        "preferTimestampNTZ": "true",
        **_FIRST_STATEMENT.get(connection.dialect, {}),
        **_PATIENCE.get(connection.dialect, {}),
    }
    if connection.user is not None:
        options["user"] = connection.user
    if connection.password is not None:
        options["password"] = connection.password
    return {**options, **connection.options}


def read(
    spark: SparkSession,
    connection: JdbcConnection,
    query: str,
    conditions: Sequence[str] = (),
    types_of: TypesOf | None = None,
) -> DataFrame:
    """The rows of `query` as a frame; the database is asked for their types at once.

    With `conditions` there is one connection for each, and the rows are those of all of them. Times
    without a zone come as the database has them, whatever the zone of the JVM: see `wall_times`.
    `types_of` tells the types that PostgreSQL has; then no value is changed: see `exact_values`.
    Raises FM-SETUP-008 if the session has no driver for the database. A frame that is computed twice
    asks the database twice: land it first where both answers have to be the same.
    """
    from floodmark.engines.jvm import has_fixed_zone

    plain = frame = _loaded(spark, connection, query, conditions)
    inexact = inexact_columns(types_of(query)) if types_of else {}
    if inexact:
        query = with_exact_texts(query, inexact)
        frame = _loaded(spark, connection, query, conditions)
    timed = frame.select(*(quoted(name) for name in frame.columns if name not in inexact))
    if "timestamp_ntz" in timed.schema.simpleString() and not has_fixed_zone(spark):
        columns = wall_times(timed)
        texts = with_texts(connection.dialect, query, columns)
        with_times = _loaded(spark, connection, texts, conditions)
        frame = cast_back(with_times, frame.columns, columns, finite_columns(inexact))
    types = {field.name: field.dataType for field in plain.schema.fields}
    return exact_values(frame, types, inexact) if inexact else frame


def _loaded(
    spark: SparkSession, connection: JdbcConnection, query: str, conditions: Sequence[str]
) -> DataFrame:
    from floodmark.engines.faults import engine_errors

    options = read_options(connection, query)
    try:
        if not conditions:
            return spark.read.format("jdbc").options(**options).load()
        address, rows = options.pop("url"), options.pop("dbtable")
        return spark.read.jdbc(address, rows, predicates=list(conditions), properties=options)
    except engine_errors() as error:
        if _misses_driver(error, connection.dialect):
            raise _no_driver(connection) from error
        raise


def read_in_parts(
    spark: SparkSession,
    connection: JdbcConnection,
    query: str,
    parts: Parts,
    types_of: TypesOf | None = None,
) -> DataFrame:
    """The same by several connections; the database is first asked how far the values go.

    Raises ValueError for a column whose values cannot be divided.
    """
    dialect = connection.dialect
    extent = parts.extent_query(dialect, query)
    found = exact_row(read(spark, connection, extent, types_of=types_of))
    lowest, highest = (None if value is None else mark_of(value, "binary") for value in found)
    return read(spark, connection, query, parts.conditions(dialect, lowest, highest), types_of)


def probe(
    spark: SparkSession,
    connection: JdbcConnection,
    relation: SqlRelation,
    low: CursorMark | None = None,
    ceiling: CursorMark | None = None,
) -> Probe:
    """The newest mark, not above `ceiling`, asked through Spark; reads one row.

    Raises FM-SOURCE-031 if the database does not answer, and -032, -033 as the probe by driver.
    """
    with asked(relation):
        row = exact_row(read(spark, connection, probe_query(relation, low, ceiling)))
    return seen(relation, row[0], int(row[1]))


@contextmanager
def asked(relation: SqlRelation) -> Iterator[None]:
    """Tell what Spark says about a database that does not answer as FM-SOURCE-031."""
    from floodmark.engines.faults import engine_errors, sql_state

    try:
        yield
    except engine_errors() as error:
        found = f"{type(error).__name__}: {error}".partition("\n")[0][:500]
        raise unasked(relation, found, sql_state(error)) from error


def exact_row(frame: DataFrame) -> list[Any]:
    """The one row of a frame; instants with their zone, which Python would not get otherwise."""
    from pyspark.sql import functions as fn

    columns = [fn.col(quoted(name)) for name in frame.columns]
    is_instant = [kind == "timestamp" for _, kind in frame.dtypes]
    numbered = [
        (fn.unix_micros(each) if instant else each).alias(str(position))
        for position, (each, instant) in enumerate(zip(columns, is_instant, strict=True))
    ]
    (row,) = frame.select(*numbered).collect()
    return [
        _EPOCH + timedelta(microseconds=value) if instant and value is not None else value
        for value, instant in zip(row, is_instant, strict=True)
    ]


def _misses_driver(error: BaseException, dialect: SqlDialect) -> bool:
    from floodmark.engines.faults import java_errors

    return any(
        name == "java.lang.ClassNotFoundException" and DRIVERS[dialect] in (message or "")
        for name, message in java_errors(error)
    )


def _no_driver(connection: JdbcConnection) -> SetupError:
    is_ours = connection.dialect == "postgres"
    return SetupError(
        "FM-SETUP-008",
        "the Spark session has no JDBC driver for the database",
        where=connection.address.partition(";")[0],
        found=f"no class {DRIVERS[connection.dialect]}",
        allowed="the driver's jar among spark.jars when the session starts",
        state="nothing was read",
        next=command("jars", "fetch") + ", then start the session again"
        if is_ours
        else 'fm.local_session({"spark.jars": "<all jars, the driver\'s too>"})',
    )


def _braced(value: str) -> str:
    """A value of a `;`-separated URL: SQL Server's driver takes it in braces if it has to."""
    return "{" + value.replace("}", "}}") + "}" if set(value) & set(";{}") else value
