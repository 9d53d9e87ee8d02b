"""Messages that wait in the database until Kafka has them: at least once, and never dropped.

A message that Kafka does not take holds up no other one:

its own fault   too large: a dead letter is sent without the bytes of its record, any other message
                waits for the next start
its topic       not there, not allowed: the messages of that topic wait, the others are sent
the broker      no answer: everything waits
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from floodmark import failpoints
from floodmark.errors import StreamError
from floodmark.postgres import Connect, cursor_of, quoted_table, run
from floodmark.postgres.transactions import limit_locks
from floodmark.streaming.ledger.batches import without_value
from floodmark.streaming.ledger.faults import database_error
from floodmark.streaming.ledger.tables import OUTBOX

if TYPE_CHECKING:
    from floodmark.engines.kafka import Record

RELAY_ROWS = 1_000
RESTS = 10
"""After a failure the relay rests so many times as long as the attempt took."""

_OF_THE_MESSAGE = frozenset(
    ("MSG_SIZE_TOO_LARGE", "INVALID_MSG", "INVALID_MSG_SIZE", "INVALID_RECORD", "_BAD_MSG")
)
_OF_THE_TOPIC = frozenset(
    (
        "UNKNOWN_TOPIC_OR_PART",
        "_UNKNOWN_TOPIC",
        "_UNKNOWN_PARTITION",
        "TOPIC_EXCEPTION",
        "TOPIC_AUTHORIZATION_FAILED",
    )
)


class Producer(Protocol):
    """What sends: engines.kafka.KafkaProducer."""

    def refusals(self, records: Iterable[Record]) -> Mapping[int, StreamError]: ...


@dataclass(frozen=True, slots=True)
class Message:
    """What waits to be sent."""

    message_id: Hashable
    """By which its outbox knows it again."""
    topic: str
    key: bytes | None
    value: bytes | None

    @property
    def record(self) -> Record:
        """What Kafka gets."""
        from floodmark.engines.kafka import Record

        return Record(self.topic, self.value, self.key)


@dataclass
class Relayed:
    """What one pass over the outbox did."""

    sent: int = 0
    topics: dict[str, StreamError] = field(default_factory=dict)
    """Why the messages of a topic wait."""
    messages: dict[Hashable, StreamError] = field(default_factory=dict)
    """Why single messages wait, by their id."""
    failure: StreamError | None = None
    """Why the broker could not be asked further."""

    @property
    def first_error(self) -> StreamError | None:
        """Why something waits, if anything does."""
        return next(iter([*self.topics.values(), *self.messages.values()]), None)


@dataclass(frozen=True)
class Outbox:
    """The messages of one stream."""

    connect: Connect
    stream_id: str
    schema: str = "public"

    @property
    def _table(self) -> str:
        return quoted_table(self.schema, OUTBOX.name)

    def waiting(self) -> int:
        """How many messages are there."""
        import psycopg

        try:
            with self.connect() as connection:
                statement = f"SELECT count(*) FROM {self._table} WHERE stream_id = $1"
                row = run(cursor_of(connection), statement, (self.stream_id,)).fetchone()
                return int(row[0]) if row else 0
        except psycopg.Error as error:
            raise database_error(self.stream_id, error) from error

    def relay(
        self, producer: Producer, topics: Collection[str] = (), messages: Collection[Any] = ()
    ) -> Relayed:
        """Send what waits, oldest first, and remove each message that Kafka has acknowledged.

        Nothing is removed before it is acknowledged, so a crash between the two sends again. Two
        that relay at once take different messages. What belongs to `topics` and `messages` is left
        alone. Raises StreamError where Kafka or the database does not answer; what was not
        acknowledged stays.
        """
        done = Relayed()
        last: Hashable = -1
        while True:
            resting = [*topics, *done.topics]
            page = self._relay_page(producer, last, resting, messages, done)
            if not page:
                return done
            if done.failure is not None:
                raise done.failure
            last = page[-1].message_id

    def _relay_page(
        self,
        producer: Producer,
        after: Hashable,
        topics: Sequence[str],
        messages: Collection[Any],
        done: Relayed,
    ) -> list[Message]:
        import psycopg

        try:
            with self.connect() as connection:
                cursor = cursor_of(connection)
                limit_locks(cursor)
                rows = run(
                    cursor,
                    f"SELECT message_id, topic, message_key, message_value FROM {self._table}"
                    " WHERE stream_id = $1 AND message_id > $2 AND topic <> ALL($3)"
                    f" AND message_id <> ALL($4) ORDER BY message_id LIMIT {RELAY_ROWS}"
                    " FOR UPDATE SKIP LOCKED",
                    (self.stream_id, after, list(topics), list(messages)),
                ).fetchall()
                page = [Message(*row) for row in rows]
                if page:
                    failpoints.reached("dlq.before_relay")
                    sent = send_page(producer, page, done)
                    failpoints.reached("dlq.after_send")
                    run(cursor, f"DELETE FROM {self._table} WHERE message_id = ANY($1)", (sent,))
                    connection.commit()
                    done.sent += len(sent)
                return page
        except psycopg.Error as error:
            raise database_error(self.stream_id, error) from error


def send_page(producer: Producer, page: Sequence[Message], done: Relayed) -> list[Hashable]:
    """The ids of the messages that Kafka has taken; `done` learns of the others."""
    refusals = producer.refusals([message.record for message in page])
    sent = [each.message_id for n, each in enumerate(page) if n not in refusals]
    for number, error in sorted(refusals.items()):
        message = page[number]
        if message.topic in done.topics:
            continue
        kind = error.details.get("kafka_error")
        if kind in _OF_THE_MESSAGE:
            _send_alone(producer, message, sent, done)
        elif kind in _OF_THE_TOPIC:
            done.topics[message.topic] = error
        else:
            done.failure = done.failure or error
    return sent


def _send_alone(producer: Producer, message: Message, sent: list[Hashable], done: Relayed) -> None:
    """Send a message by itself: the broker refuses all those that came with one too large.

    A dead letter that is too large by itself is sent without the bytes of its record.
    """
    refusal = producer.refusals([message.record]).get(0)
    if refusal is not None:
        kind = str(refusal.details.get("kafka_error"))
        smaller = without_value(message.value, kind) if kind in _OF_THE_MESSAGE else None
        if smaller is not None:
            letter = Message(message.message_id, message.topic, None, smaller)
            refusal = producer.refusals([letter.record]).get(0)
    if refusal is None:
        sent.append(message.message_id)
    else:
        done.messages[message.message_id] = refusal


class AnyOutbox(Protocol):
    """What a relay sends from: the table of a database, or the letters beside a Delta target."""

    def waiting(self) -> int: ...

    def relay(
        self, producer: Producer, topics: Collection[str] = (), messages: Collection[Any] = ()
    ) -> Relayed: ...


@dataclass
class Relay:
    """Sends what waits in an outbox; its producer is made when there is something to send.

    An attempt that fails can take a minute, and the stream waits for it: a topic that is not there
    is not asked for with every batch. A message that is refused for itself is tried again by the
    next process.
    """

    outbox: AnyOutbox
    make_producer: Callable[[], Producer]
    clock: Callable[[], float] = time.monotonic
    _producer: Producer | None = None
    _rests_until: float | None = None
    """For everything: Kafka does not answer."""
    _topics: dict[str, float] = field(default_factory=dict)
    """Topics that rest, and until when."""
    _messages: set[Hashable] = field(default_factory=set)
    """Messages that Kafka does not take."""

    def send(self) -> int:
        """How many messages are left, which are some while it rests.

        Raises StreamError, and then what was not sent stays.
        """
        waiting = self.outbox.waiting()
        if not waiting or self._is_resting(self._rests_until):
            return waiting
        began = self.clock()
        resting = [topic for topic, until in self._topics.items() if self._is_resting(until)]
        try:
            self._producer = self._producer or self.make_producer()
            done = self.outbox.relay(self._producer, resting, self._messages)
        except StreamError:
            # A client that gave up for good never recovers: the next attempt makes another one.
            self._producer = None
            self._rests_until = self._later(began)
            raise
        if done.topics:
            # The client remembers that a topic is not there for longer than that is true.
            self._producer = None
        self._topics = {topic: self._topics[topic] for topic in resting}
        self._topics |= dict.fromkeys(done.topics, self._later(began))
        self._messages |= done.messages.keys()
        error = done.first_error
        if error is not None:
            raise error
        return self.outbox.waiting() if resting or self._messages else 0

    def waiting(self) -> int:
        """How many messages are there."""
        return self.outbox.waiting()

    def _is_resting(self, until: float | None) -> bool:
        return until is not None and self.clock() < until

    def _later(self, began: float) -> float:
        return self.clock() + RESTS * (self.clock() - began)
