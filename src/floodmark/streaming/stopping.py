"""Ending a runner that runs in another process of this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from floodmark.errors import StreamError
from floodmark.streaming.access import Access
from floodmark.streaming.holding import process_of
from floodmark.streaming.parts import ledger_of

LOOK_SECONDS = 0.2
ASK_SECONDS = 10.0


@dataclass(frozen=True)
class StopOutcome:
    """What became of the runner of a stream."""

    holder: str | None
    was_running: bool
    has_ended: bool


def stop_runner(access: Access, wait_seconds: float) -> StopOutcome:
    """Ask the runner of a stream to end after its batch, and wait for it.

    A process that runs several streams ends with all of them. Nothing happens where none runs;
    called twice the second one finds none. Raises FM-STREAM-043 for a runner that no signal of ours
    reaches.
    """
    ledger = ledger_of(access)
    try:
        row = ledger.stored()
    finally:
        ledger.close()
    holder = row.holder if row is not None else None
    if is_elsewhere(holder):
        raise _unreachable(access.stream.called, str(holder), "the stream runs on another machine")
    pid = runner_here(holder)
    if pid is None:
        return StopOutcome(holder, was_running=False, has_ended=True)
    try:
        os.kill(pid, signal.SIGTERM)
    except PermissionError as error:
        title = "the stream is run by another user"
        raise _unreachable(access.stream.called, str(holder), title) from error
    except ProcessLookupError:
        return StopOutcome(holder, was_running=True, has_ended=True)
    return StopOutcome(holder, was_running=True, has_ended=_has_ended(pid, wait_seconds))


def runner_here(holder: str | None) -> int | None:
    """The process that holds a stream, if it runs on this machine; None if not, or if it has ended."""
    process = process_of(holder)
    if process is None or not process.is_here or not _is_runner(process.pid):
        return None
    return process.pid


def is_elsewhere(holder: str | None) -> bool:
    """Whether a process of another machine holds a stream: nothing is known of it here."""
    process = process_of(holder)
    return process is not None and not process.is_here


def _has_ended(pid: int, wait_seconds: float) -> bool:
    deadline = time.monotonic() + wait_seconds
    while _is_runner(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_SECONDS)
    return True


def _is_runner(pid: int) -> bool:
    """Whether a process is one of floodmark's that runs streams: numbers are used again."""
    state, _, command = _described(pid).partition(" ")
    return "floodmark" in command and " stream run" in command and not state.startswith("Z")


def _described(pid: int) -> str:
    """State and command of a process; empty if there is none."""
    entry = Path("/proc") / str(pid)
    if not entry.parent.exists():
        asked = ["ps", "-o", "stat=,args=", "-p", str(pid)]
        told = subprocess.run(
            asked, capture_output=True, text=True, check=False, timeout=ASK_SECONDS
        )
        return told.stdout.strip()
    try:
        # Behind the name, which may hold anything.
        state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        return f"{state} {(entry / 'cmdline').read_text().replace(chr(0), ' ')}"
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _unreachable(stream: str, holder: str, title: str) -> StreamError:
    return StreamError(
        "FM-STREAM-043",
        title,
        where=f"stream {stream}",
        found=holder,
        allowed="a runner of this machine and this user",
        state="nothing was changed",
        next="send SIGTERM to that process; or start the stream here, which fences it",
    )
