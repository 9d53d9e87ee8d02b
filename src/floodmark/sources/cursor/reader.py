"""What reads one upstream by its cursor column: a database, a web API or a plug-in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from floodmark.model import CursorMark, CursorWindow, TableFacts, TimeFacts
from floodmark.sources.cursor.sql.queries import Bounds
from floodmark.sources.source import LookSpec, Readers, reader_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from floodmark.sources.cursor.edges import Identity


@runtime_checkable
class CursorReader(Protocol):
    """Reads one upstream by its cursor column; nothing of it is stored."""

    @property
    def has_first_run_query(self) -> bool:
        """Whether a first run reads something else than the runs after it."""

    def reads_again_by_first_query(self, *, has_start: bool) -> bool:
        """Whether a range that is read once more is one of what a first run reads."""

    @property
    def includes_nulls(self) -> bool:
        """Whether rows without a cursor are read with every window."""

    def facts(self) -> TableFacts:
        """See `Reader.facts`."""

    def fingerprint(self, *, first_run: bool) -> str:
        """Changes with what is read, not with when."""

    def look(self, window: CursorWindow, spec: LookSpec) -> TimeFacts | None:
        """See `Looker.look`."""

    def examine(self, spec: LookSpec) -> None:
        """See `Reader.examine`."""

    def frame(
        self, spark: SparkSession, bounds: Bounds | None, *, first_run: bool = False
    ) -> DataFrame:
        """The rows between two values, or all where there is no cursor; computed twice it asks twice."""

    def no_rows(
        self, spark: SparkSession, mark: CursorMark | None, *, first_run: bool = False
    ) -> DataFrame:
        """No rows, with their columns."""

    def reach(self, mark: CursorMark) -> CursorMark:
        """Where a window that follows a mark begins to read: the overlap before it."""

    def typed(self, mark: CursorMark, like: CursorMark) -> CursorMark:
        """A mark, or a baseline, as the column has it."""

    def identity(self, columns: list[str]) -> Identity:
        """What tells rows apart, by the columns as a frame spells them."""


def cursor_reader_of(readers: Readers, upstream: str, pipeline: str | None = None) -> CursorReader:
    """See `reader_of`; for whoever reads by cursors."""
    reader = reader_of(readers, upstream, pipeline)
    if not isinstance(reader, CursorReader):
        raise TypeError(f"{upstream}: a {type(reader).__name__} reads by no cursor")
    return reader
