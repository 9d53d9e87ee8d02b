"""Columns whose values are not to be shown: which they are, and what is not covered yet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from floodmark.config.checks.findings import SENSITIVE, Finding
from floodmark.config.project.nodes import NodeSettings
from floodmark.config.project.settings import PipelineSettings, ProjectSettings

NOT_COVERED = (
    "cursor values (watermarks), folders of partitions, rows set aside (<target>_quarantine), landed"
    " rows and answers below the control store, Spark's own log"
)


def sensitive_columns(pipeline: PipelineSettings) -> list[str]:
    """The sensitive columns of a pipeline of nodes, each as `node.column`."""
    return [
        f"{node.name}.{name}"
        for node in pipeline.nodes
        for name, column in node.columns.items()
        if column.sensitive
    ]


def hides_values(nodes: Iterable[NodeSettings]) -> bool:
    """Whether a column of one of these nodes is sensitive: then so may be those made of it."""
    return any(column.sensitive for node in nodes for column in node.columns.values())


def sensitive_finding(settings: ProjectSettings) -> Iterator[Finding]:
    """One warning for the whole project that names what is not covered."""
    named = [
        f"{pipeline.pipeline}: {', '.join(columns)}"
        for pipeline in settings.pipelines
        if (columns := sensitive_columns(pipeline))
    ]
    if not named:
        return
    first = next(n for n, each in enumerate(settings.pipelines) if hides_values(each.nodes))
    nodes = settings.pipelines[first].nodes
    node = next(n for n, each in enumerate(nodes) if hides_values([each]))
    column = next(name for name, each in nodes[node].columns.items() if each.sensitive)
    yield Finding(
        ("pipelines", first, "nodes", node, "columns", column, "sensitive"),
        SENSITIVE,
        f"values of sensitive columns are left out of errors, but may still be seen in: {NOT_COVERED}",
        "; ".join(named)[:400],
        "rights on the target and on the folder of the control store",
    )
