"""Pipelines chained through tables: one writes what another reads."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from floodmark.config.project.connections import FilesConnection, LakeConnection
from floodmark.config.project.nodes import NodeSettings
from floodmark.config.project.reads import ReadSettings
from floodmark.config.project.settings import PipelineSettings, ProjectSettings
from floodmark.config.project.writes import WriteSettings


def parents_of(settings: ProjectSettings) -> dict[str, list[str]]:
    """For each pipeline those that write a table it reads; what a function writes is not known."""
    writers: dict[str, list[str]] = {}
    for pipeline in settings.pipelines:
        for table in written_by(pipeline, settings):
            writers.setdefault(table, []).append(pipeline.pipeline)
    return {
        pipeline.pipeline: list(
            dict.fromkeys(
                writer
                for place in read_by(pipeline, settings)
                for table, names in writers.items()
                for writer in names
                if is_inside(place, table) and writer != pipeline.pipeline
            )
        )
        for pipeline in settings.pipelines
    }


def is_inside(place: str, table: str) -> bool:
    """Whether a read of a place gets rows of a table: `out/*.csv` is read of what `out` holds."""
    return place == table or ("/" in place and place.startswith(f"{table.rstrip('/')}/"))


def written_by(pipeline: PipelineSettings, settings: ProjectSettings) -> Iterator[str]:
    """The tables that the nodes of a pipeline write, by every name they have."""
    for node in pipeline.nodes:
        yield from written_by_node(node, settings)


def written_by_node(node: NodeSettings, settings: ProjectSettings) -> Iterator[str]:
    """The table that a node writes, by every name it has."""
    if node.write is not None:
        yield from _names(node.write, settings)
        if node.write.register_table:
            yield node.write.register_table


def read_by_node(node: NodeSettings | None, settings: ProjectSettings) -> Iterator[str]:
    """The table or path that a node reads."""
    if node is not None and node.read is not None:
        yield from _names(node.read, settings)


def read_by(pipeline: PipelineSettings, settings: ProjectSettings) -> Iterator[str]:
    """The tables that a pipeline reads."""
    for upstream in (*pipeline.upstreams, *pipeline.lookups):
        yield table_name(upstream)
    for node in pipeline.nodes:
        yield from read_by_node(node, settings)


def _names(place: ReadSettings | WriteSettings, settings: ProjectSettings) -> Iterator[str]:
    connection = settings.connections.get(place.connection or "")
    if place.path is not None and isinstance(connection, LakeConnection | FilesConnection):
        yield table_name(f"{connection.root.rstrip('/')}/{place.path}")
    elif place.path is not None and connection is None:
        yield table_name(place.path)
    if place.table is not None:
        is_database = connection is not None and not isinstance(connection, LakeConnection)
        yield f"{place.connection}:{place.table}" if is_database else place.table


def table_name(path: str) -> str:
    """One spelling of the name or path of a table."""
    is_name = "/" not in path
    return path if is_name else path.rstrip("/") if "://" in path else posixpath.normpath(path)
