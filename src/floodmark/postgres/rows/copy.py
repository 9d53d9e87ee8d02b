"""Rows from Arrow into PostgreSQL by COPY: which types go together, and which values do not.

Binary by pgpq where it knows every type, else as text by psycopg. Every value is checked before it
is sent, so that an error can name the row and the column, and nothing is rounded or cut off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from selectors import EVENT_WRITE, BaseSelector, DefaultSelector
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from floodmark.engines.arrow_frames import value_bytes
from floodmark.postgres.connect import quoted

if TYPE_CHECKING:
    from psycopg import Copy

    from floodmark.postgres.connect import Cursor

_INTEGERS = {"int2": pa.int16(), "int4": pa.int32(), "int8": pa.int64()}
_TEXTS = frozenset(("text", "varchar", "bpchar"))
_MAX_DIGITS = 76
"""Of a decimal of Arrow."""
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""0001-01-01 and 9999-12-31, in days since 1970."""
_DAY_MICROS = 86_400_000_000
_PART_BYTES = 128 * 1024


@dataclass(frozen=True, slots=True)
class PgColumn:
    """A column of a table as the catalog of the database describes it."""

    name: str
    type: str
    """The internal name of the type: int4, varchar, numeric."""
    shown: str
    """The type as people write it: integer, character varying(10), numeric(12,2)."""
    length: int | None = None
    precision: int | None = None
    scale: int | None = None
    is_required: bool = False


class MisfitError(ValueError):
    """A value does not fit its column; `row` counts from 1 within the frame."""

    def __init__(self, column: str, row: int, why: str) -> None:
        super().__init__(f"row {row}, column {column}: {why}")
        self.column = column
        self.row = row
        self.why = why


def created_type(kind: pa.DataType) -> str | None:
    """The type of a column that is created for values of an Arrow type; None if there is none."""
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision},{kind.scale})" if 0 <= kind.scale <= 76 else "numeric"
    if pa.types.is_timestamp(kind):
        return "timestamp with time zone" if kind.tz else "timestamp without time zone"
    for is_kind, name in _CREATED:
        if is_kind(kind):
            return name
    return None


def wire_type(kind: pa.DataType, column: PgColumn) -> pa.DataType | None:
    """The Arrow type in which values go to a column without loss; None if they do not go there."""
    is_any = pa.types.is_null(kind)
    if column.type in _INTEGERS and (is_any or pa.types.is_integer(kind)):
        return _INTEGERS[column.type]
    if column.type == "numeric":
        return _wire_numeric(kind, column)
    for name, accepts, wire in _WIRES:
        if column.type == name and (is_any or accepts(kind)):
            return wire
    known = column.type in _INTEGERS or column.type in {name for name, _, _ in _WIRES}
    # Other types (uuid, jsonb, enums, domains) read their text form.
    return None if known or not (is_any or _is_text(kind)) else pa.string()


Refuse = Callable[[MisfitError], None]
"""Is told of a row that is left out, with the first value in it that does not fit."""


def copy_rows(
    cursor: Cursor,
    table: str,
    columns: Sequence[PgColumn],
    sources: Sequence[str],
    batches: Iterable[pa.RecordBatch],
    *,
    refuse: Refuse | None = None,
    freezes: bool = False,
) -> int:
    """Copy `sources` of every batch into `columns` of the quoted `table`; returns the rows written.

    Raises MisfitError at the first value that does not fit; the transaction is then to be given up.
    With `refuse` rows with such a value are left out and told instead, and so are texts that are no
    UTF-8, which the server would refuse, and dates outside of the years 1 to 9999, which hardly any
    client can read back. `freezes` is for a table that this transaction made and that nobody else
    sees: whoever reads it need not ask whether its rows are committed.
    """
    fits = _Fitting(columns, sources, refuse)
    names = ", ".join(quoted(column.name) for column in columns)
    fitted = fits.batches(batches)
    frozen = ", FREEZE" if freezes else ""
    if _is_binary(fits.schema, columns):
        form = f"FORMAT BINARY{frozen}"
        _copy_binary(cursor, f"COPY {table} ({names}) FROM STDIN ({form})", fitted, fits)
    else:
        _copy_text(cursor, f"COPY {table} ({names}) FROM STDIN (FORMAT TEXT{frozen})", fitted)
    return cursor.rowcount


