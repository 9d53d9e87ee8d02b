"""Connections to PostgreSQL. The driver is imported on first use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from floodmark.errors import SetupError
from floodmark.model.sql_names import qualified, quoted_for

if TYPE_CHECKING:
    from pathlib import Path

    import psycopg
    from psycopg.rows import TupleRow

    from floodmark.config.connections import PostgresConnection
    from floodmark.config.references import Vault

    Connection = psycopg.Connection[TupleRow]
    Cursor = psycopg.RawCursor[TupleRow]

Connect = Callable[[], "Connection"]
"""Opens one connection; whoever calls it closes it."""

CONNECT_SECONDS = 15
MAX_NAME_BYTES = 63
"""PostgreSQL cuts longer names off without an error, so two of them may become one."""


def connector(dsn: str) -> Connect:
    """What opens connections to `dsn`, a libpq address; raises FM-SETUP-007 without the driver."""
    return _opening(dsn, dict)


def connector_to(settings: PostgresConnection, vault: Vault) -> Connect:
    """The same for a connection of a project.

    The password is looked up whenever a connection is opened, and kept nowhere.
    """
    return _opening("", lambda: libpq_settings(settings, vault))


def libpq_settings(settings: PostgresConnection, vault: Vault) -> dict[str, Any]:
    """A connection of a project by libpq's names, password included: for the moment it is needed."""
    said = {
        "host": settings.host,
        "port": settings.port,
        "dbname": settings.database,
        "user": settings.user,
        "password": vault.reveal(settings.password) if settings.password is not None else None,
        "sslmode": settings.sslmode,
    }
    if settings.sslrootcert is not None:
        said["sslrootcert"] = certificate_file(settings.sslrootcert, vault.root)
    return said


def certificate_file(said: str, root: Path) -> str:
    """Where a certificate is: below the project, or what `system` means to libpq."""
    return said if said == "system" else str(root / said)


def connector_by(said: Callable[[], dict[str, Any]]) -> Connect:
    """The same by libpq's own names, asked for whenever a connection is opened."""
    return _opening("", said)


def _opening(dsn: str, said: Callable[[], dict[str, Any]]) -> Connect:
    driver = _driver()

    def connect() -> Connection:
        # A RawCursor takes $1 for a value, so that % in a name means nothing.
        opened: Connection = driver.connect(
            dsn,
            cursor_factory=driver.RawCursor,
            application_name="floodmark",
            connect_timeout=CONNECT_SECONDS,
            **said(),
        )
        return opened

    return connect


def address_of(connection: Connection) -> str:
    """What opens the same connection elsewhere, its password included: for executors, never shown."""
    from psycopg.conninfo import make_conninfo

    info = connection.info
    return make_conninfo(info.dsn, password=info.password or None)


def cursor_of(connection: Connection) -> Cursor:
    """A cursor that takes `$1` for a value."""
    import psycopg

    return psycopg.RawCursor(connection)


def run(cursor: Cursor, statement: str, values: Sequence[Any] | None = None) -> Cursor:
    """Execute a statement built from quoted names; values are bound by the server."""
    return cursor.execute(statement.encode(), values)


def quoted(name: str) -> str:
    """One identifier for PostgreSQL; raises ValueError for what it cannot have.

    >>> quoted('a"b')
    '"a""b"'
    """
    if len(name.encode()) > MAX_NAME_BYTES:
        raise ValueError(f"longer than {MAX_NAME_BYTES} bytes: {name!r}")
    return quoted_for("postgres", name)


def quoted_table(schema: str, table: str) -> str:
    """A table with its schema."""
    return qualified("postgres", (schema, table))


def sqlstate(error: BaseException) -> str:
    """The five characters by which PostgreSQL classifies an error; empty where it said nothing."""
    return str(getattr(error, "sqlstate", None) or "")


def is_lost_connection(error: BaseException) -> bool:
    """Whether the connection, and with it every answer that was still to come, is gone.

    Class 08 is the connection, 57P the server that shuts down; without a state the socket broke.
    """
    import psycopg

    state = sqlstate(error)
    if state:
        return state[:2] == "08" or state.startswith("57P")
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)


def said(error: BaseException) -> str:
    """What the server or the driver said, with its state, on one line.

    Only the first part of it: the detail of the server shows the values of whole rows.
    """
    state = sqlstate(error)
    primary = getattr(getattr(error, "diag", None), "message_primary", None)
    text = " ".join((primary or str(error)).split())
    return f"{text} (SQLSTATE {state})" if state else f"{type(error).__name__}: {text}"


def _driver() -> Any:
    try:
        import psycopg
    except ImportError as error:
        raise SetupError(
            "FM-SETUP-007",
            "the PostgreSQL driver is not installed",
            found=str(error),
            state="nothing was started",
            next="pip install 'floodmark[postgres]'",
        ) from error
    return psycopg
