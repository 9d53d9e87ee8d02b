"""Refused records as rows of the table of dead letters beside a Delta target."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from floodmark.model import epoch_micros
from floodmark.streaming.records.read import (
    BAD,
    BAD_COLUMN,
    DETAILS,
    EVENT_TIME,
    KEY,
    LATE,
    OFFSET,
    PARTITION,
    TOPIC,
    VALUE,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def letter_rows(
    records: DataFrame,
    stream_id: str,
    batch: tuple[int, int],
    topics: tuple[str | None, str | None],
) -> DataFrame:
    """Refused records as rows of the table; `batch` is its incarnation and number.

    `topics` are those that letters are sent to, and late ones; None where they are not sent.
    """
    from pyspark.sql import functions as f

    details = f.create_map(*(f.lit(text) for pair in DETAILS.items() for text in pair))
    now = f.timestamp_micros(f.lit(epoch_micros(datetime.now(UTC))))
    incarnation, number = (f.lit(n).cast("bigint") for n in batch)
    topic = f.when(f.col(BAD) == LATE, f.lit(topics[1])).otherwise(f.lit(topics[0]))
    return records.select(
        f.lit(stream_id).alias("stream_id"),
        number.alias("batch_id"),
        now.alias("dead_lettered_at"),
        f.col(TOPIC).alias("topic"),
        f.col(PARTITION).cast("int").alias("kafka_partition"),
        f.col(OFFSET).cast("bigint").alias("kafka_offset"),
        f.col(KEY).alias("record_key"),
        f.col(VALUE).alias("record_value"),
        f.col(BAD).alias("reason"),
        details[f.col(BAD)].alias("detail"),
        f.col(BAD_COLUMN).alias("column_name"),
        f.col(EVENT_TIME).alias("event_time"),
        incarnation.alias("incarnation"),
        topic.cast("string").alias("dlq_topic"),
    )
