"""Sources: what is new in an upstream, and exactly that.

The flow reads through `Source`. Each kind of upstream has a folder with the same file names, as far as
it has the part: `probe` finds what is new without Spark, `read` gives frozen windows as frames, `cursor`
says how the kind is read by a cursor column. `kinds` lists the folders.
"""

from __future__ import annotations

from floodmark.sources.faults import schema_moved
from floodmark.sources.frames import with_change_columns
from floodmark.sources.kinds import Sources
from floodmark.sources.row_counts import RowCount, other_rows, rows_in, written_with_other_rows
from floodmark.sources.scratch import Scratch
from floodmark.sources.source import (
    KindSource,
    Looker,
    LookSpec,
    Reader,
    Readers,
    Resolver,
    Source,
    SparkAccess,
    first_of,
    reader_of,
)

__all__ = [
    "KindSource",
    "LookSpec",
    "Looker",
    "Reader",
    "Readers",
    "Resolver",
    "RowCount",
    "Scratch",
    "Source",
    "Sources",
    "SparkAccess",
    "first_of",
    "other_rows",
    "reader_of",
    "rows_in",
    "schema_moved",
    "with_change_columns",
    "written_with_other_rows",
]
