"""How often something is tried again, and after which waits."""

from __future__ import annotations

import pytest

from floodmark.work import RetryPolicy


def longest(_: float, most: float) -> float:
    return most


def test_waits_grow_to_the_longest() -> None:
    policy = RetryPolicy(2.0, longest_seconds=5.0)

    assert [policy.wait_seconds(failed) for failed in (1, 2, 3, 5_000)] == [2, 4, 5, 5]


def test_waits_that_do_not_grow_are_the_first_or_the_longest() -> None:
    assert RetryPolicy(2.0, grows=False).wait_seconds(9) == 2
    assert RetryPolicy(9.0, longest_seconds=5.0, grows=False).wait_seconds(9) == 5


@pytest.mark.parametrize(("jitter", "least"), [(0.25, 3.0), (1.0, 0.0)])
def test_chance_takes_a_share_at_most(jitter: float, least: float) -> None:
    asked: list[tuple[float, float]] = []

    def chance(low: float, high: float) -> float:
        asked.append((low, high))
        return low

    wait = RetryPolicy(2.0, jitter=jitter).wait_seconds(2, chance)

    assert (wait, asked) == (least, [(least, 4.0)])


def test_attempts_are_counted_with_the_first() -> None:
    policy = RetryPolicy(2.0, attempts=3)

    assert [policy.allows(failed) for failed in (1, 2, 3)] == [True, True, False]
    assert RetryPolicy(2.0).allows(1_000_000)


def test_what_asks_for_too_long_a_wait_is_not_tried_again() -> None:
    policy = RetryPolicy(2.0, limit_seconds=60.0)

    assert (policy.allows(1, 60.0), policy.allows(1, 60.5)) == (True, False)
