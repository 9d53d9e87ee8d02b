"""Connections to PostgreSQL. The driver is imported on first use."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from floodmark.errors import SetupError
from floodmark.model.sql_names import qualified, quoted_for
from floodmark.postgres.refused_logins import refusal_state
from floodmark.secrecy import masked, remember

if TYPE_CHECKING:
    from pathlib import Path

    import psycopg
    from psycopg.rows import TupleRow

    from floodmark.config.project import PostgresConnection
    from floodmark.config.text import Vault

    Connection = psycopg.Connection[TupleRow]
    Cursor = psycopg.RawCursor[TupleRow]

_OF_VALUES = ("22",)
"""The class of SQLSTATE for data that a type does not take."""
_OF_FUNCTIONS = ("P0",)
"""That of what PL/pgSQL raises; with ERRCODE it raises any other state too."""
_LANGUAGES = frozenset(("pl_exec.c", "plperl.c", "plpy_elog.c", "plpy_plpymodule.c", "pltcl.c"))
"""The files of the server whose errors have the text of somebody's function."""
_PLPGSQL, _RAISE = "pl_exec.c", "exec_stmt_raise"
"""PL/pgSQL tells its own mistakes from the same file; RAISE is what the author wants to be told."""
_OF_TYPES = ("42601", "42602", "42622", "XX000", "38", "39")
"""What types say of a value beside class 22: tsvector, jsonpath, hstore, ltree, PostGIS."""
TEXT_OF_A_FUNCTION = "text of a function of the database, left out: it may show values"
_QUOTATION = re.compile("[\"'`\u00ab\u00bb\u2018-\u201f\u2039\u203a\u300c-\u300f]")
_BYTES = re.compile(r"(?:0x[0-9a-fA-F]+\s*)+")

Connect = Callable[[], "Connection"]
"""Opens one connection; whoever calls it closes it."""

CONNECT_SECONDS = 15
SILENT_SECONDS = 120
"""A server whose machine or network is gone says nothing, and is given up after so long."""
LOCK_NOT_AVAILABLE = "55P03"
UNDEFINED_COLUMN = "42703"
LOCK_SECONDS = 600
"""As long as a Delta target is waited for; see `limit_locks`."""
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
    """What the server or the driver said, with its state, on one line, without values and secrets.

    Only the first part of it: the detail of the server shows the values of whole rows. Where the
    first part is about a value, the value is left out; what a trigger raises is left out whole.
    """
    state = sqlstate(error)
    primary = getattr(getattr(error, "diag", None), "message_primary", None)
    text = masked(" ".join((primary or str(error)).split()))
    if state.startswith(_OF_FUNCTIONS) or _source_file(error) in _LANGUAGES:
        text = f"{_condition(error)}: {TEXT_OF_A_FUNCTION}"
    elif state.startswith(_OF_VALUES) or is_of_an_execution(error):
        text = f"{_condition(error)}: {without_values(text)}"
    return f"{text} (SQLSTATE {state})" if state else f"{type(error).__name__}: {text}"


def is_raised_by_a_function(error: BaseException) -> bool:
    """Whether a function of the database raised the error on purpose, in whatever state."""
    diagnosis, source = getattr(error, "diag", None), _source_file(error)
    if source == _PLPGSQL:
        return getattr(diagnosis, "source_function", None) == _RAISE
    return source in _LANGUAGES


def is_of_an_execution(error: BaseException) -> bool:
    """Whether an error with a state of a statement's text came while the statement was at work.

    Types use those states for values that they cannot read. What is wrong with a statement itself
    has a position in it, and what is wrong in a function has that function in its context.
    """
    diagnosis = getattr(error, "diag", None)
    if diagnosis is None or not sqlstate(error).startswith(_OF_TYPES):
        return False
    if diagnosis.statement_position or diagnosis.internal_position:
        return False
    # The innermost line comes first: that of a COPY names no function.
    return (diagnosis.context or "COPY ").startswith("COPY ")


def _source_file(error: BaseException) -> str | None:
    found: str | None = getattr(getattr(error, "diag", None), "source_file", None)
    return found


def without_values(text: str) -> str:
    """A message of the server about a value, without what it quotes of it.

    Whatever is between the first and the last quotation mark is left out, since a value may hold
    such marks itself; bytes in hexadecimal are parts of a value too.

    >>> without_values('invalid input value for enum kind: "HIV "positive""')
    'invalid input value for enum kind: …'
    >>> without_values('value "12345678901" is out of range for type integer')
    'value … is out of range for type integer'
    """
    marks = [match.start() for match in _QUOTATION.finditer(text)]
    if marks:
        end = marks[-1] + 1 if len(marks) > 1 else len(text)
        text = f"{text[: marks[0]]}…{text[end:]}"
    return _BYTES.sub("…", text)


def _condition(error: BaseException) -> str:
    """The name of an error's state, as InvalidTextRepresentation."""
    return type(error).__name__


def limit_locks(cursor: Cursor, seconds: float = LOCK_SECONDS) -> None:
    """End the wait for any lock of this transaction after so long, unless a shorter limit is set."""
    run(cursor, f"SELECT {lock_limit(seconds)}")


def lock_limit(seconds: float = LOCK_SECONDS) -> str:
    """The expression that does it, for a statement that sets more."""
    return _at_most("lock_timeout", seconds)


def statement_limit(seconds: float) -> str:
    """The same for each statement of the transaction; a COMMIT is none to the server."""
    return _at_most("statement_timeout", seconds)


def _at_most(setting: str, seconds: float) -> str:
    limit = min(max(1, round(seconds * 1000)), 2**31 - 1)
    return (
        f"set_config('{setting}', (SELECT CASE WHEN setting::bigint BETWEEN 1 AND"
        f" {limit} THEN setting ELSE '{limit}' END FROM pg_settings WHERE name = '{setting}'),"
        " true)"
    )


_HOLDERS = """SELECT DISTINCT a.pid, a.application_name, a.state, a.client_addr::text,
  extract(epoch FROM now() - a.xact_start)::bigint
  FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
  WHERE l.granted AND l.pid <> pg_backend_pid()
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND (l.relation = to_regclass($2) AND l.mode <> 'AccessShareLock'
    OR l.locktype = 'advisory' AND l.objsubid = 1
    AND (l.classid::bigint << 32) + l.objid::bigint = hashtextextended($1, 0)) ORDER BY 1"""


def lock_holders(cursor: Cursor, lock_name: str, table: str) -> list[str]:
    """The backends that hold an advisory lock, or lock a quoted table against writers."""
    return [
        f"backend {pid} ({application or 'no name'}, {state or 'state not visible'}, from"
        f" {address or 'this machine'}, in its transaction for {seconds or 0} s)"
        for pid, application, state, address, seconds in run(cursor, _HOLDERS, (lock_name, table))
    ]


def is_refused_login(error: BaseException) -> bool:
    """Whether the server does not let this user in, or has no such database: nothing that passes."""
    return sqlstate(error).startswith(("28", "3D"))


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
