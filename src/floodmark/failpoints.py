"""Points where a test may kill the process: `FLOODMARK_FAILPOINT=name[:n]`.

`reached("sink.after_commit")` does nothing unless that name is armed; armed, it kills the process
with SIGKILL the n-th time it is reached (the first time by default), so that no `finally`, no
`atexit` and no buffer flush can tidy up: what a crash leaves behind is what the next command finds.
With `FLOODMARK_FAILPOINT_ACTION=stop` it is stopped by SIGSTOP instead and goes on where it was
after a SIGCONT; a test inside one process may arm an exception: `FLOODMARK_FAILPOINT_ACTION=raise`.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter

POINTS = (
    "plan.before_discover",
    "plan.after_discover",
    "journal.after_data_file",
    "journal.after_commit",
    "run.after_lease",
    "run.after_source_check",
    "run.after_read",
    "sink.before_commit",
    "sink.after_commit",
    "sink.between_sinks",
    "run.before_done",
    "run.after_done",
    "run.after_success",
    "finalize.before_commit",
    "finalize.after_commit",
    "project.before",
    "project.between_tables",
    "project.after",
    "compact.before_commit",
    "compact.after_commit",
)
"""Every point of the batch protocol; the crash tests run over this list."""

FREEZE_POINTS = ("freeze.before_commit", "freeze.after_commit")
"""Points that only a batch with a deferred end reaches; it has crash tests of its own."""

UPKEEP_POINTS = ("cleanup.mid",)
"""Points that only an upkeep reaches; it has crash tests of its own."""

ARCHIVE_POINTS = ("archive.before_copy", "archive.after_copy", "archive.after_move")
"""Points that only an upkeep with a policy for rows reaches; it has crash tests of its own."""

POSTGRES_POINTS = ("postgres.after_lock", "postgres.after_copy")
"""Points that only a write to PostgreSQL reaches; it has crash tests of its own."""

DATABASE_POINTS = ("edge.after_write", "edge.before_remove")
"""Points that only a node that reads a database reaches; it has crash tests of its own."""

NODE_POINTS = ("landing.after_write", "landing.before_remove")
"""Points that only a pipeline of nodes with a landing reaches; it has crash tests of its own."""

STREAM_POINTS = (
    "stream.after_begin",
    "stream.mid_copy",
    "stream.before_tracker",
    "stream.before_commit",
    "stream.after_commit",
    "stream.after_return",
)
"""Points that only a batch of a stream reaches; it has crash tests of its own."""

QUERY_POINTS = ("stream.after_wal",)
"""Points that only a stream with a checkpoint of Spark reaches; it has crash tests of its own."""

RELAY_POINTS = ("dlq.before_relay", "dlq.after_send")
"""Points that only messages to a dead-letter topic reach; they have crash tests of their own."""

STAGE_POINTS = ("stream.after_stage",)
"""Points that only a batch reaches that executors stage; it has crash tests of its own."""

LETTER_POINTS = ("letters.before_commit",)
"""Points that only a clean-up of dead letters reaches; it has crash tests of its own."""

WITHDRAWAL_POINTS = ("letters.after_withdrawal",)
"""Points that only dead letters reach whose batch is judged anew; they have crash tests of their own."""

_seen: Counter[str] = Counter()
_guard = threading.Lock()


def every_point() -> tuple[str, ...]:
    """All the points there are."""
    return (
        *POINTS,
        *FREEZE_POINTS,
        *UPKEEP_POINTS,
        *ARCHIVE_POINTS,
        *POSTGRES_POINTS,
        *NODE_POINTS,
        *DATABASE_POINTS,
        *STREAM_POINTS,
        *QUERY_POINTS,
        *RELAY_POINTS,
        *STAGE_POINTS,
        *LETTER_POINTS,
        *WITHDRAWAL_POINTS,
    )


class FailpointReached(BaseException):
    """What an armed point raises with ACTION=raise; a BaseException, so no handler records it."""


STOPPED_WITHIN_SECONDS = 0.1
"""A signal stops the threads of a process one after the other: the one that came here waits for it,
or it would run on, past the point."""


def reached(point: str) -> None:
    """Kill the process here if `point` is armed and this is its n-th time; else do nothing."""
    armed = os.environ.get("FLOODMARK_FAILPOINT")
    if not armed:
        return
    name, _, count = armed.partition(":")
    if name != point:
        return
    with _guard:
        _seen[point] += 1
        is_due = _seen[point] == int(count or 1)
    if not is_due:
        return
    action = os.environ.get("FLOODMARK_FAILPOINT_ACTION")
    if action == "raise":
        raise FailpointReached(point)
    if action == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(STOPPED_WITHIN_SECONDS)
        return
    os.kill(os.getpid(), signal.SIGKILL)


def rearm() -> None:
    """Count from the beginning again; for tests that arm several points in one process."""
    _seen.clear()
