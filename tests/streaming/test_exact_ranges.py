"""Kafka in batch mode by exact offsets, on a real broker."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from floodmark.config.stream.schemas import from_ddl
from floodmark.engines.kafka import KafkaAdmin, KafkaProducer, Record, records_at
from floodmark.engines.kafka_server import KafkaServer
from floodmark.engines.spark import needing_kafka
from floodmark.errors import SetupError
from floodmark.model.offsets import Offsets, next_end
from floodmark.streaming.records.read import BAD, OFFSET, PARTITION, VALUE, Wanted, batch_records
from floodmark.streaming.records.spark_faults import may_pass

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

PAYLOAD = from_ddl("id BIGINT NOT NULL")


@pytest.fixture
def admin(kafka: KafkaServer) -> KafkaAdmin:
    return KafkaAdmin({"bootstrap.servers": kafka.bootstrap})


@pytest.fixture
def topic(admin: KafkaAdmin) -> str:
    name = f"r-{uuid.uuid4().hex[:8]}"
    admin.create_topic(name, 2)
    return name


def read(
    spark: SparkSession, kafka: KafkaServer, start: Offsets, end: Offsets
) -> list[dict[str, Any]]:
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap,
        "kafka.isolation.level": "read_committed",
    }
    table = batch_records(spark, options, Wanted(start, end, PAYLOAD, ["id"])).judged().toArrow()
    return sorted(table.to_pylist(), key=lambda row: (row[PARTITION], row[OFFSET]))


def test_batch_after_batch_each_record_comes_once(
    spark: SparkSession, kafka: KafkaServer, admin: KafkaAdmin, topic: str
) -> None:
    values = [b'{"id": %d}' % n if n != 4 else b"poison" for n in range(10)]
    producer = KafkaProducer({"bootstrap.servers": kafka.bootstrap})
    producer.send(Record(topic, value, partition=n % 2) for n, value in enumerate(values))
    latest, start, rows = admin.latest([topic]), admin.earliest([topic]), []

    while start != latest:
        end = next_end(start, latest, 6)
        rows += read(spark, kafka, start, end)
        start = end

    assert sorted(row["id"] for row in rows if row[BAD] is None) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert [(row[PARTITION], row[OFFSET], row[VALUE]) for row in rows if row[BAD]] == [
        (0, 2, b"poison")
    ]


def last_stable(admin: KafkaAdmin, topic: str, expected: int) -> Offsets:
    """The end that readers of committed records see: the broker moves it after the commit."""
    deadline = time.monotonic() + 30
    end = admin.latest([topic], committed=True)
    while end.at((topic, 0)) < expected and time.monotonic() < deadline:
        time.sleep(0.05)
        end = admin.latest([topic], committed=True)
    return end


def test_gaps_of_transactions_are_no_records_and_no_loss(
    spark: SparkSession, kafka: KafkaServer, admin: KafkaAdmin, topic: str
) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic})
    producer.init_transactions()
    for n in range(3):
        producer.begin_transaction()
        producer.produce(topic, b'{"id": %d}' % n, partition=0)
        producer.flush()
        producer.abort_transaction() if n == 1 else producer.commit_transaction()
    end = last_stable(admin, topic, 6)

    rows = read(spark, kafka, Offsets(), end)
    only_a_marker = read(spark, kafka, Offsets.of({(topic, 0): 1}), Offsets.of({(topic, 0): 2}))

    assert end.at((topic, 0)) == 6
    assert [(row["id"], row[OFFSET]) for row in rows] == [(0, 0), (2, 4)]
    assert only_a_marker == []


def test_records_that_compaction_took_are_no_loss(
    spark: SparkSession, kafka: KafkaServer, admin: KafkaAdmin
) -> None:
    topic = f"c-{uuid.uuid4().hex[:8]}"
    quickly = {
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.01",
        "max.compaction.lag.ms": "1",
    }
    admin.create_topic(topic, 1, {"cleanup.policy": "compact", **quickly})
    settings = {"bootstrap.servers": kafka.bootstrap}
    producer, places = KafkaProducer(settings), [(topic, 0, offset) for offset in range(4)]
    producer.send(Record(topic, b'{"id": %d}' % n, b"same", 0) for n in range(4))
    deadline = time.monotonic() + 60
    while len(records_at(settings, places)) > 1 and time.monotonic() < deadline:
        time.sleep(0.3)
        producer.send([Record(topic, b'{"id": 9}', b"other", 0)])  # closes a segment
    end = admin.latest([topic])

    rows = read(spark, kafka, Offsets(), end)
    only_gaps = read(spark, kafka, Offsets(), Offsets.of({(topic, 0): 3}))

    assert (rows[0]["id"], rows[0][OFFSET]) == (3, 3)
    assert only_gaps == []


def test_records_that_are_gone_are_an_error_and_never_fewer_rows(
    spark: SparkSession, kafka: KafkaServer, admin: KafkaAdmin, topic: str
) -> None:
    producer = KafkaProducer({"bootstrap.servers": kafka.bootstrap})
    producer.send(Record(topic, b'{"id": 1}', partition=0) for _ in range(5))
    admin.delete_records(Offsets.of({(topic, 0): 3}))

    with pytest.raises(Exception, match="lost") as caught:
        read(spark, kafka, Offsets.of({(topic, 0): 1}), Offsets.of({(topic, 0): 5}))

    assert not may_pass(caught.value)


def test_a_session_without_the_connector_is_told_how_to_get_it(spark: SparkSession) -> None:
    with pytest.raises(SetupError) as caught, needing_kafka():
        spark.read.format("kafka-of-nowhere").load()

    assert caught.value.code == "FM-SETUP-011"
    assert (caught.value.next or "").startswith("floodmark jars fetch kafka")
