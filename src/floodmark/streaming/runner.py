"""A stream whose only memory is its target database, from one batch to the next.

The story of a batch: where the stream stands is what the database says; the offsets behind it are
planned against the brokers; Spark reads exactly those; rows, dead letters, offsets and the row of
the tracker are one transaction. Whatever is killed when, the next start finds one of the two.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from floodmark import failpoints
from floodmark.config.stream_files import LoadedStream
from floodmark.errors import StreamError
from floodmark.model.clock import SystemClock
from floodmark.model.offsets import Offsets
from floodmark.streaming.access import Access
from floodmark.streaming.batches import (
    AlreadyApplied,
    Applied,
    Claim,
    ClaimFacts,
    DeadLetter,
    LoadCounts,
    Loaded,
    OutboxMessage,
    StreamBatch,
    StreamRow,
)
from floodmark.streaming.breaker import Breaker
from floodmark.streaming.late import late_rule
from floodmark.streaming.ledger import Ledger
from floodmark.streaming.micro_batch import MicroBatch
from floodmark.streaming.outbox import Relay
from floodmark.streaming.read import LATE, Wanted, batch_frame
from floodmark.streaming.retry import Retrying, RetryPolicy, Strategy
from floodmark.streaming.source import KafkaSource, Next, skipped, told

if TYPE_CHECKING:
    import pyarrow as pa

    from floodmark.engines.postgres import Cursor

IDLE_SECONDS = 0.5
"""How often a continuous stream looks for new records when there were none."""

log = logging.getLogger("floodmark.streaming")

Result = TypeVar("Result")


class RowLoad(Protocol):
    """Writes rows into one table, inside the transaction of a batch: streaming.load.PostgresLoad."""

    def apply(
        self, cursor: Cursor, table: pa.Table, rejects: Sequence[DeadLetter] = (), dropped: int = 0
    ) -> Loaded: ...


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


@dataclass
class StreamRunner:
    """Runs one stream until it is done, told to stop, or fenced."""

    stream: LoadedStream
    access: Access
    source: KafkaSource
    ledger: Ledger
    load: RowLoad
    session: Callable[[], Any]
    """Gives the Spark session; asked when there is something to read."""
    load_late: RowLoad | None = None
    """For late records with a table of their own."""
    stop: threading.Event = field(default_factory=threading.Event)
    watcher: StreamWatcher = field(default_factory=Nobody)
    skips_to_earliest: bool = False
    relay: Relay | None = None
    """Sends the messages of the outbox, where there may be some."""
    totals: RunTotals = field(default_factory=RunTotals)
    _spark: Any = None

    def run(self) -> RunTotals:
        """Batch after batch, as the trigger says; returns what was done.

        A stop ends it after the batch that is under way. Raises StreamError; everything that was
        committed stays, and the next run goes on behind it.
        """
        with suppress(_Stopped):
            self._again(self.ledger.ensure)
            claim = self._again(self.claimed)
            self.watcher.counted(self._again(self.ledger.tracked), None)
            self._relayed()
            for done in self._batches(claim):
                self.totals.add(done)
                self.watcher.committed(done)
                self._relayed()
        return self.totals

    def _relayed(self) -> None:
        """Send what waits for Kafka; what cannot be sent stays where it is and is tried later."""
        if self.relay is None:
            return
        try:
            self.relay.send()
            self.watcher.counted(None, 0)
        except StreamError as error:
            log.warning("stream %s: %s", self.stream_id, error.in_one_line())
            with suppress(StreamError):
                self.watcher.counted(None, self.relay.waiting())

    # Beginning ----------------------------------------------------------------------------------

    def claimed(self) -> Claim:
        """The stream is ours from here on; raises what stands against it."""
        row = self.ledger.stored()
        ids = self.source.refuse_recreated(row.topic_ids if row is not None else {})
        claim = self.ledger.claim(self._facts(ids), row)
        self.watcher.claimed(claim)
        claim = claim if claim.end_offsets is not None else self._begun(claim)
        return self._skipped(claim) if self.skips_to_earliest else claim

    def _facts(self, topic_ids: dict[str, str]) -> ClaimFacts:
        settings = self.stream.settings
        return ClaimFacts(
            holder=f"{socket.gethostname()}, process {os.getpid()}",
            topic_ids=topic_ids,
            config_hash=settings.definition,
            exactly_once=settings.streaming.enable_idempotence,
        )

    def _begun(self, claim: Claim) -> Claim:
        """Keep where a new stream begins: `latest` would mean something else tomorrow."""
        said = self.stream.settings.extract.starting_offsets
        start = self.source.begin(said)
        note = f"begins at {said if len(said) < 20 else 'the offsets that were said'}"
        return self.ledger.move(claim, start, note, begins_incarnation=False)

    def _skipped(self, claim: Claim) -> Claim:
        """Behind what is gone from Kafka, if anything is; the loss is noted in the tracker."""
        start = _end_of(claim)
        lost = self.source.lost(start)
        if not lost:
            return claim
        note = f"lost, skipped by --skip-to-earliest: {told(lost)}"
        return self.ledger.move(claim, skipped(start, lost), note, begins_incarnation=False)

    # Batches ------------------------------------------------------------------------------------

    def _batches(self, claim: Claim) -> Iterator[BatchDone]:
        trigger = self.stream.settings.streaming.trigger_mode
        goal = self._again(self.source.latest) if trigger.kind == "availableNow" else None
        while not self.stop.is_set():
            began = time.monotonic()
            planned = self._again(partial(self.source.next_batch, _end_of(claim), self.limit))
            if planned.records:
                claim, done = self._again(partial(self._applied, claim, planned))
                yield done
            else:
                self.watcher.idle(planned.waiting)
            is_there = goal is not None and goal <= planned.end
            if trigger.kind == "once" or is_there or (goal is not None and not planned.records):
                return
            self._wait(trigger.seconds, began, found=bool(planned.records))

    def _wait(self, interval: float, began: float, *, found: bool) -> None:
        """Until the next batch is due; a stop ends it."""
        if interval:
            self.stop.wait(max(0.0, began + interval - time.monotonic()))
        elif not found:
            self.stop.wait(IDLE_SECONDS)

    @property
    def stream_id(self) -> str:
        """The stream's name in the database."""
        return self.stream.settings.pipeline_id

    @property
    def limit(self) -> int:
        """The records of a batch at most; without a limit as many as go through the driver."""
        load = self.stream.settings.load
        return self.stream.settings.limit or max(load.driver_copy_rows, 1)

    def _applied(self, claim: Claim, planned: Next) -> tuple[Claim, BatchDone]:
        """Read and commit one batch; called again for the same offsets it changes nothing more.

        1. Spark reads exactly the planned offsets, judged by the watermark of the batch before.
        2. One transaction: rows, dead letters, outbox, offsets, tracker.
        """
        began = time.monotonic()
        # 1.
        rule = late_rule(self.stream.settings)
        batch = MicroBatch(self._read(claim, planned), rule)
        watermark = claim.event_watermark
        if rule is not None:
            watermark = rule.watermark_after(watermark, batch.newest_event)
        # 2.
        stored = StreamBatch(
            batch_id=claim.next_batch_id,
            incarnation=claim.incarnation,
            start=planned.start,
            end=planned.end,
            event_watermark=watermark,
        )
        outcome = self.ledger.commit(claim, stored, lambda cursor: self._load(cursor, batch))
        failpoints.reached("stream.after_return")
        done = _done(outcome, stored, planned, time.monotonic() - began)
        self._tell_late(batch, stored)
        return _advanced(claim, stored), done

    def _read(self, claim: Claim, planned: Next) -> pa.Table:
        rule = late_rule(self.stream.settings)
        wanted = Wanted(
            planned.start,
            planned.end,
            self.stream.payload,
            self.stream.table.names,
            rule.column if rule else None,
            claim.event_watermark if rule else None,
        )
        if self._spark is None:
            self.watcher.starting_session()
            self._spark = self.session()
        options = self.access.source().spark
        try:
            return batch_frame(self._spark, options, wanted).toArrow()
        except Exception as error:
            raise _unread(self.stream_id, error) from error

    def _load(self, cursor: Cursor, batch: MicroBatch) -> Loaded:
        rejects = list(batch.letters())
        if self.stream.settings.errors.fail_fast and batch.refused:
            raise _refused(self.stream_id, next(r for r in rejects if r.reason != LATE))
        loaded = self.load.apply(cursor, batch.rows, rejects, batch.dropped)
        if self.load_late is not None:
            loaded = _joined(loaded, self.load_late.apply(cursor, batch.late_rows))
        letters = list(loaded.dead_letters)
        return replace(loaded, dead_letters=letters, outbox=list(self._messages(batch, letters)))

    def _messages(
        self, batch: MicroBatch, letters: Iterable[DeadLetter]
    ) -> Iterator[OutboxMessage]:
        """What is to be sent to Kafka once the batch is committed."""
        rule, dlq = batch.late, self.stream.settings.errors.dlq
        if rule is not None and rule.strategy == "separateStream" and rule.topic:
            yield from batch.separate(rule.topic)
        for letter in letters:
            is_late = letter.reason == LATE
            if is_late and rule is not None and rule.strategy == "sendToDLQ" and rule.topic:
                yield letter.message(rule.topic, self.stream_id)
            elif not is_late and dlq.dlq_type == "kafka" and dlq.topic:
                yield letter.message(dlq.topic, self.stream_id)

    def _tell_late(self, batch: MicroBatch, stored: StreamBatch) -> None:
        rule = batch.late
        if rule is not None and rule.strategy == "logAndDrop" and batch.dropped:
            log.warning(
                "stream %s, batch %s: %s late records were dropped",
                self.stream_id,
                stored.batch_id,
                batch.dropped,
            )

    # Trying again -------------------------------------------------------------------------------

    def _again(self, act: Callable[[], Result]) -> Result:
        """The result of `act`, tried again for as long as its error may pass."""
        return self._retrying.run(act)

    @cached_property
    def _retrying(self) -> Retrying:
        errors, clock = self.stream.settings.errors, _StoppableClock(self.stop)
        said, breaker = errors.retry, errors.circuit_breaker
        return Retrying(
            RetryPolicy(
                _STRATEGIES[said.strategy],
                said.max_attempts,
                said.initial_delay_seconds,
                said.max_delay_seconds,
            ),
            Breaker(
                breaker.failure_threshold,
                breaker.reset_timeout_seconds,
                clock,
                self.watcher.breaker,
            )
            if breaker.enabled
            else None,
            clock,
            lambda retry: self.watcher.waiting(retry.error, retry.attempt, retry.wait_seconds),
        )


