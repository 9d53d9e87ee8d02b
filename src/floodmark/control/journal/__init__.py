"""The journal: every event, committed by compare-and-swap."""

from __future__ import annotations

from floodmark.control.journal.delta import JOURNAL, DeltaEventLog, unreadable
from floodmark.control.journal.journal import (
    ControlLog,
    Journal,
    number_events,
    too_busy,
)
from floodmark.control.journal.memory import MemoryEventLog

__all__ = [
    "JOURNAL",
    "ControlLog",
    "DeltaEventLog",
    "Journal",
    "MemoryEventLog",
    "number_events",
    "too_busy",
    "unreadable",
]