class _Fitting:
    """Casts batches to the wire types, counting rows."""

    def __init__(
        self, columns: Sequence[PgColumn], sources: Sequence[str], refuse: Refuse | None
    ) -> None:
        self._columns = columns
        self._sources = sources
        self._refuse = refuse
        self.schema: pa.Schema | None = None
        """Known from the first batch on."""

    def batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same rows in wire types; the first batch is looked at when this is called."""
        source = iter(batches)
        first = next(source, None)
        if first is not None:
            self.schema = self._wire_schema(first.schema)
        return self._fitted(first, source)

    def _wire_schema(self, schema: pa.Schema) -> pa.Schema:
        pairs = zip(self._columns, self._sources, strict=True)
        return pa.schema(
            [
                (c.name, wire_type(schema.field(source).type, c) or pa.string())
                for c, source in pairs
            ]
        )

    def _fitted(
        self, first: pa.RecordBatch | None, rest: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        before, batch = 0, first
        while batch is not None:
            yield self._cast(batch, before)
            before += batch.num_rows
            batch = next(rest, None)

    def _cast(self, batch: pa.RecordBatch, before: int) -> pa.RecordBatch:
        arrays, misfits = [], dict[int, MisfitError]()
        for column, source, field in zip(
            self._columns, self._sources, self.schema or (), strict=True
        ):
            array = batch.column(batch.schema.get_field_index(source))
            cast, found = _fitted_array(array, column, field.type, is_strict=bool(self._refuse))
            for row, why in found:
                misfits.setdefault(row, MisfitError(column.name, before + row + 1, why))
                if self._refuse is None:
                    raise misfits[row]
            arrays.append(cast)
        fitted = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        return self._without(fitted, misfits) if misfits else fitted

    def _without(self, batch: pa.RecordBatch, misfits: Mapping[int, MisfitError]) -> pa.RecordBatch:
        for row in sorted(misfits):
            (self._refuse or _raised)(misfits[row])
        is_good = pc.invert(pc.is_in(pa.array(range(batch.num_rows)), pa.array(list(misfits))))
        return batch.filter(is_good)


def _raised(misfit: MisfitError) -> None:
    raise misfit


def _fitted_array(
    array: pa.Array, column: PgColumn, wire: pa.DataType, *, is_strict: bool
) -> tuple[pa.Array, Iterator[tuple[int, str]]]:
    """The array in its wire type, with the rows that do not fit and why; those may be NULL in it."""
    if pa.types.is_integer(array.type) and pa.types.is_decimal(wire):
        # Arrow asks for room for every value of the type; the next cast looks at those there are.
        array = array.cast(pa.decimal128(20, 0))
    bad: list[int] = []
    try:
        cast = array.cast(wire)
    except pa.ArrowInvalid:
        bad = list(_uncastable(array, wire, 0))
        cast = _blanked(array, bad).cast(wire)
    return cast, _misfits(cast, column, bad, is_strict=is_strict)


def _misfits(
    array: pa.Array, column: PgColumn, uncastable: Iterable[int], *, is_strict: bool
) -> Iterator[tuple[int, str]]:
    for row in uncastable:
        yield row, f"not exact as {column.shown}"
    if is_strict and pa.types.is_string(array.type):
        broken = list(_broken_texts(array, 0))
        yield from ((row, "not UTF-8") for row in broken)
        array = _blanked(array, broken) if broken else array
    for why, is_bad in (*_faults(array, column), *(_strict_faults(array) if is_strict else ())):
        if pc.any(is_bad).as_py():
            rows = pc.indices_nonzero(is_bad.fill_null(False))  # noqa: FBT003
            yield from ((row, why) for row in rows.to_pylist())


def _faults(array: pa.Array, column: PgColumn) -> Iterator[tuple[str, pa.Array]]:
    """What the database would refuse, or cut off, with the rows in which it is."""
    if column.is_required and array.null_count:
        yield "NULL, and the column takes none", pc.is_null(array)
    if not pa.types.is_string(array.type):
        return
    if b"\0" in value_bytes(array):
        yield "a NUL character, which PostgreSQL cannot store", pc.match_substring(array, "\0")
    if column.length is not None:
        why = f"more than {column.length} characters"
        yield why, pc.greater(pc.utf8_length(array), column.length)


def _strict_faults(array: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    if pa.types.is_date(array.type):
        days, unit = array.cast(pa.int32()), 1
    elif pa.types.is_timestamp(array.type):
        days, unit = array.cast(pa.int64()), _DAY_MICROS
    else:
        return
    is_early = pc.less(days, _FIRST_DAY * unit)
    is_late = pc.greater_equal(days, (_LAST_DAY + 1) * unit)
    yield "outside of the years 1 to 9999", pc.or_(is_early, is_late)


def _uncastable(array: pa.Array, wire: pa.DataType, before: int) -> Iterator[int]:
    """Every row that cannot be cast, by bisection."""
    try:
        array.cast(wire)
    except pa.ArrowInvalid:
        if len(array) == 1:
            yield before
            return
        middle = len(array) // 2
        yield from _uncastable(array.slice(0, middle), wire, before)
        yield from _uncastable(array.slice(middle), wire, before + middle)


def _broken_texts(array: pa.Array, before: int) -> Iterator[int]:
    """Every row whose bytes are no text, by bisection; readers of Kafka do not look at them."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        if len(array) == 1:
            yield before
            return
        middle = len(array) // 2
        yield from _broken_texts(array.slice(0, middle), before)
        yield from _broken_texts(array.slice(middle), before + middle)


