"""Who holds a stream: how that is written into its row, and read from it."""

from __future__ import annotations

from typing import Any

from floodmark.config.stream import StreamPipeline
from floodmark.streaming.ledger.batches import ClaimFacts
from floodmark.work import ProcessName


def facts_of(
    settings: StreamPipeline, topic_ids: dict[str, str], *, why: str = "", **more: Any
) -> ClaimFacts:
    """What this process says when it takes a stream; `why` if not in order to run it."""
    me = str(ProcessName.here())
    return ClaimFacts(
        holder=f"{me} ({why})" if why else me,
        topic_ids=topic_ids,
        config_hash=settings.definition,
        exactly_once=settings.streaming.enable_idempotence,
        **more,
    )


def process_of(holder: str | None) -> ProcessName | None:
    """The process behind a holder; None for nobody, and for a command that only moved the stream."""
    return ProcessName.stored(holder or "")
