"""Marks of upstreams of files: the list of all that were processed, by the hash of its content."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal

from floodmark.model import cursor_marks
from floodmark.model.cursor_marks import CursorMark

FILES = "file"
"""What stands in the place of a column where windows are lists of files."""


@dataclass(frozen=True, slots=True)
class FilesMark:
    """A list of files; `FileLists` of the sources has what is on it."""

    id: str
    count: int
    what: Literal["files", "records"] = "files"
    """records: it is one whole answer, not a list."""
    defaults: int = field(default=0, compare=False)
    """By which defaults of the CSV reader the files were read; 0 where nobody wrote that down."""

    @property
    def type(self) -> Literal["files"]:
        return "files"

    @property
    def text(self) -> str:
        """What people read."""
        return f"{self.count:,} {self.what}"

    @property
    def instant(self) -> None:
        """A list tells no age."""
        return None

    def encoded(self) -> str:
        """The JSON text under which the mark is stored."""
        said: dict[str, object] = {"type": self.type, "value": self.id, self.what: self.count}
        if self.defaults:
            said["defaults"] = self.defaults
        return json.dumps(said, separators=(",", ":"))


AnyMark = CursorMark | FilesMark
"""Where an upstream without versions stands."""


def any_mark(text: str | None) -> AnyMark | None:
    """The mark of a stored text, of whatever kind; raises ValueError if it is none."""
    if text is None:
        return None
    said: Any = json.loads(text)
    if not isinstance(said, dict) or said.get("type") != "files":
        return cursor_marks.decoded(text)
    try:
        if "records" in said:
            return FilesMark(str(said["value"]), int(said["records"]), "records")
        defaults = int(said.get("defaults", 0))
        return FilesMark(str(said["value"]), int(said["files"]), defaults=defaults)
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a mark of files: {text[:200]!r}") from error
