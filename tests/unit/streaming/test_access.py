"""What the clients of Kafka and PostgreSQL are told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from floodmark.config.stream.credentials import Credential, Credentials, variable_of
from floodmark.config.stream.files import load_stream
from floodmark.streaming.access import Access, brokers, table_of

SEED = Path(__file__).parents[2] / "fixtures/streams/production-events.json"


def access(tmp_path: Path, environ: dict[str, str], **load: Any) -> Access:
    (tmp_path / "schemas").mkdir()
    for name in ("event-schema", "event-table-schema"):
        (tmp_path / f"schemas/{name}.ddl").write_text("id BIGINT, event_timestamp TIMESTAMP")
    said = json.loads(SEED.read_text())
    said["load"]["connectionParams"] |= load
    (tmp_path / "stream.json").write_text(json.dumps(said))
    return Access(load_stream(tmp_path / "stream.json"), {}, Credentials(environ, {}))


KAFKA = variable_of("kafka-prod-sasl")
POSTGRES = variable_of("postgres-prod-writer")


def test_a_login_means_sasl_over_tls_for_both_clients(tmp_path: Path) -> None:
    found = access(tmp_path, {KAFKA: '{"user": "u", "password": "p\\"w"}'}).source()

    assert found.ours["security.protocol"] == "SASL_SSL"
    assert (found.ours["sasl.username"], found.ours["sasl.password"]) == ("u", 'p"w')
    assert found.spark["kafka.security.protocol"] == "SASL_SSL"
    assert found.spark["kafka.sasl.jaas.config"].endswith('username="u" password="p\\"w";')
    assert "p" + '"w' not in repr(found)


def test_neither_client_is_told_what_only_the_stream_reads(tmp_path: Path) -> None:
    found = access(tmp_path, {KAFKA: '{"security.protocol": "PLAINTEXT"}'}).source()

    assert set(found.ours) == {"bootstrap.servers", "security.protocol", "client.id"}
    assert "startingOffsets" not in found.spark
    assert "subscribe" not in found.spark
    assert "kafka.sasl.jaas.config" not in found.spark
    assert found.spark["kafka.isolation.level"] == "read_committed"
    assert found.spark["kafka.max.poll.records"] == "20000"


def test_what_is_said_of_reading_is_kept() -> None:
    said = {"kafka.bootstrap.servers": "k:1", "kafka.max.poll.records": "7"}

    assert brokers(said, None, "s").spark["kafka.max.poll.records"] == "7"


def test_a_pem_file_is_the_trust_store_of_both() -> None:
    found = brokers(
        {"kafka.bootstrap.servers": "k:1", "kafka.ssl.ca.location": "/ca.pem"},
        Credential("u", "p", {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}),
        "s",
    )

    assert found.ours["ssl.ca.location"] == "/ca.pem"
    assert found.spark["kafka.ssl.truststore.location"] == "/ca.pem"
    assert found.spark["kafka.ssl.truststore.type"] == "PEM"
    assert "ScramLoginModule" in found.spark["kafka.sasl.jaas.config"]


def test_the_database_is_told_login_and_tls(tmp_path: Path) -> None:
    found = access(
        tmp_path, {POSTGRES: "geheim"}, sslmode="verify-full", sslrootcert="ca.pem"
    ).database_settings()

    assert (found["host"], found["port"]) == ("postgres-primary.prod.internal", 5432)
    assert (found["user"], found["password"]) == ("etl_writer", "geheim")
    assert found["sslrootcert"] == str(tmp_path / "ca.pem")


def test_dead_letters_go_to_their_own_brokers(tmp_path: Path) -> None:
    found = access(tmp_path, {KAFKA: '{"user": "u", "password": "p"}'}).dead_letters()

    assert found.ours["bootstrap.servers"] == "kafka-1:9092,kafka-2:9092"
    assert found.ours["sasl.username"] == "u"


def test_a_table_without_a_schema_is_in_public(tmp_path: Path) -> None:
    assert table_of(access(tmp_path, {}).stream.settings) == ("public", "production_events")
