"""Rows into PostgreSQL: which types go together, and how they are sent."""

from floodmark.postgres.rows.copy import (
    MisfitError,
    PgColumn,
    copy_rows,
    created_type,
    has_binary_form,
    wire_type,
)

__all__ = (
    "MisfitError",
    "PgColumn",
    "copy_rows",
    "created_type",
    "has_binary_form",
    "wire_type",
)
