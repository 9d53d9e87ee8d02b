"""Delta tables: rows and receipt in one commit."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from floodmark.sinks.delta.names import NO_CATALOG, TargetNames, last_write

if TYPE_CHECKING:
    from floodmark.sinks.delta.streams import last_stream_write, stream_merge
    from floodmark.sinks.delta.target import DeltaTarget, not_written
    from floodmark.sinks.delta.write import DeltaSink, refuse_without_receipts

# Loaded on first use: a plan asks for the names of targets, and writes nothing.
_HOMES = {
    "DeltaSink": "write",
    "DeltaTarget": "target",
    "last_stream_write": "streams",
    "not_written": "target",
    "refuse_without_receipts": "write",
    "stream_merge": "streams",
}

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

if not TYPE_CHECKING:  # a type checker knows the names above, and no others

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'floodmark.sinks.delta' has no attribute {name!r}")
        return getattr(import_module(f"floodmark.sinks.delta.{_HOMES[name]}"), name)
