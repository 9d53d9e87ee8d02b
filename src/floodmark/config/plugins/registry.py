"""Formats, sources and sinks by name: of a project's modules, and of installed packages."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, TypeVar

from floodmark.config.project.connections import PluginConnection
from floodmark.config.text.places import NOTHING_DONE, choices
from floodmark.config.text.references import Secret, Vault
from floodmark.errors import ConfigError, FloodmarkError
from floodmark.model.arguments import checks_call
from floodmark.model.names import PIPELINE_NAME, PIPELINE_NAME_RULE
from floodmark.next_steps import command
from floodmark.secrecy import masked

Function = Callable[..., Any]
P = TypeVar("P", bound="Plugin")

MAX_FOUND = 500


@dataclass(frozen=True)
class Plugin:
    """Something that a module adds under a name."""

    name: str
    kind: ClassVar[str] = "plug-in"

    @property
    def main(self) -> Any:
        """What was decorated."""
        raise NotImplementedError

    @property
    def origin(self) -> str:
        """Where it is defined, for people."""
        return origin_of(self.main)


@dataclass(frozen=True)
class FileFormat(Plugin):
    """A format of files; calling it calls its reader."""

    read: Function
    write: Function | None = None
    kind: ClassVar[str] = "format"

    @property
    def main(self) -> Function:
        return self.read

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self.read(*arguments, **keywords)


@checks_call("fm")
def format(name: str, *, write: Function | None = None) -> Callable[[Function], FileFormat]:  # noqa: A001 fm.format
    """Make a function the reader of a format of files: `read(spark, paths, options)`, a DataFrame.

    It is called with the files of one window, each file in one window only. `write(frame, path,
    mode, options)` writes files into a folder, at least once for each batch; mode is `append` or
    `overwrite`. Nothing is registered by this call: a project finds what its `plugins` hold.
    Raises FM-CONFIG-021 if a function cannot be called so.
    """

    def made(read: Function) -> FileFormat:
        _check(name, read, ("spark", "paths", "options"))
        if write is not None:
            _check(name, write, ("frame", "path", "mode", "options"))
        return FileFormat(name, read, write)

    return made


@dataclass(frozen=True)
class SourceClass(Plugin):
    """A source; calling it makes one."""

    make: Function
    kind: ClassVar[str] = "source"

    @property
    def main(self) -> Function:
        return self.make

    def __call__(self, options: Mapping[str, Any]) -> Any:
        return self.make(options)


@dataclass(frozen=True)
class SinkClass(Plugin):
    """A sink; calling it makes one."""

    make: Function
    kind: ClassVar[str] = "sink"

    @property
    def main(self) -> Function:
        return self.make

    def __call__(self, options: Mapping[str, Any]) -> Any:
        return self.make(options)


@checks_call("fm")
def source(name: str) -> Callable[[type[Any]], SourceClass]:
    """Make a class a source of rows by a cursor; `options` of the connection and the read go in.

    `latest()` gives the newest value of the cursor, None for nothing; it is asked while planning,
    and without Spark. `read(spark, start, end)` gives a DataFrame of the rows with start <= cursor
    <= end, of all up to the end where start is None; more rows do no harm. Raises FM-CONFIG-021 if
    the class cannot be used so.
    """

    def made(found: type[Any]) -> SourceClass:
        _check(name, found, ("options",))
        _check(name, getattr(found, "latest", None), ("self",))
        _check(name, getattr(found, "read", None), ("self", "spark", "start", "end"))
        return SourceClass(name, found)

    return made


@checks_call("fm")
def sink(name: str) -> Callable[[type[Any]], SinkClass]:
    """Make a class a sink; `options` of the connection and the write go in.

    `write(frame, receipt)` writes the rows of a batch; if it raises, it is called again. A class
    that keeps `receipt.app_id` and `receipt.seq` together with the rows has `seen(receipt)`, which
    tells whether they are there: its writes are exactly once, all others at least once. Raises
    FM-CONFIG-021 if the class cannot be used so.
    """

    def made(found: type[Any]) -> SinkClass:
        _check(name, found, ("options",))
        _check(name, getattr(found, "write", None), ("self", "frame", "receipt"))
        if hasattr(found, "seen"):
            _check(name, found.seen, ("self", "receipt"))
        return SinkClass(name, found)

    return made


def _check(name: str, function: Any, parameters: Sequence[str]) -> None:
    """Refuse a name that cannot stand in a file, and a function that cannot be called so."""
    if not PIPELINE_NAME.fullmatch(name):
        raise unusable(f'"{name}" cannot be the name of a plug-in', name, PIPELINE_NAME_RULE)
    try:
        inspect.signature(function).bind(*parameters)
    except (TypeError, ValueError) as error:
        wanted = f"{getattr(function, '__name__', function)}({', '.join(parameters)})"
        raise unusable(f"{origin_of(function)} cannot be called", str(error), wanted) from error


def guarded(
    function: Any,
    arguments: tuple[Any, ...],
    told: Callable[[str], FloodmarkError],
) -> Any:
    """What a function of a plug-in gives; what it raises, without secrets, becomes an error."""
    try:
        return function(*arguments)
    except FloodmarkError:
        raise
    # The boundary to somebody's plug-in: whatever it raises is told with its name.
    except Exception as error:
        # Masked before it is cut off.
        text = masked(f"{type(error).__name__}: {error}")[:MAX_FOUND]
        raise told(text) from error


def origin_of(function: Any) -> str:
    """A function as `module:name`."""
    module = getattr(function, "__module__", "?")
    return f"{module}:{getattr(function, '__qualname__', type(function).__name__)}"


class Plugins:
    """The plug-ins that a project has; modules are imported when the first of them is asked for."""

    def __init__(self, root: Path, modules: Sequence[str] = ()) -> None:
        self._root = root
        self._modules = tuple(modules)

    def find(self, kind: type[P], name: str) -> P:
        """The plug-in of that kind and name.

        Raises FM-CONFIG-013 with the nearest one, FM-CONFIG-021 for a module or package that cannot
        be used.
        """
        known = self._of(kind)
        if name not in known:
            raise _unknown(kind, name, sorted(known))
        return known[name]

    def _of(self, kind: type[P]) -> dict[str, P]:
        found: dict[str, P] = {}
        every = [*_of_packages(f"floodmark.{kind.kind}s"), *self._of_modules]
        for each in every:
            if isinstance(each, kind) and found.setdefault(each.name, each) is not each:
                raise _clash(found[each.name], each)
        return found

    @cached_property
    def _of_modules(self) -> list[Plugin]:
        return [each for name in self._modules for each in _of_module(self._root, name)]


def plugins_in(module: ModuleType) -> list[Plugin]:
    """The plug-ins that a module holds."""
    return [value for value in vars(module).values() if isinstance(value, Plugin)]


def _of_module(root: Path, name: str) -> list[Plugin]:
    from floodmark.config.plugins.functions import load_module

    try:
        return plugins_in(load_module(root, name))
    except FloodmarkError as error:
        raise unusable(error.title, error.found or "", details=error.details) from error


def _of_packages(group: str) -> Iterator[Plugin]:
    for point in sorted(entry_points(group=group), key=lambda point: (point.name, point.value)):
        yield from _of_entry_point(point)


def _of_entry_point(point: EntryPoint) -> Iterable[Plugin]:
    try:
        found = point.load()
    # The boundary to somebody's package: whatever it raises is told with the package's name.
    except Exception as error:
        title = f"the plug-ins of {_package(point)} cannot be loaded"
        text = f"{point.value}: {type(error).__name__}: {error}"[:MAX_FOUND]
        raise unusable(title, text) from error
    if isinstance(found, Plugin):
        return [found]
    some = plugins_in(found) if isinstance(found, ModuleType) else []
    if not some:
        raise unusable(f"there is no plug-in in {point.value} of {_package(point)}", point.value)
    return some


def _package(point: EntryPoint) -> str:
    return f"package {point.dist.name}" if point.dist else f"entry point {point.name}"


def plugin_options(
    connection: PluginConnection, more: Mapping[str, Any], vault: Vault
) -> dict[str, Any]:
    """What a plug-in is given: the options of the connection, secrets revealed, then others."""
    said = {
        name: vault.reveal(value) if isinstance(value, Secret) else value
        for name, value in connection.options.items()
    }
    return {**said, **more}


def _unknown(kind: type[Plugin], name: str, known: list[str]) -> ConfigError:
    return ConfigError(
        "FM-CONFIG-013",
        f"unknown {kind.kind} {name}",
        found=f'the name "{name}"',
        allowed=choices(known, name) or f"none: no module of plugins has a {kind.kind}",
        state=NOTHING_DONE,
        next="correct the name, or add its module under plugins, then: " + command("validate"),
    )


def _clash(known: Plugin, other: Plugin) -> ConfigError:
    return unusable(
        f'two {known.kind}s are called "{known.name}"',
        f"{known.origin} and {other.origin}",
        f'another name for one of them: @fm.{known.kind}("...")',
    )


def unusable(
    title: str, found: str, allowed: str | None = None, details: Mapping[str, str] | None = None
) -> ConfigError:
    """A module or package that cannot be used as it is (FM-CONFIG-021)."""
    return ConfigError(
        "FM-CONFIG-021",
        title,
        found=found,
        allowed=allowed or "a module that can be imported, with what @fm.format and its like make",
        state=NOTHING_DONE,
        next="correct the module, or uninstall the package, then: " + command("validate"),
        details=details,
    )
