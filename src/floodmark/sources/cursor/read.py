"""Windows of cursors: each upstream of a database has a reader, handed in by the project."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from floodmark.errors import SourceError
from floodmark.model.cursor_marks import CursorMark
from floodmark.model.delta import TableFacts
from floodmark.model.plan import TimeFacts
from floodmark.model.window import CursorWindow, Settlement
from floodmark.sources.cursor.sql.queries import Bounds
from floodmark.sources.scratch import Scratch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from floodmark.sources.cursor.edges import Identity

Readers = Mapping[tuple[str, str], Any]
"""What reads the upstreams that are no tables, by pipeline and stored name: a CursorReader, or a
FileReader; which of them, the kind of the window tells."""


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
        """What is known without a look."""

    def fingerprint(self, *, first_run: bool) -> str:
        """Changes with what is read, not with when."""

    def look(
        self,
        window: CursorWindow,
        now: datetime,
        spark: SparkSession | None,
        scratch: Scratch | None = None,
    ) -> TimeFacts | None:
        """What is new after the start of a window, as far as it is settled; None if only Spark could.

        What it has to keep goes to the scratch, if there is one. "Nobody answered" is an error,
        never "no news".
        """

    def examine(self, now: datetime, spark: SparkSession | None) -> None:
        """Ask what a first run would ask; raises what it would."""

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


class CursorSource:
    """Reads windows of cursors through Spark; what windows before have applied is not left out."""

    def __init__(self, spark: SparkSession, readers: Readers) -> None:
        self._spark = spark
        self._readers = readers

    def check(self, window: CursorWindow) -> TableFacts:
        """A database shows no versions: there is nothing to prove before it is read."""
        return reader_of(self._readers, window.upstream).facts()

    def settled(self, window: CursorWindow, choice: Settlement) -> CursorWindow | None:  # noqa: ARG002 a door
        """Nothing of a database is known to be lost: what is there is what a window holds."""
        return None

    def read(self, window: CursorWindow) -> DataFrame:
        """The rows strictly after the start and through the end, then the three change columns."""
        from floodmark.sources.time.read import with_change_columns

        frame = self.table(window, window.through)
        return with_change_columns(frame if window.has_news else frame.limit(0), window)

    def table(self, window: CursorWindow, at_version: int) -> DataFrame:
        """The rows of the window; what lies before it is not read again."""
        reader = reader_of(self._readers, window.upstream)
        if window.through_mark is None or at_version != window.through:
            raise not_whole(window)
        is_first = window.is_first and reader.has_first_run_query
        if window.reads_every_row:
            return reader.frame(self._spark, None, first_run=is_first)
        high, begin = window.through_mark, window.after_mark
        low = None if begin is None else reader.typed(begin, high)
        bounds = Bounds(low, high, excludes_low=low is not None)
        return reader.frame(self._spark, bounds, first_run=is_first)

    def look(self, window: CursorWindow, now: datetime, settle_seconds: float | None) -> TimeFacts:  # noqa: ARG002 a reader knows how far its values settle
        """See `QuerySource.look`."""
        found = reader_of(self._readers, window.upstream).look(window, now, self._spark)
        assert found is not None  # noqa: S101  (Spark is there)
        return found


class Looker(Protocol):
    """What planning asks of the reader of an upstream, of whatever kind."""

    def facts(self) -> TableFacts:
        """What is known without a look."""

    def look(
        self,
        window: Any,
        now: datetime,
        spark: SparkSession | None,
        scratch: Scratch | None = None,
    ) -> TimeFacts | None:
        """What is new after the start of a window of the reader's kind; None if only Spark could."""


def first_of(readers: Readers, pipelines: Iterable[str]) -> Readers:
    """The readers, those of these pipelines first: another one may read the same table otherwise."""
    chosen = set(pipelines)
    return dict(sorted(readers.items(), key=lambda reader: reader[0][0] not in chosen))


def looker_of(readers: Readers, upstream: str) -> Looker:
    """The same as `reader_of`, for whoever only plans."""
    return reader_of(readers, upstream)


def reader_of(readers: Readers, upstream: str, pipeline: str | None = None) -> CursorReader:
    """The reader of an upstream, of one pipeline or any; raises FM-SOURCE-035 if there is none."""
    for (reads, name), reader in readers.items():
        if name == upstream and pipeline in (None, reads):
            found: CursorReader = reader
            return found
    raise SourceError(
        "FM-SOURCE-035",
        "only its project can read this upstream",
        where=upstream,
        found="no node of this project reads it",
        allowed="the project whose nodes read it, with its connections",
        state="nothing was read or written; the committed watermark stays",
        next="run the command in the folder of the project; or put the node back",
    )


def not_whole(window: CursorWindow) -> SourceError:
    """The error for whoever wants a database as it was at a version."""
    return SourceError(
        "FM-SOURCE-035",
        "a database cannot be read as it was",
        where=window.upstream,
        found="it keeps no versions",
        allowed="its rows between two marks, as a node reads them",
        state="nothing was read",
        next="read the table that a node of the project writes",
    )
