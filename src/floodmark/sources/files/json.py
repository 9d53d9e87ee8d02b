"""JSON that Spark would read as other values, or not to its end, without a word.

values      of two in one line the second is left out, and so is what stands behind the last bracket
decimals    as texts: 1,5 becomes 15, and 1.005 becomes 1.01
times       a number counts seconds: milliseconds become a year that no calendar has, as a number in
            quotes does; a time of day becomes one of today, and what stands behind a date is left out
columns     one that no record has is NULL in every row, as is one in other letters: Name for name; of
            one that its folder has too, the folder counts
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from floodmark.deltalog import Storage
from floodmark.model.ddl import Column, Kind
from floodmark.sources.files.values import BLOCK_BYTES, Rules, blocks, opened, time_pattern

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
_TEXT = re.compile(rb'"[^"\\\n]*(?:\\.[^"\\\n]*)*"')
_STEPS = {ord("{"): 1, ord("["): 1, ord("}"): -1, ord("]"): -1}
_NO_BRACKETS = bytes(set(range(256)) - {*b"{}[]\n"})
_KEYS = re.compile(rb'"([^"\\\n]*(?:\\.[^"\\\n]*)*)"\s*:')
"""What may be a key; texts with quotes and colons in them may look like one too."""
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
    rules: Rules = field(default_factory=Rules)
    folders: Collection[str] = ()
    """The columns that the folders of the file are."""
    block_bytes: int = field(default=BLOCK_BYTES)

    def look(self) -> JsonLook:
        """What Spark would not tell; the fault is the first one, with its line."""
        gate = _Gate.of(self.columns, self.rules, self.folders)
        keys: set[bytes] = set()
        first = 1
        with opened(self.path, self.storage) as file:
            for lines in _lines(blocks(file, self.block_bytes), whole=self.spans_lines):
                new = set(_KEYS.findall(lines)) if self.columns or self.folders else set()
                fault = self._fault_in(lines, first, gate, new)
                if fault is not None:
                    return JsonLook(fault)
                keys |= new
                first += lines.count(b"\n")
        names = set(map(_text_of, keys))
        absent = tuple(each.name for each in self.columns if each.name not in names)
        return JsonLook(absent=absent if names else ())

    def _fault_in(
        self, lines: bytes, first: int, gate: _Gate, keys: Collection[bytes]
    ) -> str | None:
        plain = _TEXT.sub(b'""', lines)
        number = _second_in(plain, spans_lines=self.spans_lines)
        if number is not None:
            what = "behind the end of the first one" if self.spans_lines else "in one line"
            return f"line {first + number:,}: two values {what}"
        goes_on = _closes_too_often(plain) or _BEHIND[self.spans_lines].search(plain) is not None
        if not (goes_on or gate.is_open(lines, keys)):
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
    rules: Rules
    folders: frozenset[str]
    """The columns of folders, without regard to case."""
    names: frozenset[str]
    """The declared ones, at any depth."""
    looks: tuple[tuple[re.Pattern[bytes], Kind | None], ...]
    """What such values look like; with a type its rules decide."""

    @classmethod
    def of(cls, columns: Sequence[Column], rules: Rules, folders: Collection[str] = ()) -> _Gate:
        looks: list[tuple[re.Pattern[bytes], Kind | None]] = []
        struct = Kind("struct", 0, columns=tuple(columns))
        for name, kind in _leaves("", struct):
            key = rb'"(?:%s)"\s*:\s*' % b"|".join(_spellings(name)) if name else rb"[:\[,]\s*"
            if not rules.judge(kind):
                continue
            form = time_pattern(kind)
            if form is None:
                looks.append((re.compile(key + rb'"([^"\\]*(?:\\.[^"\\]*)*)"'), kind))
            else:
                others = rb'(?:-?\d{12,}|"(?!%s"))' % form.encode()
                looks.append((re.compile(key + others), None))
        of_folders = frozenset(name.casefold() for name in folders)
        return cls(columns, rules, of_folders, frozenset(_names(struct)), tuple(looks))

    def is_open(self, text: bytes, keys: Collection[bytes]) -> bool:
        folded = {name.casefold() for name in self.names}
        for key in set(map(_text_of, keys)):
            if key.casefold() in self.folders or (
                key not in self.names and key.casefold() in folded
            ):
                return True
        for look, kind in self.looks:
            for found in look.finditer(text):
                if kind is None or self.rules.fault("", found[1].decode("utf-8", "replace"), kind):
                    return True
        return False

    def misfit(self, text: str) -> str | None:
        """Why Spark would change the first such value of a record; None for what it refuses."""
        if not (self.columns or self.folders) or not text.strip():
            return None
        try:
            value = json.loads(text, strict=False)
        except (ValueError, RecursionError):
            return None
        struct = Kind("struct", 0, columns=tuple(self.columns))
        for record in value if isinstance(value, list) else [value]:
            why = self._of_folders(record) or self._why(record, struct, "")
            if why is not None:
                return why
        return None

    def _of_folders(self, record: Any) -> str | None:
        keys = record if isinstance(record, dict) else ()
        name = next((key for key in keys if key.casefold() in self.folders), None)
        return (
            None if name is None else f"column {name} is in the file and in the name of its folder"
        )

    def _why(self, value: Any, kind: Kind, name: str) -> str | None:
        if kind.name == "struct" and isinstance(value, dict) and (why := _other_case(value, kind)):
            return why
        if isinstance(value, str):
            return self.rules.fault(name, value, kind)
        is_number = isinstance(value, int) and abs(value) > _LAST_SECOND
        if is_number and self.rules.judge_time(kind):
            return f"column {name}: a number is read as seconds since 1970, and these are too many"
        return next((w for part in _parts(value, kind, name) if (w := self._why(*part))), None)


def _other_case(record: Collection[str], kind: Kind) -> str | None:
    """Which key is a column but for the case of its letters: Spark would not take it for that."""
    names = {each.name for each in kind.columns}
    folded = {name.casefold(): name for name in names}
    for key in record:
        if key not in names and (name := folded.get(key.casefold())) is not None:
            return f"key {key} differs from column {name} by the case of its letters"
    return None


def _parts(value: Any, kind: Kind, name: str) -> Iterator[tuple[Any, Kind, str]]:
    """What a value is made of, each with its type and name."""
    if isinstance(value, dict):
        if kind.name == "map":  # its keys are data, which no message shows
            yield from ((each, kind.parts[1], name) for each in value.values())
        for column in kind.columns:
            if column.name in value:
                inner = f"{name}.{column.name}" if name else column.name
                yield value[column.name], column.kind, inner
    elif isinstance(value, list) and kind.name == "array":
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


def _names(kind: Kind) -> Iterator[str]:
    """The names of columns within a type."""
    for part in kind.parts:
        yield from _names(part)
    for column in kind.columns:
        yield column.name
        yield from _names(column.kind)


def _text_of(key: bytes) -> str:
    """A key as it is meant."""
    try:
        return str(json.loads(b'"%s"' % key, strict=False))
    except ValueError:
        return key.decode("utf-8", "replace")


def _spellings(name: str) -> list[bytes]:
    """A name as it may stand between quotes: as it is, or with what is not ASCII escaped."""
    escaped = json.dumps(name)[1:-1]
    forms = [json.dumps(name, ensure_ascii=False)[1:-1].encode(), escaped.encode()]
    forms.append(re.sub(r"\\u(....)", lambda m: f"\\u{m[1].upper()}", escaped).encode())
    return [re.escape(form) for form in dict.fromkeys(forms)]