_STRATEGIES: dict[str, Strategy] = {"exponential": "exponential", "fixed": "fixed", "none": "none"}


class _Stopped(Exception):
    """A stop came while an attempt was waited for; the batch was not begun again."""


class _StoppableClock(SystemClock):
    """Sleeps until it is told to stop."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop

    def sleep(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise _Stopped


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


def _end_of(row: StreamRow) -> Offsets:
    if row.end_offsets is None:
        raise ValueError(f"stream {row.stream_id} has not begun")
    return row.end_offsets


def _advanced(claim: Claim, stored: StreamBatch) -> Claim:
    """The claim behind a batch."""
    return replace(
        claim,
        start_offsets=stored.start,
        end_offsets=stored.end,
        batch_id=stored.batch_id,
        event_watermark=stored.event_watermark,
    )


def _done(
    outcome: Applied | AlreadyApplied, stored: StreamBatch, planned: Next, seconds: float
) -> BatchDone:
    is_repeated = isinstance(outcome, AlreadyApplied)
    counts = LoadCounts(0, 0) if isinstance(outcome, AlreadyApplied) else outcome.counts
    left = planned.waiting - planned.records
    return BatchDone(stored.batch_id, counts, left, seconds, is_repeated, stored.event_watermark)


def _unread(stream_id: str, error: Exception) -> StreamError:
    """FM-STREAM-026: whether records are gone is told by the brokers before the next attempt."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return StreamError(
        "FM-STREAM-026",
        "records of a batch could not be read from Kafka",
        where=f"stream {stream_id}",
        found=f"{type(error).__name__}: {lines[0][:500] if lines else ''}",
        state="nothing was written; the stored offsets stand where they stood",
        next=f"floodmark stream run {stream_id}",
        retryable=True,
    )


def _refused(stream_id: str, letter: DeadLetter) -> StreamError:
    """FM-STREAM-009: failFast, and a record that is not taken."""
    place = f"{letter.topic}-{letter.partition}, offset {letter.offset}"
    column = f", column {letter.column}" if letter.column else ""
    return StreamError(
        "FM-STREAM-009",
        "a record was refused, and the stream is to stop at the first one",
        where=f"stream {stream_id}, {place}{column}",
        found=f"{letter.reason}: {letter.detail}",
        state="the batch was rolled back; the stored offsets stand where they stood",
        next="mend the record, or say failFast false so that it becomes a dead letter",
    )
