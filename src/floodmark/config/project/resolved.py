"""What the nodes of a project mean, worked out once: where each reads and writes, and by which name.

Everybody who asks what a node is about takes the answer from here: planning, runs, checks, screens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from pydantic import ValidationError

from floodmark.config.project.connections import (
    DIALECTS,
    ConnectionModel,
    FilesConnection,
    LakeConnection,
    PluginConnection,
    PostgresConnection,
)
from floodmark.config.project.cursors import implied_cursor, needs_cursor
from floodmark.config.project.graph import Graph, graph_of
from floodmark.config.project.nodes import NodeSettings
from floodmark.config.project.reads import (
    FORMATS,
    SQL_FORMATS,
    IncrementalSettings,
    ReadSettings,
    is_of_files,
)
from floodmark.config.project.settings import PipelineSettings, ProjectSettings
from floodmark.config.project.upstreams import DeltaReadSettings, UpstreamSettings
from floodmark.config.project.write_specs import spec_of
from floodmark.config.project.writes import WriteSettings
from floodmark.config.text.tables import is_inside, table_name
from floodmark.model import EVERY_ROW, FILE_LIST, WHOLE_ANSWER, WriteSpec, cursor_marks
from floodmark.model.names import DATABASE, FILES, SOURCES

ReadKind = Literal["node", "delta", "files", "database", "source"]
"""What a node reads: another node, a Delta table, files by their list, a database by its cursor, or
what a web API or a plug-in gives."""
WriteKind = Literal["delta", "files", "postgres", "plugin"]

WRITTEN_FILES = ("csv", "tsv", "json", "parquet", "text", "orc")

_DEFAULT_FORMATS = {
    "lake": "delta",
    "http": "http",
    "kafka": "kafka",
    "plugin": "plugin",
    **dict.fromkeys(DIALECTS, "sql"),
}
_SHARED = tuple(DeltaReadSettings.model_fields)


@dataclass(frozen=True)
class ResolvedRead:
    """What a node reads."""

    settings: ReadSettings
    kind: ReadKind | None
    """None for what this version does not read."""
    connection: ConnectionModel | None
    connection_type: str | None
    """Also of a connection that has errors."""
    format: str | None
    """As it is set, or as the type of the connection implies."""
    table: str | None
    """The Delta table, as path or catalog name."""
    upstream: UpstreamSettings | None
    """None for another node, and for settings that say no windows."""
    names: tuple[str, ...]
    """The table or path, by the names under which nodes write it."""


@dataclass(frozen=True)
class ResolvedWrite:
    """What a node writes."""

    settings: WriteSettings
    kind: WriteKind | None
    """None for what this version does not write."""
    connection: ConnectionModel | None
    connection_type: str | None
    format: str | None
    target: str | None
    """The name by which a run knows it: a Delta table by path or catalog name, a folder of files by
    path, a table of PostgreSQL or of a plug-in as `<connection>:<table>`."""
    table: str | None
    """The Delta table, as path or catalog name."""
    names: tuple[str, ...]
    """The target, by the names under which nodes read it."""
    spec: WriteSpec | None

    @property
    def is_at_least_once(self) -> bool:
        """Whether nothing in the target tells what was written; plug-ins may know better."""
        return isinstance(self.connection, PluginConnection) or self.is_of_files

    @property
    def is_of_files(self) -> bool:
        """Whether files are written, of floodmark's own formats or of a plug-in's."""
        return _is_written_as_files(self.format)


@dataclass(frozen=True)
class ResolvedNode:
    """A node with what its read and its write are about."""

    settings: NodeSettings
    pipeline: str
    read: ResolvedRead | None
    write: ResolvedWrite | None

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def kind(self) -> ReadKind | None:
        """What is read; None for no read, or one that is not run."""
        return self.read.kind if self.read is not None else None

    @property
    def upstream(self) -> UpstreamSettings | None:
        """What is read, as an upstream."""
        return self.read.upstream if self.read is not None else None

    @property
    def spec(self) -> WriteSpec | None:
        """What is written, under the node's name."""
        return self.write.spec if self.write is not None else None

    @property
    def is_reading(self) -> bool:
        """Whether the node reads something that is no node."""
        return self.read is not None and self.read.kind != "node"

    @property
    def input_node(self) -> str | None:
        """The node whose rows are the input; None for one that reads something else."""
        if self.settings.read is not None:
            return self.settings.read.node
        return next(iter(self.settings.depends_on), None)

    @property
    def is_lookup(self) -> bool:
        """Whether the node only looks things up in what it reads."""
        return self.read is not None and self.read.settings.lookup

    @property
    def target_table(self) -> str | None:
        """The Delta table that is written."""
        return self.write.table if self.write is not None else None

    @property
    def reads(self) -> tuple[str, ...]:
        """The table or path that is read."""
        return self.read.names if self.read is not None else ()

    @property
    def writes(self) -> tuple[str, ...]:
        """The table that is written, by every name it has."""
        return self.write.names if self.write is not None else ()

    @property
    def own_names(self) -> tuple[str, ...]:
        """The names by which a query of the node may call its own target."""
        return own_names(self.settings)

    @property
    def cursor(self) -> str | None:
        """The cursor of a database read."""
        return cursor_of(self.settings)


