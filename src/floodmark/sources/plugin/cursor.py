"""What the source of a plug-in gives, by a cursor."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from floodmark.errors import SourceError
from floodmark.model import CursorMark, StringOrder
from floodmark.model.cursor_marks import is_after, mark_of
from floodmark.sources.plugin.read import called, failed, with_columns
from floodmark.sources.scratch import Scratch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class PluginRows:
    """What the source of a plug-in gives. See `sources.cursor.Rows`."""

    def __init__(
        self,
        upstream: str,
        make: Callable[[], Any],
        ddl: str | None = None,
        order: StringOrder | None = None,
    ) -> None:
        self._upstream = upstream
        self._make = make
        self._ddl = ddl
        self._order = order

    @property
    def note(self) -> None:
        """Nothing is known of how a plug-in works."""
        return None

    def newest(
        self,
        low: CursorMark | None,  # noqa: ARG002 see Rows
        ceiling: CursorMark | None,
        scratch: Scratch | None = None,  # noqa: ARG002 a look at a plug-in keeps nothing
    ) -> CursorMark | None:
        """What the source says is its newest value, or the ceiling if that lies above."""
        source = self._source()
        value = called(source.latest, (), self._upstream)
        if value is None:
            return None
        try:
            mark = mark_of(value, self._order)
        except ValueError as error:
            allowed = "an int, Decimal, date, datetime, or str with order: binary; None for nothing"
            found = f"a {type(value).__name__}"
            raise failed("gave no mark", source.latest, self._upstream, found, allowed) from error
        return ceiling if ceiling is not None and is_after(mark, ceiling) else mark

    def frame(self, spark: SparkSession, low: CursorMark | None, high: CursorMark) -> DataFrame:
        """The rows that the source gives."""
        source = self._source()
        arguments = (spark, None if low is None else low.value, high.value)
        frame = called(source.read, arguments, self._upstream)
        return with_columns(frame, self._ddl, source.read, self._upstream)

    def no_rows(self, spark: SparkSession, mark: CursorMark | None) -> DataFrame:
        """No rows, with the declared columns, or with those of the rows at a mark."""
        if self._ddl is not None:
            return spark.createDataFrame([], self._ddl)
        if mark is None:
            raise _no_columns(self._upstream)
        return self.frame(spark, mark, mark).limit(0)

    def _source(self) -> Any:
        return self._make()


def _no_columns(upstream: str) -> SourceError:
    return SourceError(
        "FM-SOURCE-042",
        "the columns of a source are not known before it has rows",
        where=upstream,
        found="no row, and no schema",
        allowed='a schema in the node: read: {schema: "id LONG, name STRING"}',
        state="nothing was read or written",
        next="say the schema, then run the same command again",
    )
