"""Ending a runner that runs in another process, on this machine or another one."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from floodmark.streaming.access import Access
from floodmark.streaming.ledger.protocol import StreamLedger
from floodmark.streaming.ledger.requests import SignOfLife
from floodmark.streaming.parts import ledger_of
from floodmark.streaming.running.holder import process_of
from floodmark.work import ProcessName, command_of

LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class StopOutcome:
    """What became of the runner of a stream."""

    holder: str | None
    was_running: bool
    has_ended: bool


def stop_runner(access: Access, wait_seconds: float) -> StopOutcome:
    """Ask the runner of a stream to end after its batch, wherever it runs, and wait for it.

    The request is kept in the ledger of the stream and names the claim of that runner; other streams
    of its process go on. Nothing happens where none runs; called twice the second one finds none.
    A runner of another machine that was killed never answers.
    """
    with closing(ledger_of(access)) as ledger:
        row = ledger.stored()
        holder, claim_id = (row.holder, row.claim_id) if row is not None else (None, None)
        sign = ledger.sign_of_life(claim_id) if claim_id is not None else None
        pid = runner_here(holder, sign)
        is_reachable = pid is not None or is_elsewhere(holder)
        if claim_id is None or not is_reachable:
            return StopOutcome(holder, was_running=False, has_ended=True)
        ledger.ensure()
        if ledger.has_ended(claim_id):
            return StopOutcome(holder, was_running=False, has_ended=True)
        ledger.ask_to_stop(claim_id, str(ProcessName.here()))
        has_ended = _has_ended(ledger, claim_id, pid, wait_seconds)
    return StopOutcome(holder, was_running=True, has_ended=has_ended)


def runner_here(holder: str | None, sign: SignOfLife | None = None) -> int | None:
    """The process that holds a stream, if it runs on this machine; None if not, or if it has ended.

    Numbers of processes are used again: one that is no `floodmark stream run` counts only while it
    gives signs of life, as a notebook does that runs a stream.
    """
    process = process_of(holder)
    command = command_of(process.pid) if process is not None and process.is_here else ""
    is_command = "floodmark" in command and " stream run" in command
    is_signing = sign is not None and not sign.has_ended and not sign.is_gone
    return process.pid if process is not None and command and (is_command or is_signing) else None


def is_elsewhere(holder: str | None) -> bool:
    """Whether a process of another machine holds a stream: nothing is known of it here."""
    process = process_of(holder)
    return process is not None and not process.is_here


def _has_ended(
    ledger: StreamLedger[Any], claim_id: str, pid: int | None, wait_seconds: float
) -> bool:
    """Wait until a runner answers, is gone from this machine, or has lost the stream to another."""
    deadline = time.monotonic() + wait_seconds
    while not ledger.has_ended(claim_id):
        row = ledger.stored()
        if row is None or row.claim_id != claim_id or (pid is not None and not command_of(pid)):
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_SECONDS)
    return True
