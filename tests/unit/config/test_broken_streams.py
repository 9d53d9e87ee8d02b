"""A valid stream, broken in every way a rule can find; each time a typed error at its place.

A case changes one line of the seed's full example, or adds one; the error is expected on that line.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from floodmark.config import load_stream
from floodmark.errors import ConfigError, ConfigErrors

STREAM = """\
{
  "pipelineId": "production-events-pipeline",
  "name": "Production Events Processing",
  "mode": "streaming",
  "extract": {
    "sourceType": "kafka",
    "topic": "production-events",
    "schemaName": "event-schema",
    "connectionParams": {
      "kafka.bootstrap.servers": "kafka-1:9092,kafka-2:9092,kafka-3:9092",
      "subscribe": "production-events",
      "startingOffsets": "latest",
      "maxOffsetsPerTrigger": "50000"
    },
    "credentialId": "kafka-prod-sasl"
  },
  "load": {
    "sinkType": "postgresql",
    "table": "production_events",
    "schemaName": "event-table-schema",
    "writeMode": "append",
    "connectionParams": {
      "host": "postgres-primary.prod.internal",
      "port": "5432",
      "database": "events_db",
      "user": "etl_writer"
    },
    "credentialId": "postgres-prod-writer"
  },
  "streamingConfigJson": {
    "checkpointLocation": "/mnt/checkpoints/production-events-pipeline",
    "queryName": "production-events-to-db",
    "outputMode": "append",
    "triggerMode": "processingtime=30 seconds",
    "enableIdempotence": true,
    "watermark": {
      "eventTimeColumn": "event_timestamp",
      "delayThreshold": "1 hour"
    },
    "lateDataConfig": {
      "strategy": "sendtodlq",
      "dlqTopic": "late-production-events"
    },
    "maxRecordsPerTrigger": 50000
  },
  "errorHandlingConfig": {
    "retryConfig": {
      "strategy": "exponential",
      "maxAttempts": 5,
      "initialDelaySeconds": 10,
      "maxDelaySeconds": 300
    },
    "circuitBreakerConfig": {
      "enabled": true,
      "failureThreshold": 10,
      "resetTimeoutSeconds": 120
    },
    "dlqConfig": {
      "dlqType": "kafka",
      "bootstrapServers": "kafka-1:9092,kafka-2:9092",
      "topic": "failed-production-events"
    },
    "failFast": false
  }
}
"""
SCHEMA = "event_id BIGINT NOT NULL, event_timestamp TIMESTAMP, day DATE, kind STRING"


@dataclass(frozen=True)
class Case:
    """`old` becomes `new`; the error is on the first line of `new`, or of `at`."""

    name: str
    old: str
    new: str
    code: str
    says: str
    """Part of the title, of what is allowed, or of the key."""
    at: str = ""


def changed(name: str, old: str, new: str, says: str, code: str = "FM-CONFIG-004") -> Case:
    return Case(name, old, new, code, says)


def added(name: str, after: str, line: str, says: str, code: str) -> Case:
    return Case(name, after, f"{after}\n{line}", code, says, line)


SERVERS = '"kafka.bootstrap.servers": "kafka-1:9092,kafka-2:9092,kafka-3:9092",'
HOST = '"host": "postgres-primary.prod.internal",'
RUN = '"queryName": "production-events-to-db",'
WRITE = '"writeMode": "append",'
STRATEGY = '"strategy": "sendtodlq",'
SINK = '"sinkType": "postgresql",'
EVENT_TIME = '"eventTimeColumn": "event_timestamp",'
AGGREGATE = '"aggregate": {"window": "5 minutes", "measures": {"n": "count(*)"}},'

CASES = [
    # Words
    changed("output mode", '"outputMode": "append"', '"outputMode": "apend"', "nearest: append"),
    changed("write mode", WRITE, '"writeMode": "upsrt",', "nearest: upsert"),
    changed("write mode number", WRITE, '"writeMode": 5,', "append, overwrite, upsert"),
    changed("mode", '"mode": "streaming"', '"mode": "batch"', "streaming"),
    changed("source", '"sourceType": "kafka"', '"sourceType": "kafak"', "nearest: kafka"),
    changed("sink", SINK, '"sinkType": "postgress",', "nearest: postgresql"),
    changed("late strategy", STRATEGY, '"strategy": "sendToDLX",', "nearest: sendToDLQ"),
    changed("retry strategy", '"exponential"', '"exponentiel"', "nearest: exponential"),
    changed("dlq type", '"dlqType": "kafka"', '"dlqType": "kafkaa"', "nearest: kafka"),
    changed("offset store", RUN, RUN + ' "offsetStore": "databse",', "nearest: database"),
    # Triggers and intervals
    changed("trigger", '"processingtime=30 seconds"', '"availablenows"', "nearest: availableNow"),
    changed("trigger unit", "30 seconds", "30 fortnights", "30 seconds"),
    changed("trigger empty", "processingtime=30 seconds", "processingtime=", "interval"),
    changed("trigger number", '"processingtime=30 seconds"', "30", "continuous"),
    changed("delay", '"1 hour"', '"1 our"', "a number with a unit"),
    changed("delay number", '"1 hour"', "3600", "a number with a unit"),
    changed("state timeout", RUN, RUN + ' "stateTimeout": "soon",', "a number with a unit"),
    # Kinds of values
    changed("text for number", '"maxAttempts": 5', '"maxAttempts": "five"', "a whole number"),
    changed("attempts zero", '"maxAttempts": 5', '"maxAttempts": 0', "1 to 1000"),
    changed("threshold", '"failureThreshold": 10', '"failureThreshold": -1', "1 to 1000"),
    changed("flag", '"enabled": true', '"enabled": "maybe"', "true or false"),
    changed("idempotence", '"enableIdempotence": true', '"enableIdempotence": 1', "true or false"),
    changed("fail fast", '"failFast": false', '"failFast": null', "true or false"),
    changed("records", '"maxRecordsPerTrigger": 50000', '"maxRecordsPerTrigger": 0', "1 to"),
    changed("records text", '"maxRecordsPerTrigger": 50000', '"maxRecordsPerTrigger": "x"', "whole"),
    changed("wait", '"initialDelaySeconds": 10', '"initialDelaySeconds": 1.5', "a whole number"),
    changed("late list", STRATEGY, '"strategy": ["drop"],', "drop, logAndDrop"),
    changed("id", '"production-events-pipeline",\n  "name"', '"a b",\n  "name"', "letters, digits"),
    changed("id missing", '"pipelineId": "production-events-pipeline",', "", '"pipelineId"'),
    changed("topic", '"topic": "production-events"', '"topic": "a b"', "letters, digits"),
    changed("dlq topic", '"late-production-events"', '"late events"', "letters, digits"),
    changed("table", '"production_events"', '"a;drop table b"', "schema.table"),
    changed("table of three", '"production_events"', '"a.b.c"', "schema.table"),
    changed("table too long", '"production_events"', f'"{"t" * 64}"', "at most 63 bytes"),
    changed("credential", '"kafka-prod-sasl"', '"secret word"', "credential"),
    changed("dlq servers", '"kafka-1:9092,kafka-2:9092"', '"kafka-1"', "host:port"),
    changed("topic missing", '"topic": "production-events",', "", '"topic" is missing'),
    changed("schema missing", '"schemaName": "event-schema",', "", '"schemaName" is missing'),
    # Keys
    changed("unknown key", RUN, '"queryNme": "x",', "nearest: queryName", "FM-CONFIG-003"),
    changed("unknown part", '"errorHandlingConfig"', '"errorHandler"', "errorHandlingConfig", "FM-CONFIG-003"),
    added("two spellings", RUN, '"query_name": "again",', "another spelling", "FM-CONFIG-005"),
    added("same key", RUN, '"queryName": "again",', "there twice", "FM-CONFIG-005"),
    # Kafka's parameters
    changed("servers", SERVERS, '"kafka.bootstrap.servers": "kafka-1",', "host:port"),
    changed("servers port", SERVERS, '"kafka.bootstrap.servers": "kafka-1:99999",', "host:port"),
    changed("offsets", '"startingOffsets": "latest"', '"startingOffsets": "newest"', "earliest, latest"),
    changed("offsets json", '"startingOffsets": "latest"', '"startingOffsets": "{\\"a\\": 1}"', "earliest"),
    changed("offsets of others", '"startingOffsets": "latest"', '"startingOffsets": "{\\"a\\": {\\"0\\": 1}}"', "production-events", "FM-CONFIG-015"),
    changed("limit", '"maxOffsetsPerTrigger": "50000"', '"maxOffsetsPerTrigger": "many"', "whole number"),
    added("data loss", SERVERS, '"failOnDataLoss": "false",', "true", "FM-CONFIG-004"),
    added("jaas", SERVERS, '"kafka.sasl.jaas.config": "x",', "credentialId", "FM-CONFIG-025"),
    added("oauth url", SERVERS, '"kafka.sasl.oauthbearer.token.endpoint.url": "file:///etc/passwd",', "addresses", "FM-CONFIG-025"),
    added("oauth jwks", SERVERS, '"kafka.sasl.oauthbearer.jwks.endpoint.url": "http://x",', "addresses", "FM-CONFIG-025"),
    added("class", SERVERS, '"kafka.sasl.login.class": "x.Y",', "class", "FM-CONFIG-025"),
    added("handler", SERVERS, '"kafka.sasl.login.callback.handler.class": "x.Y",', "class", "FM-CONFIG-025"),
    added("interceptors", SERVERS, '"kafka.interceptor.classes": "x.Y",', "class", "FM-CONFIG-025"),
    added("engine", SERVERS, '"kafka.ssl.engine.factory.class": "x.Y",', "class", "FM-CONFIG-025"),
    added("reporters", SERVERS, '"kafka.metric.reporters": "x.Y",', "class", "FM-CONFIG-025"),
    added("deserializer", SERVERS, '"kafka.value.deserializer": "x.Y",', "bytes", "FM-CONFIG-025"),
    added("group", SERVERS, '"kafka.group.id": "g",', "consumer group", "FM-CONFIG-025"),
    added("reset", SERVERS, '"kafka.auto.offset.reset": "latest",', "startingOffsets", "FM-CONFIG-025"),
    added("pattern", SERVERS, '"subscribePattern": ".*",', "one by one", "FM-CONFIG-025"),
    added("unknown option", SERVERS, '"kafka.fetch.max.byte": "1",', "nearest: kafka.fetch.max.bytes", "FM-CONFIG-003"),
    added("host check off", SERVERS, '"kafka.ssl.endpoint.identification.algorithm": "",', "https", "FM-CONFIG-004"),
    added("oauth mechanism", SERVERS, '"kafka.sasl.mechanism": "OAUTHBEARER",', "SCRAM-SHA-256", "FM-CONFIG-004"),
    added("literal store password", SERVERS, '"kafka.ssl.truststore.password": "hunter2",', "credentialId", "FM-CONFIG-011"),
    changed("other subscription", '"subscribe": "production-events"', '"subscribe": "other"', "production-events", "FM-CONFIG-015"),
    # PostgreSQL's parameters
    added("literal password", HOST, '"password": "hunter2",', "credentialId", "FM-CONFIG-011"),
    changed("port", '"port": "5432"', '"port": "70000"', "1 to 65535"),
    changed("host with login", HOST, '"host": "u:p@db",', "without user"),
    changed("host missing", HOST, "", "host in connectionParams"),
    added("tls", HOST, '"sslmode": "verify",', "verify-full", "FM-CONFIG-004"),
    added("unknown parameter", HOST, '"databse": "x",', "nearest: database", "FM-CONFIG-003"),
    added("key without certificate", HOST, '"sslkey": "client.key",', "sslcert", "FM-CONFIG-004"),
    added("certificate without tls", HOST, '"sslmode": "disable", "sslrootcert": "ca.pem",', "verify-full", "FM-CONFIG-015"),
    # What does not go together
    changed("overwrite", WRITE, '"writeMode": "overwrite",', "outputMode complete", "FM-CONFIG-015"),
    changed("complete", '"outputMode": "append"', '"outputMode": "complete"', "aggregate", "FM-CONFIG-015"),
    changed("upsert without key", WRITE, '"writeMode": "upsert",', "upsertKeys"),
    added("keys without upsert", WRITE, '"upsertKeys": ["event_id"],', "writeMode upsert", "FM-CONFIG-015"),
    Case("dlq with windows", RUN, f"{RUN}\n{AGGREGATE}", "FM-CONFIG-015", "drop or logAndDrop", STRATEGY),
    Case(
        "separate with duplicates", f"{RUN}",
        f'{RUN}\n"deduplicate": {{"columns": ["event_id"]}},', "FM-CONFIG-015", "drop or logAndDrop", STRATEGY,
    ),
    added("state in the database", RUN, f'"offsetStore": "database", {AGGREGATE}', "checkpointLocation", "FM-CONFIG-015"),
    changed("late to the source", '"late-production-events"', '"production-events"', "another topic", "FM-CONFIG-015"),
    changed("dead to the source", '"failed-production-events"', '"production-events"', "another topic", "FM-CONFIG-015"),
    changed("separate to nowhere", STRATEGY + '\n      "dlqTopic": "late-production-events"', '"strategy": "separatestream"', "table or dlqTopic"),
    changed("topic and drop", STRATEGY + "\n      ", '"strategy": "drop", ', "sendToDLQ", "FM-CONFIG-015"),
    changed("dlq without topic", ',\n      "topic": "failed-production-events"', "", "topic"),
    changed("topic of a table", '"dlqType": "kafka"', '"dlqType": "table"', "dlqType kafka", "FM-CONFIG-015"),
    Case("waits", '"maxDelaySeconds": 300', '"maxDelaySeconds": 3', "FM-CONFIG-015", "maxDelaySeconds", '"initialDelaySeconds": 10'),
    added("project's connection", SINK, '"connection": "erp",', "connectionParams", "FM-CONFIG-015"),
    Case("delta without path", SINK, '"sinkType": "delta",', "FM-CONFIG-004", "path", '"load": {'),
    changed("no place for offsets", '"checkpointLocation": "/mnt/checkpoints/production-events-pipeline",', '"offsetStore": "checkpoint",', "checkpointLocation"),
    # Columns and schemas
    changed("event time", EVENT_TIME, '"eventTimeColumn": "event_time",', "nearest: event_timestamp", "FM-CONFIG-013"),
    changed("event time kind", EVENT_TIME, '"eventTimeColumn": "kind",', "event_timestamp", "FM-CONFIG-015"),
    changed("no schema", '"event-schema"', '"event-shema"', "nearest: event-schema", "FM-CONFIG-013"),
    added("key is no column", SINK, '"writeMode": "upsert", "upsertKeys": ["event_ids"],', "nearest: event_id", "FM-CONFIG-013"),
    # The file itself
    changed("comma", '"name": "Production Events Processing",', '"name": "Production"', '"," or "}"', "FM-CONFIG-002"),
    changed("comment", '"failFast": false', '"failFast": false // no', '"," or "}"', "FM-CONFIG-002"),
    changed("quotes", '"failFast": false', "'failFast': false", "double quotes", "FM-CONFIG-002"),
    changed("trailing comma", '"failFast": false', '"failFast": false,', "double quotes", "FM-CONFIG-002"),
]  # fmt: skip


def project(tmp_path: Path, text: str) -> Path:
    (tmp_path / "schemas").mkdir(exist_ok=True)
    for name in ("event-schema", "event-table-schema"):
        (tmp_path / "schemas" / f"{name}.ddl").write_text(SCHEMA)
    path = tmp_path / "stream.json"
    path.write_text(text)
    return path


def errors_of(path: Path) -> list[ConfigError]:
    try:
        load_stream(path)
    except ConfigErrors as several:
        return list(several.errors)
    except ConfigError as error:
        return [error]
    return []


def broken(case: Case) -> tuple[str, range]:
    """The text, and the lines on which the error is expected: where it changed, and one more."""
    assert case.old in STREAM
    text = STREAM.replace(case.old, case.new, 1)
    if case.name == "key is no column":
        text = text.replace(WRITE, "", 1)
    part = case.at or case.new
    start = text[: text.index(case.at) if case.at else STREAM.index(case.old)].count("\n") + 1
    return text, range(start, start + part.count("\n") + 2)


def test_there_are_at_least_sixty_cases_with_names_of_their_own() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 60


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_broken_stream_gives_a_typed_error_at_its_place(tmp_path: Path, case: Case) -> None:
    text, lines = broken(case)
    path = project(tmp_path, text)

    found = [error for error in errors_of(path) if error.code == case.code]

    told = [error for error in found if case.says in f"{error.title} {error.allowed} {error.found}"]
    assert told, [str(error) for error in errors_of(path)]
    for error in told[:1]:
        file, line, column = (error.where or "").split(": ")[0].rsplit(":", 2)
        assert file == str(path)
        assert int(column) >= 1
        if case.new and "to nowhere" not in case.name:
            assert int(line) in lines, str(error)
        assert error.next == f"correct the file, then: floodmark stream validate {path}"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_one_change_gives_one_error(tmp_path: Path, case: Case) -> None:
    path = project(tmp_path, broken(case)[0])

    found = errors_of(path)

    allowed = {
        "complete": 2,
        "topic of a table": 2,
        "delta without path": 3,
        "dlq with windows": 2,
        "state in the database": 3,
    }
    assert 1 <= len(found) <= allowed.get(case.name, 1), [str(error) for error in found]


def test_all_errors_come_at_once_and_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = STREAM.replace('"sourceType": "kafka"', '"sourceType": "kafak"')
    text = text.replace(SERVERS, f'{SERVERS} "kafka.group.id": "g", "kafka.fetch": "1",')
    text = text.replace(WRITE, '"writeMode": "upsrt",').replace('"1 hour"', '"1 our"')
    text = text.replace('"event-table-schema"', '"nowhere"')

    found = errors_of(project(tmp_path, text))

    keys = [(error.where or "").split(": ")[1] for error in found]
    assert keys == [
        "extract.sourceType",
        "extract.connectionParams.kafka.group.id",
        "extract.connectionParams.kafka.fetch",
        "load.schemaName",
        "load.writeMode",
        "streamingConfigJson.watermark.delayThreshold",
    ]


def test_no_error_shows_a_secret(tmp_path: Path) -> None:
    text = STREAM.replace(HOST, f'{HOST} "password": "hunter2-canary",')
    text = text.replace(SERVERS, f'{SERVERS} "kafka.ssl.key.password": "hunter2-canary",')

    found = errors_of(project(tmp_path, text))

    assert [error.code for error in found] == ["FM-CONFIG-011", "FM-CONFIG-011"]
    assert "canary" not in " ".join(map(str, found))
    assert "canary" not in json.dumps([error.as_dict() for error in found])


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    found = errors_of(tmp_path / "nowhere.json")

    assert [error.code for error in found] == ["FM-CONFIG-001"]