def _blanked(array: pa.Array, rows: Sequence[int]) -> pa.Array:
    """NULL in these rows."""
    is_bad = pc.is_in(pa.array(range(len(array))), pa.array(rows, pa.int64()))
    return pc.if_else(is_bad, pa.scalar(None, array.type), array)


def _is_binary(schema: pa.Schema | None, columns: Sequence[PgColumn]) -> bool:
    if schema is None or not all(has_binary_form(column) for column in columns):
        return False
    return _encoder(schema) is not None


def has_binary_form(column: PgColumn) -> bool:
    """Whether the type of the column is one whose binary form pgpq writes."""
    known = {name for name, _, _ in _WIRES} | set(_INTEGERS) | {"numeric"}
    return column.type in known


def _encoder(schema: pa.Schema) -> Any:
    """What writes the binary form; None where pgpq does not know a type."""
    try:
        from pgpq import ArrowToPostgresBinaryEncoder

        return ArrowToPostgresBinaryEncoder(schema)
    except (ImportError, ValueError):
        return None


def _copy_binary(
    cursor: Cursor, statement: str, batches: Iterable[pa.RecordBatch], fits: _Fitting
) -> None:
    encoder = _encoder(fits.schema)
    with cursor.copy(statement.encode()) as copy, DefaultSelector() as ready:
        ready.register(copy.connection.pgconn.socket, EVENT_WRITE)
        _send(copy, encoder.write_header(), ready)
        for batch in batches:
            _send(copy, encoder.write_batch(batch), ready)
        _send(copy, encoder.finish(), ready)


def _send(copy: Copy, data: bytes, ready: BaseSelector) -> None:
    """Hand on no more than the server takes.

    What waits in libpq is moved in memory with every part that is sent: most of what a driver does
    if all is handed on at once.
    """
    for start in range(0, len(data), _PART_BYTES):
        copy.write(data[start : start + _PART_BYTES])
        while copy.connection.pgconn.flush():
            ready.select()


def _copy_text(cursor: Cursor, statement: str, batches: Iterable[pa.RecordBatch]) -> None:
    with cursor.copy(statement.encode()) as copy:
        for batch in batches:
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                copy.write_row(row)


def _wire_numeric(kind: pa.DataType, column: PgColumn) -> pa.DataType | None:
    if not (pa.types.is_null(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind)):
        return None
    if column.precision is None or column.scale is None:
        return kind if pa.types.is_decimal(kind) else pa.decimal128(20, 0)
    if not 0 <= column.scale <= column.precision:
        return None
    if column.precision <= 38:
        return pa.decimal128(column.precision, column.scale)
    return pa.decimal256(min(column.precision, _MAX_DIGITS), min(column.scale, _MAX_DIGITS))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _is_single(kind: pa.DataType) -> bool:
    return bool(pa.types.is_float16(kind) or pa.types.is_float32(kind))


def _is_double(kind: pa.DataType) -> bool:
    is_exact = pa.types.is_integer(kind) and kind.bit_width <= 32
    return bool(pa.types.is_floating(kind) or is_exact)


def _is_instant(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.tz is not None)


def _is_wall_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.tz is None)


Accepts = Callable[[pa.DataType], bool]

_WIRES: tuple[tuple[str, Accepts, pa.DataType], ...] = (
    ("bool", pa.types.is_boolean, pa.bool_()),
    ("float4", _is_single, pa.float32()),
    ("float8", _is_double, pa.float64()),
    *((name, _is_text, pa.string()) for name in sorted(_TEXTS)),
    ("bytea", _is_bytes, pa.binary()),
    ("date", pa.types.is_date, pa.date32()),
    ("timestamp", _is_wall_time, pa.timestamp("us")),
    ("timestamptz", _is_instant, pa.timestamp("us", "UTC")),
    ("time", pa.types.is_time, pa.time64("us")),
)

_CREATED: tuple[tuple[Accepts, str], ...] = (
    (pa.types.is_boolean, "boolean"),
    (lambda kind: kind in (pa.int8(), pa.int16(), pa.uint8()), "smallint"),
    (lambda kind: kind in (pa.int32(), pa.uint16()), "integer"),
    (lambda kind: kind in (pa.int64(), pa.uint32()), "bigint"),
    (pa.types.is_uint64, "numeric(20,0)"),
    (_is_single, "real"),
    (pa.types.is_float64, "double precision"),
    (_is_text, "text"),
    (pa.types.is_null, "text"),
    (_is_bytes, "bytea"),
    (pa.types.is_date, "date"),
    (pa.types.is_time, "time without time zone"),
)
