"""YAML with places: the line and column of every key and value.

YAML 1.2 as people expect it: only `true` and `false` are booleans, dates stay text. Duplicate keys,
tags, keys that are not text and documents that grow or nest without measure are errors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import yaml
from yaml.composer import ComposerError
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)
from yaml.parser import Parser
from yaml.reader import Reader, ReaderError
from yaml.scanner import Scanner

from floodmark.config.text.places import KeyPath, Place, Report, key_name, place_of
from floodmark.config.text.safety import safely_shown
from floodmark.config.text.tree import Document, Entry

MAX_DEPTH = 40
MAX_VALUES = 250_000
"""After aliases are followed: nine lines of nested aliases can mean a billion values."""

_TAG = "tag:yaml.org,2002:"
_PLAIN_KINDS = {f"{_TAG}{kind}" for kind in ("str", "int", "float", "bool", "null", "map", "seq")}

# The core schema: what a plain scalar may be other than text.
_WORDS = {
    **dict.fromkeys(("true", "True", "TRUE", "false", "False", "FALSE"), "bool"),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), "null"),
}
_INTEGER = re.compile(r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_STARTS_OF_NUMBERS = frozenset("-+0123456789.")


class _PlainParser(Reader, Scanner, Parser):
    """PyYAML's parser without its C twin: slower, with places and words that are the same anywhere."""

    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)


def _fast_parser() -> type[Any]:
    try:
        from yaml import cyaml
    except ImportError:  # PyYAML was built without libyaml
        return _PlainParser
    parser: type[Any] = vars(cyaml)["CParser"]
    return parser


_FastParser = _fast_parser()


class _TooDeepError(yaml.MarkedYAMLError):
    """The document nests further than any project does."""


class _OvergrownError(yaml.MarkedYAMLError):
    """The document has too many values."""


def read_document(text: str, report: Report, file: str = "") -> Document:
    """The document of a text; what is wrong with it is added to the report."""
    for parser in (_FastParser, _PlainParser):
        builder = _Builder(file)
        try:
            root = builder.root(iter(parser(text).get_event, None))
        except ReaderError as error:
            if parser is _PlainParser:
                _unreadable(report, text, error, file)
        except yaml.MarkedYAMLError as error:
            if parser is _PlainParser:
                _not_yaml(report, error, file)
        else:
            return _document(root, builder, report, file)
    return Document()


def _document(root: Entry | None, builder: _Builder, report: Report, file: str) -> Document:
    if root is None:
        place = Place(file=file)
        report.add("FM-CONFIG-004", "the file is empty", place, allowed="a mapping of keys")
    for code, title, place, path, found, allowed in builder.errors:
        report.add(code, title, place, key=key_name(path), found=found, allowed=allowed)
    return Document(root)


def _unreadable(report: Report, text: str, error: ReaderError, file: str) -> None:
    code = error.character if isinstance(error.character, int) else ord(error.character[:1])
    report.add(
        "FM-CONFIG-002",
        "the file has a character that YAML does not allow",
        place_of(text, error.position)._replace(file=file),
        found=f"U+{code:04X}",
        allowed="text without control characters",
    )


def _not_yaml(report: Report, error: yaml.MarkedYAMLError, file: str) -> None:
    mark = error.problem_mark or error.context_mark
    place = Place(mark.line + 1, mark.column + 1, file) if mark else Place(file=file)
    title, allowed = _TITLES.get(type(error), ("the file is not valid YAML", None))
    found = "; ".join(part for part in (error.context, error.problem) if part)
    report.add("FM-CONFIG-002", title, place, found=found, allowed=allowed)


_TITLES: dict[type[Exception], tuple[str, str]] = {
    _TooDeepError: ("the file nests too deeply", f"at most {MAX_DEPTH} levels"),
    _OvergrownError: (
        "the file grows beyond measure through its aliases",
        f"at most {MAX_VALUES:,} values",
    ),
}


