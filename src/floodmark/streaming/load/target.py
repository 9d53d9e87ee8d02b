"""The table that a stream writes to: what it is, and whether the rows of the stream go into it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from floodmark.errors import StreamError
from floodmark.model.names import matching
from floodmark.next_steps import STREAM, command
from floodmark.postgres import quoted, run
from floodmark.postgres.rows import (
    EXACT_TYPES,
    MAX_NAME_BYTES,
    TABLE_NAMES,
    ColumnError,
    NoTableError,
    PgTable,
    RowTarget,
    create,
    definitions,
    differences,
    look_up,
    widen,
)
from floodmark.streaming.ledger.tables import WriteMode
from floodmark.streaming.records.read import JUDGEMENT, PLACE

if TYPE_CHECKING:
    import pyarrow as pa

    from floodmark.postgres import Cursor

METADATA = (*PLACE, "_key", "_value", *JUDGEMENT)
"""Columns of a frame that say where a row comes from; they are written only if they are named."""

_REQUIRED = """SELECT attname FROM pg_attribute WHERE attrelid = $1 AND attnum > 0
  AND NOT attisdropped AND attnotnull AND NOT atthasdef AND attidentity = '' AND attgenerated = ''"""
_UNIQUE = """SELECT array_agg(a.attname::text) FROM pg_index i
  JOIN pg_attribute a ON a.attrelid = i.indrelid
  AND a.attnum = ANY((string_to_array(i.indkey::text, ' ')::int2[])[1:i.indnkeyatts])
  WHERE i.indrelid = $1 AND i.indisunique AND i.indisvalid AND i.indimmediate
  AND i.indpred IS NULL AND i.indexprs IS NULL GROUP BY i.indexrelid"""


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """What is said about a target."""

    table: str
    """As in SQL: `events`, `sales.events`, `"Odd".events`."""
    mode: WriteMode = "append"
    keys: tuple[str, ...] = ()
    creates_table: bool = False
    adds_columns: bool = False
    written_if: tuple[str, str] | None = None
    """A query and its value that find a row if the stream has written to it: a table that is gone
    then is not created again, empty."""
    columns: tuple[str, ...] | None = None
    """Of the frame; None for all that do not say where a row comes from."""


def data_columns(spec: TargetSpec, schema: pa.Schema) -> list[str]:
    """The columns of a frame that go to the target."""
    if spec.columns is not None:
        return list(spec.columns)
    return [name for name in schema.names if name not in METADATA]


def prepared(cursor: Cursor, spec: TargetSpec, schema: pa.Schema) -> RowTarget:
    """The target, created or widened if that is asked for; raises FM-STREAM-008 if rows do not fit."""
    table = _found(cursor, spec)
    if table.oid is None:
        if not spec.creates_table:
            raise unfit(spec, "there is no such table", "a table, or createTable: true")
        _refuse_gone(cursor, spec)
        _create(cursor, spec, table, schema)
        table = _found(cursor, spec)
    elif spec.adds_columns and _add_columns(cursor, spec, table, schema):
        table = _found(cursor, spec)
    return _checked(cursor, spec, table, schema)


def _refuse_gone(cursor: Cursor, spec: TargetSpec) -> None:
    """FM-STREAM-037 for a table that the stream has filled before."""
    if spec.written_if is None:
        return
    query, stream = spec.written_if
    if run(cursor, query, (stream,)).fetchone() is not None:
        raise StreamError(
            "FM-STREAM-037",
            "the target of the stream is gone although the stream has written to it",
            stream=stream,
            where=f"table {spec.table}",
            found="there is no such table: it was dropped, or the stream wrote to another one before",
            allowed="the table with the rows of earlier batches; or one that you create, if they"
            " are not to be in it",
            state="nothing of this batch was written; the stored offsets are as they were",
            next="restore the table; or let the stream create and fill it anew: "
            + command("stream", "reset", STREAM, "--to", "earliest", "--yes"),
        )


def unfit(spec: TargetSpec, found: str, allowed: str) -> StreamError:
    """FM-STREAM-008."""
    return StreamError(
        "FM-STREAM-008",
        "the rows of a stream do not fit the target",
        where=f"table {spec.table}",
        found=found,
        allowed=allowed,
        state="nothing of this batch was written",
        next="change the table or the schema of the stream, then: "
        + command("stream", "run", STREAM),
    )


def _found(cursor: Cursor, spec: TargetSpec) -> PgTable:
    try:
        return look_up(cursor, spec.table)
    except NoTableError as error:
        raise unfit(spec, str(error), TABLE_NAMES) from error


def _create(cursor: Cursor, spec: TargetSpec, table: PgTable, schema: pa.Schema) -> None:
    names = data_columns(spec, schema)
    columns = _definitions(spec, schema, names)
    if spec.mode == "upsert":
        keys = ", ".join(quoted(_required_name(spec, key, names)) for key in spec.keys)
        columns.append(f"PRIMARY KEY ({keys})")
    create(cursor, table, columns)


def _add_columns(cursor: Cursor, spec: TargetSpec, table: PgTable, schema: pa.Schema) -> bool:
    there = [column.name for column in table.columns]
    new = [name for name in data_columns(spec, schema) if matching(name, there) is None]
    if new:
        widen(cursor, table, _definitions(spec, schema, new))
    return bool(new)


def _definitions(spec: TargetSpec, schema: pa.Schema, names: Sequence[str]) -> list[str]:
    try:
        return definitions((name, schema.field(name).type) for name in names)
    except ColumnError as error:
        of_values = "plain values; others as text, by to_json"
        allowed = f"1 to {MAX_NAME_BYTES} bytes" if error.is_name else of_values
        raise unfit(spec, str(error), allowed) from None


def _checked(cursor: Cursor, spec: TargetSpec, table: PgTable, schema: pa.Schema) -> RowTarget:
    """Every difference between the frame and the table, at once."""
    names = data_columns(spec, schema)
    fields = [(name, schema.field(name).type) for name in names]
    different = differences(table, fields, "stream", "table")
    columns = [column for name in names if (column := table.column(name)) is not None]
    filled = {column.name for column in columns}
    for (name,) in run(cursor, _REQUIRED, (table.oid,)):
        if name not in filled:
            different.append(f"{name}: NOT NULL without a default, and not in the stream")
    if different:
        raise unfit(spec, "; ".join(different), f"columns of {EXACT_TYPES}")
    keys = tuple(_required_name(spec, key, list(filled)) for key in spec.keys)
    if spec.mode == "upsert":
        _check_keys(cursor, spec, table, keys)
    # A key has to have a value, whatever the index says: NULL conflicts with nothing.
    filled_columns = [replace(c, is_required=c.is_required or c.name in keys) for c in columns]
    return RowTarget(table.quoted, tuple(filled_columns), tuple(names), keys)


def _required_name(spec: TargetSpec, key: str, names: Sequence[str]) -> str:
    found = matching(key, names)
    if found is None:
        raise unfit(spec, f"the key {key} is not a column of the stream", ", ".join(names))
    return found


def _check_keys(cursor: Cursor, spec: TargetSpec, table: PgTable, keys: Sequence[str]) -> None:
    if not keys:
        raise unfit(spec, "an upsert without keys", "the columns of a primary key or unique index")
    unique = [set(names) for (names,) in run(cursor, _UNIQUE, (table.oid,))]
    if set(keys) not in unique:
        there = "; ".join(", ".join(sorted(names)) for names in unique) or "none"
        found = f"no unique index on ({', '.join(keys)}); there is: {there}"
        raise unfit(spec, found, "a primary key or unique index on exactly the keys")
