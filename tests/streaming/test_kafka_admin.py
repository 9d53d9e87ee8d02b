from __future__ import annotations

import sys
import uuid

import pytest
from confluent_kafka import Producer

from floodmark.engines.kafka import KafkaAdmin, KafkaProducer, Record
from floodmark.engines.kafka_server import KafkaServer
from floodmark.errors import SetupError, StreamError
from floodmark.model.offsets import Offsets, aged_out, behind

pytestmark = pytest.mark.kafka


@pytest.fixture
def settings(kafka: KafkaServer) -> dict[str, str]:
    return {"bootstrap.servers": kafka.bootstrap}


@pytest.fixture
def admin(settings: dict[str, str]) -> KafkaAdmin:
    return KafkaAdmin(settings)


@pytest.fixture
def topic(admin: KafkaAdmin) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    admin.create_topic(name, 2)
    return name


def send(settings: dict[str, str], topic: str, partition: int, count: int) -> None:
    sent = KafkaProducer(settings).send(
        Record(topic, b"v", b"k", partition, (("h", b"1"),)) for _ in range(count)
    )
    assert sent == count


def test_offsets_are_those_of_what_was_sent(
    admin: KafkaAdmin, settings: dict[str, str], topic: str
) -> None:
    send(settings, topic, 1, 3)

    assert admin.latest([topic]).items() == (((topic, 0), 0), ((topic, 1), 3))
    assert admin.earliest([topic]).items() == (((topic, 0), 0), ((topic, 1), 0))


def test_a_topic_made_anew_has_another_id(
    admin: KafkaAdmin, settings: dict[str, str], topic: str
) -> None:
    send(settings, topic, 0, 2)
    before, ended = admin.topic_ids([topic]), admin.latest([topic])

    admin.delete_topic(topic)
    admin.create_topic(topic, 2)

    after = admin.topic_ids([topic])
    assert None not in (before[topic], after[topic])
    assert before != after
    assert behind(ended, admin.latest([topic]))


def test_a_partition_that_is_added_begins_at_zero(admin: KafkaAdmin, topic: str) -> None:
    admin.add_partitions(topic, 3)

    assert admin.partitions([topic]) == {(topic, 0), (topic, 1), (topic, 2)}
    assert admin.latest([topic]).at((topic, 2)) == 0


def test_records_that_aged_out_are_seen(
    admin: KafkaAdmin, settings: dict[str, str], topic: str
) -> None:
    send(settings, topic, 0, 10)
    admin.delete_records(Offsets.of({(topic, 0): 7}))

    (gone,) = aged_out(Offsets.of({(topic, 0): 4}), admin.earliest([topic]))

    assert (gone.expected, gone.found) == (4, 7)


def test_markers_of_transactions_take_offsets(
    admin: KafkaAdmin, settings: dict[str, str], topic: str
) -> None:
    producer = Producer({**settings, "transactional.id": topic})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"one", partition=0)
    producer.commit_transaction()
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush()

    # One record, its marker, and a record of a transaction that is open.
    assert admin.latest([topic]).at((topic, 0)) == 3
    assert admin.latest([topic], committed=True).at((topic, 0)) == 2
    producer.abort_transaction()


def test_a_topic_that_is_not_there_is_named_as_such(admin: KafkaAdmin) -> None:
    for ask in (admin.latest, admin.topic_ids, admin.partitions):
        with pytest.raises(StreamError) as caught:
            ask(["nowhere"])
        assert (caught.value.code, caught.value.exit_code) == ("FM-STREAM-021", 4)
        assert (caught.value.where or "").startswith("topic nowhere at ")


def test_a_topic_is_made_once(admin: KafkaAdmin, topic: str) -> None:
    with pytest.raises(StreamError) as caught:
        admin.create_topic(topic)

    assert (caught.value.code, caught.value.retryable) == ("FM-STREAM-020", False)


def test_records_that_nobody_takes_are_an_error_and_not_lost_quietly(
    settings: dict[str, str], topic: str
) -> None:
    records = [Record(topic, b"fits"), Record("nowhere", b"does not")]

    with pytest.raises(StreamError) as caught:
        KafkaProducer(settings, send_seconds=2).send(records)

    assert caught.value.code == "FM-STREAM-022"
    assert (caught.value.where or "").startswith("topic nowhere at ")


def test_a_broker_that_is_away_may_be_asked_again() -> None:
    away = {"bootstrap.servers": "127.0.0.1:9"}

    with pytest.raises(StreamError) as asked:
        KafkaAdmin(away, answer_seconds=1).latest(["t"])
    with pytest.raises(StreamError) as sent:
        KafkaProducer(away, send_seconds=1).send([Record("t", b"v")])

    assert (asked.value.code, asked.value.retryable) == ("FM-STREAM-020", True)
    assert (sent.value.code, sent.value.retryable) == ("FM-STREAM-022", True)


def test_a_missing_client_is_said_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)

    with pytest.raises(SetupError) as caught:
        KafkaAdmin({"bootstrap.servers": "nowhere:1"})

    assert caught.value.next == "pip install 'floodmark[kafka]'"
