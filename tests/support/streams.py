"""A stream of a test's own: topic, schema of the database, folder with its files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.jvm import java_context

import floodmark
from floodmark.engines.kafka import KafkaAdmin, KafkaProducer, Record
from floodmark.postgres import connector

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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

    def checkpointed(self, **more: Any) -> Path:
        """The stream as a file, with its offsets in a checkpoint."""
        return self.write(streamingConfigJson={**kept_in("checkpoint"), **more})

    def started(
        self, path: Path, *, own_group: bool = False, **environment: str
    ) -> subprocess.Popen[str]:
        """A process that runs the stream."""
        source = str(Path(floodmark.__file__).parents[1])
        return subprocess.Popen(
            [sys.executable, "-m", "floodmark", "stream", "run", str(path), "--json"],
            env={**os.environ, "PYTHONPATH": source, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=own_group,
        )

    def staged_tables(self) -> int:
        """How many tables of staged rows the database has."""
        found = self.ask(
            f"SELECT count(*) FROM pg_tables WHERE schemaname = '{self.name}'"
            " AND tablename LIKE 'floodmark_stg%'"
        )
        return int(found[0][0])


def kept_in(store: str) -> dict[str, Any]:
    """Where a stream keeps its offsets."""
    return {"offsetStore": store, "checkpointLocation": "checkpoint"}


def event(number: int, at: str = "2026-01-01T00:00:00Z") -> dict[str, Any]:
    """A record of the schema that the places have."""
    return {"id": number, "at": at, "kind": f"k{number % 3}"}


@contextmanager
def largest_result(spark: SparkSession, size: str) -> Iterator[None]:
    """A job of Spark that gives the driver more than so much fails while the block runs."""
    settings = java_context(spark).sc().conf()  # each task set asks it anew
    key = "spark.driver.maxResultSize"
    settings.set(key, size)
    try:
        yield
    finally:
        settings.remove(key)


def until(is_so: Callable[[], bool], seconds: float = 300) -> None:
    """Wait for something that happens elsewhere."""
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"it did not happen within {seconds} s")
        time.sleep(0.1)
