"""What Spark writes today is read as the kept folders are: tests/fixtures/checkpoints."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from floodmark.engines.jvm import child_session
from floodmark.engines.kafka import KafkaAdmin, KafkaProducer, Record
from floodmark.engines.kafka_server import KafkaServer
from floodmark.model.offsets import Offsets
from floodmark.streaming.position.checkpoint import batch_offsets, begin_checkpoint, read_checkpoint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.fixture
def topic(kafka: KafkaServer) -> str:
    settings = {"bootstrap.servers": kafka.bootstrap}
    name = f"cp-{uuid.uuid4().hex[:8]}"
    KafkaAdmin(settings).create_topic(name, 2)
    KafkaProducer(settings).send(Record(name, b"{}", partition=n % 2) for n in range(12))
    return name


@pytest.mark.parametrize("version", ["1", "2"])
def test_a_query_with_a_batch_in_flight(
    spark: SparkSession, kafka: KafkaServer, topic: str, tmp_path: Path, version: str
) -> None:
    location = str(tmp_path / "checkpoint")
    query_id = begin_checkpoint(location)
    session = child_session(spark)
    session.conf.set("spark.sql.streaming.offsetLog.formatVersion", version)
    seen: dict[int, tuple[Offsets, Offsets]] = {}

    def write(_frame: DataFrame, batch: int) -> None:
        seen[batch] = batch_offsets(location, batch)
        if batch == 1:
            raise RuntimeError("the second batch fails")

    with pytest.raises(Exception, match="the second batch fails"):
        run(session, kafka, topic, location, write)

    found = read_checkpoint(location)
    assert found is not None
    assert found.query_id == query_id
    assert (found.last_batch, found.last_commit, found.pending) == (1, 0, 1)
    assert found.initial == Offsets.of({(topic, 0): 1})
    assert seen == {0: (found.initial, found.ends[0]), 1: (found.ends[0], found.ends[1])}
    assert (tmp_path / "checkpoint/offsets/1").read_text().startswith(f"v{version}\n")


def run(spark: SparkSession, kafka: KafkaServer, topic: str, location: str, write: Any) -> None:
    frame = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", kafka.bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", Offsets.of({(topic, 0): 1, (topic, 1): 0}).to_json())
        .option("maxOffsetsPerTrigger", 5)
        .load()
    )
    query = (
        frame.writeStream.foreachBatch(write)
        .option("checkpointLocation", location)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
