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
    numbered,
    settled_through,
)
from floodmark.model.names import matching, quoted
from floodmark.model.plan import TimeFacts
from floodmark.model.window import NOTHING_PROCESSED, Settlement, TimeWindow, Window
from floodmark.model.write import CHANGE_COLUMNS
from floodmark.sources.delta import proof as ranges
from floodmark.sources.time import probe as times

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

    def check(self, window: TimeWindow) -> TableFacts:
        """Prove that the upstream is the planned one and its column has the type of the marks.

        Raises FM-SOURCE-003 for another table, FM-SOURCE-007 for another type, FM-SOURCE-005 if the
        session would hide missing files.
        """
        return self._proven(window)[0]

    def _proven(self, window: TimeWindow) -> tuple[TableFacts, DataFrame]:
        """What `check` finds, and the whole upstream as it was looked at: loading it takes time."""
        facts = planned_facts(window, self._storage)
        for setting in _HIDING:
            if str(self._spark.conf.get(setting, "false")).lower() == "true":
                raise ranges.hides_files(window, setting)
        frame = self._whole(window)
        _, kind = self._column(window, frame)
        refuse_other_type(window, kind, window.through_mark)
        return facts, frame

    def settled(self, window: TimeWindow, choice: Settlement) -> TimeWindow | None:  # noqa: ARG002 a door
        """Nothing of a window of time is known to be lost: what is there is what it holds."""
        return None

    def read(self, window: TimeWindow) -> DataFrame:
        """The rows after the start and through the end, then the three change columns."""
        _, whole = self._proven(window)
        frame = self._between(window, whole, window.after_mark, window.through_mark)
        return with_change_columns(frame if window.has_news else frame.limit(0), window)

    def table(self, window: TimeWindow, at_version: int) -> DataFrame:
        """The rows as of one side of the window, as far as their time tells."""
        _, whole = self._proven(window)
        if at_version == NOTHING_PROCESSED != window.after:
            return whole.limit(0)
        is_end = at_version == window.through
        return self._between(
            window, whole, None, window.through_mark if is_end else window.after_mark
        )

    def look(self, window: TimeWindow, now: datetime, settle_seconds: float | None) -> TimeFacts:
        """See `QuerySource.look`: one pass over the column."""
        from pyspark.sql import functions as fn

        frame = self._whole(window)
        name, kind = self._column(window, frame)
        start = window.after_mark
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

    def _between(
        self,
        window: TimeWindow,
        whole: DataFrame,
        after: TimeMark | None,
        through: TimeMark | None,
    ) -> DataFrame:
        if through is None:
            return whole.limit(0)
        name = quoted(self._column(window, whole)[0])
        condition = f"{name} <= {time_sql(through)}"
        if after is not None:
            condition = f"{name} > {time_sql(after)} AND {condition}"
        return whole.where(condition)

    def _whole(self, window: TimeWindow) -> DataFrame:
        form = window.query.form
        reader = self._spark.read.format(form)
        if form != "delta":
            reader = reader.option("mergeSchema", "true")
        return reader.load(window.place)

    def _column(self, window: TimeWindow, frame: DataFrame) -> tuple[str, TimeType]:
        column = window.query.by
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
    return as_inserts(frame, window.through, window.end_at)


def as_inserts(frame: DataFrame, version: int, at: datetime | None) -> DataFrame:
    """Rows with the three change columns: all came with one version, at one time."""
    instant = "CAST(NULL AS TIMESTAMP_LTZ)" if at is None else _instant_sql(at)
    # As text: each call of a function on columns goes to the JVM half a dozen times.
    return frame.selectExpr(
        "*", f"'insert' AS {_TYPE}", f"{version}L AS {_VERSION}", f"{instant} AS {_TIMESTAMP}"
    )


def planned_facts(window: TimeWindow, storage: Storage) -> TableFacts:
    """What stands there, if it is what was planned; raises FM-SOURCE-003."""
    if window.query.form != "delta":
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


def refuse_other_type(window: TimeWindow, kind: TimeType, mark: TimeMark | None) -> None:
    """A column is compared with marks of its own type only (FM-SOURCE-007)."""
    if mark is not None and mark.type != kind:
        column = window.query.by
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

    return fn.expr(time_sql(mark))


def time_sql(mark: TimeMark) -> str:
    """The same as text."""
    if mark.type == "timestamp":
        return _instant_sql(mark.instant)
    return f"CAST('{mark.text}' AS {mark.type})"


def _instant_sql(at: datetime) -> str:
    """Exact, and independent of the time zones of session and process."""
    return f"timestamp_micros({epoch_micros(at)}L)"
