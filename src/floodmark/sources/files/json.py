"""JSON that Spark would read as other values, or not to its end, without a word.

values      of two in one line the second is left out, and so is what stands behind the last bracket
decimals    as texts: 1,5 becomes 15, and 1.005 becomes 1.01
times       a number counts seconds: milliseconds become a year that no calendar has, as a number in
            quotes does; a time of day becomes one of today
columns     one that no record has is NULL in every row
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from floodmark.deltalog import Storage
from floodmark.model.ddl import Column, Kind
from floodmark.sources.files.values import (
    BLOCK_BYTES,
    OF_NO_DATE,
    blocks,
    has_no_date,
    is_exact,
    is_time,
    opened,
    scale_of,
)

MOST_BYTES_OF_A_LINE = 256 * 2**20
"""A line of JSON that is longer is not looked at."""
_LF = ord("\n")
_NEIGHBOURS = re.compile(rb"[}\]]\s*,?\s*[{\[]")
"""What stands between two values, or two parts of one."""
_BEHIND = {
    False: re.compile(rb"[}\]][^\S\n]*[^\s,}\]]"),
    True: re.compile(rb"[}\]]\s*[^\s,}\]]"),
}
"""What stands behind a value, unless it is within another one or within a text; by whether a value
may have many lines."""
_TEXT = re.compile(rb'"(?:[^"\\\n]|\\.)*"')
_STEPS = {ord("{"): 1, ord("["): 1, ord("}"): -1, ord("]"): -1}
_NO_BRACKETS = bytes(set(range(256)) - {*b"{}[]\n"})
_KEY = re.compile(rb'"\s*:')
_LAST_SECOND = 253_402_300_799
"""The end of the year 9999."""


@dataclass(frozen=True, slots=True)
class JsonLook:
    """What a file is, as far as Spark would not tell."""

    fault: str | None = None
    """Where it cannot be read as it is meant, and why."""
    absent: tuple[str, ...] = ()
    """The columns that no record of the file has; none where it has no record."""


@dataclass(frozen=True)
class JsonFile:
    """One file, looked at without Spark."""

    path: str
    storage: Storage
    spans_lines: bool = False
    """Whether the file is one value, over as many lines as it likes."""
    columns: Sequence[Column] = ()
    """Those of the node; none where Spark finds them by itself."""
    checks_decimals: bool = True
    """Not where the node says how numbers are written."""
    checks_times: bool = True
    block_bytes: int = field(default=BLOCK_BYTES)

    def look(self) -> JsonLook:
        """What Spark would not tell; the fault is the first one, with its line."""
        gate = _Gate.of(
            self.columns, has_decimals=self.checks_decimals, has_times=self.checks_times
        )
        absent = {column.name: _key(column.name) for column in self.columns}
        has_keys = False
        first = 1
        with opened(self.path, self.storage) as file:
            for lines in _lines(blocks(file, self.block_bytes), whole=self.spans_lines):
                fault = self._fault_in(lines, first, gate)
                if fault is not None:
                    return JsonLook(fault)
                has_keys = has_keys or _KEY.search(lines) is not None
                absent = {n: key for n, key in absent.items() if key.search(lines) is None}
                first += lines.count(b"\n")
        return JsonLook(absent=tuple(absent) if has_keys else ())

    def _fault_in(self, lines: bytes, first: int, gate: _Gate) -> str | None:
        plain = _TEXT.sub(b'""', lines)
        number = _second_in(plain, spans_lines=self.spans_lines)
        if number is not None:
            what = "behind the end of the first one" if self.spans_lines else "in one line"
            return f"line {first + number:,}: two values {what}"
        goes_on = _closes_too_often(plain) or _BEHIND[self.spans_lines].search(plain) is not None
        if not (goes_on or gate.is_open(lines)):
            return None
        for number, text in self._values(lines):
            why = _behind_the_value(text) or gate.misfit(text)
            if why is not None:
                return f"line {first + number:,}: {why}"
        return None

    def _values(self, lines: bytes) -> Iterator[tuple[int, str]]:
        """Each value, with the number of lines before it."""
        text = lines.decode("utf-8", "replace")
        if self.spans_lines:
            yield 0, text
        else:
            yield from enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"))


def _lines(pieces: Iterator[bytes], *, whole: bool) -> Iterator[bytes]:
    """Whole lines, as many as a block has."""
    rest = b""
    for block in pieces:
        text = rest + block
        end = 0 if whole else text.rfind(b"\n") + 1
        if end:
            yield text[:end]
        rest = text[end:]
        if len(rest) > MOST_BYTES_OF_A_LINE:
            return
    yield rest


def _second_in(text: bytes, *, spans_lines: bool) -> int | None:
    """How many lines before the first bracket that opens behind the end of a value; of a text whose
    own texts are empty.
    """
    if _NEIGHBOURS.search(text) is None:
        return None
    if b"\r" in text:
        text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    depth = line = 0
    has_ended = False
    for byte in text.translate(None, _NO_BRACKETS):
        if byte == _LF:
            line += 1
            if not spans_lines:
                depth, has_ended = 0, False
            continue
        if has_ended and _STEPS[byte] > 0:
            return line
        depth += _STEPS[byte]
        has_ended = depth <= 0
    return None


def _closes_too_often(text: bytes) -> bool:
    return text.count(b"{") != text.count(b"}") or text.count(b"[") != text.count(b"]")


def _behind_the_value(text: str) -> str | None:
    begun = text.lstrip()
    if not begun.startswith(("{", "[")):
        return None
    try:
        _, end = json.JSONDecoder(strict=False).raw_decode(begun)
    except (ValueError, RecursionError):
        return None  # Spark refuses it
    rest = begun[end:].strip().lstrip(",")
    return "something stands behind the end of the value" if rest else None


# Values of declared types -------------------------------------------------------------------------


@dataclass(frozen=True)
class _Gate:
    """Whether a text may have values that Spark changes: a quick look at bytes, then a true one."""

    columns: Sequence[Column]
    has_decimals: bool
    has_times: bool
    looks: tuple[tuple[re.Pattern[bytes], int | None], ...]
    """What such values look like, and the digits that a decimal may have behind the point."""

    @classmethod
    def of(cls, columns: Sequence[Column], *, has_decimals: bool, has_times: bool) -> _Gate:
        looks: list[tuple[re.Pattern[bytes], int | None]] = []
        for name, kind in _leaves("", Kind("struct", 0, columns=tuple(columns))):
            scale = scale_of(kind.word)
            key = rb'"(?:%s)"\s*:\s*' % b"|".join(_spellings(name)) if name else rb"[:\[,]\s*"
            if scale is not None and has_decimals:
                looks.append((re.compile(key + rb'"((?:[^"\\]|\\.)*)"'), scale))
            elif is_time(kind.word) and has_times:
                looks.append(
                    (re.compile(key + rb'(?:-?\d{12,}|"\s*(?:[+-]?\d{5,}\s*"|T?\d{1,2}:))'), None)
                )
        return cls(columns, has_decimals, has_times, tuple(looks))

    def is_open(self, text: bytes) -> bool:
        for look, scale in self.looks:
            for found in look.finditer(text):
                if scale is None or not is_exact(found[1].decode("utf-8", "replace"), scale):
                    return True
        return False

    def misfit(self, text: str) -> str | None:
        """Why Spark would change the first such value of a record; None for what it refuses."""
        if not self.looks or not text.strip():
            return None
        try:
            value = json.loads(text, strict=False)
        except (ValueError, RecursionError):
            return None
        struct = Kind("struct", 0, columns=tuple(self.columns))
        for record in value if isinstance(value, list) else [value]:
            if (why := self._why(record, struct, "")) is not None:
                return why
        return None

    def _why(self, value: Any, kind: Kind, name: str) -> str | None:
        scale = scale_of(kind.word)
        if scale is not None and isinstance(value, str) and self.has_decimals:
            fault = f"column {name} is not exactly a {kind}, or can be meant in two ways"
            return None if is_exact(value, scale) else fault
        if not (is_time(kind.word) and self.has_times):
            pass
        elif isinstance(value, str) and has_no_date(value):
            return f"column {name}: {OF_NO_DATE} is no {kind}"
        elif isinstance(value, int) and abs(value) > _LAST_SECOND:
            return f"column {name}: a number is read as seconds since 1970, and these are too many"
        return next((w for part in _parts(value, kind, name) if (w := self._why(*part))), None)


def _parts(value: Any, kind: Kind, name: str) -> Iterator[tuple[Any, Kind, str]]:
    """What a value is made of, each with its type and name."""
    if isinstance(value, dict):
        kinds = {each.name: each.kind for each in kind.columns}
        if kind.word.lower() == "map":
            kinds = dict.fromkeys(value, kind.parts[1])
        for key, each in kinds.items():
            if key in value:
                yield value[key], each, f"{name}.{key}" if name else key
    elif isinstance(value, list) and kind.word.lower() == "array":
        for each in value:
            yield each, kind.parts[0], name


def _leaves(name: str, kind: Kind) -> Iterator[tuple[str, Kind]]:
    """The types without parts, each with its key; those of lists and maps have none of their own."""
    if not (kind.parts or kind.columns):
        yield name, kind
    for part in kind.parts:
        yield from _leaves("", part)
    for column in kind.columns:
        yield from _leaves(column.name, column.kind)


def _key(name: str) -> re.Pattern[bytes]:
    return re.compile(rb'"(?:%s)"\s*:' % b"|".join(_spellings(name)))


def _spellings(name: str) -> list[bytes]:
    """A name as it may stand between quotes: as it is, or with what is not ASCII escaped."""
    escaped = json.dumps(name)[1:-1]
    forms = [json.dumps(name, ensure_ascii=False)[1:-1].encode(), escaped.encode()]
    forms.append(re.sub(r"\\u(....)", lambda m: f"\\u{m[1].upper()}", escaped).encode())
    return [re.escape(form) for form in dict.fromkeys(forms)]
