"""How the rows of an upstream without versions are found; one type for each way.

A query tells windows and watermarks of one upstream apart from those of another way to read it: what
was processed by one query does not go on by another. Options, the journal and commits spell it as a
column and a format.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

WindowKind = Literal["version", "time", "cursor", "files", "offsets"]
"""What the windows of an upstream are measured by."""
Format = Literal["delta", "parquet", "orc"]
CursorFormat = Literal["sql", "source"]
QueryFormat = Literal[Format, CursorFormat, "files"]
"""sql: a table or query of a database. source: what a web API or a plug-in gives, by a cursor. files:
the files of a folder or glob, by their list; or the whole answer of a web API, by its content."""


@dataclass(frozen=True, slots=True, repr=False)
class Query:
    """How rows are found; `column` and `format` are how that is spelled."""

    kind: ClassVar[WindowKind]
    has_cursor: ClassVar[bool] = False
    """Whether rows are put aside before anybody sees them, since no two reads are the same."""
    is_by_reader: ClassVar[bool] = True
    """Whether only the reader of a node can look: a path alone does not tell how."""
    reads_whole: ClassVar[bool] = False
    """Whether every window is all there is."""
    can_be_looked_up: ClassVar[bool] = True
    """Whether a read can be of everything, without what was processed before."""

    @property
    def spelled(self) -> tuple[str, QueryFormat]:
        """The column and the format under which the query is stored and said in options."""
        raise NotImplementedError

    @property
    def column(self) -> str:
        return self.spelled[0]

    @property
    def format(self) -> QueryFormat:
        return self.spelled[1]

    @property
    def text(self) -> str:
        """The way to read, for people: "processed by the cursor id (sql)"."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"Query(column={self.column!r}, format={self.format!r})"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from floodmark.model.stored import query_schema

        return query_schema(handler)


@dataclass(frozen=True, slots=True, repr=False)
class TimeQuery(Query):
    """By the times of a column of a folder or table."""

    kind: ClassVar[WindowKind] = "time"
    is_by_reader: ClassVar[bool] = False
    can_be_looked_up: ClassVar[bool] = False
    by: str
    form: Format

    @property
    def spelled(self) -> tuple[str, QueryFormat]:
        return self.by, self.form

    @property
    def text(self) -> str:
        return f"by the time column {self.by} ({self.form})"


@dataclass(frozen=True, slots=True, repr=False)
class CursorQuery(Query):
    """By the values of a column of a database, or of what a web API or a plug-in gives."""

    kind: ClassVar[WindowKind] = "cursor"
    has_cursor: ClassVar[bool] = True
    can_be_looked_up: ClassVar[bool] = False
    by: str
    form: CursorFormat

    @property
    def spelled(self) -> tuple[str, QueryFormat]:
        return self.by, self.form

    @property
    def text(self) -> str:
        return f"by the cursor {self.by} ({self.form})"


@dataclass(frozen=True, slots=True, repr=False)
class EveryRow(Query):
    """All rows of a database table each time, since no column tells which are new."""

    kind: ClassVar[WindowKind] = "cursor"
    has_cursor: ClassVar[bool] = True
    reads_whole: ClassVar[bool] = True

    @property
    def spelled(self) -> tuple[str, QueryFormat]:
        return "*", "sql"

    @property
    def text(self) -> str:
        return "as a whole, without a cursor"


@dataclass(frozen=True, slots=True, repr=False)
class FileList(Query):
    """By the list of the files that were processed."""

    kind: ClassVar[WindowKind] = "files"

    @property
    def spelled(self) -> tuple[str, QueryFormat]:
        return "file", "files"

    @property
    def text(self) -> str:
        return "file by file"


@dataclass(frozen=True, slots=True, repr=False)
class WholeAnswer(Query):
    """By the content of one whole answer of a web API."""

    kind: ClassVar[WindowKind] = "files"
    reads_whole: ClassVar[bool] = True

    @property
    def spelled(self) -> tuple[str, QueryFormat]:
        return "answer", "files"

    @property
    def text(self) -> str:
        return "as a whole answer"


EVERY_ROW, FILE_LIST, WHOLE_ANSWER = EveryRow(), FileList(), WholeAnswer()

CURSOR_FORMATS: tuple[QueryFormat, ...] = ("sql", "source")
"""Formats whose rows are read by a cursor column, and put aside first."""
_BY_SPELLING: dict[tuple[str, str], Query] = {
    each.spelled: each for each in (EVERY_ROW, FILE_LIST, WHOLE_ANSWER)
}


def query_of(column: str, format: QueryFormat) -> Query:
    """The query of a spelling: the one place that reads it."""
    known = _BY_SPELLING.get((column, format))
    if known is not None:
        return known
    if format == "files":
        return FILE_LIST
    if format in CURSOR_FORMATS:
        return CursorQuery(column, cast("CursorFormat", format))
    return TimeQuery(column, cast("Format", format))
