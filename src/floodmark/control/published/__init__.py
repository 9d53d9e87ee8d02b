"""The published tables: what the journal says, as rows."""

from __future__ import annotations

from floodmark.control.published.archive import folder_of
from floodmark.control.published.projections import Projector
from floodmark.control.published.reading import published_through, read_published
from floodmark.control.published.tables import TABLES, committed_rows, registry_rows, watermark_rows

__all__ = [
    "TABLES",
    "Projector",
    "committed_rows",
    "folder_of",
    "published_through",
    "read_published",
    "registry_rows",
    "watermark_rows",
]
