"""Who holds a stream: how that is written into its row, and read from it."""

from __future__ import annotations

import os
import re
import socket
from dataclasses import dataclass
from typing import Any

from floodmark.config.stream import StreamPipeline
from floodmark.streaming.ledger.batches import ClaimFacts

_RUNNER = re.compile(r"(?P<host>.+), process (?P<pid>[0-9]+)")


@dataclass(frozen=True, slots=True)
class Process:
    """A process that runs a stream."""

    host: str
    pid: int

    @property
    def is_here(self) -> bool:
        """Whether it is, or was, one of this machine."""
        return self.host == socket.gethostname()


def facts_of(
    settings: StreamPipeline, topic_ids: dict[str, str], *, why: str = "", **more: Any
) -> ClaimFacts:
    """What this process says when it takes a stream; `why` if not in order to run it."""
    me = f"{socket.gethostname()}, process {os.getpid()}"
    return ClaimFacts(
        holder=f"{me} ({why})" if why else me,
        topic_ids=topic_ids,
        config_hash=settings.definition,
        exactly_once=settings.streaming.enable_idempotence,
        **more,
    )


def process_of(holder: str | None) -> Process | None:
    """The process behind a holder; None for nobody, and for a command that only moved the stream."""
    known = _RUNNER.fullmatch(holder or "")
    return Process(known["host"], int(known["pid"])) if known else None
