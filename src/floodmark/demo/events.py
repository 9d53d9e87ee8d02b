"""The events of the demo of a stream: what is sent, where it goes, what must be true in the end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from floodmark.demo.story import console
from floodmark.engines.kafka import KafkaAdmin, KafkaProducer, Record
from floodmark.engines.kafka_server import KafkaServer
from floodmark.engines.postgres_server import PostgresServer
from floodmark.postgres import connector

TOPIC = "events"
PARTITIONS = 2
BATCH_RECORDS = 2_500
POISON_EVERY = 1_000
KINDS = ("view", "cart", "order", "return")
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = "id BIGINT NOT NULL, at TIMESTAMP NOT NULL, kind STRING, amount DECIMAL(10,2)"

UNBROKEN = (
    "SELECT count(*) FROM (SELECT start_offsets, lag(end_offsets) OVER (ORDER BY batch_id) AS before"
    " FROM batch_tracker) AS batches WHERE start_offsets <> before"
)


@dataclass
class Events:
    """A topic, a table, and what was sent."""

    root: Path
    kafka: KafkaServer
    postgres: PostgresServer
    ids: set[int] = field(default_factory=set)
    """Of events that have to be in the table."""
    poison: set[bytes] = field(default_factory=set)
    late: int = 0
    _next: int = 0

    def prepare(self) -> None:
        """The topic, and the files of the stream."""
        KafkaAdmin(self._brokers).create_topic(TOPIC, PARTITIONS)
        (self.root / "schemas").mkdir()
        (self.root / "schemas/event.ddl").write_text(SCHEMA + "\n")
        (self.root / "stream.json").write_text(json.dumps(self._stream(), indent=2) + "\n")

    def send(self, count: int, late: int = 0) -> None:
        """The next events, with poison among them; the last `late` ones are a year old."""
        KafkaProducer(self._brokers).send(self._records(count, late))

    def show(self, query: str) -> None:
        """A query and its answer, as psql would show them."""
        console.print(f"\n[bold cyan]sql> {escape(query)}[/]", soft_wrap=True)
        names, rows = self._asked(query)
        table = Table(box=None, pad_edge=False, header_style="dim")
        for name in names:
            table.add_column(name)
        for row in rows:
            table.add_row(*(f"{value:,}" if _is_number(value) else str(value) for value in row))
        console.print(Padding(table, (0, 2), expand=False))

    def truths(self) -> list[tuple[str, bool]]:
        """What must be true in the end, and whether it is."""
        ((received, written, dead, dropped),) = self._rows(
            "SELECT sum(record_count), sum(written), sum(dead_lettered), sum(dropped)"
            " FROM batch_tracker"
        )
        sent = len(self.ids) + len(self.poison) + self.late
        ids = [row[0] for row in self._rows("SELECT id FROM events")]
        letters = [
            bytes(row[0]) for row in self._rows("SELECT record_value FROM floodmark_dead_letters")
        ]
        return [
            (
                f"received = written + dead-lettered + dropped = sent = {sent:,}",
                received == written + dead + dropped == sent,
            ),
            ("every event is in the table once", sorted(ids) == sorted(self.ids)),
            (
                "every record that is no event is a dead letter once, with its bytes",
                sorted(letters) == sorted(self.poison),
            ),
            ("what came too late was dropped and counted", dropped == self.late),
            ("each batch begins where the one before it ended", self._rows(UNBROKEN) == [(0,)]),
        ]

    @property
    def _brokers(self) -> dict[str, str]:
        return {"bootstrap.servers": self.kafka.bootstrap}

    def _records(self, count: int, late: int) -> Iterator[Record]:
        first, self._next = self._next, self._next + count + late
        for number in range(first, first + count):
            yield Record(TOPIC, self._value(number), partition=number % PARTITIONS)
        for number in range(first + count, self._next):
            self.late += 1
            old = _event(number, BEGIN - timedelta(days=365))
            yield Record(TOPIC, old, partition=number % PARTITIONS)

    def _value(self, number: int) -> bytes:
        if number % POISON_EVERY == POISON_EVERY // 2:
            value = b"not an event: %d" % number
            self.poison.add(value)
            return value
        self.ids.add(number)
        return _event(number, BEGIN + timedelta(seconds=number / 10))

    def _rows(self, query: str) -> list[tuple[Any, ...]]:
        return self._asked(query)[1]

    def _asked(self, query: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        with connector(self.postgres.dsn)() as connection:
            cursor = connection.execute(query.encode())
            return [column.name for column in cursor.description or ()], cursor.fetchall()

    def _stream(self) -> dict[str, Any]:
        return {
            "pipelineId": "events",
            "extract": {
                "topic": TOPIC,
                "schemaName": "event",
                "connectionParams": {
                    "kafka.bootstrap.servers": self.kafka.bootstrap,
                    "startingOffsets": "earliest",
                },
            },
            "load": {
                "table": "public.events",
                "createTable": True,
                "connectionParams": {
                    "host": self.postgres.host,
                    "port": self.postgres.port,
                    "database": self.postgres.database,
                    "user": self.postgres.user,
                },
                "credentialId": "demo",
            },
            "streamingConfigJson": {
                "checkpointLocation": "checkpoint",
                "triggerMode": "availableNow",
                "maxRecordsPerTrigger": BATCH_RECORDS,
                "watermark": {"eventTimeColumn": "at", "delayThreshold": "1 hour"},
                "lateDataConfig": {"strategy": "drop"},
            },
        }


def _event(number: int, at: datetime) -> bytes:
    said = {
        "id": number,
        "at": at.isoformat(),
        "kind": KINDS[number % len(KINDS)],
        "amount": number % 900 / 10,
    }
    return json.dumps(said).encode()


def _is_number(value: object) -> bool:
    from decimal import Decimal

    return isinstance(value, int | Decimal)
