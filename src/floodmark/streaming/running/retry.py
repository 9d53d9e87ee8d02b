"""Trying a batch again: what may pass is tried with growing waits, everything else is raised.

What may pass is said by the error itself (`retryable`), which has it from the SQLSTATE: see faults.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from floodmark.errors import StreamError
from floodmark.model import Clock, SystemClock
from floodmark.postgres.transactions import DISK_FULL
from floodmark.streaming.running.breaker import Breaker

Result = TypeVar("Result")
Strategy = Literal["exponential", "fixed", "none"]


@dataclass(frozen=True, slots=True)
class Retry:
    """What is told before a wait."""

    attempt: int
    """That failed, from 1."""
    wait_seconds: float
    error: StreamError


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often, and after which waits.

    exponential  each wait is twice the one before it, less up to a quarter by chance, so that
                 runners that failed together do not come back together.
    """

    strategy: Strategy = "exponential"
    max_attempts: int = 5
    initial_delay_seconds: float = 1.0
    max_delay_seconds: float = 60.0

    def wait_seconds(self, attempt: int, error: StreamError, chance: float = 0.0) -> float:
        """The wait after an attempt, counted from 1; `chance` is from 0 up to 1.

        >>> [RetryPolicy().wait_seconds(n, StreamError("FM-STREAM-005", "")) for n in range(1, 9)]
        [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
        """
        if error.details.get("sqlstate") == DISK_FULL:
            # Somebody has to make room; asking more often only fills the log.
            return self.max_delay_seconds
        if self.strategy == "fixed":
            return min(self.initial_delay_seconds, self.max_delay_seconds)
        grown = self.initial_delay_seconds * 2.0 ** min(attempt - 1, 60)
        return min(grown, self.max_delay_seconds) * (1 - 0.25 * chance)

    def allows(self, attempt: int, error: StreamError) -> bool:
        """Whether another attempt follows this one."""
        return error.retryable and self.strategy != "none" and attempt < self.max_attempts


@dataclass(slots=True)
class Retrying:
    """Runs attempts by a policy, through a breaker if there is one."""

    policy: RetryPolicy
    breaker: Breaker | None = None
    clock: Clock = field(default_factory=SystemClock)
    on_retry: Callable[[Retry], None] | None = None
    chance: Callable[[], float] = random.random

    def run(self, attempt: Callable[[], Result]) -> Result:
        """What an attempt returns; raises the last error once the policy allows no other one.

        An open breaker is waited for, which is no attempt. Errors that are not retryable are raised
        at once, and say nothing about the target to the breaker.
        """
        number = 0
        while True:
            self._wait_for_breaker()
            number += 1
            try:
                return self._once(attempt)
            except StreamError as error:
                self.pause(number, error)

    def pause(self, number: int, error: StreamError) -> None:
        """Wait after an attempt that failed; raises its error where no other one is allowed."""
        if not self.policy.allows(number, error):
            raise error
        self._wait(Retry(number, self._seconds(number, error), error))

    def _once(self, attempt: Callable[[], Result]) -> Result:
        if self.breaker is None:
            return attempt()
        try:
            result = attempt()
        except StreamError as error:
            (self.breaker.failed if error.retryable else self.breaker.abandoned)()
            raise
        except BaseException:
            self.breaker.abandoned()
            raise
        self.breaker.succeeded()
        return result

    def _wait_for_breaker(self) -> None:
        while self.breaker is not None:
            try:
                self.breaker.enter()
            except StreamError:
                # At least a moment: another thread may be trying in a half open one.
                self.clock.sleep(max(self.breaker.wait_seconds, 0.1))
            else:
                return

    def _seconds(self, number: int, error: StreamError) -> float:
        return self.policy.wait_seconds(number, error, self.chance())

    def _wait(self, retry: Retry) -> None:
        if self.on_retry is not None:
            self.on_retry(retry)
        self.clock.sleep(retry.wait_seconds)
