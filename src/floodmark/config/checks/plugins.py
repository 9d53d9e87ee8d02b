"""What nodes name of plug-ins, looked up before anything is read."""

from __future__ import annotations

from collections.abc import Iterator

from floodmark.config.plugins.registry import (
    FileFormat,
    Plugin,
    Plugins,
    SinkClass,
    SourceClass,
    unusable,
)
from floodmark.config.project.connections import PluginConnection
from floodmark.config.project.reads import FORMATS
from floodmark.config.project.resolved import ResolvedNode, ResolvedRead, ResolvedWrite
from floodmark.config.text.places import KeyPath
from floodmark.errors import ConfigError

Problem = tuple[KeyPath, ConfigError]


def plugin_problems(node: ResolvedNode, plugins: Plugins) -> Iterator[Problem]:
    """The names that no module has, with the path of the key; imports modules only for such names."""
    if node.read is not None and node.read.kind != "node":
        yield from (_below("read", each) for each in _problems(node.read, plugins, SourceClass))
    if node.write is not None:
        yield from (_below("write", each) for each in _problems(node.write, plugins, SinkClass))


def _below(key: str, problem: Problem) -> Problem:
    """The same, seen from further up."""
    path, error = problem
    return (key, *path), error


def _problems(
    place: ResolvedRead | ResolvedWrite, plugins: Plugins, kind: type[Plugin]
) -> Iterator[Problem]:
    yield from _format(place, plugins)
    if isinstance(place.connection, PluginConnection):
        try:
            plugins.find(kind, place.connection.name)
        except ConfigError as error:
            yield ("connection",), error


def _format(place: ResolvedRead | ResolvedWrite, plugins: Plugins) -> Iterator[Problem]:
    name = place.format
    if name is None or name in FORMATS:
        return
    try:
        plugin = plugins.find(FileFormat, name)
    except ConfigError as error:
        yield ("format",), error
        return
    if isinstance(place, ResolvedWrite) and plugin.write is None:
        allowed = f'@fm.format("{name}", write=a function), or another format'
        title = f"format {name} has no writer"
        yield ("format",), unusable(title, plugin.origin, allowed)
