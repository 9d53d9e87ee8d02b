"""Which tables of a pipeline are only joined: `plan` advises to look them up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from floodmark.config.project.graph import Graph, graph_of
from floodmark.config.project.node_reads import is_lookup, table_of, upstream_of
from floodmark.config.project.nodes import NodeSettings
from floodmark.config.project.settings import PipelineSettings, ProjectSettings
from floodmark.model.window import Caution
from floodmark.run.nodes.combined import adds_rows


@dataclass(frozen=True)
class _Nodes:
    """The nodes of a pipeline by name, with their graph."""

    by_name: Mapping[str, NodeSettings]
    graph: Graph

    def input_of(self, name: str) -> str | None:
        """The node whose rows are the input of a node; None if it reads a table of its own."""
        node = self.by_name[name]
        if node.read is not None:
            return node.read.node
        return next(iter(node.depends_on), None)

    def joiners(self, name: str) -> Iterator[str]:
        """The nodes that join the rows of a node, also those of nodes that it is the input of."""
        for child in self.graph.children(name):
            if self.input_of(child) == name:
                yield from self.joiners(child)
            else:
                yield child

    def is_only_joined(self, name: str) -> bool:
        """Whether rows of the node are written nowhere but as columns of others."""
        if self.by_name[name].write is not None:
            return False
        for child in self.graph.children(name):
            is_input = self.input_of(child) == name
            if is_input and not self.is_only_joined(child):
                return False
            if not is_input and adds_rows(self.by_name[child], name):
                return False
        return True


def advice(pipelines: Sequence[PipelineSettings], settings: ProjectSettings) -> dict[str, Caution]:
    """What to say of each table that these pipelines, all of a scope, only join; by its name."""
    found: dict[str, Caution] = {}
    others: set[str] = set()
    for pipeline in pipelines:
        own = {node.name: node for node in pipeline.nodes}
        nodes = _Nodes(own, graph_of(pipeline.nodes))
        others |= set(pipeline.upstreams) if not own else set()
        for name, node in own.items():
            upstream = upstream_of(node, pipeline.pipeline, settings)
            if upstream is None or is_lookup(node.read):
                continue
            joiners = list(dict.fromkeys(nodes.joiners(name)))
            is_table = node.read is not None and table_of(node.read, settings) is not None
            is_by_version = is_table and upstream.time_column is None
            if joiners and is_by_version and nodes.is_only_joined(name):
                is_whole = upstream.method == "snapshot"
                found[upstream.name] = _told(name, joiners, is_whole=is_whole)
            else:
                others.add(upstream.name)
    return {name: caution for name, caution in found.items() if name not in others}


def _told(node: str, joiners: Sequence[str], *, is_whole: bool) -> Caution:
    by = ", ".join(joiners)
    if is_whole:
        text = f"is read whole by node {node} and only joined, by {by}: its news start batches that"
        return Caution(
            f"{text} write nothing of it",
            f"say lookup: true in the read of {node}: the whole table in every batch, no watermark",
        )
    return Caution(
        f"is read by changes by node {node} and only joined, by {by}: a batch joins what is new in"
        " it, and none of the rows that came before",
        f"say lookup: true in the read of {node}: the whole table in every batch",
    )
