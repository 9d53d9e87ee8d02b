"""What every runner of a stream has and does, whatever keeps its offsets."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, TypeVar

from floodmark.config import LoadedStream
from floodmark.config.stream import DEFAULT_DRIVER_COPY_ROWS
from floodmark.engines.jvm import is_gone
from floodmark.errors import StreamError
from floodmark.model import SystemClock
from floodmark.model.offsets import Offsets
from floodmark.streaming.access import Access
from floodmark.streaming.ledger.batches import (
    Claim,
    ClaimFacts,
    StreamRow,
)
from floodmark.streaming.ledger.protocol import StreamLedger
from floodmark.streaming.ledger.requests import Listener
from floodmark.streaming.load.protocol import StreamWriter
from floodmark.streaming.outbox.relay import Relay
from floodmark.streaming.position.source import KafkaSource, skipped, told
from floodmark.streaming.running.breaker import Breaker
from floodmark.streaming.running.holder import facts_of
from floodmark.streaming.running.retry import Retrying
from floodmark.streaming.running.watching import BatchDone, Nobody, RunTotals, StreamWatcher

HEARD_SECONDS = 1.0
"""How long after Spark a signal reaches the stream itself."""

log = logging.getLogger("floodmark.streaming")

Result = TypeVar("Result")


@dataclass
class Runner(ABC):
    """Runs one stream to its end, whatever keeps its offsets and whatever its target is."""

    access: Access
    source: KafkaSource
    writer: StreamWriter
    session: Callable[[], Any]
    """Gives the Spark session; asked when there is something to read."""
    stop: threading.Event = field(default_factory=threading.Event)
    """Set by whoever wants it to end; it does so behind the batch that is under way."""
    watcher: StreamWatcher = field(default_factory=Nobody)
    skips_to_earliest: bool = False
    relay: Relay | None = None
    """Sends the messages of the outbox, where there may be some."""
    totals: RunTotals = field(default_factory=RunTotals)
    _spark: Any = None
    _listener: Listener | None = None

    @abstractmethod
    def run(self) -> RunTotals:
        """Batch after batch, as the trigger says; returns what was done.

        A stop ends it after the batch that is under way. Raises StreamError; everything that was
        committed stays, and the next run goes on behind it.
        """

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Heed requests of other commands for as long as the block runs."""
        self._listener = Listener(self.ledger.another(), self.stop, self.stream_id)
        with self._listener.listening():
            yield

    def taken(self, claim: Claim) -> None:
        """The stream is ours: requests to this claim are for us."""
        if self._listener is not None:
            self._listener.claim_id = claim.claim_id
        self.watcher.claimed(claim)

    @property
    def stream(self) -> LoadedStream:
        """What is run."""
        return self.access.stream

    @property
    def stream_id(self) -> str:
        """The stream's name in the database."""
        return self.stream.settings.pipeline_id

    @property
    def ledger(self) -> StreamLedger[Any]:
        """The memory of the stream."""
        return self.writer.ledger

    @property
    def limit(self) -> int:
        """The records of a batch at most; without a limit as many as go through the driver."""
        settings = self.stream.settings
        by_driver = settings.load.driver_copy_rows or DEFAULT_DRIVER_COPY_ROWS
        said = settings.limit or by_driver
        return min(said, by_driver) if self.writer.is_bounded else said

    def facts(self, topic_ids: dict[str, str], **more: Any) -> ClaimFacts:
        """Who takes the stream."""
        return facts_of(self.stream.settings, topic_ids, **more)

    @property
    def spark(self) -> Any:
        """The session, started when first asked for."""
        if self._spark is None:
            self.watcher.starting_session()
            self._spark = self.session()
        return self._spark

    def begun_at_settings(self, claim: Claim) -> Claim:
        """Keep where a new stream begins: `latest` would mean something else tomorrow."""
        said = self.stream.settings.extract.starting_offsets
        start = self.source.begin(said)
        note = f"begins at {said if len(said) < 20 else 'the offsets that were said'}"
        return self.ledger.move(claim, start, note, begins_incarnation=False)

    def skipped(self, claim: Claim) -> Claim:
        """Behind what is gone from Kafka, if anything is; the loss is noted in the tracker."""
        start = end_of(claim)
        lost = self.source.lost(start)
        if not lost:
            return claim
        note = f"lost, skipped by --skip-to-earliest: {told(lost)}"
        return self.ledger.move(claim, skipped(start, lost), note, begins_incarnation=False)

    def tidied(self, claim: Claim) -> None:
        """Count what the tracker has, drop what was staged in vain, send what waits for Kafka."""
        self.watcher.counted(self.again(self.ledger.tracked), None)
        self.again(partial(self.writer.sweep, claim))
        self.relayed()

    def done(self, batch: BatchDone) -> None:
        """Count a batch, tell of it, and send what waits for Kafka."""
        self.totals.add(batch)
        self.watcher.committed(batch)
        self.relayed()

    def relayed(self) -> None:
        """Send what waits for Kafka; what cannot be sent stays where it is and is tried later."""
        if self.relay is None:
            return
        try:
            self.watcher.counted(None, self.relay.send())
        except StreamError as error:
            log.warning("stream %s: %s", self.stream_id, error.in_one_line())
            with suppress(StreamError):
                self.watcher.counted(None, self.relay.waiting())

    def lost_spark_by_a_stop(self) -> bool:
        """Whether the signal that stops the stream has ended Spark too.

        So it is where a whole process group is ended, as systemd does by default. Nothing is left to
        wait for then: what was not committed is repeated by the next run.
        """
        # Spark may know of the signal before this thread does.
        return self._spark is not None and self.stop.wait(HEARD_SECONDS) and is_gone(self._spark)

    def again(self, act: Callable[[], Result]) -> Result:
        """The result of `act`, tried again for as long as its error may pass."""
        return self.retrying.run(act)

    @cached_property
    def retrying(self) -> Retrying:
        """How attempts are repeated, as the settings say."""
        errors, clock = self.stream.settings.errors, _StoppableClock(self.stop)
        settings = errors.circuit_breaker
        breaker = Breaker(
            settings.failure_threshold, settings.reset_timeout_seconds, clock, self.watcher.breaker
        )
        return Retrying(
            errors.retry.policy,
            breaker if settings.enabled else None,
            clock,
            lambda retry: self.watcher.waiting(retry.error, retry.attempt, retry.wait_seconds),
        )


class Stopped(Exception):
    """A stop came while an attempt was waited for; the batch was not begun again."""


class _StoppableClock(SystemClock):
    """Sleeps until it is told to stop."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop

    def sleep(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise Stopped


def end_of(row: StreamRow) -> Offsets:
    """Where a stream that has begun stands."""
    if row.end_offsets is None:
        raise ValueError(f"stream {row.stream_id} has not begun")
    return row.end_offsets
