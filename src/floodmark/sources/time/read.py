"""Windows of time on Spark: the rows of a folder or table between two values of a column."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from floodmark.deltalog import Storage
from floodmark.model import (
    NOTHING_PROCESSED,
    TableFacts,
    TimeFacts,
    TimeMark,
    TimeType,
    TimeWindow,
    numbered,
    settled_through,
)
from floodmark.model.names import matching, quoted
from floodmark.sources.faults import schema_moved
from floodmark.sources.frames import (
    escaped,
    refuse_hidden_files,
    time_literal,
    time_sql,
    with_change_columns,
)
from floodmark.sources.source import LookSpec, SparkAccess
from floodmark.sources.time.probe import (
    data_files,
    planned_facts,
    refuse_other_type,
    refuse_replaced,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_TYPES: dict[str, TimeType] = {
    "timestamp": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
    "date": "date",
}


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
        refuse_hidden_files(self._spark, window)
        frame = self._whole(window)
        _, kind = self._column(window, frame)
        refuse_other_type(window, kind, window.through_mark)
        return facts, frame

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

    def look(self, window: TimeWindow, spec: LookSpec) -> TimeFacts:
        """See `Looker.look`: one pass over the column."""
        from pyspark.sql import functions as fn

        frame = self._whole(window)
        name, kind = self._column(window, frame)
        start = window.after_mark
        refuse_other_type(window, kind, start)
        settled = settled_through(kind, spec.now, spec.settle_seconds)
        column, end = fn.col(quoted(name)), time_literal(settled)
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
            frame = reader.load(escaped(window.place))
            if form == "orc":  # planning looks into files of Parquet
                self._refuse_replaced(window)
            return frame
        return reader.load(window.place)

    def _refuse_replaced(self, window: TimeWindow) -> None:
        files = data_files(window.place, self._storage)
        path = next((p for p in files if "=" in p.removeprefix(window.place)), None)
        if path is not None:
            reader = self._spark.read.format(window.query.form).option("mergeSchema", "true")
            own = reader.option("recursiveFileLookup", "true").load(escaped(window.place))
            refuse_replaced(window.place, path, own.columns)

    def _column(self, window: TimeWindow, frame: DataFrame) -> tuple[str, TimeType]:
        column = window.query.by
        name = matching(column, frame.columns)
        if name is None:
            raise schema_moved(window, f"no column {column}")
        type_name = frame.schema[name].dataType.typeName()
        kind = _TYPES.get(type_name)
        if kind is None:
            raise schema_moved(window, f"{column} is of type {type_name}")
        return name, kind


def source(access: SparkAccess) -> SparkTimeSource:
    """See `sources.kinds`."""
    return SparkTimeSource(access.spark, access.storage.options)


def _plain(column: Column, kind: TimeType) -> Column:
    """Instants as numbers: as values they would pass through the zone of this process."""
    from pyspark.sql import functions as fn

    return fn.unix_micros(column) if kind == "timestamp" else column


def _mark(kind: TimeType, value: Any) -> TimeMark | None:
    if value is None:
        return None
    return numbered(kind, value) if kind == "timestamp" else TimeMark(kind, value)
