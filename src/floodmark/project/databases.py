"""The readers of a project's databases, built from its connections and the nodes that read them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from floodmark.config import LoadedProject, ResolvedNode, ResolvedRead
from floodmark.config.project import IncrementalSettings, JdbcConnection, PostgresConnection
from floodmark.config.text import Secret, Vault
from floodmark.deltalog import Storage, absolute
from floodmark.model import durations
from floodmark.model.names import is_catalog_name
from floodmark.postgres import certificate_file, connector_to
from floodmark.sources import Readers
from floodmark.sources.cursor import JdbcConnection as JdbcAccess
from floodmark.sources.cursor import OwnTarget, Parts, SqlReader, SqlRelation

if TYPE_CHECKING:
    from floodmark.postgres import Connection

_NULLS = {"fail": "fail", "skip": "ignore", "include": "include"}


def readers_of(file: LoadedProject, vault: Vault, storage: Storage) -> Readers:
    """What reads each upstream of a database; asks no database and no secret."""
    found: dict[tuple[str, str], SqlReader] = {}
    for pipeline in file.pipelines:
        for node in pipeline.nodes:
            upstream = node.upstream
            if node.read is None or node.kind != "database" or upstream is None:
                continue
            if (pipeline.name, upstream.name) not in found:
                own = OwnTarget(node.own_names, _place_of(file, node), storage)
                reader = _reader(node, node.read, vault, own)
                found[pipeline.name, upstream.name] = reader
    return found


def _reader(node: ResolvedNode, source: ResolvedRead, vault: Vault, own: OwnTarget) -> SqlReader:
    read, upstream = source.settings, source.upstream
    assert upstream is not None  # noqa: S101  (only such nodes come here)
    connection: Any = source.connection
    column = str(upstream.time_column)
    cursor = None if upstream.reads_whole else column
    said = read.incremental or IncrementalSettings.model_construct(cursor=column)
    relation = SqlRelation(
        dialect=connection.type,
        cursor=cursor,
        table=read.table,
        query=read.query,
        overlap=span_of(said.overlap),
        order="binary" if said.order == "binary" or said.type == "string" else None,
        on_null_cursor=_NULLS[said.on_null_cursor],  # type: ignore[arg-type]
        first_run_query=node.write.settings.first_run_query if node.write else None,
    )
    is_postgres = isinstance(connection, PostgresConnection)
    return SqlReader(
        upstream.name,
        relation,
        lambda: jdbc_of(connection, vault),
        partial(_open, connection, vault) if is_postgres else None,
        keys=tuple(said.keys or ()),
        settle=span_of(said.settle),
        kind=said.type,
        zone=UTC if said.time_zone == "UTC" else ZoneInfo(said.time_zone),
        own=own,
        parts=Parts(read.partition.column, read.partition.parts) if read.partition else None,
    )


def span_of(said: int | str) -> timedelta | int | None:
    """An overlap or settle as a value; None for none."""
    if isinstance(said, str):
        return timedelta(seconds=durations.seconds_of(said))
    return said or None


def _place_of(file: LoadedProject, node: ResolvedNode) -> Callable[[], str | None]:
    target = node.target_table
    if target is None or is_catalog_name(target):
        return lambda: None
    path = absolute(target, str(file.root))
    return lambda: path


def _open(connection: PostgresConnection, vault: Vault) -> Connection:
    """A connection by PostgreSQL's own driver; raises FM-SETUP-007 without the driver."""
    return connector_to(connection, vault)()


def jdbc_of(connection: PostgresConnection | JdbcConnection, vault: Vault) -> JdbcAccess:
    """How Spark reaches the database."""
    options = {key: _plain(value, vault) for key, value in connection.options.items()}
    if isinstance(connection, PostgresConnection):
        trusted = connection.sslrootcert
        named = {"sslrootcert": certificate_file(trusted, vault.root)} if trusted else {}
        options = {"sslmode": connection.sslmode, **named, **options}
    else:
        more = {
            "warehouse": connection.warehouse,
            "role": connection.role,
            "schema": connection.db_schema,
        }
        options = {**{key: value for key, value in more.items() if value}, **options}
        if connection.driver:
            options["driver"] = connection.driver
    return JdbcAccess(
        dialect=connection.type,
        host=connection.host or "localhost",
        database=connection.database or "",
        port=connection.port,
        user=connection.user,
        password=vault.reveal(connection.password) if connection.password else None,
        url=getattr(connection, "url", None),
        options=options,
    )


def _plain(value: object, vault: Vault) -> str:
    if isinstance(value, Secret):
        return vault.reveal(value)
    return str(value).lower() if isinstance(value, bool) else str(value)
