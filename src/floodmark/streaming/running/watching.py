"""What a running stream tells, and what it did."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from floodmark.errors import StreamError
from floodmark.model import durations
from floodmark.observe import stage
from floodmark.streaming.ledger.batches import Claim, LoadCounts


@dataclass(frozen=True)
class BatchDone:
    """A batch that is committed, for whoever watches."""

    batch_id: int
    counts: LoadCounts
    records_behind: int
    seconds: float
    is_repeated: bool = False
    """Found applied: nothing was written."""
    event_watermark: datetime | None = None


class StreamWatcher(Protocol):
    """Is told what a runner does."""

    def claimed(self, claim: Claim) -> None: ...

    def starting_session(self) -> None: ...

    def committed(self, batch: BatchDone) -> None: ...

    def waiting(self, error: StreamError, attempt: int, seconds: float) -> None: ...

    def idle(self, records_behind: int) -> None: ...

    def breaker(self, state: str) -> None: ...

    def counted(self, tracked: int | None, outbox: int | None) -> None: ...


class Nobody:
    """Watches nothing."""

    def claimed(self, claim: Claim) -> None: ...

    def starting_session(self) -> None: ...

    def committed(self, batch: BatchDone) -> None: ...

    def waiting(self, error: StreamError, attempt: int, seconds: float) -> None: ...

    def idle(self, records_behind: int) -> None: ...

    def breaker(self, state: str) -> None: ...

    def counted(self, tracked: int | None, outbox: int | None) -> None: ...


@dataclass(frozen=True)
class LoggedBatches(Nobody):
    """Tells floodmark's log of each batch."""

    stream_id: str

    def committed(self, batch: BatchDone) -> None:
        """One event, with what became of the records."""
        counts = batch.counts
        stage(
            "stream_batch",
            f"stream {self.stream_id}: batch {batch.batch_id}, {counts.written:,} of"
            f" {counts.received:,} records written in {durations.shown(batch.seconds)}",
            stream=self.stream_id,
            batch=batch.batch_id,
            received=counts.received,
            written=counts.written,
            dead_lettered=counts.dead_lettered,
            dropped=counts.dropped,
            behind=batch.records_behind,
            seconds=batch.seconds,
            repeated=batch.is_repeated,
        )


@dataclass
class RunTotals:
    """What one run of a stream did."""

    batches: int = 0
    received: int = 0
    written: int = 0
    dead_lettered: int = 0
    dropped: int = 0
    last_batch_id: int | None = None

    def as_tuple(self) -> tuple[int, ...]:
        """Batches, and what became of their records."""
        return self.batches, self.received, self.written, self.dead_lettered, self.dropped

    def add(self, batch: BatchDone) -> None:
        """Count a batch."""
        self.batches += 1
        self.last_batch_id = batch.batch_id
        self.received += batch.counts.received
        self.written += batch.counts.written
        self.dead_lettered += batch.counts.dead_lettered
        self.dropped += batch.counts.dropped
