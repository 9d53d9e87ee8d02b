"""What of a pipeline of nodes is not run: said by key, before anything is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from floodmark.config.checks.findings import Finding
from floodmark.config.checks.lookups import lookup_findings
from floodmark.config.project.connections import FilesConnection, LakeConnection
from floodmark.config.project.reads import FORMATS, IncrementalSettings, ReadSettings
from floodmark.config.project.resolved import (
    ResolvedNode,
    ResolvedPipeline,
    ResolvedRead,
    ResolvedWrite,
)
from floodmark.config.project.upstreams import UpstreamSettings
from floodmark.config.project.writes import WriteSettings
from floodmark.model.sql_names import name_parts

NOT_RUN = "FM-CONFIG-016"


def unsupported_keys(
    pipeline: ResolvedPipeline, project: Sequence[ResolvedPipeline]
) -> Iterator[Finding]:
    """Every key of the pipeline's nodes that this version does not run, with its path."""
    yield from lookup_findings(pipeline)
    tables: dict[str, UpstreamSettings] = {}
    databases: dict[str, ResolvedNode] = {}
    for position, node in enumerate(pipeline.nodes):
        findings = [
            *_node(node, project),
            *_other_words(node.upstream, tables),
            *_shared_read(node, databases),
            *_shared_name(node, pipeline, project),
            *_shared_windows(node, pipeline, project),
        ]
        yield from (each.below("nodes", position) for each in findings)


def _node(node: ResolvedNode, project: Sequence[ResolvedPipeline]) -> Iterator[Finding]:
    if node.read is not None and node.read.kind != "node":
        yield from (each.below("read") for each in _read(node.read, project))
    if node.write is not None:
        yield from (each.below("write") for each in _write(node.write))
        if node.write.settings.first_run_query is not None and node.kind != "database":
            allowed = "a read of a database; the first batch of a Delta table is the whole table"
            yield _not_run("write", "first_run_query", allowed=allowed)
    for position, check in enumerate(node.settings.expect):
        needs_rows = check.action in ("drop", "quarantine")
        if check.row_count is not None and needs_rows:
            yield _not_run("expect", position, "action", allowed="warn or fail: no row is to blame")
        if check.action == "quarantine" and node.write is None:
            yield _not_run("expect", position, "action", allowed="quarantine with a write")


def _read(read: ResolvedRead, project: Sequence[ResolvedPipeline]) -> Iterator[Finding]:
    if read.kind == "database":
        yield from _database_read(read)
        return
    if read.settings.partition is not None:
        yield _not_run("partition", allowed="a read of a database")
    if read.kind == "source":
        yield from _source_read(read)
        yield from _other_source_read(read.settings, project)
    elif read.kind == "files":
        yield from _file_read(read.settings)
        yield from _other_file_read(read.settings, project)
    elif read.kind == "delta":
        yield from _table_read(read)
    else:
        key = "format" if read.settings.format else "connection"
        yield _not_run(
            key, allowed="a Delta table of a lake; files; a table or query of a database"
        )


def _table_read(resolved: ResolvedRead) -> Iterator[Finding]:
    """What is read of a Delta table."""
    read = resolved.settings
    if read.settle is not None:
        yield _not_run("settle", allowed="incremental: {settle: ...}; here it is of files")
    for key, yaml_key in (("query", "query"), ("ddl", "schema")):
        if getattr(read, key) is not None:
            yield _not_run(yaml_key, allowed="path or table, and a sql step in transform")
    for key in ("options", "params"):
        if getattr(read, key):
            yield _not_run(key, allowed="no options for a Delta table")
    yield from _lake(resolved)
    if read.incremental is not None:
        yield from (each.below("incremental") for each in _cursor(read.incremental))
    if resolved.upstream is None:
        yield _not_run(allowed="settings that go together: a cursor has no method and no version")


