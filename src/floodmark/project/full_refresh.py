"""Loading everything again: what `run --full-refresh` and `--force-first-run` begin with."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from floodmark.config import PipelineSettings, ResolvedNode, ResolvedPipeline
from floodmark.control import operations
from floodmark.coordinator import Coordinator
from floodmark.errors import ConfigError
from floodmark.model import NOTHING_PROCESSED, State
from floodmark.model.write_rules import replaced_anew
from floodmark.next_steps import command


def pipelines_anew(
    scopes: Mapping[str, Sequence[PipelineSettings]], *, force_first_run: bool, full_refresh: bool
) -> frozenset[str]:
    """The pipelines that shall load everything: all, or those that say what a first run reads.

    Raises FM-CONFIG-007 if a first run is asked for and none of them says it.
    """
    chosen = [pipeline for each in scopes.values() for pipeline in each]
    if force_first_run and not full_refresh:
        chosen = _with_first_run(chosen)
    is_asked = force_first_run or full_refresh
    return frozenset(pipeline.pipeline for pipeline in chosen if is_asked)


def _with_first_run(pipelines: Sequence[PipelineSettings]) -> list[PipelineSettings]:
    found = [p for p in pipelines if any(n.write and n.write.first_run_query for n in p.nodes)]
    if found:
        return found
    raise ConfigError(
        "FM-CONFIG-007",
        "no node of these pipelines has a first_run_query",
        rule="no_first_run_query",
        found=", ".join(pipeline.pipeline for pipeline in pipelines) or "no pipeline",
        allowed="pipelines with write.first_run_query; --full-refresh for all others",
        state="nothing was read or written",
        next=command("run", "--full-refresh") + ", or name another pipeline",
    )


def refuse_shared_targets(pipelines: Sequence[ResolvedPipeline], anew: Collection[str]) -> None:
    """Raise FM-CONFIG-007 if a pipeline would replace rows that another node has written.

    That node would not write them again: the store counts them as processed.
    """
    writers: dict[str, list[ResolvedNode]] = {}
    for node in (node for pipeline in pipelines for node in pipeline.nodes):
        if node.spec is not None and _fills(node):
            writers.setdefault(node.spec.target, []).append(node)
    shared = {target: nodes for target, nodes in writers.items() if len(nodes) > 1}
    harmful = {
        target: [n.pipeline for n in nodes if n.pipeline in anew and _takes_rows_away(n)]
        for target, nodes in shared.items()
    }
    left_out = {name for names in harmful.values() for name in names}
    others = sorted(set(anew) - left_out)
    if set(anew) == {pipeline.name for pipeline in pipelines} and others:
        others = [word for name in sorted(left_out) for word in ("--exclude", name)]
    for target, names in harmful.items():
        if names:
            raise _shared(target, shared[target], names[0], others)


def _fills(node: ResolvedNode) -> bool:
    return node.spec is not None and (
        node.spec.strategy != "delete_match" or _has_first_run_query(node)
    )


def _takes_rows_away(node: ResolvedNode) -> bool:
    spec = node.spec
    if spec is None or spec.mode == "overwrite":
        return False
    return replaced_anew(spec) or _has_first_run_query(node)


def _has_first_run_query(node: ResolvedNode) -> bool:
    return node.write is not None and bool(node.write.settings.first_run_query)


def _shared(
    target: str, nodes: Sequence[ResolvedNode], pipeline: str, others: Sequence[str]
) -> ConfigError:
    """`others` are the words that choose the pipelines that can be loaded anew; maybe none."""
    return ConfigError(
        "FM-CONFIG-007",
        f"several nodes write {target}: a full refresh of {pipeline} would remove rows of others",
        rule="target_of_several_nodes",
        found=f"nodes {', '.join(node.name for node in nodes)}",
        allowed="a target for each node; or mode replace_where, or merge with missing: keep",
        state="nothing was read or written",
        next="change the writes"
        + (
            "; or load the others anew: " + command("run", "--full-refresh", *others)
            if others
            else ""
        ),
    )


def refuse_debts(coordinator: Coordinator, pipelines: Collection[str]) -> None:
    """Raise FM-CONTROL-020 for a pipeline that has another batch to finish first."""
    state = coordinator.look.state_if_any() if pipelines else None
    for name in sorted(pipelines):
        if state is not None and name in state.pipelines and not _has_begun(state, name):
            operations.refuse_debts(state, name, loads_anew=True)


def begin_full_refresh(coordinator: Coordinator, pipelines: Collection[str]) -> None:
    """Let the pipelines load everything with their next batch; one that has begun to is finished.

    Raises FM-CONTROL-020 for a pipeline that has another batch to finish first.
    """
    state = coordinator.look.state_if_any() if pipelines else None
    for name in sorted(pipelines):
        if state is not None and name in state.pipelines and not _has_begun(state, name):
            coordinator.admin.refresh(name)


def _has_begun(state: State, pipeline: str) -> bool:
    """Whether an open batch of the pipeline already begins at the beginning."""
    return any(
        batch.window_for(pipeline, upstream).after == NOTHING_PROCESSED
        for batch in state.open_batches_of(pipeline)
        for upstream in batch.upstreams_of(pipeline)
    )
