"""Runs without Spark, for tests: sources, sinks and steps over Arrow tables and delta-rs."""

from __future__ import annotations

from floodmark.testing.arrow.engine import ArrowEngine, arrow_sources
from floodmark.testing.arrow.tables import ArrowSink, ArrowSource, last_changes
from floodmark.testing.arrow.times import ArrowTimeSource

__all__ = [
    "ArrowEngine",
    "ArrowSink",
    "ArrowSource",
    "ArrowTimeSource",
    "arrow_sources",
    "last_changes",
]
