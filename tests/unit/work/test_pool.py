"""Work side by side: who fails first is told, whatever else is left undone by it."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from floodmark.work import Workers


def test_work_within_work_that_was_not_begun_does_not_hide_why() -> None:
    crew = Workers(2)

    def outer() -> list[int]:
        while True:  # until it is known that the other one has failed
            crew.each([lambda: 1, lambda: 2])

    def fails() -> list[int]:
        raise ValueError("the reason")

    with pytest.raises(ValueError, match="the reason"):
        crew.each([outer, fails])


def test_results_are_in_the_order_of_the_tasks() -> None:
    crew = Workers(3)

    assert crew.each([partial(pow, number, 2) for number in range(20)]) == [
        n * n for n in range(20)
    ]


def test_of_several_failures_the_first_in_order_is_raised() -> None:
    crew = Workers(1)
    began: list[int] = []

    def failing(number: int) -> None:
        began.append(number)
        raise ValueError(number)

    with pytest.raises(ValueError, match="0"):
        crew.each([lambda: failing(0), lambda: failing(1)])
    assert began == [0]


def test_a_crew_that_was_told_to_stop_begins_nothing() -> None:
    stop = threading.Event()
    crew = Workers(1, stop)
    assert crew.stop is stop
    with crew.place():
        stop.set()

    with pytest.raises(KeyboardInterrupt), crew.place():
        raise AssertionError("begun all the same")
    with pytest.raises(KeyboardInterrupt):
        crew.pause(0)


def test_without_one_who_tells_an_interrupt_arrives_by_itself() -> None:
    assert Workers(1).stop is None
