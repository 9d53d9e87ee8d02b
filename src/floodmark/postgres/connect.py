"""Connections to PostgreSQL. The driver is imported on first use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from floodmark.errors import SetupError
from floodmark.model.sql_names import qualified, quoted_for
from floodmark.postgres.refused_logins import refusal_state
from floodmark.secrecy import remember

if TYPE_CHECKING:
    from pathlib import Path

    import psycopg
    from psycopg.rows import TupleRow

    from floodmark.config.project import PostgresConnection
    from floodmark.config.text import Vault

    Connection = psycopg.Connection[TupleRow]
    Cursor = psycopg.RawCursor[TupleRow]

Connect = Callable[[], "Connection"]
"""Opens one connection; whoever calls it closes it."""

CONNECT_SECONDS = 15
SILENT_SECONDS = 120
"""A server whose machine or network is gone says nothing, and is given up after so long."""
MAX_NAME_BYTES = 63
"""PostgreSQL cuts longer names off without an error, so two of them may become one."""


_PATIENCE: dict[str, Any] = {
    "connect_timeout": CONNECT_SECONDS,
    "keepalives_idle": 30,
    "keepalives_interval": 15,
    "keepalives_count": 6,
    "tcp_user_timeout": SILENT_SECONDS * 1000,
}
"""How long a server is waited for that gives no sign of life; a statement may take its time."""


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
        settings = {**_PATIENCE, **said()}
        _remember_password(driver, dsn)
        try:
            opened: Connection = driver.connect(
                dsn, cursor_factory=driver.RawCursor, application_name="floodmark", **settings
            )
        except driver.OperationalError as error:
            state = refusal_state(driver.conninfo.make_conninfo(dsn, **settings), error)
            if state is None:
                raise
            # The class of the state: whoever catches it need not know how it was learned.
            raise driver.errors.lookup(state)(str(error)) from error
        return opened

    return connect


def _remember_password(driver: Any, dsn: str) -> None:
    """Keep the password of an address out of every text; one of a project is known already."""
    with suppress(driver.Error):
        password = driver.conninfo.conninfo_to_dict(dsn).get("password")
        if password:
            remember(str(password))


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
