"""Folders and tables whose rows are told apart by a time column."""

from __future__ import annotations

from floodmark.sources.time.probe import (
    data_files,
    numbers_of,
    planned_facts,
    probe_place,
    probe_time,
    refuse_other_type,
)

__all__ = [
    "data_files",
    "numbers_of",
    "planned_facts",
    "probe_place",
    "probe_time",
    "refuse_other_type",
]
