"""An engine without Spark: Delta tables through delta-rs, frames that are Arrow tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from floodmark.model import SinkDone, TimeWindow, VersionWindow, Window, WriteSpec
from floodmark.sinks import Sink
from floodmark.sources import Source, Sources
from floodmark.testing.arrow.steps import applied
from floodmark.testing.arrow.tables import ArrowSink, ArrowSource
from floodmark.testing.arrow.times import ArrowTimeSource
from floodmark.transforms import Step


class ArrowEngine:
    """An engine of runs without Spark."""

    spark = None

    def source(self) -> Source:
        """See `Engine.source`."""
        return arrow_sources()

    def sink(self, spec: WriteSpec, windows: Sequence[Window], previous: SinkDone | None) -> Sink:
        """See `Engine.sink`."""
        return ArrowSink(spec, tuple(windows), previous)

    def transformed(
        self, steps: Sequence[Step], frame: Any, others: Mapping[str, Any], root: Path
    ) -> Any:
        """See `Engine.transformed`."""
        return applied(steps, frame, others, root)

    def is_lost_file(self, error: BaseException) -> bool:  # noqa: ARG002 a door
        """See `Engine.is_lost_file`; the source tells it by its own error."""
        return False

    def refuse_without_receipts(self, pipeline: str) -> None:
        """See `Engine.refuse_without_receipts`; delta-rs always writes them."""


def arrow_sources(storage_options: Mapping[str, str] | None = None) -> Sources:
    """What reads Delta tables and folders without Spark; upstreams of projects are not read."""
    return Sources(
        {
            VersionWindow: lambda: ArrowSource(storage_options),
            TimeWindow: lambda: ArrowTimeSource(storage_options),
        }
    )
