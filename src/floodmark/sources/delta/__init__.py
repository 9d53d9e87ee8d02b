"""Delta tables: their versions, as the log numbers them."""

from __future__ import annotations

from floodmark.sources.delta.catalog_names import (
    being_read,
    other_table,
    place_taken,
    resolve,
    tables_of,
    unresolved,
)
from floodmark.sources.delta.delta_rs import CHANGE_FIELDS, read_changes, streamed_version, typed
from floodmark.sources.delta.log import TableLog, log_of, rows_by_log
from floodmark.sources.delta.loss import LOST_CODES, resolved_count, resolved_loss
from floodmark.sources.delta.probe import probe_between, probe_delta
from floodmark.sources.delta.proof import prove_readable, schema_text

__all__ = [
    "CHANGE_FIELDS",
    "LOST_CODES",
    "TableLog",
    "being_read",
    "log_of",
    "other_table",
    "place_taken",
    "probe_between",
    "probe_delta",
    "prove_readable",
    "read_changes",
    "resolve",
    "resolved_count",
    "resolved_loss",
    "rows_by_log",
    "schema_text",
    "streamed_version",
    "tables_of",
    "typed",
    "unresolved",
]
