"""Where the nodes of a project write to."""

from __future__ import annotations

from floodmark.config.connections import PostgresConnection
from floodmark.config.models import ProjectSettings
from floodmark.config.node_reads import table_of
from floodmark.config.reads import SQL_FORMATS
from floodmark.config.rules import format_of
from floodmark.config.writes import WriteSettings


def target_of(write: WriteSettings, settings: ProjectSettings) -> str | None:
    """The target of a node's write, by the name a run knows it by; None for one that is not run.

    A Delta table by path or catalog name, a table of PostgreSQL as `<connection>:<table>`.
    """
    connection = settings.connections.get(write.connection or "")
    if not isinstance(connection, PostgresConnection):
        return table_of(write, settings)
    is_sql = format_of(write, connection.type) in SQL_FORMATS
    return f"{write.connection}:{write.table}" if is_sql and write.table is not None else None
