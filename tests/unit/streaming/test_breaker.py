from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from floodmark.errors import StreamError
from floodmark.model.clock import FrozenClock
from floodmark.streaming.running.breaker import Breaker, State

THRESHOLD, TIMEOUT = 3, 10.0


def refused(breaker: Breaker) -> bool:
    try:
        breaker.enter()
    except StreamError as error:
        return error.code == "FM-STREAM-012" and error.retryable
    return False


def opened(clock: FrozenClock) -> Breaker:
    breaker = Breaker(THRESHOLD, TIMEOUT, clock)
    for _ in range(THRESHOLD):
        breaker.enter()
        breaker.failed()
    return breaker


def test_it_opens_after_failures_in_a_row_and_tells() -> None:
    told: list[State] = []
    clock = FrozenClock()
    breaker = Breaker(2, TIMEOUT, clock, told.append)

    breaker.failed()
    breaker.succeeded()
    breaker.failed()
    assert breaker.state == "closed"
    breaker.failed()

    assert (breaker.state, breaker.wait_seconds, refused(breaker)) == ("open", TIMEOUT, True)
    clock.sleep(TIMEOUT)
    breaker.enter()
    breaker.succeeded()
    assert told == ["open", "half_open", "closed"]


def test_half_open_lets_one_through() -> None:
    clock = FrozenClock()
    breaker = opened(clock)
    clock.sleep(TIMEOUT)

    assert (refused(breaker), refused(breaker)) == (False, True)
    breaker.abandoned()
    assert not refused(breaker)


def test_a_failed_trial_opens_it_for_as_long_again() -> None:
    clock = FrozenClock()
    breaker = opened(clock)
    clock.sleep(TIMEOUT)
    breaker.enter()

    breaker.failed()

    assert breaker.wait_seconds == TIMEOUT


def test_it_needs_a_threshold() -> None:
    with pytest.raises(ValueError, match="after 0 failures"):
        Breaker(0, 1)


class BreakerMachine(RuleBasedStateMachine):
    """The breaker against a model that remembers what happened and when."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = FrozenClock()
        self.breaker = Breaker(THRESHOLD, TIMEOUT, self.clock)
        self.in_a_row = 0
        self.opened_at: float | None = None
        self.trials = 0

    @property
    def expected(self) -> State:
        if self.opened_at is None:
            return "closed"
        return "open" if self.clock.elapsed < self.opened_at + TIMEOUT else "half_open"

    @rule(outcome=st.sampled_from(["succeeded", "failed", "abandoned", "pending"]))
    def attempt(self, outcome: str) -> None:
        state = self.expected
        may_try = state == "closed" or (state == "half_open" and not self.trials)

        assert refused(self.breaker) == (not may_try)

        if not may_try:
            return
        self.trials = int(state == "half_open")
        if outcome != "pending":
            self.end(outcome)

    @precondition(lambda self: self.trials)
    @rule(outcome=st.sampled_from(["succeeded", "failed", "abandoned"]))
    def end(self, outcome: str) -> None:
        getattr(self.breaker, outcome)()
        if outcome == "succeeded":
            self.in_a_row, self.opened_at = 0, None
        elif outcome == "failed":
            self.in_a_row += 1
            if self.trials or (self.opened_at is None and self.in_a_row >= THRESHOLD):
                self.opened_at = self.clock.elapsed
        self.trials = 0

    @rule(seconds=st.sampled_from([0.5, 5.0, TIMEOUT]))
    def time_passes(self, seconds: float) -> None:
        self.clock.sleep(seconds)

    @invariant()
    def it_is_in_the_state_of_the_model(self) -> None:
        assert self.breaker.state == self.expected

    @invariant()
    def it_never_stays_open_longer_than_its_timeout(self) -> None:
        assert 0 <= self.breaker.wait_seconds <= TIMEOUT


TestBreakerMachine = BreakerMachine.TestCase
TestBreakerMachine.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
