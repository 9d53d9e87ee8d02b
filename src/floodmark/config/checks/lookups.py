"""Tables that nodes only look things up in: what does not go together with `lookup: true`."""

from __future__ import annotations

from collections.abc import Iterator

from floodmark.config.checks.findings import Finding
from floodmark.config.project.chains import is_inside, read_by_node, written_by_node
from floodmark.config.project.graph import graph_of
from floodmark.config.project.node_reads import is_lookup, table_of, upstream_of
from floodmark.config.project.nodes import NodeSettings
from floodmark.config.project.settings import PipelineSettings, ProjectSettings
from floodmark.model.file_marks import FILES as LISTED
from floodmark.model.window import ANSWER, EVERY_ROW

ALL_LOOKUPS, OWN_TABLE, NOT_TOGETHER = "FM-CONFIG-030", "FM-CONFIG-031", "FM-CONFIG-032"
NO_TABLE, TWO_WAYS, WRITTEN = "FM-CONFIG-033", "FM-CONFIG-034", "FM-CONFIG-035"

_OF_WINDOWS = ("incremental", "baseline", "method")
"""Keys that tell which rows of a table are new."""


def lookup_findings(pipeline: PipelineSettings, settings: ProjectSettings) -> Iterator[Finding]:
    """What is wrong with the lookups of a pipeline, with the path of its key."""
    reads = [node for node in pipeline.nodes if node.read is not None and node.read.node is None]
    lookups = {node.name for node in reads if is_lookup(node.read)}
    if not any(is_lookup(node.read) for node in pipeline.nodes):
        return
    if lookups and len(lookups) == len(reads):
        yield _nothing_starts(pipeline)
    yield from _keys(pipeline, settings)
    yield from _tables(pipeline, settings)
    yield from _writes(pipeline, lookups)


def _nothing_starts(pipeline: PipelineSettings) -> Finding:
    return Finding(
        ("nodes",),
        ALL_LOOKUPS,
        f"every read of pipeline {pipeline.pipeline} is a lookup, so nothing would start a batch",
        "lookup: true in each read",
        "at least one read without it: the table whose new rows the pipeline is there for",
    )


def _keys(pipeline: PipelineSettings, settings: ProjectSettings) -> Iterator[Finding]:
    for position, node in enumerate(pipeline.nodes):
        if node.read is None or not is_lookup(node.read):
            continue
        path = ("nodes", position, "read")
        for key in _OF_WINDOWS:
            if getattr(node.read, key) is not None:
                yield Finding(
                    (*path, key),
                    NOT_TOGETHER,
                    f'"{key}" does not go with "lookup"',
                    "",
                    "lookup alone: the whole table at its newest version",
                )
        if node.read.node is not None or not _is_whole(node, pipeline, settings):
            yield Finding(
                (*path, "lookup"),
                NO_TABLE,
                "what is read here cannot be looked up",
                "another node, a topic, a plug-in, or a query that needs a cursor",
                "a Delta table, files, a table or query of a database, an answer of a web API; or"
                " the node by its name in depends_on",
            )


def _is_whole(node: NodeSettings, pipeline: PipelineSettings, settings: ProjectSettings) -> bool:
    """Whether the read can be of everything: a table, files, an answer, or rows without a cursor."""
    assert node.read is not None  # noqa: S101  (only such nodes come here)
    if table_of(node.read, settings) is not None:
        return True
    found = upstream_of(node, pipeline.pipeline, settings)
    return found is not None and found.time_column in (EVERY_ROW, ANSWER, LISTED)


def _tables(pipeline: PipelineSettings, settings: ProjectSettings) -> Iterator[Finding]:
    written = {
        table: node.name for node in pipeline.nodes for table in written_by_node(node, settings)
    }
    other_reads = {
        found.name: node.name
        for node in pipeline.nodes
        if not is_lookup(node.read)
        and (found := upstream_of(node, pipeline.pipeline, settings)) is not None
    }
    for position, node in enumerate(pipeline.nodes):
        if not is_lookup(node.read):
            continue
        path = ("nodes", position, "read")
        tables = list(read_by_node(node, settings))
        writers = [
            name for table, name in written.items() if any(is_inside(t, table) for t in tables)
        ]
        if writers:
            yield Finding(
                path,
                OWN_TABLE,
                f"node {node.name} looks up a table that node {writers[0]} of the same pipeline"
                " writes",
                ", ".join(tables),
                f"depends_on: [{writers[0]}], which gives the table as this batch leaves it",
            )
        found = upstream_of(node, pipeline.pipeline, settings)
        if found is not None and found.name in other_reads:
            yield Finding(
                path,
                TWO_WAYS,
                f"node {other_reads[found.name]} reads the same table for its news",
                found.name,
                "one way to read a table in a pipeline; or two pipelines",
            )


def _writes(pipeline: PipelineSettings, lookups: set[str]) -> Iterator[Finding]:
    """Nodes that have nothing but lookups above them never have news, so nothing is written."""
    graph = graph_of(pipeline.nodes)
    idle = set(lookups)
    for name in graph.order():
        node = next(each for each in pipeline.nodes if each.name == name)
        parents = graph.parents[name]
        is_reading = node.read is not None and node.read.node is None
        if (not is_reading or name in lookups) and set(parents) <= idle:
            idle.add(name)
    for position, node in enumerate(pipeline.nodes):
        if node.write is not None and node.name in idle and len(lookups) < _reads(pipeline):
            yield Finding(
                ("nodes", position, "write"),
                WRITTEN,
                f"node {node.name} has only lookups above it, which never have news to write",
                f"depends on {', '.join(sorted(lookups))}",
                "method: snapshot in the read, which writes when the table has news; or no write",
            )


def _reads(pipeline: PipelineSettings) -> int:
    return sum(node.read is not None and node.read.node is None for node in pipeline.nodes)
