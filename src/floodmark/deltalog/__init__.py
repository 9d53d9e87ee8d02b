"""The Delta log read directly: facts about a table without Spark and without Java.

`DeltaLog` answers from a listing of `_delta_log` and as few file reads as possible; `Storage` is
the door to files, on local disk or in an object store.
"""

from __future__ import annotations

from floodmark.deltalog.creation import create_table
from floodmark.deltalog.delta_rs import breaks_predicate, without_stack
from floodmark.deltalog.files import file_location
from floodmark.deltalog.log import DeltaLog, is_delta_table
from floodmark.deltalog.obstacles import (
    RETENTION_RULE,
    Obstacle,
    may_hinder,
    obstacle,
    restore_command,
)
from floodmark.deltalog.schema import fingerprint
from floodmark.deltalog.storage import (
    Entry,
    Storage,
    absolute,
    files_below,
    is_local,
    make_private,
    write_problem,
)

__all__ = [
    "RETENTION_RULE",
    "DeltaLog",
    "Entry",
    "Obstacle",
    "Storage",
    "absolute",
    "breaks_predicate",
    "create_table",
    "file_location",
    "files_below",
    "fingerprint",
    "is_delta_table",
    "is_local",
    "make_private",
    "may_hinder",
    "obstacle",
    "restore_command",
    "without_stack",
    "write_problem",
]
