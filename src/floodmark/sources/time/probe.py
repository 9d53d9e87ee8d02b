"""What is new in an upstream without versions, by its time column alone: no Spark, no Java.

Parquet folders are looked at through the footers of their files, and the time column of those row
groups whose statistics do not tell; Delta tables by delta-rs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from floodmark.deltalog import DeltaLog, Storage, is_delta_table
from floodmark.errors import PlanError, SourceError
from floodmark.model import (
    AnyMark,
    Format,
    Probe,
    TableFacts,
    TimeFacts,
    TimeMark,
    TimeQuery,
    TimeType,
    TimeWindow,
    UpstreamOptions,
    numbered,
    settled_through,
)
from floodmark.model.names import matching
from floodmark.next_steps import THEN_RETRY
from floodmark.sources.faults import out_of_reach, schema_moved
from floodmark.sources.frames import HALF_COPIED
from floodmark.sources.source import facts_without_versions

_DELTA_TYPES: dict[str, TimeType] = {
    "timestamp": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
    "date": "date",
}
_MICROS = {"milliseconds": 1_000, "microseconds": 1}
_ONLY_SPARK = frozenset(("deletionVectors", "columnMapping", "typeWidening"))
"""Features of Delta tables into which only Spark looks exactly."""


def probe_place(upstream: str, options: UpstreamOptions, storage: Storage) -> Probe:
    """What stands there and how it is read; nothing is looked for. Raises FM-PLAN-001, -002."""
    form = options.format or _format_at(upstream, storage)
    query = options.as_query(form)
    if form == "delta":
        return Probe(DeltaLog(upstream, storage).facts(), query=query)
    files = list(data_files(upstream, storage))
    if not files:
        raise _empty_folder(upstream, form)
    return Probe(facts_without_versions(upstream, files=len(files)), query=query)


def probe_time(
    upstream: str, start: AnyMark | None, options: UpstreamOptions, now: datetime, storage: Storage
) -> Probe:
    """What is new after a mark; `time` is None where only Spark can look.

    Raises FM-PLAN-001 if there is nothing at all, FM-PLAN-025 if the column cannot be gone by.
    """
    place = probe_place(upstream, options, storage)
    query = place.query
    if not isinstance(query, TimeQuery) or query.form == "orc":
        return place
    begin = start if isinstance(start, TimeMark) else None
    look = ColumnLook(upstream, query.by, begin, now, options.settle_seconds)
    if query.form == "parquet":
        tally = look_into_parquet(look, data_files(upstream, storage), storage)
        facts = facts_without_versions(upstream, fingerprint=_fingerprint(tally.schemas))
        return Probe(facts, query=query, time=tally.facts())
    if _ONLY_SPARK & set(place.facts.reader_features):
        return place
    return Probe(place.facts, query=query, time=_look_into_delta(look, place.facts, storage))


@dataclass(frozen=True)
class ColumnLook:
    """What is asked of a time column."""

    upstream: str
    column: str
    start: TimeMark | None
    now: datetime
    settle_seconds: float | None

    def bounds(self, kind: TimeType) -> tuple[int | None, int]:
        """The numbers of the mark, excluded, and of the last value that may be taken."""
        if self.start is not None and self.start.type != kind:
            raise other_type(self.upstream, self.column, kind, self.start.type)
        begin = None if self.start is None else self.start.number
        return begin, settled_through(kind, self.now, self.settle_seconds).number


@dataclass
class ColumnTally:
    """The new values of a time column so far, in numbers: microseconds or days since 1970."""

    look: ColumnLook
    kind: TimeType | None = None
    newest: int | None = None
    oldest: int | None = None
    rows: int = 0
    waiting: int = 0
    nulls: int = 0
    schemas: set[str] = field(default_factory=set)

    def take(self, low: int, high: int, count: int) -> None:
        """Count values that are all new and settled."""
        self.newest = high if self.newest is None else max(high, self.newest)
        self.oldest = low if self.oldest is None else min(low, self.oldest)
        self.rows += count

    def facts(self) -> TimeFacts:
        kind = self.kind or "timestamp"
        return TimeFacts(
            type=kind,
            newest=None if self.newest is None else numbered(kind, self.newest),
            oldest=None if self.oldest is None else numbered(kind, self.oldest),
            rows=self.rows,
            waiting=self.waiting,
            nulls=self.nulls,
        )


# Files --------------------------------------------------------------------------------------------


def data_files(folder: str, storage: Storage) -> Iterator[str]:
    """The files that Spark reads of a folder: its own and those of partitions (`day=1`).

    Names that begin with _ or . are none of them, nor is what is still being copied. Raises FM-PLAN-001 if there is no such folder,
    FM-PLAN-025 for a folder inside that is no partition: Spark would pass over it.
    """
    try:
        entries = storage.list(folder)
    except FileNotFoundError as error:
        raise _missing(folder) from error
    except OSError as error:
        raise out_of_reach(folder, error) from error
    for entry in entries:
        path = f"{folder}/{entry.name}"
        if entry.name.startswith(("_", ".")) or entry.name.endswith(HALF_COPIED):
            continue
        if not entry.is_folder:
            yield path
        elif "=" in entry.name:
            yield from data_files(path, storage)
        else:
            raise _unusable(
                folder, f"the folder {entry.name}", "files, and folders named column=value"
            )


def look_into_parquet(look: ColumnLook, files: Iterable[str], storage: Storage) -> ColumnTally:
    """What the time column of these files shows; reads it only where statistics do not tell."""
    tally = ColumnTally(look)
    for path in files:
        try:
            with storage.open(path) as source:
                _look_into_file(tally, path, pq.ParquetFile(source, **_EXACT))
        except pa.ArrowInvalid as error:
            raise _unusable(look.upstream, f"{path}: {error}"[:500], "Parquet files") from error
        except OSError as error:
            raise out_of_reach(path, error) from error
    return tally


def refuse_replaced(upstream: str, path: str, names: Iterable[str]) -> None:
    """Raise FM-PLAN-025 for a file with a column that its folder is too: Spark takes the folder's."""
    folders = path.removeprefix(f"{upstream}/").split("/")[:-1]
    columns = {unquote(each.partition("=")[0]).casefold() for each in folders if "=" in each}
    name = next((name for name in names if name.casefold() in columns), None)
    if name is not None:
        found = f"{path} has a column {name}, and its folder is that column too"
        raise _unusable(upstream, found, "folders that are other columns than those of the files")


