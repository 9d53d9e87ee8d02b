"""Nodes of a project that write one target, each in its own way, or the quarantine of another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from floodmark.config.checks.findings import CONFLICT, SHARED_TARGET, Finding
from floodmark.config.project.resolved import ResolvedPipeline
from floodmark.config.project.writes import WriteSettings
from floodmark.config.text.places import KeyPath
from floodmark.model.names import connection_of
from floodmark.model.quarantine import quarantine_name
from floodmark.model.sql_names import name_parts


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
    if one.first_run_query or other.first_run_query:
        return "a first run by first_run_query takes the other's rows away"
    if "overwrite" in modes:
        return "an overwrite takes the other's rows away"
    if modes == {"merge", "append"}:
        return "appended rows double keys that the merge keeps once"
    if modes == {"merge"} and one.merge and other.merge and one.merge.keys != other.merge.keys:
        return "each merge finds its rows by other keys"
    return None


def written_quarantines(pipelines: Sequence[ResolvedPipeline]) -> Iterator[Finding]:
    """Each node that writes the table in which another one sets rows aside."""
    nodes = [
        (("pipelines", position, "nodes", number, "write"), node, node.write.target)
        for position, pipeline in enumerate(pipelines)
        for number, node in enumerate(pipeline.nodes)
        if node.write is not None and node.write.target is not None
    ]
    quarantines = {
        _table(quarantine_name(target)): f"{node.pipeline}.{node.name}"
        for _, node, target in nodes
        if any(check.action == "quarantine" for check in node.settings.expect)
        and _table(target) is not None
    }
    for path, node, target in nodes:
        owner = quarantines.get(_table(target)) if _table(target) is not None else None
        if owner is not None:
            yield Finding(
                path,
                CONFLICT,
                f"{node.pipeline}.{node.name} writes the quarantine of {owner}",
                target,
                f"another target: the checks of {owner} set rows aside in this one",
            )


def _table(target: str) -> str | tuple[str, ...] | None:
    """A target, however its name is quoted; None for one that is no name."""
    connection = connection_of(target)
    if connection is None:
        return target
    try:
        return (connection, *name_parts("postgres", target.removeprefix(f"{connection}:")))
    except ValueError:
        return None
