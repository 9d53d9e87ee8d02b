"""Delta tables: rows and receipt in one commit."""

from __future__ import annotations

from floodmark.sinks.delta.names import NO_CATALOG, TargetNames, last_write
from floodmark.sinks.delta.streams import last_stream_write, stream_merge
from floodmark.sinks.delta.target import DeltaTarget, not_written
from floodmark.sinks.delta.write import DeltaSink, refuse_without_receipts

__all__ = [
    "NO_CATALOG",
    "DeltaSink",
    "DeltaTarget",
    "TargetNames",
    "last_stream_write",
    "last_write",
    "not_written",
    "refuse_without_receipts",
    "stream_merge",
]
