"""Late records: which they are, and what becomes of them.

A record is late if its event is older than the event-time watermark of the batch before: the newest
event of all earlier batches less the delay. That watermark is stored with the batch, so a batch that
is read again decides the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from floodmark.config.stream import StreamPipeline

_OLDEST = datetime(1, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class LateRule:
    """What a stream says about late records."""

    column: str
    delay: timedelta
    strategy: str = "drop"
    """drop, logAndDrop, sendToDLQ or separateStream."""
    topic: str | None = None
    table: str | None = None

    @property
    def is_dropped(self) -> bool:
        """Whether late records are only counted."""
        return self.strategy in ("drop", "logAndDrop")

    def watermark_after(
        self, watermark: datetime | None, newest: datetime | None
    ) -> datetime | None:
        """The watermark after a batch whose newest event is `newest`; it never goes back."""
        if newest is None:
            return watermark
        aware = newest if newest.tzinfo is not None else newest.replace(tzinfo=UTC)
        reached = aware - self.delay if aware - _OLDEST > self.delay else _OLDEST
        return reached if watermark is None else max(watermark, reached)


def late_rule(stream: StreamPipeline) -> LateRule | None:
    """The rule of a stream; None where nothing is late."""
    watermark, late = stream.streaming.watermark, stream.streaming.late_data
    if watermark is None:
        return None
    delay = timedelta(seconds=watermark.delay_seconds)
    if late is None:
        # As in Spark: a watermark by itself drops nothing of a stateless stream.
        return None
    return LateRule(watermark.event_time_column, delay, late.strategy, late.dlq_topic, late.table)