@dataclass(frozen=True)
class ResolvedPipeline:
    """A pipeline with its nodes."""

    settings: PipelineSettings
    nodes: tuple[ResolvedNode, ...]
    root: str | None = None
    """The folder of the project."""

    @property
    def name(self) -> str:
        return self.settings.pipeline

    @cached_property
    def by_name(self) -> dict[str, ResolvedNode]:
        """The nodes by name."""
        return {node.name: node for node in self.nodes}

    @cached_property
    def graph(self) -> Graph:
        """Which nodes come before which."""
        return graph_of(self.settings.nodes)

    @property
    def specs(self) -> list[WriteSpec]:
        """What the nodes write."""
        return [node.spec for node in self.nodes if node.spec is not None]

    def reads(self) -> Iterator[str]:
        """The tables that the pipeline reads."""
        for upstream in (*self.settings.upstreams, *self.settings.lookups):
            yield table_name(upstream, self.root)
        for node in self.nodes:
            yield from node.reads

    def writes(self) -> Iterator[str]:
        """The tables that the nodes write, by every name they have."""
        for node in self.nodes:
            yield from node.writes

    def with_upstreams(self) -> ResolvedPipeline:
        """The same with the reads of nodes as its upstreams and lookups, each table once.

        The first node that reads a table has the word.
        """
        if not self.nodes:
            return self
        declared: dict[bool, dict[str, UpstreamSettings]] = {False: {}, True: {}}
        for node in self.nodes:
            if node.upstream is not None:
                declared[node.is_lookup].setdefault(node.upstream.name, node.upstream)
        update = {"declared": list(declared[False].values()), "lookups": list(declared[True])}
        return replace(self, settings=self.settings.model_copy(update=update))


@dataclass(frozen=True)
class _Project:
    """What the nodes of a project refer to."""

    connections: Mapping[str, ConnectionModel]
    types: Mapping[str, str]
    hides_values: bool
    root: str | None


def resolved(
    settings: ProjectSettings, types: Mapping[str, str] | None = None, root: str | None = None
) -> tuple[ResolvedPipeline, ...]:
    """The pipelines of a project with what their nodes mean.

    `types` are those of all connections, also of such as are missing in settings with errors.
    `root` is the folder of the project: a table is the same by its absolute path.
    """
    if types is None:
        types = {name: each.type for name, each in settings.connections.items()}
    nodes = (node for pipeline in settings.pipelines for node in pipeline.nodes)
    # What a column becomes in the nodes below the one that declares it is not known.
    hides_values = any(column.sensitive for node in nodes for column in node.columns.values())
    project = _Project(settings.connections, types, hides_values, root)
    return _with_sharers(
        [
            ResolvedPipeline(p, tuple(_node(each, p, project) for each in p.nodes), root)
            for p in settings.pipelines
        ]
    )


def _with_sharers(pipelines: Sequence[ResolvedPipeline]) -> tuple[ResolvedPipeline, ...]:
    """The same; each write knows the other nodes that write its target."""
    writers: dict[str, set[tuple[str, str]]] = {}
    for node in (node for pipeline in pipelines for node in pipeline.nodes):
        for name in node.writes:
            writers.setdefault(name, set()).add((node.pipeline, node.name))

    def sharing(node: ResolvedNode) -> ResolvedNode:
        found = set().union(*(writers[name] for name in node.writes))
        sharers = tuple(sorted(found - {(node.pipeline, node.name)}))
        if not sharers or node.write is None or node.write.spec is None:
            return node
        spec = replace(node.write.spec, sharers=sharers)
        return replace(node, write=replace(node.write, spec=spec))

    return tuple(replace(p, nodes=tuple(map(sharing, p.nodes))) for p in pipelines)


def parents_of(pipelines: Sequence[ResolvedPipeline]) -> dict[str, list[str]]:
    """For each pipeline those that write a table it reads; what a function writes is not known."""
    writers: dict[str, list[str]] = {}
    for pipeline in pipelines:
        for table in pipeline.writes():
            writers.setdefault(table, []).append(pipeline.name)
    return {
        pipeline.name: list(
            dict.fromkeys(
                writer
                for read in pipeline.reads()
                for table, names in writers.items()
                for writer in names
                if is_inside(read, table) and writer != pipeline.name
            )
        )
        for pipeline in pipelines
    }