class _Builder:
    """Turns the events of a parser into entries, noting errors on the way."""

    def __init__(self, file: str) -> None:
        self.errors: list[tuple[str, str, Place, KeyPath, str | None, str | None]] = []
        self._file = file
        self._anchors: dict[str, Entry | None] = {}
        self._path: list[str | int] = []
        self._size = 0

    def root(self, events: Iterator[Event]) -> Entry | None:
        """The entry of the one document; None if there is nothing in the file."""
        self._events = events
        root: Entry | None = None
        first: Event | None = None
        for event in events:
            if isinstance(event, DocumentStartEvent):
                if first is not None:
                    raise ComposerError(
                        "expected a single document in the stream",
                        _mark(first),
                        "but found another document",
                        _mark(event),
                    )
                first = event
                root = self._entry(next(events))
            elif isinstance(event, StreamEndEvent):
                break
        return root

    def _entry(self, event: Event) -> Entry:
        if type(event) is ScalarEvent and event.anchor is None and event.tag is None:
            return self._plain_scalar(event)
        if isinstance(event, AliasEvent):
            return self._aliased(event)
        if len(self._path) >= MAX_DEPTH:
            problem = f"more than {MAX_DEPTH} levels deep"
            raise _TooDeepError(problem=problem, problem_mark=_mark(event))
        self._grow(1, event)
        anchor = getattr(event, "anchor", None)
        if anchor is not None:
            self._anchors[anchor] = None
        entry = self._built(event)
        if anchor is not None:
            self._anchors[anchor] = entry
        return entry

    def _plain_scalar(self, event: ScalarEvent) -> Entry:
        """Most of a file: a scalar without anchor and tag."""
        self._grow(1, event)
        place = self._place(event)
        value = event.value if _kind_of(event) == "str" else self._scalar(event, place)
        return Entry(value, place)

    def _aliased(self, event: AliasEvent) -> Entry:
        entry = self._anchors.get(str(event.anchor))
        if entry is None:
            is_open = event.anchor in self._anchors
            problem = f"the alias {event.anchor!r} {'holds itself' if is_open else 'is undefined'}"
            raise ComposerError(None, None, problem, _mark(event))
        if len(self._path) + entry.height > MAX_DEPTH:
            problem = f"more than {MAX_DEPTH} levels deep through an alias"
            raise _TooDeepError(problem=problem, problem_mark=_mark(event))
        self._grow(entry.size, event)
        return entry

    def _grow(self, size: int, event: Event) -> None:
        self._size += size
        if self._size > MAX_VALUES:
            problem = f"more than {MAX_VALUES:,} values"
            raise _OvergrownError(problem=problem, problem_mark=_mark(event))

    def _built(self, event: Event) -> Entry:
        place = self._place(event)
        if isinstance(event, ScalarEvent):
            return Entry(self._scalar(event, place), place)
        self._refuse_tag(event, place)
        if isinstance(event, MappingStartEvent):
            return self._mapping(place)
        assert isinstance(event, SequenceStartEvent)  # noqa: S101  (nothing else can begin a value)
        return self._sequence(place)

    def _sequence(self, place: Place) -> Entry:
        items: list[Entry] = []
        for event in self._events:
            if isinstance(event, SequenceEndEvent):
                break
            self._path.append(len(items))
            items.append(self._entry(event))
            self._path.pop()
        return Entry(items, place)

    def _mapping(self, place: Place) -> Entry:
        values: dict[str, Entry] = {}
        keys: dict[str, Place] = {}
        for event in self._events:
            if isinstance(event, MappingEndEvent):
                break
            name = self._key(event)
            self._path.append("" if name is None else name)
            entry = self._entry(next(self._events))
            if name is not None and name in values:
                self._twice(name, self._place(event), keys[name])
            elif name is not None:
                values[name], keys[name] = entry, self._place(event)
            self._path.pop()
        return Entry(values, place, keys)

    def _key(self, event: Event) -> str | None:
        """The text of a key; None, with an error, if it is not text."""
        if isinstance(event, ScalarEvent) and event.anchor is None and _kind_of(event) == "str":
            text: str = event.value
            return text
        found = self._entry(event)
        if isinstance(event, AliasEvent) and isinstance(found.value, str):
            return found.value
        text = str(found.value) if not (found.is_mapping or found.is_list) else "not a scalar"
        place = self._place(event)
        self._error("FM-CONFIG-004", "a key is not text", place, found=text, allowed="text")
        return None

    def _twice(self, name: str, place: Place, first: Place) -> None:
        self._error(
            "FM-CONFIG-005",
            f'key "{name}" is there twice',
            place,
            found=f"first on line {first.line}",
            allowed="each key once",
        )

    def _scalar(self, event: ScalarEvent, place: Place) -> Any:
        kind = _kind_of(event)
        if kind == "str":
            return event.value
        if kind is None:
            return self._refuse_tag(event, place)
        try:
            return _SCALARS[kind](event.value)
        except (KeyError, ValueError):
            return self._error(
                "FM-CONFIG-004",
                f"a value cannot be read as {kind}",
                place,
                found=safely_shown(tuple(self._path), event.value),
                allowed="a value that fits its tag",
            )

    def _refuse_tag(self, event: Event, place: Place) -> None:
        tag = getattr(event, "tag", None)
        if tag is None or tag == "!" or tag in _PLAIN_KINDS:
            return
        self._error(
            "FM-CONFIG-002",
            f"the tag {tag.replace(_TAG, '!!')} is not allowed",
            place,
            allowed="plain values without tags",
        )

    def _place(self, event: Event) -> Place:
        mark: Any = event.start_mark
        # Past the constructor in Python: it takes twice as long, and every key and value has one.
        return tuple.__new__(Place, (mark.line + 1, mark.column + 1, self._file))

    def _error(
        self,
        code: str,
        title: str,
        place: Place,
        *,
        found: str | None = None,
        allowed: str | None = None,
    ) -> None:
        self.errors.append((code, title, place, tuple(self._path), found, allowed))


def _mark(event: Event) -> Any:
    """Where an event starts: a mark of either parser, with line and column from 0."""
    return event.start_mark


def _kind_of(event: ScalarEvent) -> str | None:
    """str, int, float, bool or null; None for a tag that is not plain."""
    tag = event.tag
    if tag is not None and tag != "!":
        return tag.removeprefix(_TAG) if tag in _PLAIN_KINDS else None
    if tag == "!" or not event.implicit[0]:
        return "str"
    text = event.value
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _STARTS_OF_NUMBERS:
        return "str"
    return "int" if _INTEGER.fullmatch(text) else "float" if _FLOAT.fullmatch(text) else "str"


def _integer(text: str) -> int:
    if len(text) > 40:
        raise ValueError(text)
    return int(text, 0) if text.lower().startswith(("0x", "0o")) else int(text)


def _boolean(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


_SCALARS: dict[str, Callable[[str], Any]] = {
    "int": _integer,
    "float": float,
    "bool": _boolean,
    "null": lambda _: None,
}
