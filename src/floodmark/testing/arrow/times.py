"""Windows of time as Arrow tables: the double of `sources.time.read`, without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

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
from floodmark.model.names import matching
from floodmark.sources import LookSpec, schema_moved
from floodmark.sources.delta import CHANGE_FIELDS, typed
from floodmark.sources.time import data_files, numbers_of, planned_facts, refuse_other_type


class ArrowTimeSource:
    """Reads windows of time; everything is held in memory."""

    def __init__(self, storage_options: Mapping[str, str] | None = None) -> None:
        self._storage = Storage(storage_options)

    def check(self, window: TimeWindow) -> TableFacts:
        """See `KindSource.check`."""
        facts = planned_facts(window, self._storage)
        _, kind = self._column(window, self._whole(window))
        refuse_other_type(window, kind, window.through_mark)
        return facts

    def read(self, window: TimeWindow) -> pa.Table:
        """See `KindSource.read`."""
        self.check(window)
        rows = self._through(window, window.through_mark)
        if window.after_mark is not None:
            begin = window.after_mark.number
            rows = rows.filter(pc.greater(self._numbers(window, rows), begin))
        rows = rows if window.has_news else rows.slice(0, 0)
        values = ("insert", window.through, window.end_at)
        for field, value in zip(CHANGE_FIELDS, values, strict=True):
            rows = rows.append_column(field, pa.array([value] * rows.num_rows, field.type))
        return rows

    def table(self, window: TimeWindow, at_version: int) -> pa.Table:
        """See `KindSource.table`."""
        self.check(window)
        if at_version == NOTHING_PROCESSED != window.after:
            return self._whole(window).slice(0, 0)
        is_end = at_version == window.through
        return self._through(window, window.through_mark if is_end else window.after_mark)

    def look(self, window: TimeWindow, spec: LookSpec) -> TimeFacts:
        """See `Looker.look`."""
        rows = self._whole(window)
        _, kind = self._column(window, rows)
        start = window.after_mark
        refuse_other_type(window, kind, start)
        numbers = self._numbers(window, rows)
        nulls = numbers.null_count
        news = [n.as_py() for n in numbers.drop_null()]
        news = [n for n in news if start is None or n > start.number]
        end = settled_through(kind, spec.now, spec.settle_seconds).number
        taken = [n for n in news if n <= end]
        return TimeFacts(
            type=kind,
            newest=numbered(kind, max(taken)) if taken else None,
            oldest=numbered(kind, min(taken)) if taken else None,
            rows=len(taken),
            waiting=len(news) - len(taken),
            nulls=nulls,
        )

    def _through(self, window: TimeWindow, end: TimeMark | None) -> pa.Table:
        rows = self._whole(window)
        if end is None:
            return rows.slice(0, 0)
        return rows.filter(pc.less_equal(self._numbers(window, rows), end.number))

    def _numbers(self, window: TimeWindow, rows: pa.Table) -> pa.ChunkedArray:
        name, kind = self._column(window, rows)
        return numbers_of(rows[name], kind)

    def _column(self, window: TimeWindow, rows: pa.Table) -> tuple[str, TimeType]:
        column = window.query.by
        name = matching(column, rows.column_names)
        if name is None:
            raise schema_moved(window, f"no column {column}")
        found = rows.schema.field(name).type
        if pa.types.is_date(found):
            return name, "date"
        if not pa.types.is_timestamp(found):
            raise schema_moved(window, f"{column} is of type {found}")
        return name, "timestamp" if found.tz else "timestamp_ntz"

    def _whole(self, window: TimeWindow) -> pa.Table:
        form = window.query.form
        if form == "delta":
            return self._delta(window)
        files = data_files(window.place, self._storage)
        tables = [self._file(path, form) for path in files]
        return pa.concat_tables(tables, promote_options="default")

    def _file(self, path: str, form: str) -> pa.Table:
        with self._storage.open(path) as source:
            if form == "parquet":
                options: dict[str, Any] = {"coerce_int96_timestamp_unit": "us", "pre_buffer": False}
                return pq.ParquetFile(source, **options).read(use_threads=False)
            from pyarrow import orc

            return orc.ORCFile(source).read()

    def _delta(self, window: TimeWindow) -> pa.Table:
        from deltalake import DeltaTable, QueryBuilder

        table = DeltaTable(window.place, storage_options=self._storage.options)
        found = QueryBuilder().register("t", table).execute("SELECT * FROM t")
        rows = pa.table(found.read_all())
        return typed(rows, pa.schema(table.schema().to_arrow()))