def format_of(settings: ReadSettings | WriteSettings, kind: str | None) -> str | None:
    """The format, said or implied by the type of the connection; None if neither says it."""
    return settings.format or _DEFAULT_FORMATS.get(kind or "lake")


def own_names(node: NodeSettings) -> tuple[str, ...]:
    """The names by which a query of a node may call the node's own target."""
    write = node.write
    return tuple(name for name in (write.register_table, write.table) if name) if write else ()


def cursor_of(node: NodeSettings) -> str | None:
    """The cursor of a read: said, or what its query compares with the start of the window."""
    read = node.read
    if read is None or read.incremental is not None:
        return read.incremental.cursor if read and read.incremental else None
    return implied_cursor(read.query, own_names(node)) if read.query is not None else None


# One node ---------------------------------------------------------------------------------------


def _node(node: NodeSettings, pipeline: PipelineSettings, project: _Project) -> ResolvedNode:
    read = _read(node, node.read, pipeline, project) if node.read is not None else None
    write = _write(node, node.write, project) if node.write is not None else None
    return ResolvedNode(node, pipeline.pipeline, read, write)


def _read(
    node: NodeSettings, read: ReadSettings, pipeline: PipelineSettings, project: _Project
) -> ResolvedRead:
    connection = project.connections.get(read.connection or "")
    connection_type = project.types.get(read.connection or "")
    made = ResolvedRead(
        settings=read,
        kind=None,
        connection=connection,
        connection_type=connection_type,
        format=format_of(read, connection_type),
        table=_table(read, connection),
        upstream=None,
        names=tuple(_names(read, connection, project.root)),
    )
    kind = _read_kind(made)
    windows = _WINDOWS.get(kind or "")
    upstream = windows(node, made, pipeline) if windows is not None else None
    return replace(made, kind=kind, upstream=upstream)


def _read_kind(read: ResolvedRead) -> ReadKind | None:
    kind = read.connection.type if read.connection is not None else None
    if read.settings.node is not None:
        return "node"
    if kind in DIALECTS:
        return "database"
    if kind in ("http", "plugin"):
        return "source"
    is_folder = kind in (None, "lake", "files")
    if is_folder and is_of_files(read.format) and read.settings.path is not None:
        return "files"
    return "delta" if read.table is not None else None


def _write(node: NodeSettings, write: WriteSettings, project: _Project) -> ResolvedWrite:
    connection = project.connections.get(write.connection or "")
    connection_type = project.types.get(write.connection or "")
    format_name = format_of(write, connection_type)
    kind, target = _target(write, connection, format_name)
    spec = None
    if target is not None:
        by_lake = isinstance(connection, LakeConnection) and connection.allow_single_writer
        files = format_name if _is_written_as_files(format_name) else None
        spec = replace(
            spec_of(node.name, write, target, files),
            hides_values=project.hides_values,
            allow_single_writer=write.allow_single_writer or by_lake,
        )
    return ResolvedWrite(
        settings=write,
        kind=kind,
        connection=connection,
        connection_type=connection_type,
        format=format_name,
        target=target,
        table=_table(write, connection),
        names=(*_names(write, connection, project.root), *filter(None, [write.register_table])),
        spec=spec,
    )


def _target(
    write: WriteSettings, connection: ConnectionModel | None, format_name: str | None
) -> tuple[WriteKind | None, str | None]:
    table = f"{write.connection}:{write.table}" if write.table is not None else None
    if isinstance(connection, PostgresConnection):
        return ("postgres", table) if format_name in SQL_FORMATS and table else (None, None)
    if isinstance(connection, PluginConnection):
        return ("plugin", table) if table else (None, None)
    if not _is_written_as_files(format_name):
        table = _table(write, connection)
        return ("delta", table) if table is not None else (None, None)
    if write.path is None:
        return None, None
    return "files", _with_slash(_path_of(write.path, connection))


def _is_written_as_files(name: str | None) -> bool:
    return name is not None and (name in WRITTEN_FILES or name not in FORMATS)


# Names of tables --------------------------------------------------------------------------------


def _table(place: ReadSettings | WriteSettings, connection: ConnectionModel | None) -> str | None:
    """The Delta table that a node reads or writes, as path or catalog name; None if it is none."""
    kind = connection.type if connection is not None else None
    if format_of(place, kind) != "delta" or kind not in (None, "lake"):
        return None
    return place.table if place.path is None else _with_slash(_path_of(place.path, connection))


def _path_of(path: str, connection: ConnectionModel | None) -> str:
    if isinstance(connection, LakeConnection | FilesConnection):
        path = f"{connection.root.rstrip('/')}/{path}"
    return table_name(path)