def _database_read(resolved: ResolvedRead) -> Iterator[Finding]:
    """What is read of a database, by its cursor alone."""
    read = resolved.settings
    if resolved.upstream is None:
        cursor = "incremental: {cursor: a column that grows}"
        yield _not_run("incremental" if read.incremental else "query", allowed=cursor)
    for key, yaml_key in (("path", "path"), ("ddl", "schema"), ("baseline", "baseline")):
        if getattr(read, key) is not None:
            yield _not_run(yaml_key, allowed="table or query, and incremental")
    if read.method is not None:
        yield _not_run("method", allowed="no method: a database is read by its cursor")
    if read.settle is not None:
        yield _not_run("settle", allowed="incremental: {settle: ...}; here it is of files")
    for key in ("options", "params"):
        if getattr(read, key):
            yield _not_run(key, allowed="options of the connection")


def _source_read(resolved: ResolvedRead) -> Iterator[Finding]:
    """What is read of a web API or a plug-in: by its cursor, or a whole answer."""
    read = resolved.settings
    if resolved.upstream is None:
        yield _not_run("incremental", allowed="incremental: {cursor: a column that grows}")
    if read.format not in (None, "http", "json", "plugin"):
        yield _not_run("format", allowed="answers in JSON")
    for key in ("query", "method", "baseline"):
        if getattr(read, key) is not None:
            yield _not_run(key, allowed="path, params, schema and incremental")
    if read.file_column is not None:
        yield _not_run("file_column", allowed="file_column with files")
    is_http = resolved.connection is not None and resolved.connection.type == "http"
    for key in ("options", "table") if is_http else ("params",):
        if getattr(read, key):
            yield _not_run(key, allowed="path and params" if is_http else "options")


def _reads(project: Sequence[ResolvedPipeline]) -> Iterator[ResolvedRead]:
    nodes = (node for pipeline in project for node in pipeline.nodes)
    return (node.read for node in nodes if node.read is not None)


def _other_source_read(
    read: ReadSettings, project: Sequence[ResolvedPipeline]
) -> Iterator[Finding]:
    """All nodes of a project that read one thing of a connection share its windows."""
    for other in (each.settings for each in _reads(project)):
        is_same = (other.connection, _what(other)) == (read.connection, _what(read))
        if is_same and _what(read) is not None and _rows_of(other) != _rows_of(read):
            yield Finding(
                ("read",),
                NOT_RUN,
                f"two nodes of this project read {_what(read)} in different ways",
                "",
                "the same settings in every node that reads it, or params of its own",
            )
            return


def _what(read: ReadSettings) -> str | None:
    """What is read, where that is all that is said; reads with more are known by their node."""
    if read.params or read.options:
        return None
    return (read.table or read.path or "").strip("/") or None


def _rows_of(read: ReadSettings) -> ReadSettings:
    """A read without what decides only when its rows are news, and how a path ends."""
    path = read.path if read.path is None else read.path.strip("/")
    return read.model_copy(update={"lookup": False, "path": path})


def _file_read(read: ReadSettings) -> Iterator[Finding]:
    """What is read of files, by their list alone."""
    if read.incremental is not None:
        yield _not_run("incremental", allowed="nothing: new files are told by their list")
    for key in ("query", "table", "method"):
        if getattr(read, key) is not None:
            yield _not_run(key, allowed="path, schema, options and new_files")
    if read.baseline not in (None, "latest"):
        yield _not_run("baseline", allowed='"latest", or nothing for all files')
    if read.params:
        yield _not_run("params", allowed="options of the reader")
    if read.file_column is not None and read.format not in FORMATS:
        yield _not_run(
            "file_column", allowed="a column that the reader itself adds: it has the paths"
        )


def _folder(read: ReadSettings) -> str:
    return (read.path or "").rstrip("/")


def _other_file_read(read: ReadSettings, project: Sequence[ResolvedPipeline]) -> Iterator[Finding]:
    """All nodes of a project that read a path share its windows and its reader."""
    for other in (each.settings for each in _reads(project) if each.kind == "files"):
        is_same = (other.connection, _folder(other)) == (read.connection, _folder(read))
        if is_same and _rows_of(other) != _rows_of(read):
            yield Finding(
                ("path",),
                NOT_RUN,
                f"two nodes of this project read {read.path} in different ways",
                "",
                f"the same settings in every node that reads {read.path}",
            )
            return


