"""What a stream keeps in the database, and what a batch of it brings: frozen values."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime

from floodmark.model.offsets import Offsets, records
from floodmark.secrecy import masked


@dataclass(frozen=True, slots=True)
class ClaimFacts:
    """Who takes a stream, and from where; written with the claim."""

    holder: str
    """For people: host, process."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """Of brokers that have some."""
    query_id: str | None = None
    """Of Spark's checkpoint."""
    checkpoint: str | None = None
    config_hash: str | None = None
    begins_incarnation: bool = False
    """Whether Spark's own batch numbers begin anew: the stored offsets stay."""
    exactly_once: bool = True
    """Whether a batch that was applied is recognised; else it is written again."""


@dataclass(frozen=True, slots=True)
class StreamRow:
    """The row of `floodmark_stream`: the one thing that decides where a stream goes on."""

    stream_id: str
    epoch: int
    claim_id: str | None
    incarnation: int
    topic_ids: Mapping[str, str]
    start_offsets: Offsets | None
    """Of the last batch."""
    end_offsets: Offsets | None
    """None before the first batch."""
    batch_id: int | None
    """Of the last batch; counts up for as long as the stream lives."""
    spark_batch_id: int | None
    query_id: str | None
    checkpoint: str | None
    config_hash: str | None
    event_watermark: datetime | None
    exactly_once: bool
    holder: str | None
    commit_id: str | None

    @property
    def next_batch_id(self) -> int:
        return 0 if self.batch_id is None else self.batch_id + 1

    def holds(self, batch: StreamBatch) -> bool:
        """Whether this very batch was the last one."""
        return (
            (self.batch_id, self.incarnation) == (batch.batch_id, batch.incarnation)
            and self.start_offsets == batch.start
            and self.end_offsets == batch.end
        )


@dataclass(frozen=True, slots=True)
class Claim(StreamRow):
    """The row as it stood when this runner took it; good until another one takes it."""


def claim_of(row: StreamRow) -> Claim:
    """The row of a stream in the hands of its runner."""
    return Claim(**{field.name: getattr(row, field.name) for field in fields(StreamRow)})


def claimed_by(row: StreamRow, facts: ClaimFacts) -> Claim:
    """The row once a runner has taken the stream: the next epoch, and who that is."""
    begins = facts.begins_incarnation
    return claim_of(
        replace(
            row,
            epoch=row.epoch + 1,
            claim_id=uuid.uuid4().hex,
            incarnation=row.incarnation + int(begins),
            topic_ids={**row.topic_ids, **facts.topic_ids},
            spark_batch_id=None if begins else row.spark_batch_id,
            query_id=facts.query_id,
            checkpoint=facts.checkpoint,
            config_hash=facts.config_hash,
            exactly_once=facts.exactly_once,
            holder=facts.holder,
        )
    )


def is_same(row: StreamRow, seen: StreamRow | None) -> bool:
    """Whether nothing has happened to the stream since it was looked at, other claims apart."""
    if seen is None:
        return row.commit_id is None and row.end_offsets is None

    def decisive(stream: StreamRow) -> tuple[object, ...]:
        ids = (stream.commit_id, stream.incarnation, stream.query_id)
        return (*ids, dict(stream.topic_ids), stream.end_offsets)

    return decisive(row) == decisive(seen)


@dataclass(frozen=True, slots=True)
class StreamBatch:
    """Records from `start`, included, to `end`, not included."""

    batch_id: int
    incarnation: int
    start: Offsets
    end: Offsets
    spark_batch_id: int | None = None
    checkpoint: str | None = None
    event_watermark: datetime | None = None
    """Decides what is late; stored with the batch."""

    @property
    def offsets(self) -> int:
        """Those of the batch; records can be fewer."""
        return records(self.start, self.end)


@dataclass(frozen=True, slots=True)
class LoadCounts:
    """What became of the records of a batch: each one is in exactly one of the middle three."""

    received: int
    written: int
    """Applied, also if a later record of the same key replaced it in this batch."""
    dead_lettered: int = 0
    dropped: int = 0
    duplicates: int = 0
    """Of those written, how many were replaced by a later one of their key in this batch."""

    @property
    def agree(self) -> bool:
        """Whether every record is accounted for."""
        return self.received == self.written + self.dead_lettered + self.dropped

    def __str__(self) -> str:
        return (
            f"{self.received} received, {self.written} written,"
            f" {self.dead_lettered} dead-lettered, {self.dropped} dropped"
        )


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that the target does not take, with its bytes."""

    topic: str | None
    partition: int | None
    offset: int | None
    reason: str
    """For machines: `malformed`, `late`, `value`, `null`, or a SQLSTATE."""
    detail: str
    """For people; never the record itself."""
    key: bytes | None = None
    value: bytes | None = None
    column: str | None = None
    event_time: datetime | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "detail", masked(self.detail))

    def message(self, topic: str, stream_id: str) -> OutboxMessage:
        """The same as a record of Kafka: JSON, with the bytes in base64."""
        said = {
            "stream": stream_id,
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "reason": self.reason,
            "detail": self.detail,
            "column": self.column,
            "event_time": self.event_time.isoformat() if self.event_time else None,
            "key_base64": _base64(self.key),
            "value_base64": _base64(self.value),
        }
        return OutboxMessage(topic, json.dumps(said).encode(), self.key)


def without_value(message: bytes | None, refusal: str) -> bytes | None:
    """The message of a dead letter without the bytes of its record; None for any other message.

    `refusal` says why Kafka did not take the whole: the sizes stand in the place of the bytes, which
    stay in the table of dead letters.
    """
    try:
        letter = json.loads(message or b"")
    except ValueError:
        return None
    if not isinstance(letter, dict) or letter.keys() != _KEYS_OF_A_MESSAGE:
        return None
    for part in ("key", "value"):
        encoded = letter[f"{part}_base64"]
        letter[f"{part}_bytes"] = None if encoded is None else len(base64.b64decode(encoded))
        letter[f"{part}_base64"] = None
    return json.dumps({**letter, "left_out": refusal}).encode()


@dataclass(frozen=True, slots=True)
class OutboxMessage:
    """A record to be sent to Kafka once the batch is committed."""

    topic: str
    value: bytes
    key: bytes | None = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a load did inside the transaction, and what is still to be stored by it."""

    counts: LoadCounts
    dead_letters: Iterable[DeadLetter] = ()
    """Exactly `counts.dead_lettered` of them, and the same each time they are gone through."""
    outbox: Iterable[OutboxMessage] = ()


@dataclass(frozen=True, slots=True)
class Applied:
    """The batch is committed."""

    batch_id: int
    counts: LoadCounts


@dataclass(frozen=True, slots=True)
class AlreadyApplied:
    """The batch was committed before; nothing was written."""

    batch_id: int


def _base64(said: bytes | None) -> str | None:
    return None if said is None else base64.b64encode(said).decode()


_KEYS_OF_A_MESSAGE = frozenset(
    json.loads(DeadLetter(None, None, None, "", "").message("", "").value)
)