def _with_slash(path: str) -> str:
    """A path of one part, told from a catalog name."""
    return path if "/" in path else f"./{path}"


def _names(
    place: ReadSettings | WriteSettings, connection: ConnectionModel | None, root: str | None
) -> Iterator[str]:
    is_folder = connection is None or isinstance(connection, LakeConnection | FilesConnection)
    if place.path is not None and is_folder:
        yield table_name(_path_of(place.path, connection), root)
    if place.table is not None:
        is_of_lake = connection is None or isinstance(connection, LakeConnection)
        yield place.table if is_of_lake else f"{place.connection}:{place.table}"


# Windows of reads -------------------------------------------------------------------------------


def _of_table(
    _node: NodeSettings, read: ResolvedRead, _pipeline: PipelineSettings
) -> UpstreamSettings | None:
    """A Delta table, by versions or by a time column."""
    options: dict[str, Any] = {name: getattr(read.settings, name) for name in _SHARED}
    cursor = read.settings.incremental
    if cursor is None:
        # Checked already, as keys of the read: a second time takes half as long as all the rest.
        return UpstreamSettings.model_construct(name=str(read.table), **options)
    options |= {
        "name": read.table,
        "time_column": cursor.cursor,
        "baseline": options["baseline"] if cursor.baseline is None else cursor.baseline,
        "settle": cursor.settle or None,
        "on_null_time": "ignore" if cursor.on_null_cursor == "skip" else "fail",
    }
    try:
        return UpstreamSettings(
            **{name: value for name, value in options.items() if value is not None}
        )
    except ValidationError:
        return None


def _of_files(
    _node: NodeSettings, read: ResolvedRead, _pipeline: PipelineSettings
) -> UpstreamSettings:
    """Files of a folder or glob; known by connection and path, so that a lake may move."""
    return UpstreamSettings.model_construct(
        name=f"{FILES}{read.settings.connection or '.'}/{read.settings.path}".rstrip("/"),
        time_column=FILE_LIST.column,
        format=FILE_LIST.format,
        baseline="latest" if read.settings.baseline == "latest" else None,
    )


def _of_source(
    node: NodeSettings, resolved_read: ResolvedRead, pipeline: PipelineSettings
) -> UpstreamSettings | None:
    """What a web API or a plug-in gives: by its cursor, or a whole answer of a web API."""
    read, connection = resolved_read.settings, resolved_read.connection
    is_one_of_many = bool(read.params or read.options)
    what = (read.table or read.path or "").strip("/")
    what = f"{pipeline.pipeline}.{node.name}" if is_one_of_many or not what else what
    name = f"{SOURCES}{read.connection}/{what}"
    cursor = read.incremental
    if cursor is None:
        answer = UpstreamSettings.model_construct(
            name=name, time_column=WHOLE_ANSWER.column, format=WHOLE_ANSWER.format
        )
        return answer if connection is not None and connection.type == "http" else None
    try:
        baseline = _baseline(cursor)
    except ValueError:
        return None
    return UpstreamSettings.model_construct(
        name=name, time_column=cursor.cursor, format="source", baseline=baseline
    )


def _of_database(
    node: NodeSettings, resolved_read: ResolvedRead, pipeline: PipelineSettings
) -> UpstreamSettings | None:
    """A table or query of a database by its cursor, or all of it; None for a query that needs one
    and does not say which column that is. A query has the scope of its pipeline in its name, which
    the pipeline keeps when it is renamed.
    """
    read = resolved_read.settings
    cursor = cursor_of(node)
    if cursor is None and not needs_cursor(read.query, own_names(node)):
        cursor = EVERY_ROW.column
    if cursor is None:
        return None
    is_table = read.query is None and read.table
    what = read.table if is_table else f"{pipeline.shared_scope}.{node.name}"
    try:
        baseline = _baseline(read.incremental) if read.incremental is not None else None
    except ValueError:
        return None
    return UpstreamSettings.model_construct(
        name=f"{DATABASE}{read.connection}/{what}",
        time_column=cursor,
        format="sql",
        baseline=baseline,
        on_recreated=read.on_recreated,
    )


def _baseline(incremental: IncrementalSettings) -> str | None:
    """The baseline as a mark; raises ValueError if it is not of the declared type."""
    baseline = incremental.baseline
    if baseline is None or baseline == "latest":
        return None if baseline is None else "latest"
    return cursor_marks.guessed(baseline, incremental.type).encoded()


_Windows = Callable[[NodeSettings, ResolvedRead, PipelineSettings], UpstreamSettings | None]
_WINDOWS: dict[str, _Windows] = {
    "delta": _of_table,
    "files": _of_files,
    "source": _of_source,
    "database": _of_database,
}
