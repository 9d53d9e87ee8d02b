"""The outbox of a stream with a real database and a real broker: no message holds up another one."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterator, Sequence

import psycopg
import pytest
from tests.services.stream_places import ME, StreamPlace, batch

from floodmark.engines.kafka import KafkaAdmin, KafkaProducer, records_at
from floodmark.engines.kafka_server import KafkaServer
from floodmark.engines.postgres_server import PostgresServer
from floodmark.errors import StreamError
from floodmark.postgres import connector
from floodmark.streaming.ledger.postgres import DeadLetter, LoadCounts, Loaded, OutboxMessage
from floodmark.streaming.outbox.relay import Outbox, Relay

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

LARGEST = 30_000
"""What the topic of these tests takes; a dead letter of 25,000 bytes is larger in base64."""


@pytest.fixture
def place(postgres: PostgresServer, pg_schema: str) -> StreamPlace:
    return StreamPlace(postgres.dsn, pg_schema)


@pytest.fixture
def admin(kafka: KafkaServer) -> KafkaAdmin:
    return KafkaAdmin({"bootstrap.servers": kafka.bootstrap})


@pytest.fixture
def topic(admin: KafkaAdmin) -> Iterator[str]:
    name = f"letters-{uuid.uuid4().hex[:8]}"
    admin.create_topic(name, 1, {"max.message.bytes": str(LARGEST)})
    yield name
    admin.delete_topic(name)


def committed(place: StreamPlace, messages: Sequence[OutboxMessage]) -> None:
    """One batch whose messages wait in the outbox."""
    ledger = place.ledger()
    ledger.ensure()
    claim = ledger.claim(ME, ledger.stored())
    loaded = Loaded(LoadCounts(0, 0), (), messages)
    ledger.commit(claim, batch(claim, 0, 0, 1), lambda _: loaded)
    ledger.close()


def letter(topic: str, offset: int, size: int) -> OutboxMessage:
    value = b"{" + b"x" * size
    return DeadLetter("t", 0, offset, "malformed", "no JSON", b"k", value).message(topic, "numbers")


def test_messages_that_kafka_refuses_hold_up_no_other_one(
    place: StreamPlace, kafka: KafkaServer, admin: KafkaAdmin, topic: str
) -> None:
    absent = f"{topic}-absent"
    messages = [
        letter(absent, 0, 5),
        letter(topic, 1, 5),
        letter(topic, 2, 25_000),
        letter(topic, 3, 1_200_000),
        OutboxMessage(topic, b"y" * 40_000, b"raw"),
        *(letter(topic, offset, 5) for offset in range(4, 9)),
    ]
    committed(place, messages)
    outbox = Outbox(connector(place.dsn), "numbers", place.schema)
    settings = {"bootstrap.servers": kafka.bootstrap, "topic.metadata.propagation.max.ms": 500}
    relay = Relay(outbox, lambda: KafkaProducer(settings, send_seconds=20))

    with pytest.raises(StreamError) as refusal:
        relay.send()

    end = admin.latest([topic]).at((topic, 0))
    sent = records_at(settings, [(topic, 0, n) for n in range(end)])
    told = {
        each["offset"]: each for each in (json.loads(value or b"") for _, value in sent.values())
    }
    assert (refusal.value.code, sorted(told)) == ("FM-STREAM-022", list(range(1, 9)))
    assert {n for n, each in told.items() if "left_out" in each} == {2, 3}
    large = told[3]
    assert (large["value_base64"], large["value_bytes"], large["key_bytes"]) == (None, 1_200_001, 1)
    assert (large["reason"], large["left_out"]) == ("malformed", "MSG_SIZE_TOO_LARGE")
    assert base64.b64decode(told[4]["value_base64"]) == b"{xxxxx"
    left = place.query("SELECT topic, message_key FROM floodmark_outbox ORDER BY message_id")
    assert [(row["topic"], row["message_key"]) for row in left] == [(absent, b"k"), (topic, b"raw")]


def test_the_messages_of_a_topic_go_out_once_it_is_there(
    place: StreamPlace, kafka: KafkaServer, admin: KafkaAdmin, topic: str
) -> None:
    absent, now = f"{topic}-absent", 0.0
    committed(place, [letter(absent, 0, 5), letter(topic, 1, 5)])
    outbox = Outbox(connector(place.dsn), "numbers", place.schema)
    settings = {"bootstrap.servers": kafka.bootstrap, "topic.metadata.propagation.max.ms": 500}
    asked = iter(range(1_000_000))
    relay = Relay(
        outbox, lambda: KafkaProducer(settings, send_seconds=20), lambda: now + next(asked)
    )
    with pytest.raises(StreamError):
        relay.send()
    admin.create_topic(absent, 1)
    resting = relay.send()
    now = 1e6

    left = relay.send()

    assert (resting, left) == (1, 0)
    admin.delete_topic(absent)


def test_a_broker_that_does_not_answer_leaves_every_message_where_it_is(place: StreamPlace) -> None:
    committed(place, [letter("t", offset, 5) for offset in range(3)])
    outbox = Outbox(connector(place.dsn), "numbers", place.schema)
    relay = Relay(
        outbox, lambda: KafkaProducer({"bootstrap.servers": "127.0.0.1:1"}, send_seconds=1)
    )

    with pytest.raises(StreamError) as silence:
        relay.send()

    assert (silence.value.retryable, relay.waiting(), relay.send()) == (True, 3, 3)
    with psycopg.connect(place.dsn) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
