"""Windows of cursors on Spark, through the readers of a project."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.errors import SourceError
from floodmark.model import CursorWindow, TableFacts
from floodmark.sources.cursor.reader import cursor_reader_of
from floodmark.sources.cursor.sql.queries import Bounds
from floodmark.sources.frames import with_change_columns
from floodmark.sources.source import Readers, SparkAccess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class CursorSource:
    """Reads windows of cursors through Spark; what windows before have applied is not left out."""

    def __init__(self, spark: SparkSession, readers: Readers) -> None:
        self._spark = spark
        self._readers = readers

    def check(self, window: CursorWindow) -> TableFacts:
        """A database shows no versions: there is nothing to prove before it is read."""
        return cursor_reader_of(self._readers, window.upstream).facts()

    def read(self, window: CursorWindow) -> DataFrame:
        """The rows strictly after the start and through the end, then the three change columns."""
        frame = self.table(window, window.through)
        return with_change_columns(frame if window.has_news else frame.limit(0), window)

    def table(self, window: CursorWindow, at_version: int) -> DataFrame:
        """The rows of the window; what lies before it is not read again."""
        reader = cursor_reader_of(self._readers, window.upstream)
        if window.through_mark is None or at_version != window.through:
            raise _not_whole(window)
        is_first = window.is_first and reader.has_first_run_query
        if window.reads_every_row:
            return reader.frame(self._spark, None, first_run=is_first)
        high, begin = window.through_mark, window.after_mark
        low = None if begin is None else reader.typed(begin, high)
        bounds = Bounds(low, high, excludes_low=low is not None)
        return reader.frame(self._spark, bounds, first_run=is_first)


def source(access: SparkAccess) -> CursorSource:
    """See `sources.kinds`."""
    return CursorSource(access.spark, access.readers)


def _not_whole(window: CursorWindow) -> SourceError:
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
