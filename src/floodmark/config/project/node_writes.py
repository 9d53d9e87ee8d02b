"""Where the nodes of a project write to."""

from __future__ import annotations

from floodmark.config.checks.nodes import format_of
from floodmark.config.project.chains import table_name
from floodmark.config.project.connections import (
    FilesConnection,
    LakeConnection,
    PluginConnection,
    PostgresConnection,
)
from floodmark.config.project.node_reads import table_of
from floodmark.config.project.reads import FORMATS, SQL_FORMATS
from floodmark.config.project.settings import ProjectSettings
from floodmark.config.project.writes import WriteSettings

WRITTEN_FILES = ("csv", "tsv", "json", "parquet", "text", "orc")


def target_of(write: WriteSettings, settings: ProjectSettings) -> str | None:
    """The target of a node's write, by the name a run knows it by; None for one that is not run.

    A Delta table by path or catalog name, a folder of files by path, a table of PostgreSQL as
    `<connection>:<table>`, and so what a plug-in writes.
    """
    connection = settings.connections.get(write.connection or "")
    if isinstance(connection, PostgresConnection):
        is_sql = format_of(write, connection.type) in SQL_FORMATS
        return f"{write.connection}:{write.table}" if is_sql and write.table is not None else None
    if isinstance(connection, PluginConnection):
        return f"{write.connection}:{write.table}" if write.table is not None else None
    if file_format(write, settings) is None:
        return table_of(write, settings)
    if write.path is None:
        return None
    path = write.path
    if isinstance(connection, LakeConnection | FilesConnection):
        path = f"{connection.root.rstrip('/')}/{path}"
    path = table_name(path)
    return path if "/" in path else f"./{path}"


def allows_single_writer(write: WriteSettings, settings: ProjectSettings) -> bool:
    """Whether the user says that nothing else writes to the target, by the write or its lake."""
    connection = settings.connections.get(write.connection or "")
    by_lake = isinstance(connection, LakeConnection) and connection.allow_single_writer
    return write.allow_single_writer or by_lake


def is_at_least_once(write: WriteSettings, settings: ProjectSettings) -> bool:
    """Whether nothing in the target tells what was written: files; plug-ins may know better."""
    connection = settings.connections.get(write.connection or "")
    return isinstance(connection, PluginConnection) or file_format(write, settings) is not None


def file_format(write: WriteSettings, settings: ProjectSettings) -> str | None:
    """The format of a write of files; None for tables."""
    connection = settings.connections.get(write.connection or "")
    name = format_of(write, connection.type if connection is not None else None)
    return name if name in WRITTEN_FILES or name not in FORMATS else None
