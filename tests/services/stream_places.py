"""Streams as an independent reader of their database sees them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
from psycopg.rows import dict_row

from floodmark.model.offsets import Offsets
from floodmark.model.sql_names import qualified
from floodmark.postgres import connector, run
from floodmark.streaming.ledger.postgres import (
    AlreadyApplied,
    Applied,
    Claim,
    ClaimFacts,
    LoadCounts,
    Loaded,
    PostgresLedger,
    StreamBatch,
)

if TYPE_CHECKING:
    from floodmark.postgres import Cursor
    from floodmark.streaming.ledger.batches import DeadLetter

_LETTERS = pa.schema(
    [
        ("stream_id", pa.string()),
        ("batch_id", pa.int64()),
        ("dead_lettered_at", pa.timestamp("us", "UTC")),
        ("topic", pa.string()),
        ("kafka_partition", pa.int32()),
        ("kafka_offset", pa.int64()),
        ("record_key", pa.binary()),
        ("record_value", pa.binary()),
        ("reason", pa.string()),
        ("detail", pa.string()),
        ("column_name", pa.string()),
        ("event_time", pa.timestamp("us", "UTC")),
    ]
)

ME = ClaimFacts(holder="test")


class StreamPlace:
    """A schema with a table of numbers, which are the offsets of the records they came with."""

    def __init__(self, dsn: str, schema: str) -> None:
        self.dsn = dsn
        self.schema = schema
        self.table = qualified("postgres", (schema, "numbers"))

    def query(self, text: str) -> list[dict[str, Any]]:
        with psycopg.connect(self.dsn, row_factory=dict_row, autocommit=True) as connection:
            connection.execute("SELECT set_config('search_path', %s, false)", (f'"{self.path}"',))
            cursor = connection.execute(text.encode())
            return cursor.fetchall() if cursor.description else []

    @property
    def path(self) -> str:
        """The schema between its quotes."""
        return self.schema.replace('"', '""')

    def ledger(self, stream_id: str = "numbers", dsn: str | None = None) -> PostgresLedger:
        return PostgresLedger(connector(dsn or self.dsn), stream_id, self.schema)

    def numbers(self) -> list[int]:
        return sorted(row["n"] for row in self.query("SELECT n FROM numbers"))

    def tracker(self, stream_id: str = "numbers") -> list[dict[str, Any]]:
        return self.query(
            f"SELECT * FROM batch_tracker WHERE pipeline_id = '{stream_id}' ORDER BY batch_id"
        )


def at(offset: int) -> Offsets:
    return Offsets.of({("t", 0): offset})


def batch(claim: Claim, number: int, start: int, end: int, **more: Any) -> StreamBatch:
    return StreamBatch(number, claim.incarnation, at(start), at(end), **more)


def put(cursor: Cursor, table: str, numbers: Sequence[int]) -> Loaded:
    """The load of these tests: a row for each offset."""
    for number in numbers:
        run(cursor, f"INSERT INTO {table} VALUES ($1)", (number,))
    return Loaded(LoadCounts(len(numbers), len(numbers)))


def committed(
    ledger: PostgresLedger, claim: Claim, table: str, *where: int
) -> Applied | AlreadyApplied:
    """Commit a batch: its number, its first offset, and the one behind its last."""
    number, start, end = where
    planned = batch(claim, number, start, end)
    return ledger.commit(claim, planned, lambda cursor: put(cursor, table, range(start, end)))


def letter_table(
    letters: Sequence[DeadLetter],
    batch_id: int,
    stream_id: str = "numbers",
    at: datetime | None = None,
    *,
    topic: str | None = None,
    incarnation: int | None = None,
) -> pa.Table:
    """Dead letters as the executors write them beside a Delta target.

    Without an incarnation as an older floodmark wrote them, which sent none.
    """
    rows = [
        {
            "stream_id": stream_id,
            "batch_id": batch_id,
            "dead_lettered_at": at or datetime.now(UTC),
            "topic": letter.topic,
            "kafka_partition": letter.partition,
            "kafka_offset": letter.offset,
            "record_key": letter.key,
            "record_value": letter.value,
            "reason": letter.reason,
            "detail": letter.detail,
            "column_name": letter.column,
            "event_time": letter.event_time,
        }
        for letter in letters
    ]
    table = pa.Table.from_pylist(rows, schema=_LETTERS)
    if incarnation is None:
        return table
    numbers = pa.array([incarnation] * len(letters), pa.int64())
    topics = pa.array([topic] * len(letters), pa.string())
    return table.append_column("incarnation", numbers).append_column("dlq_topic", topics)
