"""Rows that plug-ins read: what they give is looked at before anybody uses it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from floodmark.config.plugins import FileFormat, Plugins, guarded, origin_of
from floodmark.errors import SourceError
from floodmark.model.cursor_marks import CursorMark, StringOrder, is_after, mark_of
from floodmark.model.names import quoted
from floodmark.sources.files.read import ReadWith
from floodmark.sources.scratch import Scratch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MAX_FILES = 5


def reading_with(name: str, upstream: str, plugins: Plugins) -> ReadWith:
    """What reads files in the format of a plug-in, which is looked up when there is work to do.

    Raises FM-CONFIG-013 then if there is none of that name, FM-SOURCE-045 if it fails.
    """

    def read(
        spark: SparkSession, paths: list[str], options: Mapping[str, Any], ddl: str | None
    ) -> DataFrame:
        function = plugins.find(FileFormat, name).read
        where = f"{upstream}: {_shown(paths)}"
        frame = called(function, (spark, paths, dict(options)), where)
        return with_columns(frame, ddl, function, where)

    return read


def called(function: Any, arguments: tuple[Any, ...], where: str) -> Any:
    """What a function of a plug-in gives; whatever it raises becomes FM-SOURCE-045."""

    def told(found: str) -> SourceError:
        return failed("raised an error", function, where, found, "a frame")

    return guarded(function, arguments, told)


def with_columns(frame: Any, ddl: str | None, function: Any, where: str) -> DataFrame:
    """The frame in the order of the declared columns; raises FM-SOURCE-045 for another one."""
    from pyspark.sql import DataFrame

    if not isinstance(frame, DataFrame):
        raise failed("gave no frame", function, where, f"a {type(frame).__name__}", "a DataFrame")
    if ddl is None:
        return frame
    wanted = _kinds(frame.sparkSession.createDataFrame([], ddl))
    found = _kinds(frame)
    if found != wanted:
        other = dict(found.items() - wanted.items()), dict(wanted.items() - found.items())
        raise failed("gave other columns", function, where, *map(_listed, other))
    return frame.select(*map(quoted, wanted))


def _kinds(frame: DataFrame) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in frame.schema.fields}


def _listed(columns: dict[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in sorted(columns.items())) or "none of these"


def _shown(paths: list[str]) -> str:
    more = len(paths) - MAX_FILES
    return ", ".join(paths[:MAX_FILES]) + (f" and {more:,} more" if more > 0 else "")


def failed(what: str, function: Any, where: str, found: str, allowed: str) -> SourceError:
    """A function of a plug-in did not do what it is for (FM-SOURCE-045)."""
    return SourceError(
        "FM-SOURCE-045",
        f"{origin_of(function)} {what}",
        where=where,
        found=found,
        allowed=allowed,
        state="nothing was written; the committed watermark stays",
        next="correct the function or its input, then: floodmark retry BATCH",
    )


class PluggedRows:
    """What the source of a plug-in gives. See `Rows`."""

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
        low: CursorMark | None,  # noqa: ARG002 a door
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
