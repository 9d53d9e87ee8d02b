"""Taking turns, so that many processes share one refresh of the tables, and one compaction.

Safety does not depend on it: every commit is a compare-and-swap. Without turns fifty runners would
overtake one another again and again, and each pays for work of its own.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from floodmark.deltalog import is_local

PATIENCE_SECONDS = 2.0
"""A holder that stands still is not waited for longer."""
_LOOK_AGAIN_SECONDS = 0.02


@contextmanager
def turn(control: str) -> Iterator[bool]:
    """Wait for the turn; gives whether somebody else had it before.

    On an object store, or where the lock cannot be had, everybody goes on at once.
    """
    with _lock(control, "_turn") as lock:
        yield lock is not None and _waited(lock)


@contextmanager
def alone(control: str) -> Iterator[bool]:
    """Whether nobody else compacts the journal just now; waits for nobody.

    On an object store, or where the lock cannot be had, everybody may.
    """
    with _lock(control, "_compaction") as lock:
        yield lock is None or _taken(lock)


@contextmanager
def _lock(control: str, name: str) -> Iterator[int | None]:
    """A file to lock, None where there is none; closing it gives the lock back."""
    lock = None
    if is_local(control):
        with suppress(OSError):
            lock = os.open(f"{control}/{name}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        yield lock
    finally:
        if lock is not None:
            os.close(lock)


def _waited(lock: int) -> bool:
    deadline = time.monotonic() + PATIENCE_SECONDS
    has_waited = False
    while not _taken(lock) and time.monotonic() < deadline:
        has_waited = True
        time.sleep(_LOOK_AGAIN_SECONDS)
    return has_waited


def _taken(lock: int) -> bool:
    """Whether the lock is ours now; a system without such locks counts as ours."""
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
