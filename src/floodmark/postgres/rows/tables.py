"""A table of the database: looked up in the catalog, made or widened, and whether rows go into it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from floodmark.model.names import matching
from floodmark.model.sql_names import name_parts
from floodmark.postgres.connect import MAX_NAME_BYTES, quoted, quoted_table, run
from floodmark.postgres.rows.copy import PgColumn, created_type, wire_type

if TYPE_CHECKING:
    import pyarrow as pa

    from floodmark.postgres.connect import Cursor

TABLE_NAMES = 'table, schema.table, or "Quoted".names as in SQL'
EXACT_TYPES = "types that go into one another exactly"
_TABLE_KINDS = {"r": "table", "p": "partitioned table"}
_NUMERIC_HEADER = 4
_CONNECTION = re.compile(r"^[A-Za-z0-9_.\-]+:")

_COLUMNS = """SELECT a.attname, t.typname, format_type(a.atttypid, a.atttypmod), a.atttypmod,
  a.attnotnull, t.typtype = 'd', a.attgenerated <> '' OR a.attidentity = 'a'
  FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
  WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"""

Field = tuple[str, "pa.DataType"]
"""A column of a frame."""


class NoTableError(ValueError):
    """A name, or what it names, is no table."""


class ColumnError(ValueError):
    """A column that PostgreSQL cannot have."""

    def __init__(self, found: str, *, is_name: bool) -> None:
        super().__init__(found)
        self.is_name = is_name
        """Whether its name is to blame, else its type."""


@dataclass(frozen=True, slots=True)
class PgTable:
    """A table as one look at the catalog shows it; `oid` is None where there is none."""

    schema: str
    name: str
    oid: int | None
    columns: tuple[PgColumn, ...]
    """Those that a write may give values."""
    generated: tuple[str, ...]
    """Those whose values PostgreSQL makes itself: GENERATED ALWAYS, AS IDENTITY or of others."""

    @property
    def quoted(self) -> str:
        """Its name in statements."""
        return quoted_table(self.schema, self.name)

    def column(self, name: str) -> PgColumn | None:
        """The column that a name of a frame means, whatever its case."""
        found = matching(name, [column.name for column in self.columns])
        return next((column for column in self.columns if column.name == found), None)


def look_up(cursor: Cursor, name: str) -> PgTable:
    """The table of a name as SQL writes it, behind that of a connection or not; raises NoTableError."""
    schema, table = _parts(cursor, name)
    row = run(
        cursor,
        "SELECT c.oid::bigint, c.relkind::text FROM pg_class c"
        " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2",
        (schema, table),
    ).fetchone()
    if row is not None and row[1] not in _TABLE_KINDS:
        raise NoTableError(f"a relation of kind {row[1]!r}")
    oid = None if row is None else int(row[0])
    rows = run(cursor, _COLUMNS, (oid,)).fetchall() if oid is not None else []
    columns = tuple(_column(row) for row in rows if not row[6])
    return PgTable(schema, table, oid, columns, tuple(str(row[0]) for row in rows if row[6]))


def _parts(cursor: Cursor, name: str) -> tuple[str, str]:
    try:
        parts = name_parts("postgres", _CONNECTION.sub("", name))
    except ValueError as error:
        raise NoTableError(str(error)) from None
    if len(parts) > 2:
        raise NoTableError(f"{len(parts)} parts; the connection names the database")
    if any(len(part.encode()) > MAX_NAME_BYTES for part in parts):
        raise NoTableError("a name longer than 63 bytes, which PostgreSQL cuts off")
    if len(parts) == 2:
        return parts[0], parts[1]
    (schema,) = run(cursor, "SELECT coalesce(current_schema(), 'public')").fetchone() or ("public",)
    return str(schema), parts[0]


def _column(row: tuple[object, ...]) -> PgColumn:
    name, kind, shown, packed, is_required, is_domain, _ = row
    modifier = int(str(packed))
    length = precision = scale = None
    if kind in ("varchar", "bpchar") and modifier > 0:
        length = modifier - _NUMERIC_HEADER
    if kind == "numeric" and modifier > 0:
        digits = modifier - _NUMERIC_HEADER
        precision, scale = digits >> 16 & 0xFFFF, ((digits & 0x7FF) ^ 1024) - 1024
    kind = f"domain {kind}" if is_domain else str(kind)
    return PgColumn(str(name), kind, str(shown), length, precision, scale, bool(is_required))


def definitions(fields: Iterable[Field]) -> list[str]:
    """New columns for values of these types; raises ColumnError for what cannot be one."""
    made = []
    for name, kind in fields:
        shown = created_type(kind)
        if shown is None:
            raise ColumnError(f"column {name} is of type {kind}", is_name=False)
        if not name or "\0" in name or len(name.encode()) > MAX_NAME_BYTES:
            raise ColumnError(f"the column name {name[:100]!r}", is_name=True)
        made.append(f"{quoted(name)} {shown}")
    return made


def create(cursor: Cursor, table: PgTable, columns: Sequence[str]) -> None:
    """Make a table of definitions."""
    run(cursor, f"CREATE TABLE {table.quoted} ({', '.join(columns)})")


def widen(cursor: Cursor, table: PgTable, columns: Sequence[str]) -> None:
    """Add columns by their definitions."""
    added = ", ".join(f"ADD COLUMN {column}" for column in columns)
    run(cursor, f"ALTER TABLE {table.quoted} {added}")


def differences(table: PgTable, fields: Iterable[Field], rows: str, target: str) -> list[str]:
    """Why rows of these types do not go into a table; `rows` and `target` are what people call them."""
    different = []
    for name, kind in fields:
        column = table.column(name)
        if column is None:
            different.append(f"{name}: not in the {target}")
        elif wire_type(kind, column) is None:
            different.append(f"{name}: {kind} in the {rows}, {column.shown} in the {target}")
    return different
