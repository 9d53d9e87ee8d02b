"""Arguments of public calls, looked at before anything is done: a wrong type is a typed error."""

from __future__ import annotations

import builtins
import inspect
import sys
import types
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, wraps
from numbers import Integral, Real
from os import PathLike, fspath
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin

from floodmark.errors import ConfigError

C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., Any])
_MAX_SHOWN = 80
UNTOUCHED = "nothing was read or written"


def checks_arguments(cls: C) -> C:
    """The class, whose public methods raise FM-CONFIG-007 for an argument of a wrong type.

    Of what only a type checker knows (protocols, names that are imported for it alone) no more is
    checked than that it is there; a frame has a schema.
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


def checks_call(owner: str, state: str = UNTOUCHED) -> Callable[[F], F]:
    """The same for a single function, or for a method of a class whose other ones are our own."""

    def made(function: F) -> F:
        return cast("F", _checked(function, owner, state))

    return made


def _checked(
    function: Callable[..., Any], owner: str, state: str = UNTOUCHED
) -> Callable[..., Any]:
    is_start = function.__name__ == "__init__"
    title = owner if is_start else f"{owner}.{function.__name__}"

    @wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        call_rules = _call_rules(function)
        try:
            bound = call_rules.bound(arguments, keywords)
        except TypeError as error:
            names = ", ".join(call_rules.signature.parameters)
            raise _wrong(title, str(error), names, state) from error
        for name, value in bound.items():
            if name not in call_rules.allowed:
                continue
            if name not in _SHOWN_ONLY and _is_no_name(value):
                allowed = f"{name}: text without NUL and halves of characters"
                raise _wrong(title, f"{name} is {ascii(value)[:_MAX_SHOWN]}", allowed, state)
            for each in _each(value) if name in call_rules.many else (value,):
                if not fits(each, call_rules.allowed[name]):
                    kinds = call_rules.annotation(name)
                    what = _shown(each, has_rows=call_rules.allowed[name] is Frame)
                    raise _wrong(title, f"{name} is {what}", f"{name}: {kinds}", state)
        return function(*arguments, **keywords)

    return call


_SHOWN_ONLY = {"error", "metrics"}
"""Parameters whose text names nothing: it is made fit to be stored."""


def _is_no_name(value: Any) -> bool:
    """Whether a text, or one in a list, can be the name of nothing that is stored."""
    if isinstance(value, str | PathLike):
        text = fspath(value)
        return isinstance(text, str) and ("\0" in text or not (text.isascii() or _is_utf8(text)))
    return isinstance(value, list | tuple | set | frozenset) and any(map(_is_no_name, value))


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


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
        """The types of a parameter as the code writes them, without quotes."""
        return inspect.formatannotation(self.signature.parameters[name].annotation).replace("'", "")


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
    names = {**vars(builtins), **vars(sys.modules[function.__module__])}
    allowed = {}
    for parameter in signature.parameters.values():
        annotation = parameter.annotation
        if isinstance(annotation, str):
            # Annotations of our own.
            annotation = eval(annotation, {}, _Names(names))  # noqa: S307
        if annotation is not inspect.Parameter.empty:
            allowed[parameter.name] = annotation
    return allowed


class Unknown:
    """What stands for a type that only a type checker knows."""

    def __class_getitem__(cls, _: Any) -> type[Unknown]:
        return cls


class Frame(Unknown):
    """What stands for a frame of whichever engine."""


class _Names(dict[str, Any]):
    """The names that an annotation may use."""

    def __missing__(self, name: str) -> type[Unknown]:
        return Frame if name == "DataFrame" else Unknown


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
    return value is not None and _fits(value, origin or annotation, inner)


@cache
def _parts(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    """The outer type of an annotation, and what stands in its brackets."""
    return get_origin(annotation), get_args(annotation)


def _fits(value: Any, kind: Any, inner: tuple[Any, ...]) -> bool:
    if kind is Frame:
        return hasattr(type(value), "schema")
    if kind is Unknown or getattr(kind, "_is_protocol", False) or not isinstance(kind, type):
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


def _shown(value: Any, *, has_rows: bool) -> str:
    if value is None:
        return "None"
    kind = type(value).__name__
    kind = f"{'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}"
    return kind if has_rows else f"{kind}, {str(value)[:_MAX_SHOWN]}"


def _wrong(call: str, what: str, allowed: str, state: str) -> ConfigError:
    return ConfigError(
        "FM-CONFIG-007",
        f"{call}: {what}",
        rule="argument_type",
        allowed=allowed,
        state=state,
        next="correct the call",
    )
