"""A circuit breaker: after failures in a row the target is left alone for a while."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Literal

from floodmark.errors import StreamError
from floodmark.model import Clock, SystemClock

State = Literal["closed", "open", "half_open"]


class Breaker:
    """Closed until `failure_threshold` failures in a row; then open for `reset_timeout_seconds`.

    closed     everything passes; a success forgets the failures before it.
    open       nothing passes.
    half_open  one attempt passes: its success closes the breaker, its failure opens it again.

    `on_change` is told of every change, from the thread that caused it. Safe for several threads.
    """

    def __init__(
        self,
        failure_threshold: int,
        reset_timeout_seconds: float,
        clock: Clock | None = None,
        on_change: Callable[[State], None] | None = None,
    ) -> None:
        if failure_threshold < 1:
            raise ValueError(f"a breaker that opens after {failure_threshold} failures")
        self._threshold = failure_threshold
        self._timeout = reset_timeout_seconds
        self._clock = clock or SystemClock()
        self._on_change = on_change
        self._guard = threading.RLock()
        self._failures = 0
        self._opened_at: float | None = None
        self._is_trying = False

    @property
    def state(self) -> State:
        """As it is at this moment: an open one becomes half open by time alone."""
        with self._guard:
            if self._opened_at is None:
                return "closed"
            return "half_open" if self.wait_seconds == 0 else "open"

    @property
    def wait_seconds(self) -> float:
        """How long it stays open."""
        with self._guard:
            if self._opened_at is None:
                return 0.0
            return max(0.0, self._opened_at + self._timeout - self._clock.monotonic())

    def enter(self) -> None:
        """Ask for leave to try; raises FM-STREAM-012 where there is none.

        Whoever has it says `succeeded`, `failed` or `abandoned` afterwards.
        """
        with self._guard:
            state = self.state
            if state == "open" or (state == "half_open" and self._is_trying):
                raise self._refusal()
            if state == "half_open":
                self._is_trying = True
                self._tell("half_open")

    def succeeded(self) -> None:
        """The attempt did what it should."""
        with self._guard:
            was_closed = self._opened_at is None
            self._failures, self._opened_at, self._is_trying = 0, None, False
            if not was_closed:
                self._tell("closed")

    def failed(self) -> None:
        """The attempt failed in a way that another one would fail too."""
        with self._guard:
            self._failures += 1
            is_trial, self._is_trying = self._is_trying, False
            if is_trial or (self._opened_at is None and self._failures >= self._threshold):
                self._opened_at = self._clock.monotonic()
                self._tell("open")

    def abandoned(self) -> None:
        """The attempt ended without a word about the target: its row was bad, it was interrupted."""
        with self._guard:
            self._is_trying = False

    def _tell(self, state: State) -> None:
        if self._on_change is not None:
            self._on_change(state)

    def _refusal(self) -> StreamError:
        seconds = self.wait_seconds
        return StreamError(
            "FM-STREAM-012",
            f"the circuit breaker is open for another {seconds:.0f} s",
            found=f"{self._failures} failures in a row",
            state="nothing was tried; the batch stays",
            next="nothing: it is tried again by itself; mend the target if it lasts",
            retryable=True,
        )
