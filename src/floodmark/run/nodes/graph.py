"""A pipeline of nodes: every node after those it depends on, for one batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from floodmark.config import ResolvedPipeline
from floodmark.config.checks import hides_values
from floodmark.config.project import NodeSettings
from floodmark.errors import FloodmarkError, RunError, TransformError
from floodmark.model import HIDDEN_VALUES, WriteSpec
from floodmark.next_steps import then_retry
from floodmark.postgres.rows import MisfitError
from floodmark.run.context import Pass
from floodmark.run.lost_targets import OtherPass
from floodmark.run.nodes.file_faults import unread
from floodmark.run.nodes.node import NodeRun
from floodmark.run.nodes.outputs import Output
from floodmark.run.nodes.side_by_side import in_order
from floodmark.run.nodes.steps import steps_of
from floodmark.transforms import Step

MAX_FOUND = 800
_SHOWS_VALUES = ("FM-SOURCE-033", "FM-SOURCE-066")
"""Errors of ours that show a value of a row."""

PlaceOf = Callable[[str, int | None], str]
"""Where a node, or one of its steps by position, stands in the project's files."""


@dataclass(frozen=True)
class PipelineNodes:
    """What the runner calls: inputs and a pass in, metrics out.

    Called again for a batch it writes what is missing: a node whose write is found by its receipt
    hands its committed rows to the nodes below, as in the first attempt.
    """

    pipeline: ResolvedPipeline
    root: Path
    steps: Mapping[str, Sequence[Step]]
    place_of: PlaceOf

    def run_nodes(self, inputs: Mapping[str, Any], run: Pass) -> dict[str, object]:
        """Run every node, some side by side; an error ends the run once those that run have ended.

        The writes that were made stand.
        """
        graph = self.pipeline.graph
        outputs: dict[str, Output] = {}
        metrics: dict[str, object] = {}
        marks: dict[str, tuple[NodeSettings, int]] = {}

        def work(name: str) -> None:
            node = NodeRun(
                node=self.pipeline.by_name[name],
                root=self.root,
                steps=self.steps[name],
                run=run,
                inputs=inputs,
                parents={parent: outputs[parent] for parent in graph.parents[name]},
                children=graph.children(name),
                readers=self._readers(name),
                sharers=self._sharers(name),
                marks=marks,
            )
            outputs[name] = self._executed(node, metrics)

        in_order(graph.parents, work, self.pipeline.settings.parallel, run.spark)
        return metrics

    def _executed(self, node: NodeRun, metrics: dict[str, object]) -> Output:
        name, run = node.node.name, node.run
        try:
            return node.execute(metrics)
        except OtherPass:
            raise
        except FloodmarkError as error:
            raise self._placed(error, name, run) from error.__cause__
        # The boundary to Spark and to the user's SQL: whatever they raise is told by node.
        except Exception as error:
            found = unread(error, run, self._text_of(error))
            if found is not None:
                found.hides_cause = self._hides_values
                raise self._placed(found, name, run) from error
            raise self._failed(error, name, run) from error

    @property
    def _hides_values(self) -> bool:
        return hides_values(self.pipeline.settings.nodes)

    def _readers(self, name: str) -> list[WriteSpec]:
        """The writes that the rows of a node go into: its own, or the next ones below it."""
        own = self.pipeline.by_name[name].spec
        if own is not None:
            return [own]
        children = self.pipeline.graph.children(name)
        return [spec for child in children for spec in self._readers(child)]

    def _sharers(self, name: str) -> list[WriteSpec]:
        """The writes that the rows of all nodes go into that read the same upstream."""
        upstreams = {
            node.name: node.upstream.name
            for node in self.pipeline.nodes
            if node.upstream is not None
        }
        same = [each for each in upstreams if upstreams[each] == upstreams.get(name)]
        return [spec for each in same for spec in self._readers(each)]

    def _placed(self, error: FloodmarkError, node: str, run: Pass) -> FloodmarkError:
        """The error with the node, and the step, as they stand in the files."""
        step = getattr(error, "step", None)
        place = self.place_of(node, step - 1 if step else None)
        error.where = f"{place}, {error.where}" if error.where else place
        if self._hides_values:
            hide_values(error)
        if step:
            error.state = "nothing was written by this node; a retry skips the nodes that finished"
            error.next = "correct the step, " + then_retry(run.batch.batch_id)
        return error

    def _failed(self, error: Exception, node: str, run: Pass) -> RunError:
        """An error of the engine; its text may hold values, which sensitive columns forbid."""
        kind, _ = _cause(error)
        cause = self._text_of(error)
        text = f": {cause}" if cause else ""
        failure = RunError(
            "FM-RUN-005",
            f"node {node} failed with {kind}",
            where=self.place_of(node, None),
            found=f"{kind}{text}"[:MAX_FOUND],
            state="nothing was written by this node; a retry skips the nodes that finished",
            next="correct the cause, " + then_retry(run.batch.batch_id),
        )
        failure.hides_cause = self._hides_values
        return failure

    def _text_of(self, error: Exception) -> str:
        """What the engine says; nothing where it may hold a value that nobody must see."""
        return "" if self._hides_values else _cause(error)[1][:MAX_FOUND]


def hide_values(error: FloodmarkError) -> None:
    """Leave out what an error shows of rows: text of others, and values of cursors."""
    cause = error.__cause__
    is_ours = cause is None or isinstance(cause, FloodmarkError | MisfitError)
    if not is_ours:
        error.found = f"{type(cause).__name__}; {HIDDEN_VALUES}"
    elif error.code in _SHOWS_VALUES:
        error.found = HIDDEN_VALUES
    error.hides_cause = True


def _cause(error: Exception) -> tuple[str, str]:
    """The kind and text of what went wrong first, without the tree of its plan."""
    from floodmark.engines.faults import cause_of
    from floodmark.transforms import without_plan

    kind, message = cause_of(error)
    return kind, without_plan(message).strip()


def pipeline_nodes(
    pipeline: ResolvedPipeline, plugins: Sequence[str], root: Path, place_of: PlaceOf
) -> PipelineNodes:
    """The nodes of a pipeline, ready to run; raises TransformError for a step that cannot be read.

    `plugins` are the modules of the project that may have transforms.
    """
    steps = {}
    for node in pipeline.nodes:
        try:
            steps[node.name] = steps_of(node.settings, plugins, root)
        except TransformError as error:
            place = place_of(node.name, error.step - 1 if error.step else None)
            error.where = f"{place}, {error.where}" if error.where else place
            raise
    return PipelineNodes(pipeline, root, steps, place_of)
