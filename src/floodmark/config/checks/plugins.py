"""What nodes name of plug-ins, looked up before anything is read."""

from __future__ import annotations

from collections.abc import Iterator

from floodmark.config.checks.nodes import format_of
from floodmark.config.plugins.registry import (
    FileFormat,
    Plugin,
    Plugins,
    SinkClass,
    SourceClass,
    unusable,
)
from floodmark.config.project.connections import PluginConnection
from floodmark.config.project.nodes import NodeSettings
from floodmark.config.project.reads import FORMATS, ReadSettings
from floodmark.config.project.settings import ProjectSettings
from floodmark.config.project.writes import WriteSettings
from floodmark.config.text.places import KeyPath
from floodmark.errors import ConfigError

Problem = tuple[KeyPath, ConfigError]


def plugin_problems(
    node: NodeSettings, settings: ProjectSettings, plugins: Plugins
) -> Iterator[Problem]:
    """The names that no module has, with the path of the key; imports modules only for such names."""
    if node.read is not None and node.read.node is None:
        found = [*_format(node.read, settings, plugins)]
        found += _connection(node.read, settings, plugins, SourceClass)
        yield from (below("read", each) for each in found)
    if node.write is not None:
        found = [*_format(node.write, settings, plugins)]
        found += _connection(node.write, settings, plugins, SinkClass)
        yield from (below("write", each) for each in found)


def below(key: str, problem: Problem) -> Problem:
    """The same, seen from further up."""
    path, error = problem
    return (key, *path), error


def _connection(
    place: ReadSettings | WriteSettings,
    settings: ProjectSettings,
    plugins: Plugins,
    kind: type[Plugin],
) -> Iterator[Problem]:
    connection = settings.connections.get(place.connection or "")
    if isinstance(connection, PluginConnection):
        try:
            plugins.find(kind, connection.name)
        except ConfigError as error:
            yield ("connection",), error


def _format(
    place: ReadSettings | WriteSettings, settings: ProjectSettings, plugins: Plugins
) -> Iterator[Problem]:
    connection = settings.connections.get(place.connection or "")
    name = format_of(place, connection.type if connection is not None else None)
    if name is None or name in FORMATS:
        return
    try:
        found = plugins.find(FileFormat, name)
    except ConfigError as error:
        yield ("format",), error
        return
    if isinstance(place, WriteSettings) and found.write is None:
        allowed = f'@fm.format("{name}", write=a function), or another format'
        title = f"format {name} has no writer"
        yield ("format",), unusable(title, found.origin, allowed)
