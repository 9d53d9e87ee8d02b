"""Streams of a test's own, on the one broker, database and session of the run."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.streams import Place, Run

from floodmark.cli.main import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.engines.kafka_server import KafkaServer
    from floodmark.engines.postgres_server import PostgresServer


@pytest.fixture
def place(
    tmp_path: Path,
    kafka: KafkaServer,
    postgres: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Place]:
    name = f"s{uuid.uuid4().hex[:12]}"
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas/event.ddl").write_text("id BIGINT NOT NULL, at TIMESTAMP, kind STRING")
    monkeypatch.setenv("FLOODMARK_CREDENTIAL_PG", postgres.password)
    said = {
        "pipelineId": name,
        "extract": {
            "topic": name,
            "schemaName": "event",
            "connectionParams": {
                "kafka.bootstrap.servers": kafka.bootstrap,
                "startingOffsets": "earliest",
            },
        },
        "load": {
            "table": f"{name}.events",
            "createTable": True,
            "connectionParams": {
                "host": postgres.host,
                "port": postgres.port,
                "database": postgres.database,
                "user": postgres.user,
            },
            "credentialId": "pg",
        },
        "streamingConfigJson": {"offsetStore": "database", "triggerMode": "availableNow"},
    }
    found = Place(tmp_path, kafka, postgres, name, said)
    found.admin.create_topic(name, 2)
    found.ask("CREATE SCHEMA $schema")
    yield found
    found.ask("DROP SCHEMA $schema CASCADE")
    found.admin.delete_topic(name)


@pytest.fixture
def run(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> Run:
    def go(*arguments: str | Path) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        code = main(["stream", *map(str, arguments), "--json"])
        return code, json.loads(capsys.readouterr().out)

    return go
