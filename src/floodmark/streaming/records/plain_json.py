"""Records that are plainly sound, read by Arrow, which takes a third of the time of Spark's parser.

Spark says what a record is: `records.read`. Here only those are read of which it would say the
same; a record that leaves any doubt is left to it. So there is one judge, and most records need
none.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from floodmark.engines.arrow_frames import value_bytes
from floodmark.streaming.records.read import (
    BAD,
    BAD_COLUMN,
    EVENT_TIME,
    KEY,
    KNOWN_YEARS,
    LATE,
    PLACE,
    VALUE,
    Wanted,
    json_type,
    required_columns,
)

_PLACES = ("topic", "partition", "offset", "timestamp")
RECORD = ("key", "value", *_PLACES)
"""The columns of Spark's Kafka source that are looked at."""
_TIME = pa.timestamp("us", "UTC")
_JUDGED = {
    BAD: pa.string(),
    BAD_COLUMN: pa.string(),
    KEY: pa.binary(),
    VALUE: pa.binary(),
    EVENT_TIME: _TIME,
}
_ARROW = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": _TIME,
}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_WRITTEN_AS_TEXT = (pa.date32(), _TIME)

_DATE = r"^[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}$"
_MOMENT = r"^[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"
_ZONED = _MOMENT + r"(Z|[+-](0[0-9]|1[0-7]):[0-9]{2})$"
_UNZONED = _MOMENT + "$"
_FIRST, _LAST = (pa.scalar(edge, _TIME) for edge in KNOWN_YEARS)
_NAMES_OF_UTC = ("UTC", "Etc/UTC", "Z", "+00:00")

_LONG, _HUGE = 1_000, 32_768
"""From these sizes on a record can be what Spark's parser sets limits to: deep, or of many digits;
from the second on, of a long name."""
_DEEP = 500
_MANY_DIGITS = "[0-9]{300}"
_ODD = {b"\0": r"\x00", b"Inf": r"[:,\[]\s*-?Inf"}
"""One of the parsers takes more of these than the other: by a word of them, and a pattern."""
_MINUS_ZERO = -(2**63)
_EXACT = Context(prec=38)

_ROW = re.compile(r" in row (\d+)$")
_AT_ONCE = 2_048
"""Records that are parsed in one go: few enough to do it again without a doubtful one."""
_PATIENCE = 8
"""How many doubtful records of these are looked for; the rest of them is left to Spark."""
_FEW = 64
"""Records of which it is not worth finding the doubtful one."""


class DoubtError(Exception):
    """Some record is not plainly sound; `row` is which, where that is known."""

    def __init__(self, row: int | None = None) -> None:
        super().__init__()
        self.row = row


def why_not_plain(wanted: Wanted) -> str | None:
    """Why all records are left to Spark; None if only those are that leave doubts."""
    for field in wanted.payload.fields:
        if _arrow_type(field.type) is None:
            return f"column {field.name} is of type {field.type}"
    if wanted.is_late is not None or wanted.refuses_nul:
        return "records are judged by a rule that only Spark has"
    event_time = wanted.payload.field(wanted.event_time or "")
    if event_time is not None and event_time.type != "timestamp":
        return f"the time of events is of type {event_time.type}"
    return None


def _arrow_type(said: str) -> pa.DataType | None:
    kind = json_type(said)
    decimal = _DECIMAL.fullmatch(kind)
    if decimal:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    return _ARROW.get(kind)


