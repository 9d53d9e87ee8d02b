"""Folders named column=value: columns whose values are in the path of a file.

Spark guesses the types of such columns from all folders of a read, so they would depend on the cut of
batches: 01234 is the number 1234, unless a folder zip=A1 is read with it. Without a declared type they
are texts here. What Spark refuses without naming a file, or decides without a word, is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from floodmark.model.ddl import Column, Kind
from floodmark.sources.files.values import Rules

_NULL = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = re.compile(r"%([0-9A-Fa-f]{2})")
_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}


@dataclass(frozen=True, slots=True)
class Folders:
    """The folders of a file below the place where the search for files begins."""

    above: str
    """Those above the first that is a column."""
    values: tuple[tuple[str, str | None], ...] = ()
    """Columns with their values as text, from above; None for NULL."""
    fault: str | None = None
    """Why they cannot be read as columns."""

    @classmethod
    def of(cls, path: str) -> Folders:
        """The folders of a path; the columns are those right above one another, as Spark has it."""
        parts = path.split("/")[:-1]
        is_column = ["=" in part for part in parts]
        if not any(is_column):
            return cls("")
        first = is_column.index(True)
        last = max(i for i, one in enumerate(is_column) if one)
        above = "/".join(parts[:first])
        pairs = [part.split("=", 1) for part in parts[first : last + 1] if "=" in part]
        names = [_unescaped(name) for name, _ in pairs]
        values = [None if value == _NULL else _unescaped(value) for _, value in pairs]
        found = cls(above, tuple(zip(names, values, strict=True)))
        fault = None
        if not all(names):
            fault = "a folder whose name begins with = is a column without a name"
        elif "" in values:
            fault = f"a folder {names[values.index('')]}= has no value"
        elif not all(is_column[first : last + 1]):
            fault = "another folder stands between folders that are columns"
        elif len({name.casefold() for name in names}) < len(names):
            fault = "two of its folders are one column"
        return cls(above, found.values, fault)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.values)

    def has(self, name: str) -> bool:
        """Whether a folder is this column."""
        return name.casefold() in {each.casefold() for each in self.names}

    def misfit(self, columns: Iterable[Column]) -> str | None:
        """Why the text of a folder is no value of the declared type; no value is shown."""
        kinds = {column.name.casefold(): column for column in columns}
        for name, text in self.values:
            column = kinds.get(name.casefold())
            if column is not None and text is not None and (why := _why(column, text)):
                return f"the name of its folder: {why}"
        return None

    def taken(self, names: Sequence[str]) -> str | None:
        """Why a file with these columns of its own is refused: Spark would replace one of them."""
        name = next((each for each in names if self.has(each)), None)
        return (
            None if name is None else f"column {name} is in the file and in the name of its folder"
        )


def _why(column: Column, text: str) -> str | None:
    if column.kind.name in _BITS:
        return None if _is_whole(column.kind, text) else f"column {column.name} is no {column.kind}"
    return Rules(floats=True).fault(column.name, text, column.kind)


def _is_whole(kind: Kind, text: str) -> bool:
    if re.fullmatch(r"[+-]?\d+", text, re.ASCII) is None:
        return False
    limit = 1 << (_BITS[kind.name] - 1)
    return -limit <= int(text) < limit


def _unescaped(text: str) -> str:
    """As Hive escapes: % and the number of a character."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)
