"""One upstream of a web API or a plug-in, read window by window by its cursor column."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Literal, Protocol

from floodmark.errors import SourceError
from floodmark.model import CursorMark, CursorWindow, Overlap, TableFacts, TimeFacts
from floodmark.model.cursor_marks import as_type_of, highest, is_after, lowered
from floodmark.model.names import matching
from floodmark.sources.cursor.edges import Identity
from floodmark.sources.cursor.sql.queries import Bounds
from floodmark.sources.scratch import Scratch
from floodmark.sources.source import LookSpec, facts_without_versions

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

OnNullCursor = Literal["fail", "skip", "include"]

_KINDS = {
    "int": ("byte", "short", "integer", "long", "decimal"),
    "decimal": ("decimal", "long", "integer"),
    "string": ("string",),
    "date": ("date",),
    "timestamp": ("timestamp",),
    "timestamp_ntz": ("timestamp_ntz",),
}
"""Types of columns that can be compared exactly with marks of a type."""


class Rows(Protocol):
    """What a source gives; all that differs from one to the next."""

    @property
    def note(self) -> str | None:
        """Where the latest answer came from, if people should know: a cache, the plan."""

    def newest(
        self, low: CursorMark | None, ceiling: CursorMark | None, scratch: Scratch | None = None
    ) -> CursorMark | None:
        """The newest value from `low` on, none above `ceiling`; None if there is none.

        What has to be kept for a run goes to the scratch, if there is one. Asked while planning, without Spark. Raises SourceError where nobody answers.
        """

    def frame(self, spark: SparkSession, low: CursorMark | None, high: CursorMark) -> DataFrame:
        """The rows from `low` through `high`, both included; others may be among them."""

    def no_rows(self, spark: SparkSession, mark: CursorMark | None) -> DataFrame:
        """No rows, with their columns."""


@dataclass(frozen=True)
class SourceReader:
    """What one upstream of a source is; nothing of it is stored. See `CursorReader`."""

    upstream: str
    rows: Rows
    cursor: str
    what: str
    """What is read, as text that changes with it."""
    keys: tuple[str, ...] = ()
    overlap: Overlap | None = None
    settle: timedelta | int | None = None
    zone: tzinfo = UTC
    """Where the clock hangs that wall times without a zone are read from."""
    on_null_cursor: OnNullCursor = "fail"

    @property
    def has_first_run_query(self) -> bool:
        return False

    def reads_again_by_first_query(self, *, has_start: bool) -> bool:  # noqa: ARG002 see CursorReader
        return False

    @property
    def includes_nulls(self) -> bool:
        return self.on_null_cursor == "include"

    @property
    def note(self) -> str | None:
        """See `Rows.note`."""
        return self.rows.note

    def facts(self) -> TableFacts:
        """What is known without a look: a source has no versions."""
        return facts_without_versions(self.upstream)

    def fingerprint(self, *, first_run: bool) -> str:  # noqa: ARG002 see CursorReader
        """Changes with what is read, not with when."""
        text = "\n".join(map(str, (self.what, self.cursor, self.keys)))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    # What is new ----------------------------------------------------------------------------------

    def look(
        self,
        window: CursorWindow,
        spec: LookSpec,
    ) -> TimeFacts:
        """What is new after the start of a window, as far as it is settled; asks the source."""
        start = window.after_mark
        low = start if start is None or window.is_first else self.reach(start)
        newest = self._settled_newest(low, spec)
        note = self.rows.note
        if newest is None:
            return TimeFacts("string" if start is None else start.type, None, note=note)
        if start is not None and not is_after(newest, self.typed(start, newest)):
            return TimeFacts(newest.type, None, note=note)
        return TimeFacts(newest.type, newest, note=note)

    def _settled_newest(self, low: CursorMark | None, spec: LookSpec) -> CursorMark | None:
        newest = self.rows.newest(low, None, spec.scratch)
        ceiling = None if newest is None else self._ceiling(newest, spec.now)
        if newest is None or ceiling is None or not is_after(newest, ceiling):
            return newest
        return self.rows.newest(low, ceiling, spec.scratch)

    def _ceiling(self, newest: CursorMark, now: datetime) -> CursorMark | None:
        """The last value that may be taken: see `highest`; None for any."""
        try:
            return highest(newest, now, self.settle, self.zone)
        except ValueError as error:
            raise self._unfit(str(error)) from error

    def examine(self, spec: LookSpec) -> None:
        """See `Reader.examine`."""
        self._settled_newest(None, replace(spec, scratch=Scratch()))

    # Rows -----------------------------------------------------------------------------------------

    def frame(
        self,
        spark: SparkSession,
        bounds: Bounds | None,
        *,
        first_run: bool = False,  # noqa: ARG002 see CursorReader
    ) -> DataFrame:
        """The rows between two values; whatever else the source gives is left out here."""
        assert bounds is not None  # noqa: S101  (a source is read by a cursor)
        frame = self.rows.frame(spark, bounds.low, bounds.high)
        column = self.identity(frame.columns).cursor
        kind = frame.schema[column].dataType.typeName()
        if kind not in _KINDS[bounds.high.type]:
            raise self._unfit(f"{column} is of type {kind}, its marks are {bounds.high.type}")
        return frame.where(self._within(column, bounds))

    def _within(self, column: str, bounds: Bounds) -> Column:
        from pyspark.sql import functions as fn

        from floodmark.sources.cursor.marks import compared

        within = compared(column, bounds.high, "before" if bounds.excludes_high else "through")
        if bounds.low is not None:
            within &= compared(column, bounds.low, "after" if bounds.excludes_low else "from")
        if self.on_null_cursor == "fail":
            text = f"FM-SOURCE-032 rows of {self.upstream} have no value in {column}"
            return fn.coalesce(within, fn.raise_error(text).cast("boolean"))
        return fn.coalesce(within, fn.lit(bounds.has_nulls))

    def no_rows(
        self,
        spark: SparkSession,
        mark: CursorMark | None,
        *,
        first_run: bool = False,  # noqa: ARG002 see CursorReader
    ) -> DataFrame:
        """No rows, with the columns that the source gives them."""
        return self.rows.no_rows(spark, mark)

    def reach(self, mark: CursorMark) -> CursorMark:
        """Where a window that follows a mark begins to read: the overlap before it."""
        try:
            return lowered(mark, self.overlap)
        except ValueError as error:
            raise self._unfit(str(error)) from error

    def typed(self, mark: CursorMark, like: CursorMark) -> CursorMark:
        """A mark, or a baseline, as the column has it; raises FM-SOURCE-034."""
        try:
            return as_type_of(mark, like, self.zone)
        except ValueError as error:
            raise self._unfit(str(error)) from error

    def identity(self, columns: list[str]) -> Identity:
        """What tells rows apart, by the columns as the frame spells them; raises FM-SOURCE-034."""
        found = [matching(name, columns) for name in (self.cursor, *self.keys)]
        for name, column in zip((self.cursor, *self.keys), found, strict=True):
            if column is None:
                raise self._unfit(f"no column {name} among {', '.join(columns)}")
        cursor, *keys = [column for column in found if column is not None]
        return Identity(cursor, tuple(keys))

    def _unfit(self, found: str) -> SourceError:
        return SourceError(
            "FM-SOURCE-034",
            "what is said about a cursor does not go with its column",
            where=f"{self.upstream}, cursor {self.cursor}",
            found=found,
            allowed="an overlap and settle that are durations for times and numbers for numbers, a"
            " baseline of the column's type, columns that the rows have, and of that type",
            state="nothing was read or written; the committed watermark stays",
            next="correct incremental or schema, then run the same command again",
        )
