"""Work beside the main thread, which alone gets interrupts: it can always end the command.

An interrupt that is raised inside the work itself would hit it anywhere: in the middle of an answer
of Spark's JVM, which the next call would then wait for; in a function that never looks up.
"""

from __future__ import annotations

import atexit
import contextvars
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import NoReturn

STOP_SECONDS = 25.0
"""How long work is given to cancel what runs and to record what became of it."""
LEAVE_SECONDS = 1.0
"""How long work is given that has nothing to record, and farewells of libraries."""
GLANCE_SECONDS = 0.2
"""How often the main thread looks for a signal that another thread has caught: after a stop (Ctrl-Z)
the kernel may choose any, and only the main thread acts on it."""
_NAME = "floodmark"
"""How the names of our threads begin."""


class Beside:
    """One piece of work in a thread of its own, and what becomes of it."""

    def __init__(self, work: Callable[[], int]) -> None:
        self._work = work
        self._done = threading.Event()
        self._code = 0
        self._error: BaseException | None = None

    def begin(self) -> None:
        """Start the work; it sees the context of the caller."""
        inside = contextvars.copy_context()
        threading.Thread(
            target=lambda: inside.run(self._run), name=f"{_NAME} command", daemon=True
        ).start()

    def outcome(self) -> int:
        """What the work returns, once it does; raises what it raises, and KeyboardInterrupt."""
        self.has_ended(math.inf)
        if self._error is not None:
            raise self._error
        return self._code

    def has_ended(self, within_seconds: float) -> bool:
        """Whether the work has ended, at the latest after that time."""
        end = time.monotonic() + within_seconds
        while not (has_ended := self._done.wait(GLANCE_SECONDS)) and time.monotonic() < end:
            pass
        return has_ended

    def _run(self) -> None:
        # The boundary of the thread: whatever comes up is raised again where it is waited for.
        try:
            self._code = self._work()
        except BaseException as error:  # noqa: BLE001
            self._error = error
        finally:
            self._done.set()


def is_possible() -> bool:
    """Whether the calling thread is the one that gets interrupts."""
    return threading.current_thread() is threading.main_thread()


def is_left_alone() -> bool:
    """Whether work of ours still goes on that was given up."""
    return any(each.name.startswith(_NAME) for each in threading.enumerate())


def leave(code: int) -> NoReturn:
    """End the process although threads still work.

    Python would take them down in the middle of whatever they do, libraries of other languages
    among it; they would say so on the screen.
    """
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    thread = threading.Thread(target=_farewell, daemon=True)
    thread.start()
    thread.join(LEAVE_SECONDS)
    os._exit(code)


def _farewell() -> None:
    for stream in (sys.stdout, sys.stderr):
        print(end="", file=stream, flush=True)
    # Folders of the process are removed there; no other way to have it done is known.
    atexit._run_exitfuncs()  # noqa: SLF001
