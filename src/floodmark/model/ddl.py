"""Columns as Spark's DDL says them, `id LONG, tags ARRAY<STRING>`, read without Spark."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

from floodmark.model.names import quoted

TYPES = (
    "boolean", "tinyint", "byte", "smallint", "short", "int", "integer", "bigint", "long", "float",
    "real", "double", "decimal", "dec", "numeric", "string", "char", "character", "varchar",
    "binary", "date", "time", "timestamp", "timestamp_ntz", "timestamp_ltz", "void", "variant",
    "geometry", "geography",
)  # fmt: skip
"""Types without parts; intervals have words of their own."""

_SAME = {
    "byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint", "real": "float",
    "dec": "decimal", "numeric": "decimal", "character": "char", "timestamp_ltz": "timestamp",
}  # fmt: skip
"""Words for one type, and the one that stands for all of them."""
_DIGITS = (10, 0)
"""Of a decimal without bounds."""
_BOUNDED = re.compile(r"(\w+)(?:\((\d+)(?:,(\d+))?\))?")

_QUOTES = ("'", '"')
_TOKEN = re.compile(
    r"""--[^\n]*|(`(?:[^`]|``)+`|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\W\d]\w*|\d+|\S)""",
    re.DOTALL,
)
_PLAIN = re.compile(r"[^\W\d]\w*")


MAX_DEPTH = 100
"""Types within types: Spark reads no deeper ones either, and Python would run out of its stack."""


class DdlError(ValueError):
    """What cannot be read, with the words around it and its position in the text."""

    def __init__(self, text: str, position: int) -> None:
        super().__init__(text)
        self.position = position


@dataclass(frozen=True)
class Kind:
    """A type: its words as they are written, and the types or the columns it is made of."""

    word: str
    position: int
    parts: tuple[Kind, ...] = ()
    columns: tuple[Column, ...] = ()

    @cached_property
    def name(self) -> str:
        """The type, whatever it is called: `decimal` for NUMERIC(12,2), `bigint` for LONG."""
        bounded = _BOUNDED.match(self.word)
        word = (bounded[1] if bounded is not None else self.word).lower()
        return _SAME.get(word, word)

    @cached_property
    def digits(self) -> tuple[int, int] | None:
        """How many digits a decimal has, and how many of them behind the point; None for others."""
        if self.name != "decimal":
            return None
        bounded = _BOUNDED.fullmatch(self.word)
        if bounded is None or bounded[2] is None:
            return _DIGITS
        return int(bounded[2]), int(bounded[3] or 0)

    def __str__(self) -> str:
        inner = [str(part) for part in self.parts]
        inner += [f"{plain_or_quoted(each.name)}:{each.kind}" for each in self.columns]
        return f"{self.word}<{','.join(inner)}>" if inner else self.word


@dataclass(frozen=True)
class Column:
    """A column, or a field of a struct."""

    name: str
    kind: Kind
    nullable: bool


def plain_or_quoted(name: str) -> str:
    """The name of a field within a type: quoted where Spark needs it."""
    return name if _PLAIN.fullmatch(name) else quoted(name)


def columns_of(ddl: str) -> dict[str, str]:
    """The columns in their order, each with its type as it is written; raises DdlError.

    >>> columns_of("id LONG NOT NULL, `a b`: array<struct<x: int>> COMMENT 'why'")
    {'id': 'LONG', 'a b': 'array<struct<x:int>>'}
    """
    return {column.name: str(column.kind) for column in read_columns(ddl, TYPES)}


def read_columns(ddl: str, types: Collection[str] | None = None) -> list[Column]:
    """The columns of a text; raises DdlError. Without `types` any word may be a type."""
    found: dict[str, Column] = {}
    for column in _Reader(ddl, types).columns(""):
        if found.setdefault(column.name.lower(), column) is not column:
            raise DdlError(f"column {column.name} is there twice", column.kind.position)
    return list(found.values())


class _Reader:
    """Reads word by word; what is wrong is told with the words around it."""

    def __init__(self, text: str, types: Collection[str] | None) -> None:
        tokens = [match for match in _TOKEN.finditer(text) if match[1]]
        self._words = [token[1] for token in tokens]
        self._positions = [*(token.start() for token in tokens), len(text)]
        self._at = 0
        self._depth = 0
        self._types = types

    def columns(self, closing: str) -> Iterator[Column]:
        """Columns up to a closing bracket, or the end."""
        while True:
            name = self._name()
            self._skip(":")
            yield Column(name, self._type(), self._nullable())
            if not self._skip(","):
                break
        if self._next != closing:
            raise self._wrong(f"a comma or {closing or 'the end'}")
        self._at += bool(closing)

    @property
    def _next(self) -> str:
        return self._words[self._at] if self._at < len(self._words) else ""

    @property
    def _position(self) -> int:
        return self._positions[min(self._at, len(self._words))]

    def _take(self) -> str:
        word = self._next
        self._at += 1
        return word

    def _skip(self, word: str) -> bool:
        is_there = self._next.lower() == word
        self._at += is_there
        return is_there

    def _name(self) -> str:
        if not re.match(r"`.|[^\W\d]", self._next, re.DOTALL):
            raise self._wrong("the name of a column")
        word = self._take()
        return word[1:-1].replace("``", "`") if word[0] == "`" else word

    def _type(self) -> Kind:
        self._check_type(self._next)
        position, word = self._position, self._take()
        kind = word.lower()
        if kind in ("array", "map"):
            with self._deeper(position):
                return Kind(word, position, tuple(self._parts(1 if kind == "array" else 2)))
        if kind == "struct":
            self._expect("<")
            with self._deeper(position):
                return Kind(word, position, columns=tuple(self.columns(">")))
        if kind == "interval":
            return Kind(" ".join([word, *self._interval()]), position)
        return Kind(word + self._numbers(), position)

    @contextmanager
    def _deeper(self, position: int) -> Iterator[None]:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise DdlError(f"types are nested deeper than {MAX_DEPTH}", position)
        yield
        self._depth -= 1

    def _check_type(self, word: str) -> None:
        nested = ("array", "map", "struct", "interval")
        known = nested if self._types is None else (*self._types, *nested)
        if word.lower() in known or (self._types is None and _PLAIN.fullmatch(word)):
            return
        near = difflib.get_close_matches(word.lower(), known, 1)
        raise self._wrong(f"a type{f' such as {near[0]}' if near else ''}")

    def _parts(self, count: int) -> Iterator[Kind]:
        self._expect("<")
        for number in range(count):
            if number:
                self._expect(",")
            yield self._type()
        self._expect(">")

    def _interval(self) -> Iterator[str]:
        words = ("year", "month", "day", "hour", "minute", "second", "to")
        while self._next.lower() in words:
            yield self._take()

    def _numbers(self) -> str:
        """The bounds of a type: (12,2)."""
        if not self._skip("("):
            return ""
        numbers = [self._number()]
        while self._skip(","):
            numbers.append(self._number())
        self._expect(")")
        return f"({','.join(numbers)})"

    def _number(self) -> str:
        if not re.fullmatch("[0-9]+", self._next):  # Spark knows no other digits
            raise self._wrong("a number")
        return self._take()

    def _nullable(self) -> bool:
        """Not after NOT NULL; what else Spark may know of a column is not looked at."""
        nullable = True
        while self._next and self._next not in (",", ">", ")"):
            if self._skip("not"):
                self._expect("null")
                nullable = False
            elif self._skip("comment"):
                self._skip_text()
            elif self._skip("collate"):
                self._take()
            else:
                raise self._wrong("a comma, NOT NULL or COMMENT")
        return nullable

    def _skip_text(self) -> None:
        """A text in quotes; several in a row are one."""
        if not self._next.startswith(_QUOTES):
            raise self._wrong("a comment in quotes")
        while self._next.startswith(_QUOTES):
            self._at += 1

    def _expect(self, word: str) -> None:
        if not self._skip(word):
            raise self._wrong(word.upper() if word.isalpha() else f'"{word}"')

    def _wrong(self, expected: str) -> DdlError:
        before = " ".join(self._words[max(0, self._at - 3) : self._at])
        found = f'"{self._next}"' if self._next else "the end"
        after = f' after "{before}"' if before else ""
        return DdlError(f"{found}{after}, where {expected} should be", self._position)
