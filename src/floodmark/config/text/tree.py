"""Values with their places: what the YAML of a project becomes before it is checked.

Entries are shared (an alias is the entry of its anchor) and never changed: whoever needs another
value makes another entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any, TypeGuard

from pydantic import BaseModel

from floodmark.config.text.places import KeyPath, Place

Values = dict[str, "Entry"]

PYTHON = "<python>"
"""What stands in the place of a file for values that were given in Python."""

NAMED_LISTS = {"pipelines": "pipeline", "nodes": "name", "streams": "pipelineId"}
"""Lists whose items have names, and the key of the name: overlays change them item by item."""


class Entry:
    """A value and where it stands: a scalar, a mapping or a list of entries."""

    __slots__ = ("has_references", "height", "keys", "place", "size", "value")

    def __init__(self, value: Any, place: Place, keys: dict[str, Place] | None = None) -> None:
        self.value = value
        self.place = place
        self.keys = keys
        """For a mapping: where each of its keys stands."""
        if keys is not None:
            self._measure(value.values())
        elif type(value) is list:
            self._measure(value)
        else:
            self.size = 1
            self.height = 0
            self.has_references = type(value) is str and "${" in value

    def _measure(self, inner: Iterable[Entry]) -> None:
        """Note how much there is inside; a scalar has no height, an empty mapping has."""
        size, height, has_references = 1, 0, False
        for entry in inner:
            size += entry.size
            height = max(height, entry.height)
            has_references = has_references or entry.has_references
        self.size, self.height, self.has_references = size, height + 1, has_references

    @property
    def is_mapping(self) -> bool:
        return self.keys is not None

    @property
    def is_list(self) -> bool:
        return type(self.value) is list

    def get(self, key: str) -> Entry | None:
        """The entry of a key of a mapping; None where there is none."""
        return self.value.get(key) if self.keys is not None else None

    def key_place(self, key: str) -> Place:
        """Where a key of a mapping stands."""
        return (self.keys or {}).get(key, self.place)

    def having(self, key: str, entry: Entry, place: Place | None = None) -> Entry:
        """This mapping with another value of a key."""
        keys = {**(self.keys or {}), key: place or self.key_place(key)}
        return Entry({**self.value, key: entry}, self.place, keys)

    def without(self, key: str) -> Entry:
        """This mapping without a key."""
        values = {k: v for k, v in self.value.items() if k != key}
        keys = {k: v for k, v in (self.keys or {}).items() if k != key}
        return Entry(values, self.place, keys)

    def plain(self) -> Any:
        """The value without places."""
        if self.keys is not None:
            return {k: e.plain() if e.height else e.value for k, e in self.value.items()}
        if type(self.value) is list:
            return [e.plain() if e.height else e.value for e in self.value]
        return self.value

    def leaves(self, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Entry]]:
        """Every scalar, and every empty mapping or list, with its path."""
        inner: Any = ()
        if self.keys is not None:
            inner = self.value.items()
        elif type(self.value) is list:
            inner = enumerate(self.value)
        if not inner or not self.value:
            yield path, self
            return
        for key, entry in inner:
            yield from entry.leaves((*path, key))


def is_named(entry: Entry | None, key: str) -> TypeGuard[Entry]:
    """Whether an entry is a mapping that has text under a key."""
    named = entry.get(key) if entry is not None else None
    return named is not None and isinstance(named.value, str)


@dataclass(frozen=True)
class Document:
    """The values of a project and where each of them stands."""

    root: Entry | None = None

    @cached_property
    def data(self) -> Any:
        """The values without places."""
        return self.root.plain() if self.root else None

    def known(self, path: KeyPath) -> KeyPath:
        """The path, or that of the nearest thing around it that is in the file."""
        return path[: len(self._along(path)) - 1]

    def entry(self, path: KeyPath) -> Entry | None:
        """The entry at a path; None if there is none."""
        along = self._along(path)
        return along[-1] if len(along) == len(path) + 1 else None

    def place(self, path: KeyPath) -> Place:
        """Where a value stands, or the nearest thing around it that is in the file."""
        along = self._along(path)
        return along[-1].place if along else Place()

    def key_place(self, path: KeyPath) -> Place:
        """Where the key of a value stands."""
        parent = self.entry(path[:-1]) if path else None
        key = path[-1] if path else None
        if parent is None or parent.keys is None or not isinstance(key, str):
            return self.place(path)
        return parent.key_place(key)

    def _along(self, path: KeyPath) -> list[Entry]:
        """The entries from the root to the last one of the path that is there."""
        entry = self.root
        found = []
        parts = iter(path)
        while entry is not None:
            found.append(entry)
            part = next(parts, None)
            entry = _step(entry, part)
        return found


def _step(entry: Entry, part: str | int | None) -> Entry | None:
    if isinstance(part, str):
        return entry.get(part)
    if isinstance(part, int) and type(entry.value) is list and part < len(entry.value):
        found: Entry = entry.value[part]
        return found
    return None


def merged(base: Entry, over: Entry, path: KeyPath = ()) -> Entry:
    """The base with what an overlay says in its place.

    Mappings are joined key by key, pipelines and nodes name by name; everything else is replaced. A
    connection of another type replaces the one it overlays.
    """
    if base.keys is not None and over.keys is not None and not _is_other_type(base, over, path):
        return _joined(base, over, path)
    name = NAMED_LISTS.get(str(path[-1])) if path else None
    if name and type(base.value) is list and type(over.value) is list:
        return _joined_by_name(base, over, path, name)
    return over


def _is_other_type(base: Entry, over: Entry, path: KeyPath) -> bool:
    before, after = base.get("type"), over.get("type")
    is_connection = len(path) == 2 and path[0] == "connections"
    return is_connection and bool(before and after) and _scalar(before) != _scalar(after)


def _scalar(entry: Entry | None) -> Any:
    return entry.value if entry is not None and not entry.is_mapping else None


def _joined(base: Entry, over: Entry, path: KeyPath) -> Entry:
    values: Values = dict(base.value)
    for key, entry in over.value.items():
        values[key] = merged(values[key], entry, (*path, key)) if key in values else entry
    return Entry(values, base.place, {**(base.keys or {}), **(over.keys or {})})


def _joined_by_name(base: Entry, over: Entry, path: KeyPath, name: str) -> Entry:
    items: list[Entry] = list(base.value)
    where = {item.value[name].value: i for i, item in enumerate(items) if is_named(item, name)}
    for item in over.value:
        position = where.get(item.value[name].value) if is_named(item, name) else None
        if position is None:
            items.append(item)
        else:
            items[position] = merged(items[position], item, (*path, position))
    return Entry(items, base.place)


# Values of Python ---------------------------------------------------------------------------------


def python_entry(value: Any) -> Entry:
    """A value of Python as an entry, as if it stood in a file."""
    return _numbered(value, count(1))


def _numbered(value: Any, numbers: Iterator[int]) -> Entry:
    """A value of Python as an entry; the number tells its place from those of the others."""
    place = Place(0, next(numbers), PYTHON)
    if isinstance(value, BaseModel):
        value = value.model_dump(by_alias=True, exclude_unset=True)
    if isinstance(value, Mapping):
        values = {str(key): _numbered(each, numbers) for key, each in value.items()}
        return Entry(values, place, {key: entry.place for key, entry in values.items()})
    if isinstance(value, list | tuple):
        return Entry([_numbered(each, numbers) for each in value], place)
    return Entry(value, place)
