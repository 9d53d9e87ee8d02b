"""Where a stream goes on: what its checkpoint says against what its target says.

| checkpoint | target | decision |
| --- | --- | --- |
| none, or nothing planned | nothing | fresh, at the configured offsets |
| none, or nothing planned | batches, and not where they ended | stop: the target forgot |
| none, or of another query | a position | new incarnation at the position of the target; stops where the query keeps state, unless that loss is accepted |
| planned, without a commit | claimed by this query, no batch yet | resume |
| planned | nothing else | stop: the target forgot |
| last commit n | batch n or n + 1, the same end | resume |
| last commit n | another batch, or another end | stop: one of the two was restored |
| any | another topic id | stop: the topic was recreated |

The target decides and the checkpoint never does: it is only followed where both agree. Nothing here
reads or writes anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from floodmark.errors import StreamError
from floodmark.model.offsets import Break, Offsets, aged_out, behind
from floodmark.next_steps import command
from floodmark.streaming.ledger.batches import StreamRow
from floodmark.streaming.position.checkpoint import Checkpoint

Kind = Literal["fresh", "resume", "new_incarnation"]

UNTOUCHED = "nothing was read or written; target and checkpoint are as they were"
ACCEPT = "--accept-state-loss"


@dataclass(frozen=True, slots=True)
class Stored:
    """What the target knows of a stream."""

    end: Offsets | None
    """Where the records end that it holds, has as dead letters or dropped by rule; None before the
    first batch."""
    query_id: str | None = None
    """The checkpoint of the incarnation; None while it has none."""
    spark_batch_id: int | None = None
    """The last batch of the incarnation; None before the first."""
    topic_ids: Mapping[str, str | None] = field(default_factory=dict)
    forgot: bool = False
    """Whether there were batches, and nothing tells any more where the last one ended."""


def stored_of(row: StreamRow | None) -> Stored | None:
    """What the row of a stream tells."""
    if row is None:
        return None
    # A row of the seed has a number without a commit: it was never a stream's.
    had_batches = row.batch_id is not None and row.commit_id is not None
    forgot = row.end_offsets is None and had_batches
    return Stored(row.end_offsets, row.query_id, row.spark_batch_id, row.topic_ids, forgot)


@dataclass(frozen=True, slots=True)
class Start:
    """How a stream begins.

    fresh: at the configured offsets, in an empty checkpoint. resume: with the checkpoint that is
    there. new_incarnation: at `offsets`, in an empty checkpoint, whatever the old one says.
    """

    kind: Kind
    reason: str
    offsets: Offsets | None = None
    """Where the next record is; None for fresh. Spark has to be given it as startingOffsets also
    where it resumes: a checkpoint that planned nothing yet begins there."""
    remarks: tuple[str, ...] = ()
    """What could not be compared, for the log."""


def decide(
    stream: str,
    checkpoint: Checkpoint | None,
    stored: Stored | None,
    topic_ids: Mapping[str, str | None],
    *,
    keeps_state: bool = False,
    accepts_state_loss: bool = False,
) -> Start:
    """How a stream with a checkpoint begins; `stream` is what its commands call it.

    Raises StreamError with the command that is the way out: FM-STREAM-024 for a recreated topic,
    033 for state that would be lost, 034 for a target that knows nothing, 035 for one that does not
    agree with the checkpoint.
    """
    if stored is None or stored.end is None:
        return _without_a_position(stream, checkpoint, stored)
    remarks = check_topics(stream, stored.topic_ids, topic_ids)
    if checkpoint is None or checkpoint.query_id != stored.query_id:
        if keeps_state and not accepts_state_loss and stored.spark_batch_id is not None:
            raise _state_would_be_lost(stream, checkpoint, stored)
        found = "no checkpoint" if checkpoint is None else "the checkpoint of another query"
        return Start("new_incarnation", f"{found}: on at the target's end", stored.end, remarks)
    if disagreement := _disagreement(checkpoint, stored):
        raise _restored(stream, checkpoint, stored, disagreement, keeps_state=keeps_state)
    return Start("resume", "checkpoint and target agree", stored.end, remarks)


def adopted(checkpoint: Checkpoint, topic_ids: Mapping[str, str | None]) -> Stored:
    """What the target would know had it written every batch that the checkpoint has committed.

    Raises ValueError for a checkpoint without a commit: there is nothing to adopt.
    """
    if checkpoint.last_commit is None:
        raise ValueError("the checkpoint has no commit")
    end = checkpoint.ends[checkpoint.last_commit]
    return Stored(end, checkpoint.query_id, checkpoint.last_commit, dict(topic_ids))


def check_topics(
    stream: str, before: Mapping[str, str | None], now: Mapping[str, str | None]
) -> tuple[str, ...]:
    """Compare the ids of topics with those that were read before; says what it could not compare.

    Raises StreamError FM-STREAM-024 for a topic that was recreated.
    """
    remarks = []
    for topic in sorted(before.keys() & now.keys()):
        if before[topic] is None or now[topic] is None:
            remarks.append(f"topic {topic} has no id: whether it was recreated is not known")
        elif before[topic] != now[topic]:
            raise _recreated(stream, topic, before[topic], now[topic])
    return tuple(remarks)


def check_offsets(stream: str, start: Offsets, earliest: Offsets, latest: Offsets) -> None:
    """Whether what comes next can be read without a hole.

    Raises StreamError FM-STREAM-025 where a partition ends before `start`, FM-STREAM-023 where its
    first record that is left lies behind it; both name every such partition. Partitions that the
    topics no longer have end at 0.
    """
    if lost := behind(start, latest):
        raise _ends_before(stream, lost)
    if gone := aged_out(start, earliest):
        raise _aged_out(stream, gone)


def _without_a_position(stream: str, checkpoint: Checkpoint | None, stored: Stored | None) -> Start:
    if checkpoint is None or (checkpoint.last_batch is None and checkpoint.initial is None):
        if stored is not None and stored.forgot:
            raise _forgot_its_end(stream)
        return Start("fresh", "neither a plan in a checkpoint nor a position of this stream")
    is_claimed = stored is not None and stored.query_id == checkpoint.query_id
    if is_claimed and checkpoint.last_commit is None:
        return Start("resume", "the checkpoint has committed nothing", checkpoint.initial)
    # Without the claim nobody knows what the target held when the checkpoint chose its beginning.
    raise StreamError(
        "FM-STREAM-034",
        "the target knows nothing of a stream that has a checkpoint",
        stream=stream,
        where=f"checkpoint {checkpoint.location}",
        found=f"the checkpoint begins at {checkpoint.initial or 'offsets that it forgot'} and has"
        f" committed {_through(checkpoint.last_commit)}; the target has no batch",
        state=UNTOUCHED,
        next=command("stream", "adopt", stream)
        + " (the target holds all of these batches), or "
        + command("stream", "reset", stream, "--to", "earliest", "--yes")
        + " (begin anew)",
    )


def _forgot_its_end(stream: str) -> StreamError:
    return StreamError(
        "FM-STREAM-034",
        "the target does not tell where the batches end that it was given",
        stream=stream,
        found="receipts or notes of batches, without the offsets of the last one; no checkpoint",
        state=UNTOUCHED,
        next=command("stream", "reset", stream, "--to", "OFFSETS", "--yes")
        + " (where the rows of the target end), or "
        + command("stream", "reset", stream, "--to", "earliest", "--yes")
        + " (begin anew)",
    )


def _disagreement(checkpoint: Checkpoint, stored: Stored) -> str | None:
    """Why the two do not fit; None if they do."""
    committed = -1 if checkpoint.last_commit is None else checkpoint.last_commit
    batch = -1 if stored.spark_batch_id is None else stored.spark_batch_id
    if batch < committed:
        return "the target is behind the checkpoint: the database was restored"
    if batch > committed + 1 or (batch > committed and batch not in checkpoint.ends):
        return "the checkpoint is behind the target: the checkpoint was restored"
    if batch < 0 and checkpoint.initial is None:
        return None
    end = checkpoint.initial if batch < 0 else checkpoint.ends.get(batch)
    if end is None or end != stored.end:
        return f"batch {batch} ends elsewhere in the checkpoint: one of the two was restored"
    return None


def refuse_state_loss(command: str, row: StreamRow) -> None:
    """FM-STREAM-033 for a command that leaves the state of a stream behind, if there is some."""
    if row.spark_batch_id is None:
        return
    raise StreamError(
        "FM-STREAM-033",
        "the command leaves the checkpoint of a stream behind, which keeps state",
        stream=row.stream_id,
        found=f"query {row.query_id or 'unknown'}, batches through {row.spark_batch_id}",
        state=f"{UNTOUCHED}; open windows and remembered keys are only in the checkpoint",
        next=f"if they may be lost: {command} {ACCEPT}",
    )


def refuse_other_state(stream: str, folder: str, row: StreamRow) -> None:
    """FM-STREAM-033 for a checkpoint whose state is of other windows or keys, if it has some."""
    if row.spark_batch_id is None:
        return
    raise StreamError(
        "FM-STREAM-033",
        "the state in the checkpoint is of other windows or keys than the stream has",
        stream=stream,
        where=f"checkpoint {folder}",
        found="aggregate, deduplicate or eventTimeColumn have changed",
        state=UNTOUCHED,
        next="take the change back; or, with new state: "
        + command("stream", "run", stream, ACCEPT),
    )


def _state_would_be_lost(stream: str, checkpoint: Checkpoint | None, stored: Stored) -> StreamError:
    found = "there is none" if checkpoint is None else f"query {checkpoint.query_id}"
    return StreamError(
        "FM-STREAM-033",
        "the checkpoint is not that of the stream, which keeps state",
        stream=stream,
        found=f"{found}; the target was written with query {stored.query_id or 'without one'}",
        state=f"{UNTOUCHED}; open windows and remembered keys are only in the checkpoint",
        next="give the checkpoint back, or: " + command("stream", "run", stream, ACCEPT),
    )


def _restored(
    stream: str, checkpoint: Checkpoint, stored: Stored, why: str, *, keeps_state: bool
) -> StreamError:
    option = [ACCEPT] if keeps_state else []
    return StreamError(
        "FM-STREAM-035",
        "the checkpoint and the target of a stream do not agree",
        stream=stream,
        where=f"checkpoint {checkpoint.location}",
        found=why,
        state=UNTOUCHED,
        next=command("stream", "rewind", stream, *option) + " (goes on at the target's end)",
        details={
            "target": f"{_through(stored.spark_batch_id)}, ends at {stored.end}",
            "commits": f"{_through(checkpoint.last_commit)} in the checkpoint",
        },
    )


def _recreated(stream: str, topic: str, before: str | None, now: str | None) -> StreamError:
    return StreamError(
        "FM-STREAM-024",
        f"topic {topic} was recreated: its id has changed",
        stream=stream,
        found=f"id {now}",
        allowed=f"id {before}, whose records the target holds",
        state=UNTOUCHED,
        next=command("stream", "reset", stream, "--to", "earliest", "--yes")
        + " (if the new topic is meant)",
    )


def _ends_before(stream: str, lost: tuple[Break, ...]) -> StreamError:
    return StreamError(
        "FM-STREAM-025",
        "a topic ends before the offsets that the stream has read",
        stream=stream,
        found=_listed(lost, "ends at"),
        state=UNTOUCHED,
        next="restore the topic, or: "
        + command("stream", "reset", stream, "--to", "earliest", "--yes"),
    )


def _aged_out(stream: str, gone: tuple[Break, ...]) -> StreamError:
    return StreamError(
        "FM-STREAM-023",
        "records that the stream has to read next are gone from Kafka",
        stream=stream,
        found=_listed(gone, "begins at"),
        state=UNTOUCHED,
        next=command("stream", "run", stream, "--skip-to-earliest")
        + " (the hole is recorded as a loss)",
    )


def _listed(found: tuple[Break, ...], does: str, shown: int = 20) -> str:
    lines = [
        f"{each.topic}-{each.partition} {does} {each.found}, offset {each.expected} is wanted"
        for each in found[:shown]
    ]
    rest = len(found) - shown
    return "; ".join([*lines, *([f"and {rest} more partitions"] if rest > 0 else [])])


def _through(batch: int | None) -> str:
    return "no batch" if batch is None else f"batches through {batch}"
