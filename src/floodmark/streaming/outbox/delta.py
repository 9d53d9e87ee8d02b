"""Dead letters beside a Delta target that are to be sent to Kafka: at least once, and never dropped.

The letters are their own outbox: each row says to which topic it goes. Up to where each topic has its
letters is kept in a small table beside, moved by compare-and-swap after every piece that Kafka has
acknowledged. So a relay that is killed repeats one piece at most, and two that relay at once do not
move each other back. Letters of a batch without rows are not sent: they may be withdrawn.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

import pyarrow as pa

from floodmark import failpoints
from floodmark.deltalog import DeltaLog, Obstacle, Storage, is_delta_table, may_hinder, obstacle
from floodmark.errors import StreamError
from floodmark.streaming.ledger.batches import DeadLetter
from floodmark.streaming.ledger.delta import OUTBOX, DeltaLedger
from floodmark.streaming.ledger.delta_letters import sql_text
from floodmark.streaming.outbox.relay import Message, Producer, Relayed, send_page

PIECE = 1_000
"""So many letters are in memory at once."""
PIECE_RANGES = 50
PLACES_AT_ONCE = 50_000
"""Of so many letters it is looked up at once where they are: some bytes each."""
MOST_REFUSED = 1_000
"""So many letters that Kafka does not take are passed over; with more, their topic waits."""
TIDIED_EVERY = 100
"""Commits of the table of positions."""

Place = tuple[int, int, str, int, int]
"""Of a letter: incarnation, batch, topic, partition and offset; letters are sent in this order."""

_ROWS = pa.schema(
    [
        ("stream_id", pa.string()),
        ("dlq_topic", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("incarnation", pa.int64()),
        ("batch_id", pa.int64()),
        ("topic", pa.string()),
        ("kafka_partition", pa.int32()),
        ("kafka_offset", pa.int64()),
        ("refused", pa.string()),
    ]
)
_PLACE = "incarnation, batch_id, topic, kafka_partition, kafka_offset"
_LETTER = f"{_PLACE}, record_key, record_value, reason, detail, column_name, event_time"


@dataclass(frozen=True, slots=True)
class Position:
    """Up to where the letters of one topic are sent."""

    sent: Place | None = None
    """The last letter that Kafka has; None before the first one."""
    refused: tuple[Place, ...] = ()
    """Letters before it that Kafka did not take: tried again by the next process."""

    @property
    def behind(self) -> str:
        """The condition of letters that come behind it."""
        if self.sent is None:
            return "true"
        incarnation, batch_id, topic, partition, offset = self.sent
        inner = f"kafka_partition = {partition} AND kafka_offset > {offset}"
        inner = f"topic = {sql_text(topic)} AND (kafka_partition > {partition} OR ({inner}))"
        inner = f"batch_id = {batch_id} AND (topic > {sql_text(topic)} OR ({inner}))"
        inner = f"incarnation = {incarnation} AND (batch_id > {batch_id} OR ({inner}))"
        return f"(incarnation > {incarnation} OR ({inner}))"


@dataclass
class Positions:
    """The table of positions, as it was when it was read."""

    path: str
    stream_id: str
    storage: Storage
    table: Any
    """None where it is not there yet."""
    of: dict[str, Position]

    @classmethod
    def read(cls, ledger: DeltaLedger) -> Positions:
        """As they are; none before anything was sent."""
        from deltalake import DeltaTable

        path, storage = f"{ledger.path}{OUTBOX}", ledger.storage
        if not is_delta_table(path, storage):
            return cls(path, ledger.stream_id, storage, None, {})
        table = DeltaTable(path, storage_options=storage.options)
        rows = queried(table, f"SELECT dlq_topic, {_PLACE}, refused FROM t")
        of = {row["dlq_topic"]: _position(row) for row in rows}
        return cls(path, ledger.stream_id, storage, table, of)

    def prove_movable(self) -> None:
        """Raise FM-STREAM-054 if others have made the table one that nobody of us can move.

        Asked before a letter is sent: one whose position is not noted is sent again and again.
        """
        if self.table is not None and may_hinder(self.table):
            self._written(self.of)

    def moved(self, topic: str, position: Position) -> bool:
        """Move one of them; False where somebody else has moved some since they were read.

        Raises FM-STREAM-054 as `prove_movable` does.
        """
        return self._written({**self.of, topic: position})

    def _written(self, now: Mapping[str, Position]) -> bool:
        from deltalake import CommitProperties, write_deltalake
        from deltalake.exceptions import CommitFailedError, DeltaError

        rows = pa.Table.from_pylist([self._row(t, p) for t, p in now.items()], schema=_ROWS)
        properties = CommitProperties(max_commit_retries=0)
        if self.table is None and is_delta_table(self.path, self.storage):
            return False
        try:
            if self.table is None:
                write_deltalake(
                    self.path,
                    rows,
                    mode="error",
                    # Nobody reads its past.
                    configuration={"delta.logRetentionDuration": "interval 1 days"},
                    storage_options=self.storage.options,
                )
            else:
                write_deltalake(self.table, rows, mode="overwrite", commit_properties=properties)
        except (CommitFailedError, DeltaError) as error:
            table = self.table
            why = None if table is None else obstacle(table, self.path, error, rewrites=True)
            if why is not None:
                raise self._immovable(why) from error
            if not isinstance(error, CommitFailedError):
                raise
            return False
        self._tidy()
        return True

    def _immovable(self, why: Obstacle) -> StreamError:
        return StreamError(
            "FM-STREAM-054",
            "the dead letters beside a Delta target could not be relayed",
            stream=self.stream_id,
            where=self.path,
            found=why.found,
            allowed=why.allowed,
            state="letters wait where they are",
            next=why.next_step(
                f"move the folder {self.path} away (every letter that is still in the table is then sent"
                " once more)"
            )
            + "; the stream goes on meanwhile",
        )

    def _tidy(self) -> None:
        if self.table is not None and self.table.version() % TIDIED_EVERY == 0:
            self.table.vacuum(retention_hours=1, dry_run=False, enforce_retention_duration=False)

    def _row(self, topic: str, position: Position) -> dict[str, Any]:
        place = position.sent or (None,) * 5
        names = ("incarnation", "batch_id", "topic", "kafka_partition", "kafka_offset")
        return {
            "stream_id": self.stream_id,
            "dlq_topic": topic,
            "at": datetime.now(UTC),
            **dict(zip(names, place, strict=True)),
            "refused": json.dumps(position.refused),
        }


def _position(row: Mapping[str, Any]) -> Position:
    refused = tuple(_place(each) for each in json.loads(row["refused"]))
    is_begun = row["incarnation"] is not None
    return Position(place_of(row) if is_begun else None, refused)


def _place(said: Sequence[Any]) -> Place:
    return (int(said[0]), int(said[1]), str(said[2]), int(said[3]), int(said[4]))


def place_of(row: Mapping[str, Any]) -> Place:
    """Where a letter stands among those of its stream."""
    return _place([row[name] for name in _PLACE.split(", ")])


@dataclass
class DeltaOutbox:
    """The letters of one stream that go to Kafka; see relay.Outbox, whose place it takes."""

    ledger: DeltaLedger
    _reached: tuple[int, int] = (0, -1)
    _nothing_at: int | None = field(default=None, repr=False)
    """A version of the letters at which none was waiting, whatever became of their batches."""

    def waiting(self) -> int:
        """How many letters are to be sent."""
        log = self._log()
        if log is None:
            return 0
        version = log.facts().latest_version
        if version == self._nothing_at or not self._is_outbox():
            return 0
        self._reached = self.ledger.reached()
        with self._told():
            return self._waiting(version, Positions.read(self.ledger))

    def _waiting(self, version: int, positions: Positions) -> int:
        counts = f"count(*) AS every, count(*) FILTER (WHERE {self._settled}) AS settled"
        where = f"{self._of_stream} AND ({_unsent(positions)})"
        (row,) = self._rows(f"SELECT {counts} FROM t WHERE {where}")
        refused = sum(len(position.refused) for position in positions.of.values())
        self._nothing_at = version if not row["every"] + refused else None
        return int(row["settled"]) + refused

    def relay(
        self, producer: Producer, topics: Collection[str] = (), messages: Collection[Any] = ()
    ) -> Relayed:
        """Send what waits in the order of batches and places; see relay.Outbox.relay."""
        done = Relayed()
        if self._log() is None or not self._is_outbox():
            return done
        self._reached = self.ledger.reached()
        with self._told():
            Positions.read(self.ledger).prove_movable()
            for topic in self._topics():
                if topic in topics:
                    continue
                self._send_refused(producer, topic, messages, done)
                self._send_topic(producer, topic, done)
                if done.failure is not None:
                    raise done.failure
        return done

    def _topics(self) -> list[str]:
        positions = Positions.read(self.ledger)
        where = f"{self._of_stream} AND {self._settled} AND ({_unsent(positions)})"
        rows = self._rows(f"SELECT DISTINCT dlq_topic FROM t WHERE {where}")
        waiting = {str(row["dlq_topic"]) for row in rows}
        return sorted(waiting | {t for t, at in positions.of.items() if at.refused})

    def _send_topic(self, producer: Producer, topic: str, done: Relayed) -> None:
        """Piece by piece, each noted before the next one is read."""
        while topic not in done.topics and done.failure is None:
            positions = Positions.read(self.ledger)
            places = self._places(topic, positions.of.get(topic, Position()))
            if not places:
                return
            for piece in _pieces(places):
                page = self._page(topic, piece)
                sent = self._sent(producer, page, done)
                if topic in done.topics or done.failure is not None:
                    return
                left = [place for place in piece if place in done.messages]
                before = positions.of.get(topic, Position())
                refused = (*before.refused, *left)
                if len(refused) > MOST_REFUSED:
                    done.topics[topic] = done.messages[left[0]]
                    return
                if not positions.moved(topic, Position(piece[-1], refused)):
                    return  # somebody else relays this stream, and goes on
                done.sent += len(sent)
                positions = Positions.read(self.ledger)
                if positions.of[topic].sent != piece[-1]:
                    return

    def _send_refused(
        self, producer: Producer, topic: str, tried: Collection[Any], done: Relayed
    ) -> None:
        """Letters that Kafka did not take from another process: they are tried once more."""
        positions = Positions.read(self.ledger)
        position = positions.of.get(topic, Position())
        due = [place for place in position.refused if place not in tried]
        for first in range(0, len(due), PIECE_RANGES):
            part = due[first : first + PIECE_RANGES]
            page = self._page(topic, part)
            sent = self._sent(producer, page, done)
            # What somebody took out of the table by hand waits for nothing any more.
            settled = sent | (set(part) - {message.message_id for message in page})
            left = tuple(place for place in position.refused if place not in settled)
            position = replace(position, refused=left)
            if not settled or not positions.moved(topic, position):
                return
            done.sent += len(sent)
            positions = Positions.read(self.ledger)

    def _sent(self, producer: Producer, page: Sequence[Message], done: Relayed) -> set[Any]:
        failpoints.reached("dlq.before_relay")
        sent = send_page(producer, page, done)
        failpoints.reached("dlq.after_send")
        return set(sent)

    def _places(self, topic: str, position: Position) -> list[Place]:
        """Where the next letters of a topic are, in their order."""
        rows = self._rows(
            f"SELECT {_PLACE} FROM t WHERE {self._of_stream} AND dlq_topic = {sql_text(topic)}"
            f" AND {self._settled} AND {position.behind} ORDER BY {_PLACE} LIMIT {PLACES_AT_ONCE}"
        )
        return [place_of(row) for row in rows]

    def _page(self, topic: str, places: Sequence[Place]) -> list[Message]:
        where = f"dlq_topic = {sql_text(topic)} AND ({' OR '.join(_ranges(places))})"
        found = self._rows(f"SELECT {_LETTER} FROM t WHERE {self._of_stream} AND {where}")
        wanted = set(places)
        rows = {place: row for row in found if (place := place_of(row)) in wanted}
        return [self._message(topic, at, rows[at]) for at in places if at in rows]

    def _message(self, topic: str, place: Place, row: Mapping[str, Any]) -> Message:
        letter = DeadLetter(
            *place[2:],
            row["reason"],
            row["detail"],
            row["record_key"],
            row["record_value"],
            row["column_name"],
            row["event_time"],
        )
        sent = letter.message(topic, self.ledger.stream_id)
        return Message(place, sent.topic, sent.key, sent.value)

    @property
    def _of_stream(self) -> str:
        return f"stream_id = {sql_text(self.ledger.stream_id)} AND dlq_topic IS NOT NULL"

    @property
    def _settled(self) -> str:
        """That the rows of a letter's batch are in the target, or nobody will write them any more."""
        incarnation, batch_id = self._reached
        ours = f"incarnation = {incarnation} AND batch_id <= {batch_id}"
        return f"(incarnation < {incarnation} OR ({ours}))"

    def free(self) -> str:
        """The condition of letters that a clean-up may take: sent, or never to be sent, and settled."""
        if not self._is_outbox():
            return "true"
        self._reached = self.ledger.reached()
        with self._told():
            positions = Positions.read(self.ledger)
        refused = [place for at in positions.of.values() for place in at.refused]
        kept = [f"coalesce({each}, false)" for place in refused for each in _ranges([place])]
        waits = " OR ".join([f"(dlq_topic IS NOT NULL AND ({_unsent(positions)}))", *kept])
        return f"(incarnation IS NULL OR {self._settled}) AND NOT ({waits})"

    def _is_outbox(self) -> bool:
        return "dlq_topic" in self.ledger.letters.columns()

    def _rows(self, query: str) -> list[dict[str, Any]]:
        from deltalake import DeltaTable

        options = self.ledger.storage.options
        return queried(DeltaTable(self.ledger.letters.path, storage_options=options), query)

    def _log(self) -> DeltaLog | None:
        path, storage = self.ledger.letters.path, self.ledger.storage
        return DeltaLog(path, storage) if is_delta_table(path, storage) else None

    @contextmanager
    def _told(self) -> Iterator[None]:
        from deltalake.exceptions import DeltaError

        try:
            yield
        except (DeltaError, OSError) as error:
            raise StreamError(
                "FM-STREAM-054",
                "the dead letters beside a Delta target could not be relayed",
                stream=self.ledger.stream_id,
                where=f"{self.ledger.path}{OUTBOX}",
                found=str(error)[:500],
                state="letters wait where they are; some may have been sent, and are sent again",
                next="mend the access to the tables beside the target; the stream goes on meanwhile",
                retryable=True,
            ) from error


