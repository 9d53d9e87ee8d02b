"""Nodes of a project that write one target, each in its own way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from floodmark.config.checks.findings import SHARED_TARGET, Finding
from floodmark.config.project.resolved import ResolvedPipeline
from floodmark.config.project.writes import WriteSettings
from floodmark.config.text.places import KeyPath


class _Writer(NamedTuple):
    name: str
    path: KeyPath
    write: WriteSettings


def shared_targets(pipelines: Sequence[ResolvedPipeline]) -> Iterator[Finding]:
    """A word about each node that disturbs what another one keeps in the same target."""
    writers: dict[str, list[_Writer]] = {}
    for position, pipeline in enumerate(pipelines):
        for number, node in enumerate(pipeline.nodes):
            if node.write is not None and node.write.target is not None:
                path = ("pipelines", position, "nodes", number, "write")
                writer = _Writer(f"{pipeline.name}.{node.name}", path, node.write.settings)
                writers.setdefault(node.write.target, []).append(writer)
    for target, each in writers.items():
        for writer in each[1:]:
            why = _disturbs(each[0].write, writer.write)
            if why is not None:
                title = f"{writer.name} and {each[0].name} both write {target}: {why}"
                found = f"{each[0].write.write_mode} and {writer.write.write_mode}"
                allowed = "targets of their own, or merges by the same keys"
                yield Finding(writer.path, SHARED_TARGET, title, found, allowed)


def _disturbs(one: WriteSettings, other: WriteSettings) -> str | None:
    modes = {one.write_mode, other.write_mode}
    if "overwrite" in modes:
        return "an overwrite takes the other's rows away"
    if modes == {"merge", "append"}:
        return "appended rows double keys that the merge keeps once"
    if modes == {"merge"} and one.merge and other.merge and one.merge.keys != other.merge.keys:
        return "each merge finds its rows by other keys"
    return None
