"""A stream of a test's own: topic, schema of the database, folder with its files."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from floodmark.engines.kafka import KafkaAdmin, KafkaProducer, Record
from floodmark.engines.postgres import connector

if TYPE_CHECKING:
    from floodmark.engines.kafka_server import KafkaServer
    from floodmark.engines.postgres_server import PostgresServer

Run = Callable[..., tuple[int, dict[str, Any]]]
"""Runs a verb of `floodmark stream` in this process: its exit code, and its document."""


@dataclass
class Place:
    """A stream of its own: topic, schema of the database, folder with its files."""

    folder: Path
    kafka: KafkaServer
    postgres: PostgresServer
    name: str
    said: dict[str, Any] = field(default_factory=dict)

    @property
    def admin(self) -> KafkaAdmin:
        """Asks and changes the broker."""
        return KafkaAdmin({"bootstrap.servers": self.kafka.bootstrap})

    def send(self, *values: bytes | dict[str, Any], partition: int | None = None) -> None:
        """Records of the topic: bytes, or documents."""
        encoded = [json.dumps(v).encode() if isinstance(v, dict) else v for v in values]
        records = [Record(self.name, value, b"k", partition) for value in encoded]
        KafkaProducer({"bootstrap.servers": self.kafka.bootstrap}).send(records)

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        """What the database answers; `$schema` is that of the stream."""
        with connector(self.postgres.dsn)() as connection:
            cursor = connection.cursor()
            cursor.execute(statement.replace("$schema", f'"{self.name}"').encode())
            return cursor.fetchall() if cursor.description else []

    def write(self, **parts: Any) -> Path:
        """The stream as a file, with changes by part."""
        said = json.loads(json.dumps(self.said))
        for name, change in parts.items():
            said[name] = {**said.get(name, {}), **change}
        path = self.folder / "stream.json"
        path.write_text(json.dumps(said, indent=2))
        return path


def event(number: int, at: str = "2026-01-01T00:00:00Z") -> dict[str, Any]:
    """A record of the schema that the places have."""
    return {"id": number, "at": at, "kind": f"k{number % 3}"}
