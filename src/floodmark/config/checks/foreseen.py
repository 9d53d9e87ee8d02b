"""What the sinks would refuse in some batch, told from the graph before the first one runs.

Only what is sure: a refusal that depends on what a table holds is left to the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from floodmark.config.checks.findings import Finding
from floodmark.config.project.nodes import Step
from floodmark.config.project.resolved import ResolvedNode, ResolvedPipeline
from floodmark.errors import SinkError
from floodmark.model import CHANGE_COLUMNS, DELTA, WriteSpec
from floodmark.model.names import connection_of
from floodmark.model.write_rules import (
    REPLACING,
    check_options,
    leaves_missing_open,
    needs_change_columns,
    replaces_by_part,
)

UNSAID_NODE = "FM-CONFIG-044"
_CHANGE_TYPE = CHANGE_COLUMNS[0]


class StepSql(Protocol):
    """What is known of the SQL of a step without running it."""

    def tables_of(self, text: str, /) -> tuple[str, ...]:
        """The tables it reads; none where nobody but Spark can tell."""
        ...

    def output_names(self, text: str, /) -> tuple[str, ...] | None:
        """The names of its columns; None where nobody but Spark can tell."""
        ...


@dataclass(frozen=True)
class _Origin:
    """Where the rows of a node come from: a read, or the committed rows of a node above."""

    node: ResolvedNode
    """The node that reads, or whose write is read."""
    steps: tuple[Step, ...]
    """Every step between the rows as they are read and the write."""
    is_committed: bool = False


def foreseen_refusals(
    pipeline: ResolvedPipeline, project: Sequence[ResolvedPipeline], sql: StepSql
) -> Iterator[Finding]:
    """Every refusal that the nodes of a pipeline will meet, with the path of its key."""
    for position, node in enumerate(pipeline.nodes):
        findings = [
            *_unsaid_nodes(node, pipeline, sql),
            *_refused_write(node, pipeline, project, sql),
        ]
        yield from (each.below("nodes", position) for each in findings)


def _unsaid_nodes(
    node: ResolvedNode, pipeline: ResolvedPipeline, sql: StepSql
) -> Iterator[Finding]:
    """SQL that names a node whose rows it does not get."""
    parents = pipeline.graph.parents
    before = {name.lower() for name in parents[node.name]}
    others = {name.lower(): name for name in parents if name != node.name}
    for position, step in enumerate(node.settings.transform):
        tables = sql.tables_of(step.sql) if step.sql is not None else ()
        for table in tables:
            name = others.get(table.lower())
            if name is not None and name.lower() not in before:
                yield Finding(
                    ("transform", position, "sql"),
                    UNSAID_NODE,
                    f"the SQL of node {node.name} reads node {name}, which it does not depend on",
                    f"the table {table}; depends_on has {_listed(node.settings.depends_on)}",
                    f"depends_on with {name} in it; or the schema before the name, where a table"
                    " of the catalog is meant",
                )


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "nothing"


def _refused_write(
    node: ResolvedNode,
    pipeline: ResolvedPipeline,
    project: Sequence[ResolvedPipeline],
    sql: StepSql,
) -> Iterator[Finding]:
    spec = node.spec
    if spec is None or not spec.mode:
        return
    try:
        check_options(spec)
    except SinkError as error:
        yield Finding(("write",), error.code, error.title, error.found or "", error.allowed or "")
        return
    origin = _origin(node, pipeline)
    if origin is None:
        return
    if _is_always_whole(origin):
        yield from _merged_snapshot(spec, origin)
        return
    if spec.mode in REPLACING and _is_whole_above(origin, pipeline):
        return  # all rows are at hand, whatever was committed of them
    if spec.mode in REPLACING and _is_surely_partial(origin, project):
        yield from _partial_overwrite(spec, origin)
    elif _has_changes(origin):
        yield from _dropped_changes(spec, origin, sql)
        if _has_updates(origin, project):
            yield from _untold_changes(spec, origin, sql)


def _origin(node: ResolvedNode, pipeline: ResolvedPipeline) -> _Origin | None:
    """Up from a node by the rows that are its `input`; None where the way is broken or a circle."""
    steps: list[Step] = list(node.settings.transform)
    for _ in pipeline.nodes:
        if node.is_reading:
            return _Origin(node, tuple(steps))
        parent = pipeline.by_name.get(node.input_node or "")
        if parent is None:
            return None
        if parent.spec is not None and _has_log(parent.spec):
            return _Origin(parent, tuple(steps), is_committed=True)
        steps = [*parent.settings.transform, *steps]
        node = parent
    return None


def _has_log(spec: WriteSpec) -> bool:
    return spec.format == DELTA and connection_of(spec.target) is None


def _is_always_whole(origin: _Origin) -> bool:
    """Whether each batch reads all rows, so that rows that are gone are nowhere to be seen."""
    upstream = origin.node.upstream
    if origin.is_committed or upstream is None:
        return False
    if origin.node.kind == "delta":
        return upstream.method == "snapshot"
    return upstream.reads_whole


def _is_whole_above(origin: _Origin | None, pipeline: ResolvedPipeline) -> bool:
    """Whether all rows are read in each batch above the writes that a node's rows go through."""
    while origin is not None and origin.is_committed:
        origin = _origin(origin.node, pipeline)
    return origin is not None and _is_always_whole(origin)