_EXACT: dict[str, Any] = {"coerce_int96_timestamp_unit": "us", "pre_buffer": False}


def _look_into_file(tally: ColumnTally, path: str, file: pq.ParquetFile) -> None:
    look = tally.look
    refuse_replaced(look.upstream, path, file.schema_arrow.names)
    name = matching(look.column, file.schema_arrow.names)
    if name is None:
        columns = ", ".join(file.schema_arrow.names)
        raise _unusable(look.upstream, f"{path} has no column {look.column}", columns)
    index = next(i for i in range(len(file.schema)) if file.schema.column(i).path == name)
    kind, factor = _parquet_type(look, path, file.schema.column(index))
    if tally.kind not in (None, kind):
        raise _unusable(look.upstream, f"{look.column} is {kind} in {path}", str(tally.kind))
    tally.kind = kind
    tally.schemas.add(str(file.schema_arrow.remove_metadata()))
    begin, end = look.bounds(kind)
    for group in range(file.num_row_groups):
        statistics = file.metadata.row_group(group).column(index).statistics
        if not _count_by_statistics(tally, statistics, factor, begin, end):
            column = file.read_row_group(group, columns=[name], use_threads=False).column(0)
            _count(tally, column, kind, begin, end)


def _parquet_type(look: ColumnLook, path: str, column: Any) -> tuple[TimeType, int]:
    """The type of a Parquet column, and how many microseconds one of its numbers is."""
    if column.physical_type == "INT96":
        return "timestamp", 0  # an instant, as Spark and Hive write it; has no statistics
    logical = json.loads(column.logical_type.to_json())
    if logical.get("Type") == "Date":
        return "date", 1
    if logical.get("Type") == "Timestamp" and logical.get("timeUnit") in _MICROS:
        kind: TimeType = "timestamp" if logical.get("isAdjustedToUTC") else "timestamp_ntz"
        return kind, _MICROS[logical["timeUnit"]]
    what = logical.get("timeUnit") or logical.get("Type") or column.physical_type
    raise _unusable(
        look.upstream,
        f"{look.column} is of type {what} in {path}",
        "a timestamp of milliseconds or microseconds, or a date",
    )


