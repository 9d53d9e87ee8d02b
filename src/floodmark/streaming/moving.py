"""Setting the offsets of a stream by decision of a person."""

from __future__ import annotations

from dataclasses import replace

from pydantic_core import PydanticCustomError

from floodmark.config.stream import checked_starting_offsets
from floodmark.errors import ConfigError
from floodmark.model.offsets import Offsets
from floodmark.next_steps import command
from floodmark.streaming.access import Access
from floodmark.streaming.ledger.batches import ClaimFacts
from floodmark.streaming.ledger.tables import RESET
from floodmark.streaming.parts import ledger_of, source_of
from floodmark.streaming.position.checkpoint import read_checkpoint
from floodmark.streaming.position.decisions import adopted, refuse_state_loss
from floodmark.streaming.query import active_folder, location_of
from floodmark.streaming.running.holder import facts_of
from floodmark.work import user_name


def moved_to(access: Access, to: str) -> tuple[Offsets | None, Offsets]:
    """Let the stream go on at `to`; the offsets before and after.

    Fences every runner; says so in the tracker. The topics of today are the stream's from here on,
    also if they were recreated. Called twice it is noted twice.
    """
    _check(to)
    source, ledger = source_of(access), ledger_of(access)
    try:
        ledger.ensure()
        row = ledger.stored()
        # Before the claim, which fences every runner: what is refused disturbs nobody.
        after = source.begin(to)
        claim = ledger.claim(_facts(access, source.topic_ids(), "reset"), row)
        ledger.move(claim, after, f"{RESET} {to[:100]} by {user_name('somebody')}")
        return (row.end_offsets if row else None), after
    finally:
        ledger.close()


def rewound(access: Access, *, accepts_state_loss: bool = False) -> Offsets:
    """Let a stream with a checkpoint go on at the end of its target, in a new incarnation.

    The old checkpoint stays where it is and is not used again, even if it is damaged. Returns where
    the stream goes on. Raises ConfigError FM-CONFIG-007 if the target has no position of it, and
    StreamError FM-STREAM-033 if it keeps state, unless that may be lost.
    """
    ledger = ledger_of(access)
    try:
        row = ledger.stored()
        if row is None or row.end_offsets is None:
            raise _not_done(access, "the target has no position of this stream", ledger.place)
        if access.stream.settings.streaming.is_stateful and not accepts_state_loss:
            refuse_state_loss(command("stream", "rewind", access.stream.called), row)
        ledger.ensure()
        claim = ledger.claim(_facts(access, dict(row.topic_ids), "rewind"), row)
        ledger.move(
            claim, row.end_offsets, f"rewind by {user_name('somebody')}", begins_incarnation=False
        )
        return row.end_offsets
    finally:
        ledger.close()


def adopted_checkpoint(access: Access) -> Offsets:
    """Let the target know what its checkpoint has committed; returns where the stream goes on.

    For a target that holds all of these batches although its tables forgot. Raises ConfigError
    FM-CONFIG-007 where the checkpoint has committed nothing, or the target has a position: that one
    decides.
    """
    source, ledger = source_of(access), ledger_of(access)
    try:
        ledger.ensure()
        row = ledger.stored()
        if row is not None and row.end_offsets is not None:
            raise _not_done(access, "the target has a position of this stream", ledger.place)
        location = active_folder(location_of(access.stream), row)
        checkpoint = read_checkpoint(location, access.stream.called)
        if checkpoint is None or checkpoint.last_commit is None:
            raise _not_done(access, "there is no checkpoint with a commit", location)
        ids = source.topic_ids()
        known, end = adopted(checkpoint, ids), checkpoint.ends[checkpoint.last_commit]
        facts = replace(_facts(access, ids, "adopt"), query_id=known.query_id, checkpoint=location)
        note = f"adopted batch {known.spark_batch_id} of {location} by {user_name('somebody')}"
        ledger.move(
            ledger.claim(facts, row),
            end,
            note,
            spark_batch_id=known.spark_batch_id,
            begins_incarnation=False,
        )
        return end
    finally:
        ledger.close()


def _not_done(access: Access, found: str, where: str) -> ConfigError:
    return ConfigError(
        "FM-CONFIG-007",
        found,
        rule="stream_cannot_be_moved",
        stream=access.stream.called,
        where=where,
        state="nothing was changed",
        next=command("stream", "run", access.stream.called),
    )


def _facts(access: Access, topic_ids: dict[str, str], why: str) -> ClaimFacts:
    return facts_of(access.stream.settings, topic_ids, why=why)


def _check(to: str) -> None:
    try:
        checked_starting_offsets(to)
    except PydanticCustomError as error:
        context = error.context or {}
        raise ConfigError(
            "FM-CONFIG-007",
            f"--to is {to[:60]}",
            rule="offsets",
            allowed=str(context.get("allowed", "earliest or latest")),
            state="nothing was changed",
            next="correct the option",
        ) from error
