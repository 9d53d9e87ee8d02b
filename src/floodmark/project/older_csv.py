"""Targets whose rows an older version of floodmark read from CSV files, by the rules of then."""

from __future__ import annotations

from collections.abc import Iterator

from floodmark.config import Finding, LoadedProject, ResolvedNode
from floodmark.config.checks import OLDER_CSV
from floodmark.model import FilesMark, State
from floodmark.next_steps import command
from floodmark.sources.files import DEFAULTS_VERSION, DELIMITED

_CHANGED = ({"escape"}, {"multiline"}, {"nullvalue", "emptyvalue"})
"""The options whose defaults are others today; a node that says all of them reads as it did."""


def read_by_older_rules(file: LoadedProject, state: State | None) -> Iterator[Finding]:
    """Each read of CSV files whose pipeline has processed some by older rules, and its target."""
    for position, pipeline in enumerate(file.pipelines):
        for number, node in enumerate(pipeline.nodes):
            upstream = node.upstream
            if state is None or upstream is None or not _has_new_rules(node):
                continue
            mark = state.seeded_marks.get((pipeline.name, upstream.name))
            if isinstance(mark, FilesMark) and mark.defaults < DEFAULTS_VERSION:
                path = ("pipelines", position, "nodes", number, "read")
                target = node.target_table or f"what the nodes below {node.name} write"
                yield Finding(
                    path,
                    OLDER_CSV,
                    "rows of CSV files were loaded by the rules of an older version",
                    f"{mark.text} in {target}",
                    "files loaded again: "
                    + command("state", "reset", "--upstream", "UPSTREAM", "--yes")
                    + ", then "
                    + command("run", "--full-refresh", "PIPELINE")
                    + '; or the older rules for good: options: {escape: "\\", nullValue: "",'
                    " multiLine: false}",
                )


def _has_new_rules(node: ResolvedNode) -> bool:
    read = node.settings.read
    if read is None or read.format not in DELIMITED or node.kind != "files":
        return False
    own = {name.lower() for name in read.options}
    return not all(own & names for names in _CHANGED)
