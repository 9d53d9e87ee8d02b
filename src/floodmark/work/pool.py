"""Work side by side: bounded, in a stable order, and able to stop."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")

FAREWELL_SECONDS = 30.0
"""How long an interrupted run waits for its threads to record what became of them."""


class NotBegunError(Exception):
    """Work of a pool was left alone because other work had failed; that failure is the news."""


class Workers:
    """At most `size` pieces of work at once, for one call of a project.

    With a size of one, or one task, everything happens in the calling thread, where an interrupt
    arrives by itself unless `stop` is given. Other threads look at `stop`.
    """

    def __init__(self, size: int, stop: threading.Event | None = None) -> None:
        self.size = size
        self._stop = stop or threading.Event()
        self._is_told = stop is not None
        self._halt = threading.Event()
        self._places = threading.BoundedSemaphore(size)
        self._caller = threading.current_thread()

    @property
    def stop(self) -> threading.Event | None:
        """What tells the work of this thread that it is given up; None where interrupts do."""
        is_interrupted_itself = threading.current_thread() is self._caller and not self._is_told
        return None if is_interrupted_itself else self._stop

    def go_on(self) -> None:
        """Raise KeyboardInterrupt if the work was told to stop."""
        if self._stop.is_set():
            raise KeyboardInterrupt

    @contextmanager
    def place(self) -> Iterator[None]:
        """One of the `size` places; waits until there is one. Raises KeyboardInterrupt if told."""
        with self._places:
            self.go_on()
            yield

    def pause(self, seconds: float) -> None:
        """Wait, but not beyond an interrupt; raises KeyboardInterrupt then."""
        if self._stop.wait(seconds):
            raise KeyboardInterrupt

    def each(self, tasks: Sequence[Callable[[], T]]) -> list[T]:
        """What the tasks return, in their order.

        A task that raises keeps others from beginning, not from ending, and its error is raised;
        an interrupt also gives up those that run.
        """
        if self.size == 1 or len(tasks) <= 1:
            return [task() for task in tasks]
        results: dict[int, T] = {}
        failures: dict[int, BaseException] = {}
        waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
        for position in range(len(tasks)):
            waiting.put(position)

        def work() -> None:
            while not self._halt.is_set() and not waiting.empty():
                try:
                    position = waiting.get_nowait()
                except queue.Empty:
                    return
                # The boundary of the thread: raised again by whoever waits for it.
                try:
                    results[position] = tasks[position]()
                except BaseException as error:  # noqa: BLE001
                    failures[position] = error
                    self._end(error)

        self._join([threading.Thread(target=work, daemon=True) for _ in tasks[: self.size]])
        if failures:
            raise _first(failures)
        if len(results) < len(tasks):  # work elsewhere in the pool failed before these began
            raise NotBegunError
        return [results[position] for position in range(len(tasks))]

    def _join(self, threads: Sequence[threading.Thread]) -> None:
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except BaseException as error:
            self._end(error)
            for thread in threads:
                thread.join(FAREWELL_SECONDS)
            raise

    def _end(self, error: BaseException) -> None:
        self._halt.set()
        if not isinstance(error, Exception):
            self._stop.set()


def _first(failures: Mapping[int, BaseException]) -> BaseException:
    """The failure to tell: the first in the order of the tasks that has a reason of its own."""
    in_order = [failures[position] for position in sorted(failures)]
    own = (error for error in in_order if not isinstance(error, NotBegunError))
    return next(own, in_order[0])
