"""Tables that nodes only look things up in: what does not go together with `lookup: true`."""

from __future__ import annotations

from collections.abc import Iterator

from floodmark.config.checks.findings import Finding
from floodmark.config.project.resolved import ResolvedNode, ResolvedPipeline
from floodmark.config.text.tables import is_inside

ALL_LOOKUPS, OWN_TABLE, NOT_TOGETHER = "FM-CONFIG-030", "FM-CONFIG-031", "FM-CONFIG-032"
NO_TABLE, TWO_WAYS, WRITTEN = "FM-CONFIG-033", "FM-CONFIG-034", "FM-CONFIG-035"

_OF_WINDOWS = ("incremental", "baseline", "method")
"""Keys that tell which rows of a table are new."""


def lookup_findings(pipeline: ResolvedPipeline) -> Iterator[Finding]:
    """What is wrong with the lookups of a pipeline, with the path of its key."""
    if not any(node.is_lookup for node in pipeline.nodes):
        return
    reads = [node for node in pipeline.nodes if node.is_reading]
    lookups = {node.name for node in reads if node.is_lookup}
    if lookups and len(lookups) == len(reads):
        yield _nothing_starts(pipeline)
    yield from _keys(pipeline)
    yield from _tables(pipeline)
    if len(lookups) < len(reads):
        yield from _writes(pipeline, lookups)


def _nothing_starts(pipeline: ResolvedPipeline) -> Finding:
    return Finding(
        ("nodes",),
        ALL_LOOKUPS,
        f"every read of pipeline {pipeline.name} is a lookup, so nothing would start a batch",
        "lookup: true in each read",
        "at least one read without it: the table whose new rows the pipeline is there for",
    )


def _keys(pipeline: ResolvedPipeline) -> Iterator[Finding]:
    for position, node in enumerate(pipeline.nodes):
        if not node.is_lookup:
            continue
        path = ("nodes", position, "read")
        for key in _OF_WINDOWS:
            if getattr(node.settings.read, key) is not None:
                yield Finding(
                    (*path, key),
                    NOT_TOGETHER,
                    f'"{key}" does not go with "lookup"',
                    "",
                    "lookup alone: the whole table at its newest version",
                )
        if not _is_whole(node):
            yield Finding(
                (*path, "lookup"),
                NO_TABLE,
                "what is read here cannot be looked up",
                "another node, a topic, a plug-in, or a query that needs a cursor",
                "a Delta table, files, a table or query of a database, an answer of a web API; or"
                " the node by its name in depends_on",
            )


def _is_whole(node: ResolvedNode) -> bool:
    """Whether the read can be of everything: a table, files, an answer, or rows without a cursor."""
    if node.kind == "delta":
        return True
    return node.upstream is not None and node.upstream.can_be_looked_up


def _tables(pipeline: ResolvedPipeline) -> Iterator[Finding]:
    written = {table: node.name for node in pipeline.nodes for table in node.writes}
    other_reads = {
        node.upstream.name: node.name
        for node in pipeline.nodes
        if not node.is_lookup and node.upstream is not None
    }
    for position, node in enumerate(pipeline.nodes):
        if not node.is_lookup:
            continue
        path = ("nodes", position, "read")
        writers = [
            name for table, name in written.items() if any(is_inside(t, table) for t in node.reads)
        ]
        if writers:
            yield Finding(
                path,
                OWN_TABLE,
                f"node {node.name} looks up a table that node {writers[0]} of the same pipeline"
                " writes",
                ", ".join(node.reads),
                f"depends_on: [{writers[0]}], which gives the table as this batch leaves it",
            )
        upstream = node.upstream
        if upstream is not None and upstream.name in other_reads:
            yield Finding(
                path,
                TWO_WAYS,
                f"node {other_reads[upstream.name]} reads the same table for its news",
                upstream.name,
                "one way to read a table in a pipeline; or two pipelines",
            )


def _writes(pipeline: ResolvedPipeline, lookups: set[str]) -> Iterator[Finding]:
    """Nodes that have nothing but lookups above them never have news, so nothing is written."""
    idle = set(lookups)
    for name in pipeline.graph.order():
        is_reading = pipeline.by_name[name].is_reading
        if (not is_reading or name in lookups) and set(pipeline.graph.parents[name]) <= idle:
            idle.add(name)
    for position, node in enumerate(pipeline.nodes):
        if node.write is not None and node.name in idle:
            yield Finding(
                ("nodes", position, "write"),
                WRITTEN,
                f"node {node.name} has only lookups above it, which never have news to write",
                f"depends on {', '.join(sorted(lookups))}",
                "method: snapshot in the read, which writes when the table has news; or no write",
            )
