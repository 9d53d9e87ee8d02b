"""Windows of time on Spark: the rows of a folder or table between two values of a column."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from floodmark.deltalog import DeltaLog, Storage
from floodmark.errors import SourceError
from floodmark.model.clock import epoch_micros
from floodmark.model.delta import TableFacts
from floodmark.model.marks import (
    TimeMark,
    TimeType,
    decoded,
    decoded_if_any,
    numbered,
    settled_through,
)
from floodmark.model.names import matching, quoted
from floodmark.model.plan import TimeFacts
from floodmark.model.window import NOTHING_PROCESSED, Query, Settlement, Window
from floodmark.model.write import CHANGE_COLUMNS
from floodmark.sources import ranges, times

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_HIDING = ("spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles")
_TYPES: dict[str, TimeType] = {
    "timestamp": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
    "date": "date",
}
_TYPE, _VERSION, _TIMESTAMP = CHANGE_COLUMNS


class SparkTimeSource:
    """Reads windows of time of folders and tables; changes no setting of the session."""

    def __init__(
        self, spark: SparkSession, storage_options: Mapping[str, str] | None = None
    ) -> None:
        self._spark = spark
        self._storage = Storage(storage_options)

    def check(self, window: Window) -> TableFacts:
        """Prove that the upstream is the planned one and its column has the type of the marks.

        Raises FM-SOURCE-003 for another table, FM-SOURCE-007 for another type, FM-SOURCE-005 if the
        session would hide missing files.
        """
        facts = planned_facts(window, self._storage)
        for setting in _HIDING:
            if str(self._spark.conf.get(setting, "false")).lower() == "true":
                raise ranges.hides_files(window, setting)
        mark = decoded_if_any(window.end_mark)
        _, kind = self._column(window, self._whole(window))
        refuse_other_type(window, kind, mark)
        return facts

    def settled(self, window: Window, choice: Settlement) -> Window | None:  # noqa: ARG002 a door
        """Nothing of a window of time is known to be lost: what is there is what it holds."""
        return None

    def read(self, window: Window) -> DataFrame:
        """The rows after the start and through the end, then the three change columns."""
        from pyspark.sql import functions as fn

        self.check(window)
        frame = self._through(window, window.end_mark)
        if window.start_mark is not None:
            name, _ = self._column(window, frame)
            frame = frame.filter(fn.col(quoted(name)) > time_literal(decoded(window.start_mark)))
        if not window.has_news:
            frame = frame.limit(0)
        return with_change_columns(frame, window)

    def table(self, window: Window, at_version: int) -> DataFrame:
        """The rows as of one side of the window, as far as their time tells."""
        self.check(window)
        if at_version == NOTHING_PROCESSED != window.after_version:
            return self._whole(window).limit(0)
        is_end = at_version == window.through_version
        return self._through(window, window.end_mark if is_end else window.start_mark)

    def look(self, window: Window, now: datetime, settle_seconds: float | None) -> TimeFacts:
        """See `QuerySource.look`: one pass over the column."""
        from pyspark.sql import functions as fn

        frame = self._whole(window)
        name, kind = self._column(window, frame)
        start = decoded_if_any(window.start_mark)
        refuse_other_type(window, kind, start)
        column, end = fn.col(quoted(name)), time_literal(settled_through(kind, now, settle_seconds))
        since = column > time_literal(start) if start else fn.lit(True)  # noqa: FBT003
        taken = fn.when(since & (column <= end), column)
        (row,) = frame.agg(
            _plain(fn.max(taken), kind).alias("newest"),
            _plain(fn.min(taken), kind).alias("oldest"),
            fn.count(taken).alias("taken"),
            fn.count(fn.when(since & (column > end), column)).alias("waiting"),
            fn.count(fn.when(column.isNull(), 1)).alias("nulls"),
        ).collect()
        return TimeFacts(
            type=kind,
            newest=_mark(kind, row["newest"]),
            oldest=_mark(kind, row["oldest"]),
            rows=row["taken"],
            waiting=row["waiting"],
            nulls=row["nulls"],
        )

    def _through(self, window: Window, end: str | None) -> DataFrame:
        from pyspark.sql import functions as fn

        frame = self._whole(window)
        if end is None:
            return frame.limit(0)
        name, _ = self._column(window, frame)
        return frame.filter(fn.col(quoted(name)) <= time_literal(decoded(end)))

    def _whole(self, window: Window) -> DataFrame:
        query = query_of(window)
        reader = self._spark.read.format(query.format)
        if query.format != "delta":
            reader = reader.option("mergeSchema", "true")
        return reader.load(window.place)

    def _column(self, window: Window, frame: DataFrame) -> tuple[str, TimeType]:
        column = query_of(window).column
        name = matching(column, frame.columns)
        if name is None:
            raise ranges.schema_moved(window, f"no column {column}")
        found = frame.schema[name].dataType.typeName()
        kind = _TYPES.get(found)
        if kind is None:
            raise ranges.schema_moved(window, f"{column} is of type {found}")
        return name, kind


def with_change_columns(frame: DataFrame, window: Window) -> DataFrame:
    """Rows of a window without versions with the three change columns: each is an insert."""
    from pyspark.sql import functions as fn

    return frame.select(
        "*",
        fn.lit("insert").alias(_TYPE),
        fn.lit(window.through_version).cast("long").alias(_VERSION),
        _instant(window.end_at).alias(_TIMESTAMP),
    )


def query_of(window: Window) -> Query:
    """How the window is read; every window without versions says so."""
    if window.query is None:
        raise ValueError(f"{window.upstream}: a window of {window.kind} has no query")
    return window.query


def planned_facts(window: Window, storage: Storage) -> TableFacts:
    """What stands there, if it is what was planned; raises FM-SOURCE-003."""
    if query_of(window).format != "delta":
        return times.folder_facts(window.place)
    facts = DeltaLog(window.place, storage).facts()
    if facts.table_id != window.table_id:
        raise SourceError(
            "FM-SOURCE-003",
            "the table is no longer the one that was planned",
            where=window.upstream,
            found=f"table id {facts.table_id}",
            allowed=f"table id {window.table_id}",
            state="nothing was read or written; the committed watermark stays",
            next="put the table back, then: floodmark retry BATCH",
        )
    return facts


def refuse_other_type(window: Window, kind: TimeType, mark: TimeMark | None) -> None:
    """A column is compared with marks of its own type only (FM-SOURCE-007)."""
    if mark is not None and mark.type != kind:
        column = query_of(window).column
        raise ranges.schema_moved(window, f"{column} is of type {kind}, its marks are {mark.type}")


def _plain(column: Column, kind: TimeType) -> Column:
    """Instants as numbers: as values they would pass through the zone of this process."""
    from pyspark.sql import functions as fn

    return fn.unix_micros(column) if kind == "timestamp" else column


def _mark(kind: TimeType, value: Any) -> TimeMark | None:
    if value is None:
        return None
    return numbered(kind, value) if kind == "timestamp" else TimeMark(kind, value)


def time_literal(mark: TimeMark) -> Column:
    """A mark of time as Spark compares it."""
    from pyspark.sql import functions as fn

    if mark.type == "timestamp":
        return fn.timestamp_micros(fn.lit(epoch_micros(mark.instant)).cast("long"))
    return fn.lit(mark.text).cast(mark.type)


def _instant(at: datetime | None) -> Column:
    from pyspark.sql import functions as fn

    if at is None:
        return fn.lit(None).cast("timestamp")
    return fn.timestamp_micros(fn.lit(epoch_micros(at)).cast("long"))