def _cursor(cursor: IncrementalSettings) -> Iterator[Finding]:
    """A cursor over a Delta table is a window of time, read by query."""
    for key in ("overlap", "keys"):
        if getattr(cursor, key):
            yield _not_run(key, allowed="no overlap: versions of a Delta table miss nothing")
    if cursor.on_null_cursor == "include":
        yield _not_run("on_null_cursor", allowed="fail or skip")
    if cursor.type not in (None, "timestamp", "date"):
        yield _not_run("type", allowed="timestamp or date")
    if cursor.settle and not isinstance(cursor.settle, str):
        yield _not_run("settle", allowed="a duration")


def _write(resolved: ResolvedWrite) -> Iterator[Finding]:
    write = resolved.settings
    if resolved.kind is None:
        key = "format" if write.format else "connection"
        allowed = "a Delta table or files of a lake connection; a table of postgres or a plug-in"
        yield _not_run(key, allowed=allowed)
    elif resolved.kind == "plugin":
        yield from _plugged_write(write)
    elif resolved.kind == "postgres":
        yield from _database(write)
    else:
        yield from _files(write) if resolved.kind == "files" else _table(write)
        yield from _lake(resolved)


def _table(write: WriteSettings) -> Iterator[Finding]:
    """A Delta table has its layout, and options of its own."""
    if write.table is not None and write.register_table is not None:
        yield _not_run("register_table", allowed="path with register_table, or table")
    if write.options.writer:
        yield _not_run("options", "writer", allowed="table_properties")


def _plugged_write(write: WriteSettings) -> Iterator[Finding]:
    """A sink of a plug-in gets rows, and does with them what it likes."""
    if write.write_mode != "append":
        yield _not_run("mode", allowed="append: the rows of each batch")
    if "/" in (write.table or ""):
        yield _not_run("table", allowed="a name without a slash")
    if write.register_table is not None:
        yield _not_run("register_table", allowed="register_table with a Delta table")
    for key in write.options.model_fields_set - {"writer"}:
        yield _not_run("options", key, allowed="writer")


def _database(write: WriteSettings) -> Iterator[Finding]:
    """A table of PostgreSQL has no layout of ours, and no name in Spark's catalog."""
    if not _is_table_name(write.table or ""):
        yield _not_run("table", allowed='table, schema.table, or "Quoted".names as in SQL')
    if write.register_table is not None:
        yield _not_run("register_table", allowed="register_table with a Delta table")
    for key in write.options.model_fields_set:
        yield _not_run("options", key, allowed="layout by CREATE TABLE in the database, once")


def _is_table_name(text: str) -> bool:
    try:
        return len(name_parts("postgres", text)) <= 2
    except ValueError:
        return False


def _files(write: WriteSettings) -> Iterator[Finding]:
    """Files are added or replaced, and know neither keys nor tables."""
    if write.write_mode not in ("append", "overwrite"):
        yield _not_run("mode", allowed="append or overwrite; a Delta table for the others")
    if write.register_table is not None and write.format not in FORMATS:
        yield _not_run("register_table", allowed="register_table with a format of Spark's")
    of_spark = {"partition_by"} if write.format in FORMATS else set()
    for key in write.options.model_fields_set - {"writer", *of_spark}:
        yield _not_run("options", key, allowed=" and ".join(["writer", *of_spark]))


def _lake(resolved: ResolvedRead | ResolvedWrite) -> Iterator[Finding]:
    connection, path = resolved.connection, resolved.settings.path
    if not isinstance(connection, LakeConnection | FilesConnection):
        return
    if connection.storage_options:
        yield _not_run("connection", allowed="a lake without storage_options of its own")
    if path is not None and ".." in path.split("/"):
        yield _not_run("path", allowed="a path below the root of the connection")


def _other_words(
    upstream: UpstreamSettings | None, tables: dict[str, UpstreamSettings]
) -> Iterator[Finding]:
    """Two nodes that read one table share its windows, so they must use the same read options."""
    if upstream is None:
        return
    first = tables.setdefault(upstream.name, upstream)
    if first != upstream:
        yield _two_ways(upstream.name, _differences(first, upstream))


