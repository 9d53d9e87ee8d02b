"""Several streams in one process: a thread each, one Spark session, one stop for all."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from floodmark.errors import FloodmarkError, StreamError
from floodmark.streaming.access import Access
from floodmark.streaming.ledger.batches import Claim
from floodmark.streaming.parts import notes_of
from floodmark.streaming.runner import Runner
from floodmark.streaming.running.metrics import StreamNumbers
from floodmark.streaming.running.watching import BatchDone, LoggedBatches, RunTotals, StreamWatcher
from floodmark.streaming.telling import name_stream

JOIN_SECONDS = 0.2
"""How soon the main thread notices a signal."""


@dataclass
class StreamOutcome:
    """How one stream ended."""

    stream_id: str
    totals: RunTotals = field(default_factory=RunTotals)
    error: FloodmarkError | None = None
    unexpected: BaseException | None = None

    @property
    def status(self) -> str:
        """DONE, STOPPED, FENCED or FAILED."""
        if self.error is not None and self.error.code == "FM-STREAM-001":
            return "FENCED"
        return "FAILED" if self.error is not None or self.unexpected is not None else "DONE"


@dataclass
class Told:
    """Tells several watchers the same."""

    watchers: Sequence[StreamWatcher]

    def claimed(self, claim: Claim) -> None:
        """The stream is taken."""
        for watcher in self.watchers:
            watcher.claimed(claim)

    def starting_session(self) -> None:
        """Spark starts."""
        for watcher in self.watchers:
            watcher.starting_session()

    def committed(self, batch: BatchDone) -> None:
        """A batch is committed."""
        for watcher in self.watchers:
            watcher.committed(batch)

    def waiting(self, error: StreamError, attempt: int, seconds: float) -> None:
        """An attempt failed and is repeated."""
        for watcher in self.watchers:
            watcher.waiting(error, attempt, seconds)

    def idle(self, records_behind: int) -> None:
        """There is nothing to read."""
        for watcher in self.watchers:
            watcher.idle(records_behind)

    def breaker(self, state: str) -> None:
        """The circuit breaker is in another state."""
        for watcher in self.watchers:
            watcher.breaker(state)

    def counted(self, tracked: int | None, outbox: int | None) -> None:
        """Rows of the tracker, messages of the outbox."""
        for watcher in self.watchers:
            watcher.counted(tracked, outbox)


def announced(access: Access, watchers: Sequence[StreamWatcher]) -> StreamWatcher:
    """What a stream does is told to all of them, to floodmark's log and to its notes on this machine."""
    name = access.stream.settings.pipeline_id
    return Told([*watchers, LoggedBatches(name), notes_of(access)])


class SharedSession:
    """Starts the Spark session once, for whoever asks first."""

    def __init__(self, start: Callable[[], Any]) -> None:
        self._start = start
        self._guard = threading.Lock()
        self._session: Any = None

    def __call__(self) -> Any:
        with self._guard:
            if self._session is None:
                self._session = self._start()
            return self._session


def run_together(
    runners: Sequence[Runner],
    numbers: Sequence[StreamNumbers],
    is_stopped: Callable[[], bool] = lambda: False,
) -> list[StreamOutcome]:
    """Run every stream to its end; one that fails leaves the others alone.

    `is_stopped` is asked while the main thread waits: signals arrive there.
    """
    outcomes = [StreamOutcome(runner.stream_id) for runner in runners]
    threads = [
        threading.Thread(
            target=_run,
            args=(runner, outcome, told),
            name=f"stream-{runner.stream_id}",
            daemon=True,
        )
        for runner, outcome, told in zip(runners, outcomes, numbers, strict=True)
    ]
    for thread in threads:
        thread.start()
    try:
        while any(thread.is_alive() for thread in threads):
            if is_stopped():
                _stop(runners)
            time.sleep(JOIN_SECONDS)
    except KeyboardInterrupt:
        # Whoever catches it finds streams that end after their batch, not ones that run for ever.
        _stop(runners)
        raise
    return outcomes


def _stop(runners: Sequence[Runner]) -> None:
    for runner in runners:
        runner.stop.set()


def _run(runner: Runner, outcome: StreamOutcome, numbers: StreamNumbers) -> None:
    try:
        runner.run()
    except FloodmarkError as error:
        name_stream(error, runner.stream)
        outcome.error = error
    # The boundary of a thread: the main one shows it.
    except Exception as error:  # noqa: BLE001
        outcome.unexpected = error
    finally:
        outcome.totals = runner.totals
        numbers.ended(outcome.error.in_one_line() if outcome.error else None)
        runner.ledger.close()
