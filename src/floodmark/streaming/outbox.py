"""Messages that wait in the database until Kafka has them: at least once, and never dropped."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from floodmark import failpoints
from floodmark.engines.postgres import Connect, cursor_of, quoted_table, run
from floodmark.errors import StreamError
from floodmark.streaming.faults import database_error
from floodmark.streaming.tables import OUTBOX

if TYPE_CHECKING:
    from floodmark.engines.kafka import Record

RELAY_ROWS = 1_000
RESTS = 10
"""After a failure the relay rests so many times as long as the attempt took."""


class Producer(Protocol):
    """What sends: engines.kafka.KafkaProducer."""

    def send(self, records: Iterable[Record]) -> int: ...


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

    def relay(self, producer: Producer) -> int:
        """Send what waits, oldest first, and remove what Kafka has acknowledged; how many.

        Nothing is removed before it is acknowledged, so a crash between the two sends again. Two
        that relay at once take different messages. Raises StreamError; what was not sent stays.
        """
        sent = 0
        while (found := self._relay_some(producer)) > 0:
            sent += found
        return sent

    def _relay_some(self, producer: Producer) -> int:
        import psycopg

        from floodmark.engines.kafka import Record

        try:
            with self.connect() as connection:
                cursor = cursor_of(connection)
                rows = run(
                    cursor,
                    f"SELECT message_id, topic, message_key, message_value FROM {self._table}"
                    f" WHERE stream_id = $1 ORDER BY message_id LIMIT {RELAY_ROWS}"
                    " FOR UPDATE SKIP LOCKED",
                    (self.stream_id,),
                ).fetchall()
                if not rows:
                    return 0
                failpoints.reached("dlq.before_relay")
                producer.send([Record(topic, value, key) for _, topic, key, value in rows])
                failpoints.reached("dlq.after_send")
                ids = [row[0] for row in rows]
                run(cursor, f"DELETE FROM {self._table} WHERE message_id = ANY($1)", (ids,))
                connection.commit()
                return len(rows)
        except psycopg.Error as error:
            raise database_error(self.stream_id, error) from error


@dataclass
class Relay:
    """Sends what waits in an outbox; its producer is made when there is something to send.

    An attempt that fails can take a minute, and the stream waits for it: a topic that is not there
    is not asked for with every batch.
    """

    outbox: Outbox
    make_producer: Callable[[], Producer]
    clock: Callable[[], float] = time.monotonic
    _rests_until: float | None = None

    @cached_property
    def _producer(self) -> Producer:
        return self.make_producer()

    def send(self) -> int:
        """How many messages are left, which are some while it rests.

        Raises StreamError, and then what was not sent stays.
        """
        waiting = self.outbox.waiting()
        if not waiting or (self._rests_until is not None and self.clock() < self._rests_until):
            return waiting
        began = self.clock()
        try:
            self.outbox.relay(self._producer)
        except StreamError:
            self._rests_until = self.clock() + RESTS * (self.clock() - began)
            raise
        return 0

    def waiting(self) -> int:
        """How many messages are there."""
        return self.outbox.waiting()