def _count_by_statistics(
    tally: ColumnTally, statistics: Any, factor: int, begin: int | None, end: int
) -> bool:
    """Count a row group by its statistics; returns whether they tell enough."""
    if statistics is None or not factor or not statistics.has_null_count:
        return False
    count, nulls = statistics.num_values, statistics.null_count
    if not statistics.has_min_max:
        if count == 0:
            tally.nulls += nulls
        return bool(count == 0)
    low, high = statistics.min_raw * factor, statistics.max_raw * factor
    is_old = begin is not None and high <= begin
    is_new = (begin is None or low > begin) and high <= end
    if not (is_old or is_new or low > end):
        return False
    tally.nulls += nulls
    if is_new:
        tally.take(low, high, count)
    elif not is_old:
        tally.waiting += count
    return True


def _count(
    tally: ColumnTally, column: pa.ChunkedArray, kind: TimeType, begin: int | None, end: int
) -> None:
    # Imported here: it takes longer to load than all else that planning needs.
    import pyarrow.compute as pc

    numbers = numbers_of(column, kind)
    tally.nulls += numbers.null_count
    numbers = numbers.drop_null()
    if begin is not None:
        numbers = numbers.filter(pc.greater(numbers, begin))
    settled = numbers.filter(pc.less_equal(numbers, end))
    tally.waiting += len(numbers) - len(settled)
    if len(settled):
        span = pc.min_max(settled).as_py()
        tally.take(span["min"], span["max"], len(settled))


def numbers_of(column: pa.ChunkedArray, kind: TimeType) -> pa.ChunkedArray:
    """A time column as numbers, see `TimeMark.number`."""
    if kind == "date":
        return column.cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
    zone = column.type.tz if pa.types.is_timestamp(column.type) else None
    return column.cast(pa.timestamp("us", zone)).cast(pa.int64())


# Delta tables -------------------------------------------------------------------------------------


def delta_type(upstream: str, column: str, schema_json: str) -> tuple[str, TimeType]:
    """The column as the table spells it, and its type; raises FM-PLAN-025."""
    fields = {str(f["name"]): f["type"] for f in json.loads(schema_json)["fields"]}
    name = matching(column, list(fields))
    if name is None:
        raise _unusable(upstream, f"no column {column}", ", ".join(fields))
    kind = _DELTA_TYPES.get(str(fields[name]))
    if kind is None:
        raise _unusable(upstream, f"{column} is of type {fields[name]}", ", ".join(_DELTA_TYPES))
    return name, kind


