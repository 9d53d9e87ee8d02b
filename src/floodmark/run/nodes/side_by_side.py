"""Nodes side by side: each once those it depends on are done, at most so many at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from floodmark.errors import FloodmarkError
from floodmark.run.lost_targets import OtherPass

Work = Callable[[str], None]

GLANCE_SECONDS = 0.2
"""How often somebody who waits for the others looks whether one was interrupted."""


def in_order(
    parents: Mapping[str, Sequence[str]], work: Work, at_once: int, spark: Any = None
) -> None:
    """Do the work of every name after that of its parents; `parents` has no circle.

    The first error keeps others from beginning, not from ending; then it is raised, the first by
    the order of `parents`, with the others told beside it. With one at once, everything happens in
    the calling thread; else jobs of Spark keep the tags of that thread.
    """
    crew = _Crew({name: set(before) for name, before in parents.items()}, work)
    helpers = [
        threading.Thread(target=_inheriting(spark, crew.labour), daemon=True)
        for _ in range(min(at_once, _most_at_once(parents)) - 1)
    ]
    for helper in helpers:
        helper.start()
    # An interrupt waits for nobody: those that still run begin nothing more, and the run, which is
    # recorded as FAILED, takes no record of theirs.
    try:
        crew.labour()
        while not crew.is_interrupted and any(helper.is_alive() for helper in helpers):
            helpers[0].join(GLANCE_SECONDS)
            helpers = [helper for helper in helpers if helper.is_alive()] or helpers
    finally:
        crew.halt()
    crew.raise_first(list(parents))


class _Crew:
    """Threads that share one list of work."""

    def __init__(self, waiting: dict[str, set[str]], work: Work) -> None:
        self._waiting = waiting
        self._work = work
        self._running: set[str] = set()
        self._failures: dict[str, BaseException] = {}
        self._is_halted = False
        self._changed = threading.Condition()

    def labour(self) -> None:
        """Take what is ready until nothing is left, or something has failed."""
        while (name := self._take()) is not None:
            failure = None
            # The boundary of a thread: raised again by whoever waits for all of them.
            try:
                self._work(name)
            except BaseException as error:  # noqa: BLE001
                failure = error
            self._done(name, failure)

    @property
    def is_interrupted(self) -> bool:
        """Whether somebody has asked for the end of the process."""
        failures = list(self._failures.values())
        return any(isinstance(each, KeyboardInterrupt | SystemExit) for each in failures)

    def halt(self) -> None:
        with self._changed:
            self._is_halted = True
            self._changed.notify_all()

    def raise_first(self, order: Sequence[str]) -> None:
        failed = [self._failures[name] for name in order if name in self._failures]
        # An end of the process comes before errors, and errors before a pass of the other kind.
        failed.sort(key=lambda each: (isinstance(each, Exception), isinstance(each, OtherPass)))
        if not failed:
            return
        first, *others = failed
        told = [_told(other) for other in others if not isinstance(other, OtherPass)]
        if told and isinstance(first, FloodmarkError):
            first.details["also"] = "\n".join(told)
        raise first

    def _take(self) -> str | None:
        """The next name that is ready, once there is one; None if there will be none."""
        with self._changed:
            while True:
                if self._is_halted or self._failures or not self._waiting:
                    return None
                ready = next((name for name, left in self._waiting.items() if not left), None)
                if ready is not None:
                    del self._waiting[ready]
                    self._running.add(ready)
                    return ready
                if not self._running:
                    return None
                self._changed.wait()

    def _done(self, name: str, failure: BaseException | None) -> None:
        with self._changed:
            self._running.discard(name)
            if failure is not None:
                self._failures[name] = failure
            else:
                for left in self._waiting.values():
                    left.discard(name)
            self._changed.notify_all()


def _told(error: BaseException) -> str:
    return error.in_one_line() if isinstance(error, FloodmarkError) else f"{error!r}"[:400]


def _most_at_once(parents: Mapping[str, Sequence[str]]) -> int:
    """How many threads could have work at best: one more than those who always wait for another."""
    chained = sum(1 for before in parents.values() if before)
    roots = len(parents) - chained
    forks = sum(
        max(0, sum(1 for before in parents.values() if name in before) - 1) for name in parents
    )
    return max(1, min(len(parents), roots + forks))


def _inheriting(spark: Any, work: Callable[[], None]) -> Callable[[], None]:
    """The work, for a thread whose Spark jobs are cancelled together with those of this one."""
    if spark is None:
        return work
    from pyspark import inheritable_thread_target

    inherited: Callable[[], None] = inheritable_thread_target(spark)(work)
    return inherited