def _merged_snapshot(spec: WriteSpec, origin: _Origin) -> Iterator[Finding]:
    if leaves_missing_open(spec):
        yield Finding(
            ("write", "merge"),
            "FM-SINK-004",
            "this merge reads a whole table in each batch and does not say what becomes of rows"
            " that are no longer in it",
            f"node {origin.node.name} reads everything; merge.missing is not set",
            "missing: delete (only if the input has every row that the target should have), or"
            " missing: keep",
        )


def _is_surely_partial(origin: _Origin, project: Sequence[ResolvedPipeline]) -> bool:
    """Whether every batch but the first reads only what is new."""
    read = origin.node.read
    if origin.is_committed or read is None:
        return not _replaces(origin.node.spec)
    if read.kind != "delta" or read.settings.incremental is not None:
        return True
    return read.settings.method == "feed" or any(_writers(origin.node, project))


def _replaces(spec: WriteSpec | None) -> bool:
    """Whether the nodes below get the whole table, because each write replaces all of it."""
    return spec is not None and spec.mode == "overwrite"


def _partial_overwrite(spec: WriteSpec, origin: _Origin) -> Iterator[Finding]:
    if replaces_by_part(spec):
        what = "the whole target" if spec.mode == "overwrite" else "all rows of the condition"
        yield Finding(
            ("write", "mode"),
            "FM-SINK-003",
            f"from the second batch on, new rows alone would replace {what}",
            f"node {origin.node.name} gives only what is new",
            "mode: merge; or a read of everything (method: snapshot for a Delta table);"
            " or allow_partial: true if only the newest rows shall stay",
        )


def _has_changes(origin: _Origin) -> bool:
    """Whether rows come with their kind of change: those of a Delta table do."""
    read = origin.node.read
    if origin.is_committed:
        return True
    return read is not None and read.settings.incremental is None and read.kind == "delta"


def _dropped_changes(spec: WriteSpec, origin: _Origin, sql: StepSql) -> Iterator[Finding]:
    """`changes: latest` and `log` work by columns that a step has dropped."""
    step = next((each for each in origin.steps if _loses_changes(each, sql)), None)
    if needs_change_columns(spec) and step is not None:
        yield Finding(
            ("write", "changes"),
            "FM-SINK-001",
            f"a step drops the change columns that changes: {spec.changes} needs",
            f"{step.name} does not keep {_CHANGE_TYPE}",
            f"{', '.join(CHANGE_COLUMNS)} kept by every step before the write",
        )


def _has_updates(origin: _Origin, project: Sequence[ResolvedPipeline]) -> bool:
    """Whether a node of this project updates or deletes rows of what is read by its changes."""
    if origin.is_committed:
        return _updates(origin.node.spec)
    return any(_updates(node.spec) for node in _writers(origin.node, project))


def _writers(node: ResolvedNode, project: Sequence[ResolvedPipeline]) -> Iterator[ResolvedNode]:
    """The nodes of the project that write what a node reads."""
    nodes = (each for pipeline in project for each in pipeline.nodes)
    return (each for each in nodes if not set(node.reads).isdisjoint(each.writes))


def _updates(spec: WriteSpec | None) -> bool:
    if spec is None:
        return False
    return spec.mode == "replace_where" or (
        spec.mode == "merge" and spec.strategy in ("upsert", "delete_match")
    )


def _untold_changes(spec: WriteSpec, origin: _Origin, sql: StepSql) -> Iterator[Finding]:
    """Updates and deletes come, and the write could not tell them from new rows."""
    if spec.changes is not None:
        return
    source = f"node {origin.node.name} " + (
        "updates or deletes rows of its target"
        if origin.is_committed
        else "reads a table whose rows this project updates or deletes"
    )
    if spec.mode == "append":
        yield Finding(
            ("write", "mode"),
            "FM-SINK-001",
            "this append does not say what becomes of updates and deletes",
            source,
            "changes: latest (with keys), log or handled; or mode: merge with keys",
        )
    position = next((i for i, step in enumerate(origin.steps) if _loses_changes(step, sql)), None)
    if spec.mode == "merge" and position is not None:
        yield Finding(
            ("write", "merge"),
            "FM-SINK-001",
            "a step drops the change columns, so this merge cannot tell updates and deletes apart",
            f"{source}; {origin.steps[position].name} does not keep {_CHANGE_TYPE}",
            f"{_CHANGE_TYPE} and {CHANGE_COLUMNS[1]} kept by every step before the merge",
        )


def _loses_changes(step: Step, sql: StepSql) -> bool:
    """Whether no row keeps its kind of change after a step; False where only a run can tell."""
    if step.sql is not None:
        names = sql.output_names(step.sql)
        return names is not None and _CHANGE_TYPE not in {name.lower() for name in names}
    if step.name in ("select", "drop"):
        is_named = _CHANGE_TYPE in _columns_of(step)
        return is_named == (step.name == "drop")
    if step.name == "aggregate" and isinstance(step.params, dict):
        kept = [*_texts(step.params.get("by")), *(step.params.get("columns") or {})]
        return _CHANGE_TYPE not in {str(name).lower() for name in kept}
    return False


def _columns_of(step: Step) -> set[str]:
    columns = step.params.get("columns") if isinstance(step.params, dict) else step.params
    return {name.lower() for name in _texts(columns)}


def _texts(value: object) -> list[str]:
    texts = [value] if isinstance(value, str) else value
    return [each for each in texts if isinstance(each, str)] if isinstance(texts, list) else []
