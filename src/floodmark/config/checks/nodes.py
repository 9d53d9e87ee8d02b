"""What has to go together in a project: names that must exist, settings that exclude one another.

The rules look at valid models, one at a time; each finding says by its path what it is about.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from floodmark.config.checks.declared import undeclared_columns
from floodmark.config.checks.findings import (
    AT_LEAST_ONCE,
    CIRCLE,
    CONFLICT,
    DOUBLED,
    MISSING,
    RISK,
    UNKNOWN,
    UNSAFE_ON_S3,
    Finding,
)
from floodmark.config.project.connections import DIALECTS, LakeConnection
from floodmark.config.project.cursors import needs_cursor
from floodmark.config.project.nodes import TRANSFORMS, NodeSettings
from floodmark.config.project.reads import (
    FILE_FORMATS,
    FORMATS,
    SQL_FORMATS,
    IncrementalSettings,
    ReadSettings,
    is_of_files,
)
from floodmark.config.project.resolved import (
    ResolvedNode,
    ResolvedPipeline,
    ResolvedRead,
    ResolvedWrite,
)
from floodmark.config.project.settings import ProjectSettings
from floodmark.config.project.writes import MODES, WriteOptions, WriteSettings
from floodmark.config.text.places import KeyPath, choices
from floodmark.model import durations
from floodmark.model.names import is_on_s3
from floodmark.model.write_rules import MODES_OF, is_for, needs_condition, needs_keys
from floodmark.model.write_words import either

_COUNTS = re.compile(r"(^|_)(id|seq|sequence|version|number|no|offset|key|counter)$", re.IGNORECASE)


@dataclass(frozen=True)
class Surroundings:
    """What nodes may name: connections with their types, formats and transforms."""

    connections: Mapping[str, str]
    formats: tuple[str, ...] = FORMATS
    transforms: tuple[str, ...] = TRANSFORMS
    has_plugins: bool = False
    """Modules and packages may add formats and transforms that are only known once imported."""


def surroundings_of(settings: ProjectSettings, connections: Mapping[str, str]) -> Surroundings:
    """What the nodes of a project may name; entry points are asked only where nodes are."""
    if not any(pipeline.nodes for pipeline in settings.pipelines):
        return Surroundings(connections)
    formats, transforms = _installed()
    return Surroundings(
        connections,
        (*FORMATS, *formats),
        (*TRANSFORMS, *transforms),
        has_plugins=bool(settings.plugins or formats or transforms),
    )


def has_plugins(settings: ProjectSettings) -> bool:
    """Whether there may be formats and transforms that are known only once modules are imported."""
    return bool(settings.plugins or any(_installed()))


def _installed() -> tuple[list[str], list[str]]:
    """The formats and the transforms of installed packages."""
    from importlib.metadata import entry_points

    points = entry_points()  # once for both: it reads a file of every package
    formats = points.select(group="floodmark.formats")
    return sorted(formats.names), sorted(points.select(group="floodmark.transforms").names)


def pipeline_findings(pipeline: ResolvedPipeline, around: Surroundings) -> Iterator[Finding]:
    """Everything that does not go together in a pipeline."""
    names = frozenset(node.name for node in pipeline.nodes)
    for position, node in enumerate(pipeline.nodes):
        for finding in node_findings(node, names, around):
            yield finding.below("nodes", position)
    nodes = pipeline.settings.nodes
    positions = {node.name: position for position, node in enumerate(nodes)}
    for circle in pipeline.graph.cycles():
        if circle[0] == circle[1]:
            continue  # found with the node
        way = " -> ".join(circle)
        title = f"nodes depend on one another in a circle: {way}"
        path = _dependency(nodes[positions[circle[0]]], circle[1], names)
        yield Finding(path, CIRCLE, title, "", "an order").below("nodes", positions[circle[0]])


def _dependency(node: NodeSettings, parent: str, names: frozenset[str]) -> KeyPath:
    return next(path for name, path in node.dependencies(names) if name == parent)


def node_findings(
    node: ResolvedNode, names: frozenset[str], around: Surroundings
) -> Iterator[Finding]:
    """Everything that does not go together in a node."""
    yield from _input(node.settings, names)
    if node.read is not None:
        yield from (each.below("read") for each in _read(node.read, around))
    if node.write is not None:
        yield from (each.below("write") for each in _write(node.write, around))
    yield from _steps(node.settings, around)
    yield from _first_run(node)
    yield from _late_rows(node)
    yield from _doubled_rows(node)
    yield from _changed_files(node)
    yield from undeclared_columns(node.settings)


def _input(node: NodeSettings, names: frozenset[str]) -> Iterator[Finding]:
    for name, path in node.dependencies(names):
        if name not in names:
            known = choices(sorted(names - {node.name}), name)
            yield Finding(path, UNKNOWN, f"there is no node {name}", f'the name "{name}"', known)
        elif name == node.name:
            title = f"node {name} depends on itself"
            yield Finding(path, CIRCLE, title, f'the name "{name}"', "another node")
    if node.read is None and not node.depends_on:
        yield Finding((), MISSING, f"node {node.name} has no input", "", "read or depends_on")


def _connection(name: str | None, around: Surroundings) -> Iterator[Finding]:
    if name is not None and name not in around.connections:
        known = choices(sorted(around.connections), name) or "none is there"
        title = f"there is no connection {name}"
        yield Finding(("connection",), UNKNOWN, title, f'the name "{name}"', known)


def _format(place: ResolvedRead | ResolvedWrite, around: Surroundings) -> Iterator[Finding]:
    name, kind = place.format, place.connection_type
    if name is None:
        yield Finding((), MISSING, 'key "format" is missing', "", choices(list(FILE_FORMATS)))
    elif name not in around.formats and not around.has_plugins:
        known = choices(list(around.formats), name)
        title = f"unknown format {name}"
        yield Finding(("format",), UNKNOWN, title, f'the format "{name}"', known)
    elif kind is not None and not _fits(name, kind):
        title = f"format {name} does not go with a connection of type {kind}"
        yield Finding(("format",), CONFLICT, title, f'the format "{name}"', _formats_of(kind))


def _fits(name: str, kind: str) -> bool:
    if name in SQL_FORMATS:
        return kind in DIALECTS and name in ("sql", kind)
    if "plugin" in (name, kind):
        return name == kind
    if kind in DIALECTS or kind == "kafka":
        return name == kind or name not in FORMATS
    if kind == "http":
        return name in ("http", "json", "csv", "text") or name not in FORMATS
    return name not in ("http", "kafka")


def _formats_of(kind: str) -> str:
    return choices([name for name in FORMATS if _fits(name, kind)])


_SOURCES = {"sql": ("table", "query"), "delta": ("path", "table"), "kafka": ("topic",)}


def _read(resolved: ResolvedRead, around: Surroundings) -> Iterator[Finding]:
    read, name = resolved.settings, resolved.format or ""
    if read.node is not None:
        for other in ("connection", "table", "path", "query", "topic", "incremental"):
            if getattr(read, other) is not None:
                title = f'"{other}" does not go with "node"'
                yield Finding((other,), CONFLICT, title, "", "node alone")
        return
    yield from _connection(read.connection, around)
    yield from _format(resolved, around)
    family = "sql" if name in SQL_FORMATS else name
    sources = _SOURCES.get(family, ("path",) if is_of_files(name) else ())
    if sources and all(getattr(read, key) is None for key in sources):
        title = f"nothing says what is read from {name}"
        yield Finding((), MISSING, title, "", " or ".join(sources))
    if read.query is not None and (is_of_files(name) or family in ("kafka", "http")):
        title = f'"query" does not go with format {name}'
        yield Finding(("query",), CONFLICT, title, "", "query with sql or delta")
    if name != "http":
        yield from _only_of_web_apis(read)
    elif read.incremental is not None and read.ddl is None:
        title = "a cursor of a web API needs the columns and their types"
        yield Finding(("incremental",), MISSING, title, "no schema", 'schema: "id LONG, ..."')
    if read.incremental is not None:
        yield from (each.below("incremental") for each in _incremental(read.incremental))


def _only_of_web_apis(read: ReadSettings) -> Iterator[Finding]:
    of_web_apis = {
        ("records",): read.records,
        ("pagination",): read.pagination,
        ("incremental", "parameter"): read.incremental and read.incremental.parameter,
    }
    for path, value in of_web_apis.items():
        if value is not None:
            title = f'"{path[-1]}" goes only with a web API'
            yield Finding(path, CONFLICT, title, "", "a connection of type http")


def _incremental(incremental: IncrementalSettings) -> Iterator[Finding]:
    if incremental.on_null_cursor == "include" and not incremental.keys:
        title = "rows without a cursor can only be included by key"
        yield Finding(("on_null_cursor",), CONFLICT, title, "no keys", "keys, or fail, or skip")
    if incremental.type == "string" and incremental.order is None:
        title = "text has no order that all databases share"
        yield Finding(("type",), CONFLICT, title, "no order", "order: binary")
    counts = incremental.type in ("integer", "decimal")
    for key in ("overlap", "settle"):
        value = getattr(incremental, key)
        if value and counts and isinstance(value, str):
            title = f'"{key}" of a cursor that counts is a number'
            yield Finding((key,), CONFLICT, title, f'the text "{value}"', "a whole number")


def _write(resolved: ResolvedWrite, around: Surroundings) -> Iterator[Finding]:
    write, name = resolved.settings, resolved.format
    yield from _connection(write.connection, around)
    yield from _format(resolved, around)
    if not write.target:
        yield Finding((), MISSING, "nothing says what is written", "", "path or table")
    yield from _mode(write)
    if is_of_files(name):
        title = "files are written at least once: a crash may leave rows there twice"
        allowed = "format delta or a table of postgres, which are exactly once"
        yield Finding(("format",), AT_LEAST_ONCE, title, f"format {name}", allowed)
    if name == "plugin":
        title = "a plug-in writes at least once, unless it keeps receipts"
        allowed = "a sink with seen(receipt); format delta or a table of postgres"
        yield Finding(("connection",), AT_LEAST_ONCE, title, "a connection of type plugin", allowed)
    yield from _single_writer(resolved)
    yield from (each.below("options") for each in _layout(write.options))


def _mode(write: WriteSettings) -> Iterator[Finding]:
    mode = write.write_mode
    if not mode:
        yield Finding((), MISSING, 'key "mode" is missing', "", choices(list(MODES)))
    if needs_keys(mode, None) and write.merge is None:
        yield Finding(
            ("mode",), CONFLICT, "a merge needs its keys", 'no "merge"', "merge: {keys: [...]}"
        )
    if write.merge is not None and not is_for(mode, "merge"):
        yield _only_with("merge", mode)
    if needs_condition(mode) and write.replace_where is None:
        title = "nothing says which rows are replaced"
        yield Finding(
            ("mode",), CONFLICT, title, 'no "replace_where"', "replace_where: a condition"
        )
    if write.replace_where is not None and not is_for(mode, "replace_where"):
        yield _only_with("replace_where", mode)
    if write.changes is not None and mode and not is_for(mode, "changes"):
        yield _only_with("changes", mode)
    if write.allow_partial and not is_for(mode, "allow_partial"):
        yield _only_with("allow_partial", mode)
    if needs_keys("", write.changes) and not write.keys:
        yield Finding(
            ("changes",), CONFLICT, "the latest change is found by key", "no keys", "keys"
        )


def _single_writer(resolved: ResolvedWrite) -> Iterator[Finding]:
    """A Delta table on S3 that Spark writes; the run refuses it, unless its log store is safe."""
    write, lake = resolved.settings, resolved.connection
    place = write.path if write.connection is None else None
    if isinstance(lake, LakeConnection) and not lake.allow_single_writer:
        place = lake.root
    is_delta = resolved.format in (None, "delta")
    if is_delta and not write.allow_single_writer and is_on_s3(place or ""):
        title = "two Spark drivers that write to S3 at once lose acknowledged commits"
        allowed = "allow_single_writer: true if nothing else writes there; or a safe log store"
        yield Finding(("path",), UNSAFE_ON_S3, title, f"a table at {place}", allowed)


def _only_with(key: str, mode: str) -> Finding:
    allowed = f"mode {either(MODES_OF[key])}"
    title = f'"{key}" goes only with {allowed}'
    return Finding((key,), CONFLICT, title, f"mode {mode or 'unsaid'}", allowed)


def _layout(options: WriteOptions) -> Iterator[Finding]:
    for other in ("partition_by", "zorder_by"):
        if options.cluster_by and getattr(options, other):
            title = f"cluster_by does not go with {other}: Delta does not allow both"
            yield Finding((other,), CONFLICT, title, "both", f"cluster_by or {other}")
    both = set(options.zorder_by or ()) & set(options.partition_by or ())
    if both:
        title = "zorder_by does not go with columns of partition_by: Delta does not allow both"
        found = ", ".join(sorted(both))
        yield Finding(("zorder_by",), CONFLICT, title, found, "other columns")


def _steps(node: NodeSettings, around: Surroundings) -> Iterator[Finding]:
    known = (*around.transforms, "sql", "python")
    for position, step in enumerate(node.transform):
        if step.name not in known and not around.has_plugins:
            yield Finding(
                ("transform", position, step.name),
                UNKNOWN,
                f"unknown transform {step.name}",
                f'the name "{step.name}"',
                choices(list(known), step.name),
                is_about_key=True,
            )


def _first_run(node: ResolvedNode) -> Iterator[Finding]:
    if node.write is None or node.write.settings.first_run_query is None:
        return
    name = node.read.format if node.read is not None else None
    if name not in (*SQL_FORMATS, "delta"):
        title = "first_run_query goes only with a read of a database or a Delta table"
        found = f"format {name}" if name else "no read"
        yield Finding(("write", "first_run_query"), CONFLICT, title, found, "read with format sql")


def _appends(node: ResolvedNode) -> bool:
    return node.write is not None and node.write.settings.write_mode == "append"


def _late_rows(node: ResolvedNode) -> Iterator[Finding]:
    """Rows that come late, or share their time with the newest, may be lost: worth a word."""
    if node.read is None or not _appends(node) or node.cursor is None:
        return
    said = node.read.settings.incremental
    incremental = said or IncrementalSettings(cursor=node.cursor)
    if _is_time(incremental) and not incremental.keys and _is_nothing(incremental.overlap):
        yield Finding(
            ("read", "incremental", "cursor") if said else ("read", "query"),
            RISK,
            "rows that arrive late by this time are never read",
            "append, no overlap, no keys",
            "overlap with keys: rows near the mark are read again and not doubled",
        )


def _doubled_rows(node: ResolvedNode) -> Iterator[Finding]:
    """Without a cursor every run reads all rows of a database."""
    if node.read is None or not _appends(node) or node.read.connection_type not in DIALECTS:
        return
    read = node.read.settings
    if read.incremental is None and not needs_cursor(read.query, node.own_names):
        title = "every run reads all rows, and an append would add them again"
        allowed = "incremental: {cursor: a column that grows}; or mode overwrite or merge"
        yield Finding(("write", "mode"), CONFLICT, title, "append, no cursor", allowed)


def _changed_files(node: ResolvedNode) -> Iterator[Finding]:
    """A file that changes comes again as a whole, with the rows that were appended before."""
    if node.read is None or not _appends(node) or node.read.settings.new_files != "modified":
        return
    yield Finding(
        ("read", "new_files"),
        DOUBLED,
        "a file that changes is read again as a whole, and an append adds its old rows once more",
        "new_files: modified with append",
        "merge, with the keys of the rows; or new_files: list",
    )


def _is_nothing(span: int | str) -> bool:
    return durations.seconds_of(span) == 0 if isinstance(span, str) else span == 0


def _is_time(incremental: IncrementalSettings) -> bool:
    if incremental.type is not None:
        return incremental.type in ("timestamp", "date")
    return not _COUNTS.search(incremental.cursor)
