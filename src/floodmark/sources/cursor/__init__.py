"""Databases, and other sources whose rows are told apart by a cursor column."""

from __future__ import annotations

from floodmark.sources.cursor.database import SqlReader
from floodmark.sources.cursor.edges import (
    Identity,
    applied_rows,
    beginning_of,
    edge_left_by,
    fresh_rows,
    refuse_unknowable,
)
from floodmark.sources.cursor.jdbc import JdbcConnection
from floodmark.sources.cursor.marks import compared
from floodmark.sources.cursor.reader import CursorReader, cursor_reader_of
from floodmark.sources.cursor.rows import OnNullCursor, Rows, SourceReader
from floodmark.sources.cursor.sql.own_values import OwnTarget
from floodmark.sources.cursor.sql.parts import Parts
from floodmark.sources.cursor.sql.queries import Beginning, Bounds, SqlRelation
from floodmark.sources.cursor.sql.refusals import told_values

__all__ = [
    "Beginning",
    "Bounds",
    "CursorReader",
    "Identity",
    "JdbcConnection",
    "OnNullCursor",
    "OwnTarget",
    "Parts",
    "Rows",
    "SourceReader",
    "SqlReader",
    "SqlRelation",
    "applied_rows",
    "beginning_of",
    "compared",
    "cursor_reader_of",
    "edge_left_by",
    "fresh_rows",
    "refuse_unknowable",
    "told_values",
]