def _differences(first: UpstreamSettings, second: UpstreamSettings) -> str:
    """The settings in which two reads differ, as both say them."""
    names = [n for n in type(first).model_fields if getattr(first, n) != getattr(second, n)]
    pairs = (f"{n}: {_as_said(first, n)} and {_as_said(second, n)}" for n in names)
    return "; ".join(pairs)


def _as_said(upstream: UpstreamSettings, name: str) -> str:
    value = getattr(upstream, name)
    return "not set" if value is None else str(value)


def _two_ways(name: str, differences: str) -> Finding:
    return Finding(
        ("read",),
        NOT_RUN,
        f"two nodes of this pipeline read {name} in different ways",
        differences,
        "the same settings in both nodes; or one of the nodes in a pipeline of its own",
    )


def _shared_read(node: ResolvedNode, others: dict[str, ResolvedNode]) -> Iterator[Finding]:
    """Two nodes that read one table of a database share the rows that are put aside."""
    if node.upstream is None or not node.upstream.has_cursor:
        return
    first = others.setdefault(node.upstream.name, node)
    writes = [each.write for each in (first, node) if each.write is not None]
    has_own = any(write.settings.first_run_query for write in writes)
    if first is not node and (first.settings.read != node.settings.read or has_own):
        yield Finding(
            ("read",),
            NOT_RUN,
            f"two nodes of this pipeline read {node.upstream.name} in different ways",
            "a first_run_query of its own" if has_own else "",
            f"depends_on: [{first.name}], or the same read in both nodes",
        )


def _shared_name(
    node: ResolvedNode, pipeline: ResolvedPipeline, project: Sequence[ResolvedPipeline]
) -> Iterator[Finding]:
    """A query is known by the scope of its pipeline and the name of its node."""
    if node.read is None or node.kind != "database" or node.read.settings.query is None:
        return
    for other in project:
        is_same_scope = other.settings.shared_scope == pipeline.settings.shared_scope
        if other.name == pipeline.name or not is_same_scope:
            continue
        if any(e.name == node.name and e.read and e.read.settings.query for e in other.nodes):
            allowed = f"another name: {other.name} of the same scope has a query of that name"
            yield _not_run("name", allowed=allowed)


_PLANNED_BY = ("settle", "type", "order", "time_zone", "on_null_cursor")
"""What a plan goes by, beside the column: pipelines of one scope share their windows."""


def _shared_windows(
    node: ResolvedNode, pipeline: ResolvedPipeline, project: Sequence[ResolvedPipeline]
) -> Iterator[Finding]:
    """Pipelines of a scope that read one table of a database have one plan for it."""
    scope, cursor = pipeline.settings.shared_scope, node.read and node.read.settings.incremental
    if node.kind != "database" or node.upstream is None or not cursor:
        return
    for other in project:
        if other.name == pipeline.name or other.settings.shared_scope != scope:
            continue
        for each in other.nodes:
            theirs = each.read and each.read.settings.incremental
            is_same = each.upstream is not None and each.upstream.name == node.upstream.name
            if not theirs or not is_same or not _differ(cursor, theirs):
                continue
            yield Finding(
                ("read", "incremental"),
                NOT_RUN,
                f"{other.name} and {pipeline.name} of scope {scope} read {node.upstream.name} in"
                " different ways",
                "; ".join(_differ(cursor, theirs)),
                "the same settings in both, since they share its windows; or another scope",
            )
            return


def _differ(one: IncrementalSettings, other: IncrementalSettings) -> list[str]:
    """The settings of a cursor in which two plans would differ, as both say them."""
    names = [name for name in _PLANNED_BY if getattr(one, name) != getattr(other, name)]
    return [f"{name}: {getattr(one, name)} and {getattr(other, name)}" for name in names]


def _not_run(*path: str | int, allowed: str) -> Finding:
    key = next((part for part in reversed(path) if isinstance(part, str)), "read")
    return Finding(
        path, NOT_RUN, f'this version does not run "{key}" as it is set here', "", allowed
    )
