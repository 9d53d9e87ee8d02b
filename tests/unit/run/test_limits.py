"""Calls with limits: what comes back, when they are given up, and what is let go first."""

from __future__ import annotations

import threading

import pytest

from floodmark.run.limits import NO_LIMITS, Limits, SparkJobs, TookTooLong, call_within


def nothing() -> None:
    pass


def test_without_limits_the_work_is_done_in_the_calling_thread() -> None:
    assert call_within(NO_LIMITS, threading.current_thread, nothing) is threading.current_thread()


@pytest.mark.parametrize("limits", [NO_LIMITS, Limits(60), Limits(stop=threading.Event())])
def test_results_and_errors_come_back_as_they_are(limits: Limits) -> None:
    error = ValueError("as it is")

    def fail() -> int:
        raise error

    assert call_within(limits, lambda: 7, nothing) == 7
    with pytest.raises(ValueError, match="as it is") as caught:
        call_within(limits, fail, nothing)
    assert caught.value is error


def test_a_timeout_lets_go_before_it_is_raised() -> None:
    forever, let_go = threading.Event(), threading.Event()

    with pytest.raises(TookTooLong):
        call_within(Limits(0.01), lambda: forever.wait(60), let_go.set)

    assert let_go.is_set()
    forever.set()


def test_who_is_told_to_stop_is_interrupted() -> None:
    forever, stop, let_go = threading.Event(), threading.Event(), threading.Event()
    stop.set()

    with pytest.raises(KeyboardInterrupt):
        call_within(Limits(stop=stop), lambda: forever.wait(60), let_go.set)

    assert let_go.is_set()
    forever.set()


def test_an_interrupt_of_the_function_itself_is_passed_on() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        call_within(Limits(60), interrupted, nothing)


def test_without_a_spark_context_there_is_nothing_to_cancel() -> None:
    jobs = SparkJobs(None, "run_1")

    assert jobs.during(lambda: 7) == 7
    jobs.cancel()