def _look_into_delta(look: ColumnLook, facts: TableFacts, storage: Storage) -> TimeFacts:
    from deltalake import DeltaTable, QueryBuilder
    from deltalake.exceptions import DeltaError

    name, kind = delta_type(look.upstream, look.column, facts.schema_json)
    begin, end = look.bounds(kind)
    column = '"' + name.replace('"', '""') + '"'
    since = f"{column} > {_literal(kind, begin)}" if begin is not None else "true"
    taken = f"{since} AND {column} <= {_literal(kind, end)}"
    query = (
        f"SELECT max(CASE WHEN {taken} THEN {column} END) AS newest,"
        f" min(CASE WHEN {taken} THEN {column} END) AS oldest,"
        f" count(CASE WHEN {taken} THEN 1 END) AS taken,"
        f" count(CASE WHEN {column} > {_literal(kind, end)} THEN 1 END) AS waiting,"
        f" count(CASE WHEN {column} IS NULL THEN 1 END) AS nulls"
        f" FROM t WHERE {since} OR {column} IS NULL"
    )
    try:
        table = DeltaTable(look.upstream, storage_options=dict(storage.options))
        rows = pa.table(QueryBuilder().register("t", table).execute(query).read_all())
    except (DeltaError, OSError) as error:
        raise out_of_reach(look.upstream, error) from error
    newest, oldest = (numbers_of(rows[side], kind)[0].as_py() for side in ("newest", "oldest"))
    return TimeFacts(
        type=kind,
        newest=None if newest is None else numbered(kind, newest),
        oldest=None if oldest is None else numbered(kind, oldest),
        rows=rows["taken"][0].as_py(),
        waiting=rows["waiting"][0].as_py(),
        nulls=rows["nulls"][0].as_py(),
    )


def _literal(kind: TimeType, number: int | None) -> str:
    types = {
        "timestamp": 'Timestamp(Microsecond, Some("UTC"))',
        "timestamp_ntz": "Timestamp(Microsecond, None)",
        "date": "Date32",
    }
    whole = f"CAST({number} AS INT)" if kind == "date" else f"CAST({number} AS BIGINT)"
    return f"arrow_cast({whole}, '{types[kind]}')"


# What stands there --------------------------------------------------------------------------------


def _format_at(upstream: str, storage: Storage) -> Format:
    return "delta" if is_delta_table(upstream, storage) else "parquet"


def _fingerprint(schemas: Iterable[str]) -> str:
    text = "\n".join(sorted(schemas))
    return hashlib.sha256(text.encode()).hexdigest()[:32] if text else ""


def planned_facts(window: TimeWindow, storage: Storage) -> TableFacts:
    """What stands there, if it is what was planned; raises FM-SOURCE-003."""
    if window.query.form != "delta":
        return facts_without_versions(window.place)
    facts = DeltaLog(window.place, storage).facts()
    if facts.table_id != window.table_id:
        raise SourceError(
            "FM-SOURCE-003",
            "the table is no longer the one that was planned",
            where=window.upstream,
            found=f"table id {facts.table_id}",
            allowed=f"table id {window.table_id}",
            state="nothing was read or written; the committed watermark stays",
            next="put the table back, " + THEN_RETRY,
        )
    return facts


def refuse_other_type(window: TimeWindow, kind: TimeType, mark: TimeMark | None) -> None:
    """A column is compared with marks of its own type only (FM-SOURCE-007)."""
    if mark is not None and mark.type != kind:
        column = window.query.by
        raise schema_moved(window, f"{column} is of type {kind}, its marks are {mark.type}")


# Errors -------------------------------------------------------------------------------------------


def _missing(folder: str) -> PlanError:
    return PlanError(
        "FM-PLAN-001",
        f"upstream {folder} cannot be found",
        found="there is no such folder",
        allowed="a folder of files, or a Delta table",
        state="nothing was planned",
        next="check the path",
    )


def _empty_folder(folder: str, form: str) -> PlanError:
    return PlanError(
        "FM-PLAN-001",
        f"upstream {folder} has no file yet",
        found="a folder without a data file: its columns are not known",
        allowed=f"at least one file of format {form}",
        state="nothing was planned",
        next="plan again once the first file is there",
        retryable=True,
    )


def _unusable(upstream: str, found: str, allowed: str) -> PlanError:
    return PlanError(
        "FM-PLAN-025",
        f"{upstream} cannot be read by its time column",
        found=found,
        allowed=allowed,
        state="nothing was planned; the committed watermark stays",
        next="correct time_column or format of the upstream, or its files",
    )


def other_type(upstream: str, column: str, found: TimeType, before: TimeType) -> PlanError:
    """The error for a column whose type is not that of the mark."""
    return _unusable(upstream, f"{column} is of type {found}", f"{before}, as its mark is")
