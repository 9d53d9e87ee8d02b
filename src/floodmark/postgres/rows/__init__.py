"""Rows into PostgreSQL: the table they go to, which types go together, COPY and upsert."""

from floodmark.postgres.connect import MAX_NAME_BYTES
from floodmark.postgres.rows.copy import (
    MisfitError,
    PgColumn,
    copy_rows,
    has_binary_form,
)
from floodmark.postgres.rows.tables import (
    EXACT_TYPES,
    TABLE_NAMES,
    ColumnError,
    Field,
    NoTableError,
    PgTable,
    create,
    definitions,
    differences,
    look_up,
    widen,
)
from floodmark.postgres.rows.upsert import ROW, RowTarget, Upsert, listed, upserted

__all__ = (
    "EXACT_TYPES",
    "MAX_NAME_BYTES",
    "ROW",
    "TABLE_NAMES",
    "ColumnError",
    "Field",
    "MisfitError",
    "NoTableError",
    "PgColumn",
    "PgTable",
    "RowTarget",
    "Upsert",
    "copy_rows",
    "create",
    "definitions",
    "differences",
    "has_binary_form",
    "listed",
    "look_up",
    "upserted",
    "widen",
)
