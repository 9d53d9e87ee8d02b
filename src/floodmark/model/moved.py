"""Names of public methods that stand elsewhere: the old name warns, and does the same."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

C = TypeVar("C", bound=type)


def moved_to(part: str, home: type, *names: str) -> Callable[[C], C]:
    """A class decorator: these names are those of its attribute `part`, which is a `home`.

    A call, or a look at a value, warns with DeprecationWarning that says where the name is.
    """

    def add(cls: C) -> C:
        for name in names:
            setattr(cls, name, _forwarding(cls.__name__, part, name, getattr(home, name, None)))
        return cls

    return add


def _forwarding(owner: str, part: str, name: str, member: Any) -> Any:
    text = f"{owner}.{name} has moved: use {owner}.{part}.{name}"
    if not inspect.isfunction(member):

        def value(self: Any) -> Any:
            warnings.warn(text, DeprecationWarning, stacklevel=2)
            return getattr(getattr(self, part), name)

        return property(_marked(value, text), doc=text)

    @wraps(member)
    def forward(self: Any, *arguments: Any, **keywords: Any) -> Any:
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        return getattr(getattr(self, part), name)(*arguments, **keywords)

    return _marked(forward, text)


def _marked(function: Callable[..., Any], text: str) -> Callable[..., Any]:
    """A function with the mark of PEP 702, by which tools know it."""
    vars(function)["__deprecated__"] = text
    return function