def queried(table: Any, query: str) -> list[dict[str, Any]]:
    """The rows of a query over a Delta table `t`, read inside of delta-rs (decision 0006)."""
    from deltalake import QueryBuilder

    rows: list[dict[str, Any]] = pa.table(
        QueryBuilder().register("t", table).execute(query)
    ).to_pylist()
    return rows


def _unsent(positions: Positions) -> str:
    """The condition of letters that no topic has yet, refused ones apart."""
    known = ", ".join(map(sql_text, positions.of))
    others = [f"dlq_topic NOT IN ({known})"] if known else ["true"]
    of_topic = [f"(dlq_topic = {sql_text(t)} AND {at.behind})" for t, at in positions.of.items()]
    return " OR ".join([*others, *of_topic])


def _pieces(places: Sequence[Place]) -> Iterator[list[Place]]:
    """Parts that are read at once: of few letters, in few ranges."""
    piece: list[Place] = []
    ranges = 0
    for _, of_partition in groupby(places, key=lambda place: place[:4]):
        ranges += 1
        for place in of_partition:
            if len(piece) == PIECE or ranges > PIECE_RANGES:
                yield piece
                piece, ranges = [], 1
            piece.append(place)
    if piece:
        yield piece


def _ranges(places: Iterable[Place]) -> list[str]:
    """The conditions of letters between the first and the last of each partition of a batch."""
    found = []
    for (incarnation, batch_id, topic, partition), group in groupby(
        places, key=lambda place: place[:4]
    ):
        offsets = [place[4] for place in group]
        found.append(
            f"(incarnation = {incarnation} AND batch_id = {batch_id} AND topic = {sql_text(topic)}"
            f" AND kafka_partition = {partition}"
            f" AND kafka_offset BETWEEN {min(offsets)} AND {max(offsets)})"
        )
    return found
