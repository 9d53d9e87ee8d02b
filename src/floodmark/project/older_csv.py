"""Targets whose rows an older version of floodmark read from CSV files, by the rules of then."""

from __future__ import annotations

from collections.abc import Iterator

from floodmark.config import LoadedProject, ResolvedNode
from floodmark.config.text import KeyPath
from floodmark.model.file_marks import FilesMark, any_mark
from floodmark.model.state import State
from floodmark.sources.csv_files import DEFAULTS_VERSION, DELIMITED

OLDER_CSV = "FM-CONFIG-039"
_CHANGED = ({"escape"}, {"multiline"}, {"nullvalue", "emptyvalue"})
"""The options whose defaults are others today; a node that says all of them reads as it did."""


def read_by_older_rules(file: LoadedProject, state: State | None) -> Iterator[tuple[KeyPath, str]]:
    """Each read of CSV files whose pipeline has processed some by older rules, and its target."""
    for position, pipeline in enumerate(file.pipelines):
        for number, node in enumerate(pipeline.nodes):
            upstream = node.upstream
            if state is None or upstream is None or not _has_new_rules(node):
                continue
            mark = any_mark(state.seeded_marks.get((pipeline.name, upstream.name)))
            if isinstance(mark, FilesMark) and mark.defaults < DEFAULTS_VERSION:
                path = ("pipelines", position, "nodes", number, "read")
                yield (
                    path,
                    f"{mark.text} in {node.target_table or f'what the nodes below {node.name} write'}",
                )


def _has_new_rules(node: ResolvedNode) -> bool:
    read = node.settings.read
    if read is None or read.format not in DELIMITED or node.kind != "files":
        return False
    own = {name.lower() for name in read.options}
    return not all(own & names for names in _CHANGED)
