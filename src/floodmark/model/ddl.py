"""Columns as Spark's DDL says them, `id LONG, tags ARRAY<STRING>`, read without Spark."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

TYPES = (
    "boolean", "tinyint", "byte", "smallint", "short", "int", "integer", "bigint", "long", "float",
    "real", "double", "decimal", "dec", "numeric", "string", "char", "character", "varchar",
    "binary", "date", "time", "timestamp", "timestamp_ntz", "timestamp_ltz", "void", "variant",
    "geometry", "geography",
)  # fmt: skip
"""Types without parts; intervals have words of their own."""

_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)+`)|('(?:[^'\\]|\\.)*')|([^\W\d]\w*|\d+)|(.))", re.DOTALL)


def columns_of(ddl: str) -> dict[str, str]:
    """The columns in their order, each with its type as it is written; raises ValueError.

    >>> columns_of("id LONG NOT NULL, `a b`: array<struct<x: int>> COMMENT 'why'")
    {'id': 'LONG', 'a b': 'array<struct<x:int>>'}
    """
    reader = _Reader(ddl)
    found: dict[str, str] = {}
    for name, kind in reader.columns(""):
        if name.lower() in (known.lower() for known in found):
            raise ValueError(f"column {name} is there twice")
        found[name] = kind
    return found


class _Reader:
    """Reads word by word; what is wrong is told with the words around it."""

    def __init__(self, text: str) -> None:
        self._words = [match[0].strip() for match in _TOKEN.finditer(text) if match[0].strip()]
        self._at = 0

    def columns(self, closing: str) -> Iterator[tuple[str, str]]:
        """Columns up to a closing bracket, or the end."""
        while True:
            name = self._name()
            self._skip(":")
            kind = self._type()
            self._skip_remarks()
            yield name, kind
            if not self._skip(","):
                break
        if self._next != closing:
            raise self._wrong(f"a comma or {closing or 'the end'}")
        self._at += bool(closing)

    @property
    def _next(self) -> str:
        return self._words[self._at] if self._at < len(self._words) else ""

    def _take(self) -> str:
        word = self._next
        self._at += 1
        return word

    def _skip(self, word: str) -> bool:
        is_there = self._next.lower() == word
        self._at += is_there
        return is_there

    def _name(self) -> str:
        if not re.match(r"`|[^\W\d]", self._next):
            raise self._wrong("the name of a column")
        word = self._take()
        return word[1:-1].replace("``", "`") if word[0] == "`" else word

    def _type(self) -> str:
        word = self._take()
        kind = word.lower()
        if kind in ("array", "map"):
            return f"{word}<{','.join(self._parts(1 if kind == 'array' else 2))}>"
        if kind == "struct":
            self._expect("<")
            return f"{word}<{','.join(f'{name}:{each}' for name, each in self.columns('>'))}>"
        if kind == "interval":
            return " ".join([word, *self._interval()])
        if kind not in TYPES:
            self._at -= 1
            near = difflib.get_close_matches(kind, [*TYPES, "array", "map", "struct"], 1)
            raise self._wrong(f"a type{f' such as {near[0]}' if near else ''}")
        return word + self._numbers()

    def _parts(self, count: int) -> Iterator[str]:
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
        numbers = [self._take()]
        while self._skip(","):
            numbers.append(self._take())
        self._expect(")")
        if not all(number.isdigit() for number in numbers):
            self._at -= 2
            raise self._wrong("a number")
        return f"({','.join(numbers)})"

    def _skip_remarks(self) -> None:
        """NOT NULL, COMMENT, COLLATE; what else Spark may know of a column is not looked at."""
        while self._next and self._next not in (",", ">", ")"):
            if self._skip("not"):
                self._expect("null")
            elif self._skip("comment"):
                if self._take()[:1] != "'":
                    self._at -= 1
                    raise self._wrong("a comment in quotes")
            elif self._skip("collate"):
                self._take()
            else:
                raise self._wrong("a comma, NOT NULL or COMMENT")

    def _expect(self, word: str) -> None:
        if not self._skip(word):
            raise self._wrong(word.upper() if word.isalpha() else f'"{word}"')

    def _wrong(self, expected: str) -> ValueError:
        before = " ".join(self._words[max(0, self._at - 3) : self._at])
        found = f'"{self._next}"' if self._next else "the end"
        after = f' after "{before}"' if before else ""
        return ValueError(f"{found}{after}, where {expected} should be")
