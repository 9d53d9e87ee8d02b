"""Arguments of public calls, looked at before anything is done: a wrong type is a typed error."""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, wraps
from numbers import Integral, Real
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from floodmark.errors import ConfigError

C = TypeVar("C", bound=type)
_MAX_SHOWN = 80


def checks_arguments(cls: C) -> C:
    """The class, whose public methods raise FM-CONFIG-007 for an argument of a wrong type.

    What only a type checker knows (protocols, names that are imported for it alone) is not checked.
    """
    for name in dir(cls):
        if name.startswith("_") and name != "__init__":
            continue
        method = inspect.getattr_static(cls, name)
        if isinstance(method, classmethod):
            setattr(cls, name, classmethod(_checked(method.__func__, cls.__name__)))
        elif inspect.isfunction(method):
            setattr(cls, name, _checked(method, cls.__name__))
    return cls


def _checked(function: Callable[..., Any], owner: str) -> Callable[..., Any]:
    is_start = function.__name__ == "__init__"
    title = owner if is_start else f"{owner}.{function.__name__}"

    @wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        call_rules = _call_rules(function)
        try:
            bound = call_rules.bound(arguments, keywords)
        except TypeError as error:
            raise _wrong(title, str(error), ", ".join(call_rules.signature.parameters)) from error
        for name, value in bound.items():
            if name not in call_rules.allowed:
                continue
            for each in _each(value) if name in call_rules.many else (value,):
                if not fits(each, call_rules.allowed[name]):
                    kinds = call_rules.annotation(name)
                    raise _wrong(title, f"{name} is {_shown(each)}", f"{name}: {kinds}")
        return function(*arguments, **keywords)

    return call


def _each(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


_MANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True)
class _CallRules:
    """How a function may be called."""

    signature: inspect.Signature
    allowed: dict[str, Any]
    """The types of its parameters, as far as they can be known."""
    many: frozenset[str]
    """Its *arguments and **keywords."""
    positional: tuple[str, ...]
    named: frozenset[str]
    required: frozenset[str]

    def bound(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Mapping[str, Any]:
        """The value of each parameter; raises TypeError as Python does.

        `Signature.bind` alone took an eighth of the time of the simulator, so plain calls do
        without it.
        """
        given = dict(zip(self.positional, arguments, strict=False))
        is_plain = (
            not self.many
            and len(arguments) == len(given)
            and keywords.keys() <= self.named
            and given.keys().isdisjoint(keywords)
        )
        if is_plain:
            given.update(keywords)
            if self.required <= given.keys():
                return given
        return self.signature.bind(*arguments, **keywords).arguments

    def annotation(self, name: str) -> str:
        """The types of a parameter as the code writes them."""
        return inspect.formatannotation(self.signature.parameters[name].annotation)


@cache
def _call_rules(function: Callable[..., Any]) -> _CallRules:
    signature = inspect.signature(function)
    kinds = {parameter.name: parameter.kind for parameter in signature.parameters.values()}
    return _CallRules(
        signature,
        _allowed(function, signature),
        many=frozenset(name for name, kind in kinds.items() if kind in _MANY),
        positional=tuple(name for name, kind in kinds.items() if kind in _BY_POSITION),
        named=frozenset(name for name, kind in kinds.items() if kind in _BY_NAME),
        required=frozenset(
            parameter.name
            for parameter in signature.parameters.values()
            if parameter.default is inspect.Parameter.empty
        ),
    )


_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _allowed(function: Callable[..., Any], signature: inspect.Signature) -> dict[str, Any]:
    names = vars(sys.modules[function.__module__])
    allowed = {}
    for parameter in signature.parameters.values():
        annotation = parameter.annotation
        if isinstance(annotation, str):
            try:
                annotation = eval(annotation, names)  # noqa: S307  (annotations of our own)
            except NameError:
                continue
        if annotation is not inspect.Parameter.empty:
            allowed[parameter.name] = annotation
    return allowed


def fits(value: Any, annotation: Any) -> bool:
    """Whether a value is of a type, as far as that can be told without using it up."""
    if type(value) is annotation or annotation is Any or isinstance(annotation, TypeVar | str):
        return True
    origin, inner = _parts(annotation)
    if origin in (Union, types.UnionType):
        return any(fits(value, each) for each in inner)
    if origin is Literal:  # which word it is, the method itself judges
        return type(value) in {type(each) for each in inner}
    if annotation is None or annotation is type(None):
        return value is None
    if value is None:
        return False
    return _fits(value, origin or annotation, inner)


@cache
def _parts(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    """The outer type of an annotation, and what stands in its brackets."""
    return get_origin(annotation), get_args(annotation)


def _fits(value: Any, kind: Any, inner: tuple[Any, ...]) -> bool:
    if getattr(kind, "_is_protocol", False) or not isinstance(kind, type):
        return True
    if kind in _NUMBERS:
        return isinstance(value, _NUMBERS[kind]) and not isinstance(value, bool)
    # Text is a sequence of texts; bytes are taken for neither.
    is_instance = isinstance(value, kind) and not isinstance(value, bytes)
    return is_instance and _holds(value, kind, inner)


_NUMBERS: dict[Any, type] = {int: Integral, float: Real}


def _holds(value: Any, kind: Any, inner: tuple[Any, ...]) -> bool:
    """Whether what is inside of a collection fits; an iterator would be used up by a look."""
    if not inner or isinstance(value, str) or not isinstance(value, Collection):
        return True
    if isinstance(value, Mapping) and len(inner) == 2:
        keys = all(fits(key, inner[0]) for key in value)
        return keys and all(fits(each, inner[1]) for each in value.values())
    if kind is tuple and inner[-1] is not Ellipsis:
        return len(value) == len(inner) and all(map(fits, value, inner))
    return all(fits(each, inner[0]) for each in value)


def _shown(value: Any) -> str:
    kind = type(value).__name__
    return "None" if value is None else f"a {kind}, {str(value)[:_MAX_SHOWN]}"


def _wrong(call: str, what: str, allowed: str) -> ConfigError:
    return ConfigError(
        "FM-CONFIG-007",
        f"{call}: {what}",
        allowed=allowed.replace("'", ""),
        state="nothing was read or written",
        next="correct the call",
    )
