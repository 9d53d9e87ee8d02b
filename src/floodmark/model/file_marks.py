"""Marks of upstreams of files and of whole answers, and the one reader of marks of all kinds."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from floodmark.model import cursor_marks
from floodmark.model.cursor_marks import CursorMark


@dataclass(frozen=True, slots=True)
class FilesMark:
    """A list of files, by the hash of its content; `FileLists` of the sources has what is on it."""

    type: ClassVar[Literal["files"]] = "files"
    id: str
    count: int
    defaults: int = field(default=0, compare=False)
    """By which defaults of the CSV reader the files were read; 0 where nobody wrote that down."""
    again: int = field(default=0, compare=False)
    """How many of its files were on the list before it too, and have changed since."""

    @property
    def text(self) -> str:
        """What people read."""
        return f"{self.count:,} files"

    @property
    def instant(self) -> None:
        """A list tells no age."""
        return None

    def encoded(self) -> str:
        """The JSON text under which the mark is stored."""
        stored: dict[str, object] = {"type": self.type, "value": self.id, "files": self.count}
        if self.defaults:
            stored["defaults"] = self.defaults
        if self.again:
            stored["again"] = self.again
        return json.dumps(stored, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class AnswerMark:
    """One whole answer of a web API, by the hash of its content."""

    type: ClassVar[Literal["files"]] = "files"
    id: str
    count: int
    """Of its records."""

    @property
    def text(self) -> str:
        """What people read."""
        return f"{self.count:,} records"

    @property
    def instant(self) -> None:
        """An answer tells no age."""
        return None

    def encoded(self) -> str:
        """The JSON text under which the mark is stored."""
        stored = {"type": self.type, "value": self.id, "records": self.count}
        return json.dumps(stored, separators=(",", ":"))


def mark_of_text(text: str) -> CursorMark | FilesMark | AnswerMark:
    """The mark of a stored text, of whatever kind; raises ValueError if it is none."""
    stored: Any = json.loads(text)
    if not isinstance(stored, dict) or stored.get("type") != "files":
        return cursor_marks.decoded(text)
    try:
        if "records" in stored:
            return AnswerMark(str(stored["value"]), int(stored["records"]))
        defaults = int(stored.get("defaults", 0))
        again = int(stored.get("again", 0))
        return FilesMark(str(stored["value"]), int(stored["files"]), defaults, again)
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a mark of files: {text[:200]!r}") from error


def cursor_mark(mark: CursorMark | FilesMark | AnswerMark | None) -> CursorMark | None:
    """The mark, for whoever knows only values of a column; raises ValueError for another."""
    if isinstance(mark, FilesMark | AnswerMark):
        raise ValueError(f"{mark.text}: no value of a column")  # noqa: TRY004 a wrong value
    return mark


class _AsText:
    """How pydantic reads and writes a mark in the journal: as its JSON text."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(
            mark_of_text,
            core_schema.str_schema(),
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda mark: mark.encoded(), return_schema=core_schema.str_schema()
            ),
        )


AnyMark = Annotated[CursorMark | FilesMark | AnswerMark, _AsText()]
"""Where an upstream without versions stands."""


def any_mark(text: str | None) -> AnyMark | None:
    """The mark of a stored text, if there is one; raises ValueError if it is none."""
    return None if text is None else mark_of_text(text)