@dataclass(frozen=True)
class PlainReader:
    """Reads records of the kind that is wanted, on the driver and on executors."""

    wanted: Wanted
    zone: str
    """Of the session: that of times without one."""

    def read(self, records: pa.Table) -> tuple[pa.Table, pa.Table]:
        """The rows of records that are plainly sound, as `judged` gives them; and the others.

        `records` have the columns `RECORD`, and so have the others.
        """
        none = records.slice(0, 0)
        rows, others = [self._empty(none)], [none]
        for batch in records.to_batches():
            likely, unlikely = _divided(pa.Table.from_batches([batch]), _likely(batch["value"]))
            others.append(unlikely)
            for start in range(0, likely.num_rows, _AT_ONCE):
                self._read(likely.slice(start, _AT_ONCE), rows, others)
        return pa.concat_tables(rows), pa.concat_tables(others)

    def _empty(self, records: pa.Table) -> pa.Table:
        columns = {each.name: pa.nulls(0, each.type) for each in self._schema_of_payload}
        return self._judged(records, columns)

    def _read(self, records: pa.Table, rows: list[pa.Table], others: list[pa.Table]) -> None:
        """Read as much as is sound; where a record is not, what is before and behind it."""
        parts, doubts = deque([records]), 0
        while parts:
            part = parts.popleft()
            try:
                found, sound = self._rows(part)
            except DoubtError as doubt:
                doubts += 1
                if doubts > _PATIENCE or (doubt.row is None and part.num_rows <= _FEW):
                    others.append(part)
                    continue
                start = stop = part.num_rows // 2
                if doubt.row is not None:
                    start, stop = doubt.row, doubt.row + 1
                others.append(part.slice(start, stop - start))
                parts.extendleft((part.slice(stop), part.slice(0, start)))
                continue
            rows.append(_divided(found, sound)[0])
            others.append(_divided(part, sound)[1])

    def _rows(self, records: pa.Table) -> tuple[pa.Table, pa.Array]:
        """The judged rows, and which of them are sure; raises DoubtError."""
        documents = self._documents(records)
        columns, sure = {}, pa.repeat(pa.scalar(value=True), records.num_rows)
        for field in self._schema_of_payload:
            found, is_sure = self._converted(documents[field.name].combine_chunks(), field.type)
            columns[field.name] = found
            sure = pc.and_(sure, pc.fill_null(is_sure, fill_value=True))
        for name in required_columns(self.wanted):
            sure = pc.and_(sure, pc.is_valid(columns[name]))
        return self._judged(records, columns), sure

    def _documents(self, records: pa.Table) -> pa.Table:
        """One row for each record."""
        import pyarrow.json as pj

        # A line break stands in no text and no number, so a record cannot go on in the next one;
        # each begins and ends as an object does, so as many rows as records is one for each.
        lines = pc.binary_join_element_wise(records["value"].combine_chunks(), b"", b"\n")
        text = lines.buffers()[2].slice(0, pc.sum(pc.binary_length(lines)).as_py())
        one_block = pj.ReadOptions(use_threads=False, block_size=text.size + 1)
        options = pj.ParseOptions(self._written, unexpected_field_behavior="ignore")
        try:
            documents = pj.read_json(pa.BufferReader(text), one_block, options)
        except pa.ArrowInvalid as error:
            raise DoubtError(_row_of(error, records.num_rows)) from error
        if documents.num_rows != records.num_rows:
            raise DoubtError
        return documents

    def _converted(self, column: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Any]:
        """A column in its type, and which of its values are sure."""
        if kind == _TIME:
            return self._times(column)
        if kind == pa.date32():
            return _cast(column, kind, pc.match_substring_regex(column, _DATE))
        if kind == pa.float64():
            return column, pc.and_(pc.is_finite(column), pc.invert(_is_minus_zero(column)))
        if pa.types.is_decimal(kind):
            return column, pc.less_equal(pc.abs(column), _largest(kind))
        if kind == pa.string() and self.wanted.nul_bytes != "reject":
            return column, pc.invert(pc.match_substring(column, "\0"))
        return column, pa.scalar(value=True)

    def _times(self, column: pa.Array) -> tuple[pa.Array, pa.Array]:
        is_sure = pc.match_substring_regex(column, _ZONED)
        if self.zone in _NAMES_OF_UTC and pc.any(pc.invert(is_sure)).as_py():
            is_unzoned = pc.match_substring_regex(column, _UNZONED)
            column = pc.if_else(is_unzoned, pc.binary_join_element_wise(column, "Z", ""), column)
            is_sure = pc.or_(is_sure, is_unzoned)
        times, is_sure = _cast(column, _TIME, is_sure)
        return times, pc.and_kleene(is_sure, pc.less(times, _LAST))

    def _judged(self, records: pa.Table, columns: Mapping[str, pa.Array]) -> pa.Table:
        """As records.read.judged tells of records that are sound: late ones keep their bytes."""
        nothing = {name: pa.nulls(records.num_rows, kind) for name, kind in _JUDGED.items()}
        found = {
            **{name: columns[name] for name in self.wanted.columns},
            **{alias: records[name] for name, alias in zip(_PLACES, PLACE, strict=True)},
            **nothing,
        }
        if self.wanted.event_time is not None:
            event_time = columns.get(self.wanted.event_time)
            found[EVENT_TIME] = records["timestamp"] if event_time is None else event_time
            found[EVENT_TIME] = _of_known_years(pc.cast(found[EVENT_TIME], _TIME))
        if self.wanted.late_before is not None:
            is_late = pc.less(found[EVENT_TIME], pa.scalar(self.wanted.late_before, _TIME))
            told = {BAD: pa.scalar(LATE), KEY: records["key"], VALUE: records["value"]}
            for name, value in told.items():
                found[name] = pc.if_else(is_late, value, nothing[name])
        return pa.table(found)

    @cached_property
    def _schema_of_payload(self) -> pa.Schema:
        fields = self.wanted.payload.fields
        return pa.schema([(each.name, _arrow_type(each.type)) for each in fields])

    @cached_property
    def _written(self) -> pa.Schema:
        """The types as they stand in JSON."""
        kinds = [(each.name, each.type) for each in self._schema_of_payload]
        return pa.schema(
            [(name, pa.string() if kind in _WRITTEN_AS_TEXT else kind) for name, kind in kinds]
        )


