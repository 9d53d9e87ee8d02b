from __future__ import annotations

from dataclasses import dataclass, field

import psycopg
import pytest

from floodmark.errors import StreamError
from floodmark.model.clock import FrozenClock
from floodmark.postgres.transactions import fault
from floodmark.postgres.transactions.faults import Fault
from floodmark.streaming.ledger.faults import database_error
from floodmark.streaming.running.breaker import Breaker
from floodmark.streaming.running.retry import Retry, Retrying
from floodmark.work import RetryPolicy

OUTAGE = StreamError("FM-STREAM-005", "away", retryable=True, details={"sqlstate": "57P03"})
LASTING = StreamError("FM-STREAM-005", "no rights")
POLICY = RetryPolicy(2, 4, longest_seconds=5, jitter=0.25)


def longest(_: float, most: float) -> float:
    """No wait is shortened by chance."""
    return most


@dataclass
class Flaky:
    """Fails with each of the errors, then works."""

    errors: list[BaseException] = field(default_factory=list)
    calls: int = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


def stated(state: str) -> psycopg.Error:
    error = psycopg.errors.lookup(state)("said") if state in _KNOWN else psycopg.Error("said")
    error.sqlstate = state
    return error


_KNOWN = ("40P01", "40001", "23505")


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        *((state, "transient") for state in ("08006", "08000", "40001", "40P01", "53100", "53300")),
        *((state, "transient") for state in ("57P01", "57P02", "57P03", "57014", "55P03", "25006")),
        *((state, "row") for state in ("22001", "22003", "22008", "22021", "22P02", "23502")),
        *((state, "row") for state in ("23503", "23505", "23514", "44000", "54000", "P0001")),
        *((state, "lasting") for state in ("42501", "42P01", "42703", "28P01", "3D000", "0A000")),
        *((state, "unclear") for state in ("42601", "42622", "XX000", "38001")),
        *((state, "lasting") for state in ("25P02", "XX001", "42P10")),
    ],
)
def test_an_error_is_classified_by_its_state(state: str, expected: Fault) -> None:
    error = stated(state)

    assert fault(error) == expected
    assert database_error("s", error).retryable == (expected == "transient")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (psycopg.OperationalError("server closed the connection"), "transient"),
        (psycopg.InterfaceError("the connection is closed"), "transient"),
        (psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes"), "row"),
        (UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"), "row"),
        (psycopg.ProgrammingError("the query has 0 placeholders"), "lasting"),
    ],
)
def test_without_a_state_the_class_decides(error: Exception, expected: Fault) -> None:
    assert fault(error) == expected


def test_what_may_pass_is_tried_again_with_growing_waits() -> None:
    told: list[Retry] = []
    clock = FrozenClock()
    attempt = Flaky([OUTAGE] * 3)

    result = Retrying(POLICY, clock=clock, on_retry=told.append, chance=longest).run(attempt)

    assert (result, attempt.calls) == ("done", 4)
    assert [(one.attempt, one.wait_seconds) for one in told] == [(1, 2), (2, 4), (3, 5)]
    assert clock.elapsed == 11


def test_after_the_last_attempt_the_error_is_raised() -> None:
    attempt = Flaky([OUTAGE] * 4)

    with pytest.raises(StreamError) as caught:
        Retrying(POLICY, clock=FrozenClock()).run(attempt)

    assert (caught.value, attempt.calls) == (OUTAGE, 4)


@pytest.mark.parametrize("error", [LASTING, ValueError("a bug")])
def test_what_does_not_pass_is_raised_at_once(error: Exception) -> None:
    attempt = Flaky([error])

    with pytest.raises(type(error)):
        Retrying(POLICY, Breaker(1, 10, FrozenClock()), FrozenClock()).run(attempt)

    assert attempt.calls == 1


def test_a_full_disk_is_tried_slowly() -> None:
    full = StreamError("FM-STREAM-005", "full", retryable=True, details={"sqlstate": "53100"})
    clock = FrozenClock()

    Retrying(POLICY, clock=clock, chance=longest).run(Flaky([full]))

    assert clock.elapsed == 5


def test_chance_shortens_a_wait() -> None:
    clock = FrozenClock()

    Retrying(POLICY, clock=clock, chance=lambda least, _: least).run(Flaky([OUTAGE]))

    assert clock.elapsed == 1.5


def test_an_open_breaker_is_waited_for_and_the_batch_stays() -> None:
    clock = FrozenClock()
    breaker = Breaker(2, 100, clock)
    attempt = Flaky([OUTAGE] * 3)

    result = Retrying(POLICY, breaker, clock, chance=longest).run(attempt)

    assert (result, attempt.calls, breaker.state) == ("done", 4, "closed")
    assert clock.elapsed >= 200


def test_bad_rows_do_not_open_the_breaker() -> None:
    clock = FrozenClock()
    breaker = Breaker(1, 100, clock)

    with pytest.raises(StreamError):
        Retrying(POLICY, breaker, clock).run(Flaky([LASTING]))

    assert breaker.state == "closed"
