"""One batch of judged records into the database: the same for both ways to keep offsets.

A batch of at most `driverCopyRows` records goes through the driver, a larger one is staged by the
executors.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from floodmark import failpoints
from floodmark.config.stream_files import LoadedStream
from floodmark.errors import StreamError
from floodmark.model.offsets import Offsets, records
from floodmark.streaming.batches import (
    AlreadyApplied,
    Applied,
    Claim,
    DeadLetter,
    LoadCounts,
    Loaded,
    OutboxMessage,
    StreamBatch,
)
from floodmark.streaming.late import LateRule, late_rule
from floodmark.streaming.ledger import Ledger
from floodmark.streaming.micro_batch import MicroBatch
from floodmark.streaming.read import LATE, Wanted
from floodmark.streaming.refusals import first_refused
from floodmark.streaming.spark_faults import unread
from floodmark.streaming.staging import Staging

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from floodmark.engines.postgres import Cursor

log = logging.getLogger("floodmark.streaming")


class RowLoad(Protocol):
    """Writes rows into one table, inside the transaction of a batch: streaming.load.PostgresLoad."""

    def apply(
        self, cursor: Cursor, table: pa.Table, rejects: Sequence[DeadLetter] = (), dropped: int = 0
    ) -> Loaded: ...


@dataclass
class BatchWriter:
    """Commits batches of one stream."""

    stream: LoadedStream
    ledger: Ledger
    load: RowLoad
    load_late: RowLoad | None = None
    """For late records with a table of their own."""
    staging: Staging | None = None
    """For batches that do not go through the driver."""
    _is_swept: bool = False

    @property
    def stream_id(self) -> str:
        """The stream's name in the database."""
        return self.stream.settings.pipeline_id

    @property
    def _late(self) -> LateRule | None:
        return late_rule(self.stream.settings)

    def wanted(self, claim: Claim, start: Offsets, end: Offsets) -> Wanted:
        """What to read, judged by the watermark of the batch before."""
        rule = self._late
        return Wanted(
            start,
            end,
            self.stream.payload,
            self.stream.table.names,
            rule.column if rule else None,
            claim.event_watermark if rule else None,
        )

    def write(
        self, claim: Claim, planned: StreamBatch, frame: DataFrame
    ) -> tuple[Claim, Applied | AlreadyApplied]:
        """Commit a batch, whose frame is computed once; the claim behind it, and what happened.

        1. The rows come to the driver, and the watermark moves.
        2. One transaction: rows, dead letters, outbox, offsets, tracker.

        Called again for the same batch it changes nothing more.
        """
        if self.staging is not None and self._is_large(planned):
            return self._write_staged(claim, planned, frame, self.staging)
        # 1.
        rule = self._late
        batch = MicroBatch(self._collected(frame), rule)
        watermark = claim.event_watermark
        if rule is not None:
            watermark = rule.watermark_after(watermark, batch.newest_event)
        stored = replace(planned, event_watermark=watermark)
        # 2.
        outcome = self.ledger.commit(claim, stored, lambda cursor: self._load(cursor, batch))
        failpoints.reached("stream.after_return")
        self._tell_late(outcome)
        return advanced(claim, stored), outcome

    def _is_large(self, planned: StreamBatch) -> bool:
        return records(planned.start, planned.end) > self.stream.settings.load.driver_copy_rows

    def _write_staged(
        self, claim: Claim, planned: StreamBatch, frame: DataFrame, staging: Staging
    ) -> tuple[Claim, Applied | AlreadyApplied]:
        """The same by the executors, which load the rows first; one short transaction moves them."""
        if not self._is_swept:
            staging.sweep(claim.epoch)
            self._is_swept = True
        try:
            staged = staging.stage(frame, claim.epoch)
            rule, watermark = self._late, claim.event_watermark
            if rule is not None:
                watermark = rule.watermark_after(watermark, staged.newest_event)
            stored = replace(planned, event_watermark=watermark)
            outcome = self.ledger.commit(
                claim, stored, lambda cursor: self._with_messages(staging.apply(cursor, staged))
            )
        except StreamError:
            # What is staged is as large as the batch, and the next attempt stages it anew.
            with suppress(StreamError):
                staging.sweep(claim.epoch)
            raise
        if isinstance(outcome, AlreadyApplied):
            staging.sweep(claim.epoch)
        failpoints.reached("stream.after_return")
        self._tell_late(outcome)
        return advanced(claim, stored), outcome

    def _collected(self, frame: DataFrame) -> pa.Table:
        try:
            return frame.toArrow()
        # Whatever Spark throws is told as one of ours; its class says whether it may pass.
        except Exception as error:
            raise unread(self.stream.called, error) from error

    def _load(self, cursor: Cursor, batch: MicroBatch) -> Loaded:
        rejects = list(batch.letters())
        if self.stream.settings.errors.fail_fast and batch.refused:
            raise first_refused(
                f"stream {self.stream_id}", next(r for r in rejects if r.reason != LATE)
            )
        loaded = self.load.apply(cursor, batch.rows, rejects, batch.dropped)
        if self.load_late is not None:
            loaded = _joined(loaded, self.load_late.apply(cursor, batch.late_rows))
        return self._with_messages(loaded)

    def _with_messages(self, loaded: Loaded) -> Loaded:
        letters = list(loaded.dead_letters)
        return replace(loaded, dead_letters=letters, outbox=list(self._messages(letters)))

    def _messages(self, letters: Iterable[DeadLetter]) -> Iterator[OutboxMessage]:
        """What is to be sent to Kafka once the batch is committed."""
        rule, dlq = self._late, self.stream.settings.errors.dlq
        for letter in letters:
            if letter.reason != LATE:
                if dlq.dlq_type == "kafka" and dlq.topic:
                    yield letter.message(dlq.topic, self.stream_id)
            elif rule is not None and rule.topic:
                if rule.strategy == "separateStream":
                    yield OutboxMessage(rule.topic, letter.value or b"", letter.key)
                else:
                    yield letter.message(rule.topic, self.stream_id)

    def _tell_late(self, outcome: Applied | AlreadyApplied) -> None:
        rule = self._late
        is_told = rule is not None and rule.strategy == "logAndDrop"
        if is_told and isinstance(outcome, Applied) and outcome.counts.dropped:
            text = "stream %s, batch %s: %s late records were dropped"
            log.warning(text, self.stream_id, outcome.batch_id, outcome.counts.dropped)


def advanced(claim: Claim, stored: StreamBatch) -> Claim:
    """The claim behind a batch."""
    return replace(
        claim,
        start_offsets=stored.start,
        end_offsets=stored.end,
        batch_id=stored.batch_id,
        spark_batch_id=stored.spark_batch_id,
        event_watermark=stored.event_watermark,
    )


def counts_of(outcome: Applied | AlreadyApplied) -> LoadCounts:
    """What a batch did; nothing where it was applied before."""
    return outcome.counts if isinstance(outcome, Applied) else LoadCounts(0, 0)


def _joined(first: Loaded, second: Loaded) -> Loaded:
    """Two loads of one batch, into two tables."""
    a, b = first.counts, second.counts
    counts = LoadCounts(
        a.received + b.received,
        a.written + b.written,
        a.dead_lettered + b.dead_lettered,
        a.dropped + b.dropped,
        a.duplicates + b.duplicates,
    )
    return Loaded(counts, [*first.dead_letters, *second.dead_letters])