def _likely(values: pa.Array) -> pa.Array:
    """Which values may be read here, as far as a quick look tells: whole objects of UTF-8."""
    likely = pc.and_(pc.starts_with(values, b"{"), pc.ends_with(values, b"}"))
    likely = pc.and_(pc.fill_null(likely, fill_value=False), _are_utf8(values))
    for is_odd in _odd(values):
        likely = pc.and_not(likely, pc.fill_null(is_odd, fill_value=True))
    return likely


def _are_utf8(values: pa.Array) -> Any:
    try:
        pc.cast(values, pa.string())
    except pa.ArrowInvalid:
        return pa.array([_is_utf8(value) for value in values.to_pylist()], pa.bool_())
    return pa.scalar(value=True)


def _is_utf8(value: bytes | None) -> bool:
    try:
        return value is not None and value.decode() is not None
    except UnicodeDecodeError:
        return False


def _odd(values: pa.Array) -> Iterator[pa.Array]:
    """Which values have what one of the parsers takes and the other does not.

    Looked for in all bytes at once; only where it is found, value by value.
    """
    text = value_bytes(values)
    for word, pattern in _ODD.items():
        if word in text:
            yield pc.match_substring_regex(values, pattern)
    sizes = pc.binary_length(values)
    if (pc.max(sizes).as_py() or 0) > _LONG:
        openers = pc.add(pc.count_substring(values, b"["), pc.count_substring(values, b"{"))
        yield pc.or_(pc.greater(sizes, _HUGE), pc.greater(openers, _DEEP))
        yield pc.match_substring_regex(values, _MANY_DIGITS)


def _cast(column: pa.Array, kind: pa.DataType, is_sure: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Texts in another type, as far as they are sure."""
    try:
        return pc.cast(pc.if_else(is_sure, column, None), kind), is_sure
    except pa.ArrowInvalid as error:
        raise DoubtError from error


def _of_known_years(times: Any) -> Any:
    is_known = pc.and_(pc.greater_equal(times, _FIRST), pc.less(times, _LAST))
    return pc.if_else(is_known, times, None)


def _largest(kind: pa.DataType) -> pa.Scalar:
    """Arrow takes numbers that have too many digits once their scale is right."""
    return pa.scalar(Decimal(10**kind.precision - 1).scaleb(-kind.scale, _EXACT), kind)


def _is_minus_zero(column: pa.Array) -> pa.Array:
    """Of zeros only one of the parsers keeps the sign."""
    return pc.equal(column.view(pa.int64()), _MINUS_ZERO)


def _divided(table: pa.Table, chosen: pa.Array) -> tuple[pa.Table, pa.Table]:
    """The rows that are chosen, and the others."""
    if pc.all(chosen).as_py():
        return table, table.slice(0, 0)
    return table.filter(chosen), table.filter(pc.invert(chosen))


def _row_of(error: pa.ArrowInvalid, rows: int) -> int | None:
    """The row that an error of Arrow names."""
    named = _ROW.search(str(error))
    row = int(named[1]) if named else rows
    return row if row < rows else None
