"""One batch of judged records into PostgreSQL: the same for both ways to keep offsets.

A batch of at most `driverCopyRows` records goes through the driver, a larger one is staged by the
executors.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from floodmark import failpoints
from floodmark.config import LoadedStream
from floodmark.errors import StreamError
from floodmark.model.names import quoted
from floodmark.model.offsets import Offsets
from floodmark.streaming.ledger.batches import (
    AlreadyApplied,
    Applied,
    Claim,
    DeadLetter,
    LoadCounts,
    Loaded,
    OutboxMessage,
    StreamBatch,
)
from floodmark.streaming.ledger.postgres import Load, PostgresLedger
from floodmark.streaming.ledger.refusals import first_refused, refused_window
from floodmark.streaming.load.protocol import Results, advanced, wanted_of
from floodmark.streaming.load.staging import Staging
from floodmark.streaming.records.judged_letters import Joined, Letters
from floodmark.streaming.records.late import LateRule, late_rule
from floodmark.streaming.records.micro_batch import MicroBatch
from floodmark.streaming.records.read import LATE, Records, Wanted
from floodmark.streaming.records.reading import RecordReading
from floodmark.streaming.records.spark_faults import asked
from floodmark.streaming.records.target_rules import TargetRules

if TYPE_CHECKING:
    import pyarrow as pa

    from floodmark.postgres import Cursor

log = logging.getLogger("floodmark.streaming")

Result = TypeVar("Result")
Ready = tuple[datetime | None, Load]
"""The newest event of a batch, and what writes its rows inside the transaction."""


class RowLoad(Protocol):
    """Writes rows into one table, inside the transaction of a batch: rows.PostgresLoad."""

    def apply(
        self, cursor: Cursor, table: pa.Table, rejects: Sequence[DeadLetter] = (), dropped: int = 0
    ) -> Loaded: ...


@dataclass
class PostgresWriter:
    """Commits batches of one stream into a database; see protocol.StreamWriter."""

    stream: LoadedStream
    ledger: PostgresLedger
    load: RowLoad
    load_late: RowLoad | None = None
    """For late records with a table of their own."""
    staging: Staging | None = None
    """For batches of more records than `driverCopyRows`; without it all go through the driver."""

    @cached_property
    def _reading(self) -> RecordReading:
        return RecordReading(self.stream_id, self.asked)

    @property
    def stream_id(self) -> str:
        """The stream's name in the database."""
        return self.stream.settings.pipeline_id

    @property
    def _late(self) -> LateRule | None:
        return late_rule(self.stream.settings)

    @property
    def is_bounded(self) -> bool:
        """Whether a batch has to go through the driver, and so must not be too large for it."""
        return self.staging is None

    def wanted(self, claim: Claim, start: Offsets, end: Offsets) -> Wanted:
        """What to read, judged by the watermark of the batch before."""
        return wanted_of(self.stream, claim, start, end)

    def write(
        self, claim: Claim, planned: StreamBatch, records: Records
    ) -> tuple[Claim, Applied | AlreadyApplied]:
        """Commit a batch, whose records are read once; the claim behind it, and what happened.

        1. The rows come to the driver, or the executors stage them.
        2. The watermark moves; what is late in this batch was judged by the one before.
        3. One transaction: rows, dead letters, outbox, offsets, tracker.

        Called again for the same batch it changes nothing more.
        """
        # 1.
        with self._ready(claim, planned, records) as (newest_event, load):
            # 2.
            rule, watermark = self._late, claim.event_watermark
            if rule is not None:
                watermark = rule.watermark_after(watermark, newest_event)
            stored = replace(planned, event_watermark=watermark)
            # 3.
            outcome = self.ledger.commit(claim, stored, load)
        failpoints.reached("stream.after_return")
        if isinstance(outcome, Applied):
            self._tell_dropped(outcome.batch_id, outcome.counts.dropped)
        return advanced(claim, replace(stored, batch_id=outcome.batch_id)), outcome

    @contextmanager
    def _ready(self, claim: Claim, planned: StreamBatch, records: Records) -> Iterator[Ready]:
        """The newest event of the records, and what writes them."""
        limit = self.stream.settings.load.driver_copy_rows
        staging = self.staging
        if staging is None or planned.offsets <= limit:
            batch = MicroBatch(self._reading.table(records), self._late)
            yield batch.newest_event, lambda cursor: self._load(cursor, batch)
            return
        try:
            staged = staging.stage_records(records, self._reading, claim.epoch)
            yield (
                staged.newest_event,
                lambda cursor: self._with_messages(staging.apply(cursor, staged)),
            )
        finally:
            # What was not moved is as large as a batch, and the next attempt stages it anew.
            self.sweep(claim)

    def write_results(
        self, claim: Claim, planned: StreamBatch, results: Results
    ) -> tuple[Claim, Applied | AlreadyApplied]:
        """Commit a batch of a query that keeps state; as `write` otherwise."""
        self._refuse_first(results.tally.letters)
        with self._rows_ready(claim, results) as load:
            outcome = self.ledger.commit(claim, planned, partial(self._accounted, results, load))
        failpoints.reached("stream.after_return")
        if isinstance(outcome, Applied):
            self._tell_dropped(outcome.batch_id, results.tally.late)
        return advanced(claim, replace(planned, batch_id=outcome.batch_id)), outcome

    @contextmanager
    def _rows_ready(self, claim: Claim, results: Results) -> Iterator[Load]:
        """What writes the rows, which can be more than the records of the batch."""
        frame, staging = results.frame, self.staging
        rows = self.asked(frame.count)
        if staging is None or rows <= self.stream.settings.load.driver_copy_rows:
            table = self.asked(frame.select(*map(quoted, results.columns)).toArrow)
            yield lambda cursor: self.load.apply(cursor, table)
            return
        try:
            staged = staging.stage(frame, claim.epoch)
            yield lambda cursor: staging.apply(cursor, staged)
        finally:
            self.sweep(claim)

    def _accounted(self, results: Results, load: Load, cursor: Cursor) -> Loaded:
        loaded = load(cursor)
        if results.are_windows and loaded.counts.dead_lettered:
            raise refused_window(self.stream_id, next(iter(loaded.dead_letters)))
        return self._with_messages(results.accounted(loaded))

    def _refuse_first(self, letters: Letters) -> None:
        """FM-STREAM-009 where the stream is to stop at the first record that is refused."""
        if self.stream.settings.errors.fail_fast and len(letters):
            raise first_refused(next(iter(letters)), stream=self.stream_id)

    def rules(self, columns: Sequence[str]) -> TargetRules:  # noqa: ARG002  (the protocol's)
        """None: the server refuses rows one by one."""
        return TargetRules()

    def sweep(self, claim: Claim) -> None:
        """Drop what this runner or one before it staged and nobody moved.

        What cannot be dropped is left for the next time: nobody reads it.
        """
        if self.staging is None:
            return
        try:
            self.staging.sweep(claim.epoch)
        except StreamError as error:
            log.warning("stream %s: staged tables stay: %s", self.stream_id, error.in_one_line())

    def asked(self, act: Callable[[], Result]) -> Result:
        """What a job of Spark gives; raises FM-STREAM-026."""
        return asked(self.stream.called, act)

    def _load(self, cursor: Cursor, batch: MicroBatch) -> Loaded:
        rejects = list(batch.letters())
        self._refuse_first([each for each in rejects if each.reason != LATE])
        loaded = self.load.apply(cursor, batch.rows, rejects, batch.dropped)
        if self.load_late is not None:
            loaded = _joined(loaded, self.load_late.apply(cursor, batch.late_rows))
        return self._with_messages(loaded)

    def _with_messages(self, loaded: Loaded) -> Loaded:
        settings = self.stream.settings
        # Letters are not gone through once more where nothing is sent.
        return (
            replace(loaded, outbox=self._messages(loaded.dead_letters))
            if settings.sends_letters
            else loaded
        )

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

    def _tell_dropped(self, batch_id: int, dropped: int) -> None:
        rule = self._late
        if rule is not None and rule.strategy == "logAndDrop" and dropped:
            text = "stream %s, batch %s: %s late records were dropped"
            log.warning(text, self.stream_id, batch_id, dropped)


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
    return Loaded(counts, Joined(first.dead_letters, second.dead_letters))
