"""Taking turns at the published tables, so that many processes share one refresh.

Safety does not depend on it: every commit to those tables is a compare-and-swap. Without turns
fifty runners would overtake one another again and again, and each pays for a refresh of its own.
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
    lock = _opened(f"{control}/_turn") if is_local(control) else None
    if lock is None:
        yield False
        return
    try:
        yield _waited(lock)
    finally:
        os.close(lock)  # gives the lock back, if it was ours


def _opened(path: str) -> int | None:
    with suppress(OSError):
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    return None


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
