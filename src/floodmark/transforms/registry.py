"""Transforms by name: `@transform`, and the registry that steps are looked up in."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_type_hints, overload

from pydantic import BaseModel, ConfigDict, create_model

from floodmark.config.plugins import plugins_in
from floodmark.config.text import nearest
from floodmark.errors import FloodmarkError, TransformError
from floodmark.model.arguments import checks_call
from floodmark.transforms import faults
from floodmark.transforms.params import Params, parse
from floodmark.transforms.relation import INPUT, Built, Relation
from floodmark.transforms.sql import NotSqlError

ENTRY_POINTS = "floodmark.transforms"
FAMILIES = ("columns", "rows", "text", "dates", "joins", "groups", "shapes", "checks")
RESERVED = ("sql", "python", INPUT)
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")

Function = Callable[..., Any]


@dataclass(frozen=True)
class Table:
    """Rows of an example, with the types of their columns."""

    columns: Mapping[str, str]
    rows: Sequence[tuple[Any, ...]]


@dataclass(frozen=True)
class Example:
    """What a transform does, shown: it is in the documentation, and it is a test."""

    params: Any
    given: Table
    gives: Table
    others: Mapping[str, Table] = field(default_factory=dict)
    in_order: bool = False
    """Whether the order of the rows is part of what is promised."""


@dataclass(frozen=True)
class Transform:
    """A named transform; calling it calls its function."""

    name: str
    function: Function
    params: type[BaseModel]
    takes: Literal["relation", "frame"]
    by_keyword: bool
    wants_context: bool = False
    example: Example | None = None

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self.function(*arguments, **keywords)

    @property
    def origin(self) -> str:
        """Where it is defined, for people."""
        return f"{self.function.__module__}:{self.function.__name__}"

    @property
    def text(self) -> str:
        """What it does, as its docstring says."""
        return inspect.cleandoc(self.function.__doc__ or "")

    def parse(self, raw: Any) -> BaseModel:
        """Its parameters as a value; raises FM-TRANSFORM-002."""
        return parse(self.params, raw)

    def build(self, relation: Relation, params: BaseModel) -> Built | str:
        """The query for this input; pure. Raises TransformError if the columns do not fit."""
        try:
            built: Built | str = self.call(params, relation)
        except NotSqlError as error:
            raise faults.wrong_parameters(str(error)) from error
        return built

    def on_frame(self, params: BaseModel) -> Callable[[Any, Any], Any]:
        """For a transform that takes frames: a function of a frame and a context."""
        if self.wants_context:
            return lambda frame, context: self.call(params, frame, context)
        return lambda frame, _: self.call(params, frame)

    def call(self, params: BaseModel, *arguments: Any) -> Any:
        """Call the function with its parameters in the way it wants them."""
        if not self.by_keyword:
            return self.function(*arguments, params)
        return self.function(
            *arguments, **{n: getattr(params, n) for n in type(params).model_fields}
        )


@overload
def transform(function: Function, /) -> Transform: ...
@overload
def transform(
    *, name: str | None = None, example: Example | None = None
) -> Callable[[Function], Transform]: ...
@checks_call("fm")
def transform(
    function: Function | None = None, /, *, name: str | None = None, example: Example | None = None
) -> Transform | Callable[[Function], Transform]:
    """Make a function a named transform, for a project's module or a package's entry point.

    The first parameter says what the function gets: `input`, a `Relation` from which it builds
    SQL (a `Built`, or a query as text); or `frame`, a Spark frame, followed by `context` if it
    wants one. The rest are the transform's parameters: one pydantic model, or plain annotated
    parameters. Nothing is registered by this call; a registry collects what modules hold.
    Raises FM-TRANSFORM-013 if the function cannot be used so.
    """
    if function is None:
        return lambda found: _transform(found, name, example)
    return _transform(function, name, example)


def _transform(function: Function, name: str | None, example: Example | None) -> Transform:
    name = name or function.__name__
    if not _NAME.fullmatch(name) or name in RESERVED:
        allowed = f"small letters, digits and _, and none of {', '.join(RESERVED)}"
        raise _unusable(f'"{name}" cannot be the name of a transform', name, allowed)
    parameters = list(inspect.signature(function).parameters.values())
    first = parameters[0].name if parameters else ""
    if first not in ("input", "frame"):
        raise _unusable(f"{name} takes neither input nor frame", first or "no parameter")
    fixed = 2 if first == "frame" and len(parameters) > 1 and parameters[1].name == "context" else 1
    model, by_keyword = _params_model(function, name, parameters[fixed:])
    if not function.__module__.startswith("floodmark.transforms."):
        # One of somebody else that cannot be built says so now, while its module is named.
        model.model_rebuild(raise_errors=False)
    takes: Literal["relation", "frame"] = "relation" if first == "input" else "frame"
    return Transform(name, function, model, takes, by_keyword, fixed == 2, example)


def _params_model(
    function: Function, name: str, parameters: Sequence[inspect.Parameter]
) -> tuple[type[BaseModel], bool]:
    """The model of the parameters, and whether they are handed over one by one."""
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as error:
        raise _unusable(f"a type of {name}'s parameters cannot be found", str(error)) from error
    kinds = [hints.get(parameter.name) for parameter in parameters]
    if len(kinds) == 1 and isinstance(kinds[0], type) and issubclass(kinds[0], BaseModel):
        return kinds[0], False
    fields: dict[str, Any] = {}
    for parameter, kind in zip(parameters, kinds, strict=True):
        if kind is None or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise _unusable(f"a parameter of {name} has no type", parameter.name)
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = (kind, default)
    config = ConfigDict(extra="forbid", strict=True, frozen=True)
    model: type[BaseModel] = create_model(f"{name}_params", __config__=config, **fields)
    return model, True


class Registry(Mapping[str, Transform]):
    """Transforms by name; adding gives a new registry, a name is never taken over."""

    def __init__(self, transforms: Iterable[Transform] = ()) -> None:
        self._by_name: dict[str, Transform] = {}
        for each in transforms:
            known = self._by_name.setdefault(each.name, each)
            if known is not each:
                raise _clash(known, each)

    def __getitem__(self, name: str) -> Transform:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def find(self, name: str) -> Transform:
        """The transform of that name; raises FM-TRANSFORM-001 with the nearest one."""
        if name not in self:
            raise _unknown(name, [*self, "sql", "python"])
        return self[name]

    def plus(self, transforms: Iterable[Transform]) -> Registry:
        """With more transforms; raises FM-TRANSFORM-012 if a name is taken by another one."""
        return Registry([*self.values(), *transforms])

    def with_modules(self, root: Path, names: Iterable[str]) -> Registry:
        """With the transforms of a project's modules, which are looked for below `root`.

        Raises FM-TRANSFORM-012 for a taken name, 013 for a module that cannot be imported or
        has no transforms.
        """
        return self.plus(each for name in names for each in _of_module(root, name))

    def with_packages(self) -> Registry:
        """With what installed packages offer as entry points of `floodmark.transforms`.

        Raises FM-TRANSFORM-012 for a taken name, 013 for a package that cannot be used.
        """
        found = sorted(
            entry_points(group=ENTRY_POINTS), key=lambda point: (point.name, point.value)
        )
        return self.plus(each for point in found for each in _of_entry_point(point))


@cache
def standard() -> Registry:
    """The transforms that come with floodmark."""
    modules = [import_module(f"floodmark.transforms.{family}") for family in FAMILIES]
    return Registry(each for module in modules for each in _collected(module))


def _collected(module: ModuleType) -> list[Transform]:
    return [value for value in vars(module).values() if isinstance(value, Transform)]


def _of_module(root: Path, name: str) -> list[Transform]:
    from floodmark.config.plugins import load_module

    try:
        module = load_module(root, name)
    except FloodmarkError as error:
        raise _unusable(error.title, error.found or "", details=error.details) from error
    found = _collected(module)
    return found if found or plugins_in(module) else _nothing_in(name)


def _of_entry_point(point: Any) -> list[Transform]:
    try:
        found = point.load()
    # The boundary to somebody's package: whatever it raises is told with the package's name.
    except Exception as error:
        raise _unusable(
            f"the transforms of {_package(point)} cannot be loaded",
            f"{point.value}: {type(error).__name__}: {error}"[:500],
        ) from error
    if isinstance(found, Transform):
        return [found]
    has_some = isinstance(found, ModuleType) and _collected(found)
    return has_some or _nothing_in(f"{point.value} of {_package(point)}")


def _package(point: Any) -> str:
    return f"package {point.dist.name}" if point.dist else f"entry point {point.name}"


def _nothing_in(name: str) -> list[Transform]:
    raise _unusable(f"there is no transform in {name}", name)


def _unusable(
    title: str, found: str, allowed: str | None = None, details: dict[str, str] | None = None
) -> TransformError:
    rule = (
        "a function with @floodmark.transform whose first parameter is input or frame and whose "
        "other parameters are annotated"
    )
    return faults.fault(
        "FM-TRANSFORM-013",
        title,
        found=found,
        allowed=allowed or rule,
        next="correct the module, or uninstall the package",
        details=details,
    )


def _clash(known: Transform, other: Transform) -> TransformError:
    return faults.fault(
        "FM-TRANSFORM-012",
        f'two transforms are called "{known.name}"',
        found=f"{known.origin} and {other.origin}",
        next='give one of them another name: @transform(name="...")',
    )


def _unknown(name: str, known: list[str]) -> TransformError:
    return faults.fault(
        "FM-TRANSFORM-001",
        f'there is no transform "{name}"',
        allowed=faults.listed(sorted(known), name),
        close=nearest(name, known),
    )


__all__ = ["Example", "Params", "Registry", "Table", "Transform", "standard", "transform"]
