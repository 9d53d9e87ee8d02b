"""Trying a batch again: what may pass is tried with growing waits, everything else is raised.

What may pass is said by the error itself (`retryable`), which has it from the SQLSTATE: see faults.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from floodmark.errors import StreamError
from floodmark.model import Clock, SystemClock
from floodmark.postgres.transactions import DISK_FULL
from floodmark.streaming.running.breaker import Breaker
from floodmark.work import Chance, RetryPolicy, any_number

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Retry:
    """What is told before a wait."""

    attempt: int
    """That failed, from 1."""
    wait_seconds: float
    error: StreamError


@dataclass(slots=True)
class Retrying:
    """Runs attempts by a policy, through a breaker if there is one."""

    policy: RetryPolicy
    breaker: Breaker | None = None
    clock: Clock = field(default_factory=SystemClock)
    on_retry: Callable[[Retry], None] | None = None
    chance: Chance = any_number

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
        if not error.retryable or not self.policy.allows(number):
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
        if error.details.get("sqlstate") == DISK_FULL:
            # Somebody has to make room; asking more often only fills the log.
            return self.policy.longest_seconds
        return self.policy.wait_seconds(number, self.chance)

    def _wait(self, retry: Retry) -> None:
        if self.on_retry is not None:
            self.on_retry(retry)
        self.clock.sleep(retry.wait_seconds)
