"""The upstreams of a pipeline of nodes: the tables and queries that its nodes read."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from floodmark.config.checks.nodes import format_of
from floodmark.config.project.chains import table_name
from floodmark.config.project.connections import DIALECTS, LakeConnection
from floodmark.config.project.cursors import implied_cursor, needs_cursor
from floodmark.config.project.nodes import NodeSettings
from floodmark.config.project.reads import IncrementalSettings, ReadSettings, is_of_files
from floodmark.config.project.settings import PipelineSettings, ProjectSettings
from floodmark.config.project.upstreams import DeltaReadSettings, UpstreamSettings
from floodmark.config.project.writes import WriteSettings
from floodmark.model import cursor_marks
from floodmark.model.file_marks import FILES as LISTED
from floodmark.model.names import DATABASE, FILES, SOURCES
from floodmark.model.window import ANSWER, EVERY_ROW

_SHARED = tuple(DeltaReadSettings.model_fields)


def table_of(place: ReadSettings | WriteSettings, settings: ProjectSettings) -> str | None:
    """The Delta table that a node reads or writes, as path or catalog name; None if it is none."""
    connection = settings.connections.get(place.connection or "")
    kind = connection.type if connection is not None else None
    if format_of(place, kind) != "delta" or (connection is not None and kind != "lake"):
        return None
    if place.path is None:
        return place.table
    if not isinstance(connection, LakeConnection):
        return _with_slash(table_name(place.path))
    return _with_slash(table_name(f"{connection.root.rstrip('/')}/{place.path}"))


def _with_slash(path: str) -> str:
    """A path of one part, told from a catalog name."""
    return path if "/" in path else f"./{path}"


def upstream_of(
    node: NodeSettings, pipeline: str, settings: ProjectSettings
) -> UpstreamSettings | None:
    """What a node reads, as an upstream; None for another node, or what is not read."""
    read = node.read
    if read is None or read.node is not None:
        return None
    if is_database_read(read, settings):
        return _of_database(node, read, _scope_of(pipeline, settings))
    if is_source_read(read, settings):
        return _of_source(node, read, pipeline, settings)
    if is_file_read(read, settings):
        return _of_files(read)
    table = table_of(read, settings)
    return None if table is None else _of_table(table, read)


def _of_table(table: str, read: ReadSettings) -> UpstreamSettings | None:
    """A Delta table, by versions or by a time column."""
    said: dict[str, Any] = {name: getattr(read, name) for name in _SHARED}
    if read.incremental is None:
        # Checked already, as keys of the read: a second time takes half as long as all the rest.
        return UpstreamSettings.model_construct(name=table, **said)
    said = {name: value for name, value in said.items() if value is not None}
    try:
        return UpstreamSettings(name=table, **{**said, **_time_window(read.incremental)})
    except ValidationError:
        return None


def is_lookup(read: ReadSettings | None) -> bool:
    """Whether a node only looks things up in what it reads."""
    return read is not None and read.lookup


def is_database_read(read: ReadSettings | None, settings: ProjectSettings) -> bool:
    """Whether a read goes to a database."""
    if read is None or read.node is not None:
        return False
    connection = settings.connections.get(read.connection or "")
    return connection is not None and connection.type in DIALECTS


def is_source_read(read: ReadSettings | None, settings: ProjectSettings) -> bool:
    """Whether a read goes to a web API or to the source of a plug-in."""
    if read is None or read.node is not None:
        return False
    connection = settings.connections.get(read.connection or "")
    return connection is not None and connection.type in ("http", "plugin")


def is_file_read(read: ReadSettings, settings: ProjectSettings) -> bool:
    """Whether a read goes to files, by their list."""
    connection = settings.connections.get(read.connection or "")
    is_folder = connection is None or connection.type in ("lake", "files")
    kind = connection.type if connection is not None else None
    return is_folder and is_of_files(format_of(read, kind)) and read.path is not None


def _of_files(read: ReadSettings) -> UpstreamSettings:
    """Files of a folder or glob; known by connection and path, so that a lake may move."""
    return UpstreamSettings.model_construct(
        name=f"{FILES}{read.connection or '.'}/{read.path}",
        time_column=LISTED,
        format="files",
        baseline="latest" if read.baseline == "latest" else None,
    )


def _of_source(
    node: NodeSettings, read: ReadSettings, pipeline: str, settings: ProjectSettings
) -> UpstreamSettings | None:
    """What a web API or a plug-in gives: by its cursor, or a whole answer of a web API."""
    is_one_of_many = bool(read.params or read.options)
    what = (read.table or read.path or "").strip("/")
    what = f"{pipeline}.{node.name}" if is_one_of_many or not what else what
    name = f"{SOURCES}{read.connection}/{what}"
    said = read.incremental
    if said is None:
        is_http = settings.connections[str(read.connection)].type == "http"
        made = UpstreamSettings.model_construct(name=name, time_column=ANSWER, format="files")
        return made if is_http else None
    try:
        baseline = _baseline(said)
    except ValueError:
        return None
    return UpstreamSettings.model_construct(
        name=name, time_column=said.cursor, format="source", baseline=baseline
    )


def _scope_of(pipeline: str, settings: ProjectSettings) -> str:
    """The scope of a pipeline, which it keeps when it is renamed."""
    scopes = (p.shared_scope for p in settings.pipelines if p.pipeline == pipeline)
    return next(scopes, pipeline)


def _of_database(node: NodeSettings, read: ReadSettings, scope: str) -> UpstreamSettings | None:
    """A table or query of a database by its cursor, or all of it; None for a query that needs one
    and does not say which column that is.
    """
    cursor = cursor_of(node) or _no_cursor(node)
    if cursor is None:
        return None
    what = read.table if read.query is None and read.table else f"{scope}.{node.name}"
    said = read.incremental
    try:
        baseline = _baseline(said) if said is not None else None
    except ValueError:
        return None
    return UpstreamSettings.model_construct(
        name=f"{DATABASE}{read.connection}/{what}",
        time_column=cursor,
        format="sql",
        baseline=baseline,
        on_recreated=read.on_recreated,
    )


def cursor_of(node: NodeSettings) -> str | None:
    """The cursor of a database read: said, or what its query compares with the window's start."""
    read = node.read
    if read is None or read.incremental is not None:
        return read.incremental.cursor if read and read.incremental else None
    if read.query is None:
        return None
    return implied_cursor(read.query, own_names(node))


