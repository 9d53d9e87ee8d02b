"""Rows as Arrow data without `pyarrow.array`, which imports pandas with its first call.

That is half a second of every command that writes, and minutes where fifty of them begin at once.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import accumulate
from typing import Any

import pyarrow as pa

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FIRST_DAY = date(1970, 1, 1).toordinal()


def table_of(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Rows with the columns of a schema; what a row does not have is NULL."""
    columns = [column_of([row.get(f.name) for row in rows], f.type) for f in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def column_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Python's values as one column of a type that the control tables have."""
    valid = None if all(v is not None for v in values) else _bits([v is not None for v in values])
    if pa.types.is_map(kind):
        return _map_column(values, kind, valid)
    if pa.types.is_list(kind):
        items = column_of([item for value in values for item in value or ()], kind.value_type)
        return _column(kind, values, [valid, _offsets(values)], [items])
    if pa.types.is_string(kind):
        texts = [b"" if value is None else value.encode() for value in values]
        return _column(kind, values, [valid, _offsets(texts), pa.py_buffer(b"".join(texts))])
    return _column(kind, values, [valid, _fixed(values, kind)])


def instants_of(column: pa.ChunkedArray) -> list[datetime]:
    """The instants of a column of times; converting the first one, pyarrow imports pandas too."""
    if column.type != pa.timestamp("us", "UTC"):
        return list(column.to_pylist())
    numbers = (n for chunk in column.chunks for n in chunk.view(pa.int64()).to_pylist())
    return [_EPOCH + number * _MICROSECOND for number in numbers]


def _map_column(values: Sequence[Any], kind: pa.MapType, valid: pa.Buffer | None) -> pa.Array:
    pairs = [pair for value in values for pair in dict(value or ()).items()]
    entry = pa.struct([kind.key_field, kind.item_field])
    keys = column_of([key for key, _ in pairs], kind.key_type)
    items = column_of([item for _, item in pairs], kind.item_type)
    entries = _column(entry, pairs, [None], [keys, items])
    return _column(kind, values, [valid, _offsets(values)], [entries])


def _fixed(values: Sequence[Any], kind: pa.DataType) -> pa.Buffer:
    """Values of one width each; whatever stands where there is none is never looked at."""
    if pa.types.is_boolean(kind):
        return _bits([bool(value) for value in values])
    if pa.types.is_floating(kind):
        return pa.py_buffer(array("d", [value or 0.0 for value in values]))
    if pa.types.is_date(kind):
        days = [value.toordinal() - _FIRST_DAY if value else 0 for value in values]
        return pa.py_buffer(array("i", days))
    if pa.types.is_timestamp(kind):
        values = [(value - _EPOCH) // _MICROSECOND if value else 0 for value in values]
    return pa.py_buffer(array("q", [value or 0 for value in values]))


def _column(
    kind: pa.DataType,
    values: Sequence[Any],
    buffers: list[pa.Buffer | None],
    children: list[pa.Array] | None = None,
) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), buffers, children=children)


def _offsets(values: Sequence[Any]) -> pa.Buffer:
    """Where each value begins and the last one ends."""
    lengths = (0 if value is None else len(value) for value in values)
    return pa.py_buffer(array("i", [0, *accumulate(lengths)]))


def _bits(flags: Sequence[bool]) -> pa.Buffer:
    number = sum(1 << position for position, flag in enumerate(flags) if flag)
    return pa.py_buffer(number.to_bytes((len(flags) + 7) // 8 or 1, "little"))
