"""JSON with places: the line and column of every key and value.

Strict JSON: no comments, no trailing commas, no NaN. Duplicate keys and documents that nest without
measure are errors.
"""

from __future__ import annotations

import re
from json import JSONDecodeError, JSONDecoder
from typing import Any

from floodmark.config.text.places import KeyPath, Place, Report, key_name
from floodmark.config.text.tree import Document, Entry
from floodmark.config.text.yaml_document import MAX_DEPTH

_SPACE = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_WORDS = {"true": True, "false": False, "null": None}
_MAX_DIGITS = 40
_STRINGS = JSONDecoder()


class _NotJson(ValueError):
    """The text is no JSON from `position` on."""

    def __init__(self, problem: str, position: int) -> None:
        super().__init__(problem)
        self.problem, self.position = problem, position


def read_json(text: str, report: Report, file: str = "") -> Document:
    """The document of a text; what is wrong with it is added to the report."""
    reader = _Reader(text, report, file)
    try:
        return Document(reader.root())
    except _NotJson as error:
        place = reader.place(error.position)
        report.add("FM-CONFIG-002", "the file is not valid JSON", place, found=error.problem)
        return Document()


class _Reader:
    """Walks over the text once."""

    def __init__(self, text: str, report: Report, file: str) -> None:
        self._text, self._report, self._file = text, report, file
        self._at = 0
        self._path: list[str | int] = []
        self._line, self._line_start, self._seen = 1, 0, 0

    def root(self) -> Entry:
        """The one value of the text; raises _NotJson."""
        self._skip()
        if self._at == len(self._text):
            raise _NotJson("the file is empty", 0)
        entry = self._value()
        if self._at < len(self._text):
            raise _NotJson("something follows the end of the document", self._at)
        return entry

    def place(self, position: int) -> Place:
        """The line and column of a position; positions mostly grow, so lines are counted once."""
        if position < self._seen:
            self._line, self._line_start, self._seen = 1, 0, 0
        self._line += self._text.count("\n", self._seen, position)
        newline = self._text.rfind("\n", self._seen, position)
        self._line_start = newline + 1 if newline >= 0 else self._line_start
        self._seen = position
        return Place(self._line, position - self._line_start + 1, self._file)

    def _skip(self) -> None:
        found = _SPACE.match(self._text, self._at)
        self._at = found.end() if found else self._at

    def _value(self) -> Entry:
        if len(self._path) > MAX_DEPTH:
            raise _NotJson(f"more than {MAX_DEPTH} levels deep", self._at)
        place = self.place(self._at)
        first = self._text[self._at : self._at + 1]
        if first == "{":
            entry = self._mapping(place)
        elif first == "[":
            entry = self._list(place)
        else:
            entry = Entry(self._scalar(first), place)
        self._skip()
        return entry

    def _scalar(self, first: str) -> Any:
        if first == '"':
            return self._string()
        if (number := _NUMBER.match(self._text, self._at)) is not None:
            self._at = number.end()
            if len(number[0]) > _MAX_DIGITS:
                raise _NotJson(f"a number of {len(number[0])} characters", number.start())
            return float(number[0]) if number[1] or number[2] else int(number[0])
        for word, value in _WORDS.items():
            if self._text.startswith(word, self._at):
                self._at += len(word)
                return value
        raise _NotJson("a value is expected", self._at)

    def _string(self) -> str:
        try:
            text, self._at = _STRINGS.raw_decode(self._text, self._at)
        except JSONDecodeError as error:
            raise _NotJson(error.msg, min(error.pos, len(self._text))) from None
        return str(text)

    def _list(self, place: Place) -> Entry:
        items: list[Entry] = []
        self._at += 1
        self._skip()
        while not self._ends("]", is_first=not items):
            self._path.append(len(items))
            items.append(self._value())
            self._path.pop()
        return Entry(items, place)

    def _mapping(self, place: Place) -> Entry:
        values: dict[str, Entry] = {}
        keys: dict[str, Place] = {}
        self._at += 1
        self._skip()
        while not self._ends("}", is_first=not keys):
            at = self.place(self._at)
            name = self._key()
            self._path.append(name)
            entry = self._value()
            if name in values:
                self._twice(tuple(self._path), at, keys[name])
            else:
                values[name], keys[name] = entry, at
            self._path.pop()
        return Entry(values, place, keys)

    def _ends(self, closing: str, *, is_first: bool) -> bool:
        """Whether a mapping or list ends here; else the comma before its next part is taken."""
        here = self._text[self._at : self._at + 1]
        if here == closing:
            self._at += 1
            return True
        if not is_first:
            if here != ",":
                raise _NotJson(f'"," or "{closing}" is expected', self._at)
            self._at += 1
            self._skip()
        return False

    def _key(self) -> str:
        if self._text[self._at : self._at + 1] != '"':
            raise _NotJson("a key in double quotes is expected", self._at)
        name = self._string()
        self._skip()
        if self._text[self._at : self._at + 1] != ":":
            raise _NotJson('":" is expected', self._at)
        self._at += 1
        self._skip()
        return name

    def _twice(self, path: KeyPath, place: Place, first: Place) -> None:
        self._report.add(
            "FM-CONFIG-005",
            f'key "{path[-1]}" is there twice',
            place,
            key=key_name(path),
            found=f"first on line {first.line}",
            allowed="each key once",
        )
