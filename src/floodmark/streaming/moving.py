"""Setting the offsets of a stream by decision of a person."""

from __future__ import annotations

import getpass
import os
import socket

from pydantic_core import PydanticCustomError

from floodmark.config.stream_params import checked_starting_offsets
from floodmark.errors import ConfigError
from floodmark.model.offsets import Offsets
from floodmark.streaming.access import Access
from floodmark.streaming.batches import ClaimFacts
from floodmark.streaming.parts import ledger_of, source_of


def moved_to(access: Access, to: str) -> tuple[Offsets | None, Offsets]:
    """Let the stream go on at `to`; the offsets before and after.

    Fences every runner; says so in the tracker. The topics of today are the stream's from here on,
    also if they were recreated. Called twice it is noted twice.
    """
    _check(to)
    settings, source, ledger = access.stream.settings, source_of(access), ledger_of(access)
    try:
        ledger.ensure()
        row = ledger.stored()
        facts = ClaimFacts(
            holder=f"{socket.gethostname()}, process {os.getpid()} (reset)",
            topic_ids=source.topic_ids(),
            config_hash=settings.definition,
            exactly_once=settings.streaming.enable_idempotence,
        )
        claim = ledger.claim(facts, row)
        after = source.begin(to)
        ledger.move(claim, after, f"reset to {to[:100]} by {_person()}")
        return (row.end_offsets if row else None), after
    finally:
        ledger.close()


def _check(to: str) -> None:
    try:
        checked_starting_offsets(to)
    except PydanticCustomError as error:
        context = error.context or {}
        raise ConfigError(
            "FM-CONFIG-007",
            f"--to is {to[:60]}",
            allowed=str(context.get("allowed", "earliest or latest")),
            state="nothing was changed",
            next="correct the option",
        ) from error


def _person() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "somebody"
