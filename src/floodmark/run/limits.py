"""The limits of a run: how long its function may take, and a way to give it up from outside.

A thread cannot be killed. A run that is given up loses its lease first, so that whatever its
function does later can neither begin a write nor be recorded; then its Spark jobs and the statements
of its databases are cancelled.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from floodmark.engines.jobs import TaggedJobs

T = TypeVar("T")

GLANCE_SECONDS = 0.2
"""How often somebody who waits for a function looks whether it was told to stop."""


LET_GO_SECONDS = 10.0
"""How long Spark and databases are given to end what is cancelled."""


@dataclass(frozen=True)
class Limits:
    """How long a function may take, and who may end it."""

    timeout_seconds: float | None = None
    stop: threading.Event | None = None
    """Set by another thread to give the run up, as an interrupt would."""

    @property
    def are_set(self) -> bool:
        return self.timeout_seconds is not None or self.stop is not None


NO_LIMITS = Limits()


class TookTooLong(Exception):
    """A function did not end in time; it may still be running."""

    def __init__(self, timeout_seconds: float) -> None:
        super().__init__(f"it did not end within {timeout_seconds:g} s")
        self.timeout_seconds = timeout_seconds


def call_within(limits: Limits, work: Callable[[], T], let_go: Callable[[], None]) -> T:
    """What `work` returns or raises; without limits it is simply called.

    With limits it runs in a thread of its own. Raises TookTooLong after the timeout and
    KeyboardInterrupt once told to stop; `let_go` is called before either is raised.
    """
    if not limits.are_set:
        return work()
    call = _Call(work)
    threading.Thread(target=call.run, name="floodmark function", daemon=True).start()
    try:
        call.wait(limits)
    except BaseException:
        let_go()
        raise
    return call.outcome()


def in_short(*acts: Callable[[], None]) -> None:
    """Do some acts side by side, and wait for none of them longer than LET_GO_SECONDS.

    What is to be let go of may hang: a JVM, a database that does not answer.
    """
    threads = [threading.Thread(target=act, name="floodmark lets go", daemon=True) for act in acts]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + LET_GO_SECONDS
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))


class _Call(Generic[T]):
    """A call in another thread."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._done = threading.Event()
        self._result: list[T] = []
        self._error: BaseException | None = None

    def run(self) -> None:
        # The boundary of the thread: whatever comes up is raised again where it is waited for.
        try:
            self._result.append(self._work())
        except BaseException as error:  # noqa: BLE001
            self._error = error
        finally:
            self._done.set()

    def wait(self, limits: Limits) -> None:
        """Until it is done; raises TookTooLong or KeyboardInterrupt if that is not to be."""
        timeout = limits.timeout_seconds
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while not self._done.wait(min(GLANCE_SECONDS, max(0.0, deadline - time.monotonic()))):
            if limits.stop is not None and limits.stop.is_set():
                raise KeyboardInterrupt
            if timeout is not None and time.monotonic() >= deadline:
                raise TookTooLong(timeout)

    def outcome(self) -> T:
        if self._error is not None:
            raise self._error
        return self._result[0]


class SparkJobs:
    """The Spark jobs of one run, told apart by a tag of the thread that starts them."""

    def __init__(self, spark: Any, run_id: str) -> None:
        self._jobs = TaggedJobs(spark, f"floodmark-{run_id}")
        self._spark = spark
        self._begun_by = threading.current_thread()

    def during(self, work: Callable[[], T]) -> T:
        """Do the work; jobs that this thread starts meanwhile can be cancelled."""
        if self._jobs.can_be_told and threading.current_thread() is not self._begun_by:
            from floodmark.engines.jvm import make_active

            make_active(self._spark)
        with self._jobs.begun():
            return work()

    def cancel(self) -> None:
        """Cancel what runs. Saves work only: the lease is what keeps a late function from writing."""
        with suppress(Exception):
            self._jobs.cancel()
