"""Finding the function of a pipeline: `module.path:name`, below the project's root."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module, invalidate_caches
from pathlib import Path
from types import ModuleType
from typing import Any

from floodmark.config.text.places import NOTHING_DONE, choices
from floodmark.errors import ConfigError
from floodmark.next_steps import command

_ALLOWED = "module.path:name of a function with two arguments, inputs and run"


def load_function(root: Path, name: str, where: str | None = None) -> Callable[..., Any]:
    """The function of that name; its module is imported with `root` first in sys.path.

    Raises FM-CONFIG-006 if the module or the name is not there, is not callable, or the import
    itself fails. Called again it returns the same function.
    """
    module_name, _, attribute = name.partition(":")
    found: Any = _module(root, module_name, name, where)
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise _no_attribute(found, part, name, where)
        found = getattr(found, part)
    if not callable(found):
        raise _error(f"{name} is not a function", where, f"a {type(found).__name__}", _ALLOWED)
    return found  # type: ignore[no-any-return]


def load_module(root: Path, name: str, where: str | None = None) -> ModuleType:
    """A module of the project, imported with `root` first in sys.path; raises FM-CONFIG-006."""
    return _module(root, name, name, where)


def _module(root: Path, module: str, name: str, where: str | None) -> ModuleType:
    _look_first(root, module.partition(".")[0])
    try:
        with _without_others(root):
            return import_module(module)
    except ModuleNotFoundError as error:
        if error.name and f"{module}.".startswith(f"{error.name}."):
            raise _no_module(root, module, name, where) from error
        raise _failing_import(root, module, error, where) from error
    # The boundary to the user's module: whatever it raises, even exit(), is reported with its line.
    except (Exception, SystemExit) as error:
        raise _failing_import(root, module, error, where) from error


_ROOTS: set[str] = set()
"""The folders of projects that were put into sys.path here, as global as that is."""


@contextmanager
def _without_others(root: Path) -> Iterator[None]:
    """Look past the folders of other projects: a file there comes before a plain folder here."""
    others = [place for place in sys.path if place in _ROOTS and place != str(root)]
    sys.path[:] = [place for place in sys.path if place not in others]
    try:
        yield
    finally:
        at = sys.path.index(str(root)) + 1 if str(root) in sys.path else 0
        sys.path[at:at] = [place for place in others if place not in sys.path]


def _look_first(root: Path, package: str) -> None:
    """Let a name mean what it means below `root`: a process may run several projects in turn."""
    if str(root) not in sys.path:
        _ROOTS.add(str(root))
    if sys.path[:1] != [str(root)]:
        sys.path[:] = [str(root), *(place for place in sys.path if place != str(root))]
        invalidate_caches()
    is_there = (root / f"{package}.py").is_file() or (root / package).is_dir()
    if is_there and package in sys.modules and not _is_below(root, sys.modules[package]):
        for name in [n for n in sys.modules if n == package or n.startswith(f"{package}.")]:
            del sys.modules[name]


def _is_below(root: Path, module: ModuleType) -> bool:
    """Whether a module is of the folder; one without a file is a folder of modules."""
    places = [module.__file__] if module.__file__ else getattr(module, "__path__", ())
    return any(Path(place).is_relative_to(root) for place in places)


def _no_module(root: Path, module: str, name: str, where: str | None) -> ConfigError:
    path = module.replace(".", "/")
    return _error(
        f"the module of {name} is not there",
        where,
        f"neither {path}.py nor {path}/ in {root}",
        _ALLOWED,
    )


def _no_attribute(owner: Any, part: str, name: str, where: str | None) -> ConfigError:
    functions = sorted(
        key
        for key, value in vars(owner).items()
        if callable(value) and not key.startswith("_") and not isinstance(value, type)
    )
    found = f"its functions: {choices(functions[:20], part)}" if functions else "no functions"
    return _error(f"{name} is not there: no {part} in {owner.__name__}", where, found, _ALLOWED)


def _failing_import(
    root: Path, module: str, error: BaseException, where: str | None
) -> ConfigError:
    return _error(
        f"the import of {module} fails",
        where,
        f"{type(error).__name__}: {error}"[:500],
        None,
        {"at": import_place(root, error)},
    )


def import_place(root: Path, error: BaseException) -> str:
    """The line of the project, or of the deepest file, at which an import failed."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_relative(root, error.filename)}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename.startswith(f"{root}/")]
    frame = (own or list(frames))[-1]
    text = f"{_relative(root, frame.filename)}:{frame.lineno}"
    return f"{text}: {frame.line}" if frame.line else text


def _relative(root: Path, filename: str) -> str:
    return filename.removeprefix(f"{root}/")


def _error(
    title: str,
    where: str | None,
    found: str,
    allowed: str | None,
    details: dict[str, str] | None = None,
) -> ConfigError:
    return ConfigError(
        "FM-CONFIG-006",
        title,
        where=where,
        found=found,
        allowed=allowed,
        state=NOTHING_DONE,
        next="correct it, then: " + command("validate"),
        details=details,
    )
