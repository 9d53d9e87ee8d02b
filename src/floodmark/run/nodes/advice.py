"""Which tables of a pipeline are only joined: `plan` advises to look them up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from floodmark.config import ResolvedPipeline
from floodmark.model import Caution
from floodmark.run.nodes.combined import adds_rows
from floodmark.run.nodes.writes import has_log


def _joiners(name: str, pipeline: ResolvedPipeline) -> Iterator[str]:
    """The nodes that join the rows of a node, also those of nodes that it is the input of."""
    for child in pipeline.graph.children(name):
        if pipeline.by_name[child].input_node == name:
            yield from _joiners(child, pipeline)
        else:
            yield child


def _is_only_joined(name: str, pipeline: ResolvedPipeline) -> bool:
    """Whether rows of the node are written nowhere but as columns of others."""
    if pipeline.by_name[name].write is not None:
        return False
    for child in (pipeline.by_name[each] for each in pipeline.graph.children(name)):
        is_input = child.input_node == name
        if is_input and not _is_only_joined(child.name, pipeline):
            return False
        if not is_input and adds_rows(child.settings, name):
            return False
    return True


def _with_its_rows(name: str, pipeline: ResolvedPipeline) -> Iterator[str]:
    """The node, and those whose input is what it hands on."""
    yield name
    for child in pipeline.graph.children(name):
        if pipeline.by_name[child].input_node == name:
            yield from _with_its_rows(child, pipeline)


def _joiners_of_news(name: str, pipeline: ResolvedPipeline) -> Iterator[str]:
    """The nodes that join what is new of a node, which no Delta table of the pipeline has whole."""
    for child in (pipeline.by_name[each] for each in pipeline.graph.children(name)):
        if child.input_node == name:
            if child.spec is None or not has_log(child.spec):
                yield from _joiners_of_news(child.name, pipeline)
        elif not adds_rows(child.settings, name):
            yield child.name


def advice(pipelines: Sequence[ResolvedPipeline]) -> dict[str, Caution]:
    """What to say of each table that these pipelines, all of a scope, only join; by its name."""
    found: dict[str, Caution] = {}
    others: set[str] = set()
    for pipeline in pipelines:
        others |= set(pipeline.settings.upstreams) if not pipeline.nodes else set()
        for name, node in pipeline.by_name.items():
            upstream = node.upstream
            if upstream is None or node.is_lookup:
                continue
            joiners = list(dict.fromkeys(_joiners(name, pipeline)))
            is_by_version = node.kind == "delta" and upstream.has_versions
            if joiners and is_by_version and _is_only_joined(name, pipeline):
                is_whole = upstream.method == "snapshot"
                found[upstream.name] = _told(name, joiners, is_whole=is_whole)
            elif (caution := _in_part(name, pipeline)) is not None:
                found[upstream.name] = caution
            else:
                others.add(upstream.name)
    return {name: caution for name, caution in found.items() if name not in others}


def _in_part(name: str, pipeline: ResolvedPipeline) -> Caution | None:
    """What to say where rows are joined that a database or files hold: only those of the batch are."""
    read = pipeline.by_name[name].settings.read
    if read is not None and read.method == "snapshot":
        return None
    for each in _with_its_rows(name, pipeline):
        spec = pipeline.by_name[each].spec
        if spec is None or has_log(spec):
            continue
        by = ", ".join(dict.fromkeys(_joiners_of_news(each, pipeline)))
        if by:
            return Caution(
                f"is written to {spec.target} by node {each} and joined by {by}: a batch joins what is"
                " new in it, and none of the rows that came before",
                f"let node {each} write to a Delta table, whose rows a join sees all; or say"
                " method: snapshot in the read",
            )
    return None


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
