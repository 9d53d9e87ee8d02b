"""YAML with places: plain values, and the line and column of every key and value.

YAML 1.2 as people expect it: only `true` and `false` are booleans, dates stay text. Duplicate keys,
tags, keys that are not text and documents that grow or nest without measure are errors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.composer import Composer
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.parser import Parser
from yaml.reader import Reader, ReaderError
from yaml.resolver import BaseResolver
from yaml.scanner import Scanner

from floodmark.config.places import KeyPath, Place, Report, key_name, place_of, shown

MAX_DEPTH = 40
MAX_NODES = 50_000
"""After aliases are followed: nine lines of nested aliases can mean a billion values."""

_TAG = "tag:yaml.org,2002:"
_PLAIN_KINDS = {f"{_TAG}{kind}" for kind in ("str", "int", "float", "bool", "null", "map", "seq")}


class _TooDeepError(yaml.MarkedYAMLError):
    """The document nests further than any project does."""


class _Resolver(BaseResolver):
    """The core schema of YAML 1.2."""


_NUMBERS = list("-+0123456789.")
for _kind, _pattern, _first in (
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", list("tTfF")),
    ("int", r"^(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$", _NUMBERS),
    ("float", r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$", _NUMBERS),
    ("null", r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
):
    _Resolver.add_implicit_resolver(_TAG + _kind, re.compile(_pattern), _first)


class _Loader(Reader, Scanner, Parser, Composer, _Resolver):
    """Composes nodes, counting how deep it is: the composer itself is recursive."""

    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)
        _Resolver.__init__(self)
        self._depth = 0

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise _TooDeepError(problem=f"more than {MAX_DEPTH} levels deep", problem_mark=mark)
        node: Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node


@dataclass
class Document:
    """The values of a file and where each of them stands."""

    data: Any = None
    values: dict[KeyPath, Place] = field(default_factory=dict)
    keys: dict[KeyPath, Place] = field(default_factory=dict)

    def known(self, path: KeyPath) -> KeyPath:
        """The path, or that of the nearest thing around it that is in the file."""
        while path and path not in self.values:
            path = path[:-1]
        return path

    def place(self, path: KeyPath) -> Place:
        """Where a value stands, or the nearest thing around it that is in the file."""
        return self.values.get(self.known(path), Place())

    def key_place(self, path: KeyPath) -> Place:
        """Where the key of a value stands."""
        return self.keys.get(path) or self.place(path)


def read_document(text: str, report: Report) -> Document:
    """The document of a text; what is wrong with it is added to the report."""
    document = Document()
    try:
        node = _compose(text)
    except ReaderError as error:
        _unreadable(report, text, error)
        return document
    except yaml.MarkedYAMLError as error:
        _not_yaml(report, error)
        return document
    if node is None:
        report.add("FM-CONFIG-004", "the file is empty", Place(), allowed="a mapping of keys")
        return document
    document.data = _Builder(document, report).build(node)
    return document


def _compose(text: str) -> Node | None:
    node: Node | None = _Loader(text).get_single_node()
    return node


def _unreadable(report: Report, text: str, error: ReaderError) -> None:
    code = error.character if isinstance(error.character, int) else ord(error.character[:1])
    report.add(
        "FM-CONFIG-002",
        "the file has a character that YAML does not allow",
        place_of(text, error.position),
        found=f"U+{code:04X}",
        allowed="text without control characters",
    )


def _not_yaml(report: Report, error: yaml.MarkedYAMLError) -> None:
    mark = error.problem_mark or error.context_mark
    place = Place(mark.line + 1, mark.column + 1) if mark else Place()
    is_deep = isinstance(error, _TooDeepError)
    report.add(
        "FM-CONFIG-002",
        "the file nests too deeply" if is_deep else "the file is not valid YAML",
        place,
        found="; ".join(part for part in (error.context, error.problem) if part),
        allowed=f"at most {MAX_DEPTH} levels" if is_deep else None,
    )


class _OvergrownError(Exception):
    """The document has too many values; carries where that was noticed."""

    def __init__(self, node: Node, depth: int) -> None:
        self.node, self.depth = node, depth


class _Builder:
    """Turns nodes into plain values, noting places and errors on the way."""

    def __init__(self, document: Document, report: Report) -> None:
        self._document = document
        self._report = report
        self._count = 0

    def build(self, node: Node) -> Any:
        try:
            return self._value(node, ())
        except _OvergrownError as error:
            self._error(
                "FM-CONFIG-002",
                "the file grows beyond measure through its aliases",
                error.node,
                (),
                allowed=f"at most {MAX_NODES:,} values, {MAX_DEPTH} levels deep",
            )
            return None

    def _value(self, node: Node, path: KeyPath) -> Any:
        self._count += 1
        if self._count > MAX_NODES or len(path) > MAX_DEPTH:
            raise _OvergrownError(node, len(path))
        self._document.values[path] = _start(node)
        if node.tag not in _PLAIN_KINDS:
            return self._error(
                "FM-CONFIG-002",
                f"the tag {node.tag.replace(_TAG, '!!')} is not allowed",
                node,
                path,
                allowed="plain values without tags",
            )
        match node:
            case MappingNode():
                return self._mapping(node, path)
            case SequenceNode():
                return [self._value(item, (*path, i)) for i, item in enumerate(node.value)]
        return self._scalar(node, path)

    def _mapping(self, node: MappingNode, path: KeyPath) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, key, value in self._named(node, path):
            inner = (*path, name)
            if name in found:
                first = self._document.keys[inner].line
                self._error(
                    "FM-CONFIG-005",
                    f'key "{name}" is there twice',
                    key,
                    inner,
                    found=f"first on line {first}",
                    allowed="each key once",
                )
                continue
            self._document.keys[inner] = _start(key)
            found[name] = self._value(value, inner)
        return found

    def _named(self, node: MappingNode, path: KeyPath) -> Iterator[tuple[str, Node, Node]]:
        for key, value in node.value:
            if isinstance(key, ScalarNode) and key.tag == f"{_TAG}str":
                yield key.value, key, value
                continue
            found = key.value if isinstance(key, ScalarNode) else f"a {key.id}"
            self._error(
                "FM-CONFIG-004", "a key is not text", key, path, found=found, allowed="text"
            )

    def _scalar(self, node: Node, path: KeyPath) -> Any:
        kind = node.tag.removeprefix(_TAG)
        try:
            return _SCALARS[kind](node.value)
        except (KeyError, ValueError):
            return self._error(
                "FM-CONFIG-004",
                f"a value cannot be read as {kind}",
                node,
                path,
                found=shown(node.value),
                allowed="a value that fits its tag",
            )

    def _error(self, code: str, title: str, node: Node, path: KeyPath, **more: str) -> None:
        # `found` and `allowed` only; mypy cannot see that through **.
        found, allowed = more.get("found"), more.get("allowed")
        self._report.add(
            code, title, _start(node), key=key_name(path), found=found, allowed=allowed
        )


def _integer(text: str) -> int:
    if len(text) > 40:
        raise ValueError(text)
    return int(text, 0) if text.lower().startswith(("0x", "0o")) else int(text)


def _boolean(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


_SCALARS: dict[str, Callable[[str], Any]] = {
    "str": str,
    "int": _integer,
    "float": float,
    "bool": _boolean,
    "null": lambda _: None,
}


def _start(node: Node) -> Place:
    return Place(node.start_mark.line + 1, node.start_mark.column + 1)
