"""`dataclasses.replace` for frozen values with slots, at half of its cost.

A fold is little else than such copies. Only for classes with `slots=True` and no `__post_init__`:
the values are copied from slot to slot, no `__init__` is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["replace"]

if TYPE_CHECKING:
    from dataclasses import replace  # so that type checkers know the fields
else:
    from collections.abc import Callable
    from dataclasses import fields
    from functools import cache
    from operator import attrgetter
    from typing import Any

    @cache
    def _slots(kind: type) -> tuple[Callable[[Any], tuple[Any, ...]], dict[str, Any]]:
        """What reads all fields of a class at once, and what sets each of them."""
        if hasattr(kind, "__post_init__") or not hasattr(kind, "__slots__"):
            raise TypeError(f"{kind.__name__} is not a plain dataclass with slots")
        names = [field.name for field in fields(kind)]
        read = attrgetter(*names) if len(names) > 1 else lambda value: (getattr(value, names[0]),)
        return read, {name: getattr(kind, name).__set__ for name in names}

    def replace(value: Any, /, **changes: Any) -> Any:
        """A copy with some fields changed; raises KeyError for one that the class does not have."""
        kind = type(value)
        read, setters = _slots(kind)
        copy = object.__new__(kind)
        for put, kept in zip(setters.values(), read(value), strict=True):
            put(copy, kept)
        for name, changed in changes.items():
            setters[name](copy, changed)
        return copy