def _no_cursor(node: NodeSettings) -> str | None:
    read = node.read
    is_whole = read is not None and not needs_cursor(read.query, own_names(node))
    return EVERY_ROW if is_whole else None


def own_names(node: NodeSettings) -> tuple[str, ...]:
    """The names by which a query of the node may call its own target."""
    write = node.write
    return tuple(name for name in (write.register_table, write.table) if name) if write else ()


def _baseline(incremental: IncrementalSettings) -> str | None:
    """The baseline as a mark; raises ValueError if it is not of the declared type."""
    said = incremental.baseline
    if said is None or said == "latest":
        return None if said is None else "latest"
    return cursor_marks.guessed(said, incremental.type).encoded()


def _time_window(cursor: IncrementalSettings) -> dict[str, Any]:
    """A Delta table by a time column."""
    said = {
        "time_column": cursor.cursor,
        "baseline": cursor.baseline,
        "settle": cursor.settle or None,
        "on_null_time": "ignore" if cursor.on_null_cursor == "skip" else "fail",
    }
    return {name: value for name, value in said.items() if value is not None}


def with_upstreams(settings: ProjectSettings) -> ProjectSettings:
    """The project with the reads of nodes as the upstreams and lookups of their pipelines."""
    pipelines = [
        pipeline.model_copy(
            update={
                "declared": _upstreams(pipeline, settings, lookup=False),
                "lookups": [each.name for each in _upstreams(pipeline, settings, lookup=True)],
            }
        )
        if pipeline.nodes
        else pipeline
        for pipeline in settings.pipelines
    ]
    return settings.model_copy(update={"pipelines": pipelines})


def _upstreams(
    pipeline: PipelineSettings, settings: ProjectSettings, *, lookup: bool
) -> list[UpstreamSettings]:
    """Each table once: the first node that reads it has the word."""
    nodes = [node for node in pipeline.nodes if is_lookup(node.read) == lookup]
    found = [upstream_of(node, pipeline.pipeline, settings) for node in nodes]
    by_name: dict[str, UpstreamSettings] = {}
    for upstream in found:
        if upstream is not None:
            by_name.setdefault(upstream.name, upstream)
    return list(by_name.values())
