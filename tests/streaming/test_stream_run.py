"""Streams from a real broker through Spark into a real PostgreSQL, run by the commands."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.streams import Place, Run, event, kept_in

from floodmark.config import load_stream
from floodmark.engines.kafka import KafkaProducer, Record, records_at
from floodmark.engines.spark import local_session
from floodmark.model.offsets import Offsets
from floodmark.streaming.load.postgres import PostgresWriter
from floodmark.streaming.parts import access_of, runner_of

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.postgres]

STORES = pytest.mark.parametrize("store", ["database", "checkpoint"])


def test_records_are_there_once_and_the_next_run_goes_on_behind_them(
    place: Place, run: Run
) -> None:
    place.send(*map(event, range(25)))
    path = place.write(streamingConfigJson={"maxRecordsPerTrigger": 10})

    code, first = run("run", path)
    place.send(*map(event, range(25, 30)))
    again, second = run("run", path)
    third = run("run", path)[1]

    assert (code, again) == (0, 0)
    assert first["streams"][0]["written"] == 25
    assert first["streams"][0]["batches"] >= 3
    assert second["streams"][0]["written"] == 5
    assert third["streams"][0]["batches"] == 0
    assert place.ask("SELECT array_agg(id ORDER BY id) FROM $schema.events") == [(list(range(30)),)]


@pytest.mark.parametrize("driver_rows", [1_000, 0])
def test_what_cannot_be_written_is_a_dead_letter_with_its_bytes(
    place: Place, run: Run, driver_rows: int
) -> None:
    place.ask(
        "CREATE TABLE $schema.events (id bigint PRIMARY KEY, at timestamptz, kind varchar(5))"
    )
    long = {"id": 5, "kind": "too long for it"}
    place.send(event(1), b"poison", {"kind": "no id"}, event(1), long, event(2), partition=0)
    path = place.write(
        load={"driverCopyRows": driver_rows}, streamingConfigJson={"maxRecordsPerTrigger": 100}
    )

    code, document = run("run", path)

    (stream,) = document["streams"]
    assert code == 0
    assert (stream["received"], stream["written"], stream["dead_lettered"]) == (6, 2, 4)
    letters = place.ask(
        "SELECT kafka_offset, reason, record_value FROM $schema.floodmark_dead_letters ORDER BY 1"
    )
    assert [(offset, reason) for offset, reason, _ in letters] == [
        (1, "malformed"),
        (2, "null"),
        (3, "23505"),
        (4, "value"),
    ]
    assert bytes(letters[0][2]) == b"poison"
    assert [json.loads(bytes(value)) for _, _, value in letters[2:]] == [event(1), long]


def test_fail_fast_stops_at_the_first_one_and_writes_nothing(place: Place, run: Run) -> None:
    place.send(event(1), b"poison")

    code, document = run("run", place.write(errorHandlingConfig={"failFast": True}))

    assert code == 4
    assert document["streams"][0]["error"]["code"] == "FM-STREAM-009"
    assert place.ask("SELECT count(*) FROM $schema.floodmark_dead_letters") == [(0,)]


def test_an_upsert_keeps_the_last_record_of_a_key(place: Place, run: Run) -> None:
    place.send({"id": 1, "kind": "a"}, {"id": 1, "kind": "b"}, {"id": 2, "kind": "c"}, partition=1)
    path = place.write(load={"writeMode": "upsert", "upsertKeys": ["id"]})
    run("run", path)
    place.send({"id": 2, "kind": "d"}, partition=1)

    code, _ = run("run", path)

    assert code == 0
    assert place.ask("SELECT id, kind FROM $schema.events ORDER BY id") == [(1, "b"), (2, "d")]


@pytest.mark.parametrize(
    ("strategy", "store"),
    [
        ("drop", "database"),
        ("sendToDLQ", "checkpoint"),
        ("separateStream", "database"),
    ],
)
def test_late_records_are_judged_by_the_batch_before(
    place: Place, run: Run, strategy: str, store: str
) -> None:
    late: dict[str, Any] = {"strategy": strategy}
    if strategy == "separateStream":
        late["table"] = f"{place.name}.late_events"
    path = place.write(
        streamingConfigJson={
            "watermark": {"eventTimeColumn": "at", "delayThreshold": "1 hour"},
            "lateDataConfig": late,
            "offsetStore": store,
            "checkpointLocation": "checkpoint",
        }
    )
    place.send(event(1, "2026-01-01T12:00:00Z"), event(2, "2026-01-01T01:00:00Z"))
    _, first = run("run", path)
    place.send(event(3, "2026-01-01T10:59:59Z"), event(4, "2026-01-01T11:00:00Z"))

    code, second = run("run", path)

    assert code == 0
    assert first["streams"][0]["written"] == 2
    (stream,) = second["streams"]
    kept = {"drop": (1, 0, 1), "sendToDLQ": (1, 1, 0), "separateStream": (2, 0, 0)}[strategy]
    assert (stream["written"], stream["dead_lettered"], stream["dropped"]) == kept
    assert place.ask("SELECT array_agg(id ORDER BY id) FROM $schema.events") == [([1, 2, 4],)]
    if strategy == "separateStream":
        assert place.ask("SELECT id FROM $schema.late_events") == [(3,)]


@pytest.mark.parametrize(
    ("store", "driver_rows"), [("database", 1_000), ("checkpoint", 1_000), ("database", 0)]
)
def test_a_late_record_reaches_the_topic_for_late_ones(
    place: Place, run: Run, store: str, driver_rows: int
) -> None:
    late, bad = f"late-{place.name}", f"bad-{place.name}"
    for topic in (late, bad):
        place.admin.create_topic(topic, 1)
    path = place.write(
        load={"driverCopyRows": driver_rows},
        streamingConfigJson={
            "maxRecordsPerTrigger": 100,
            "watermark": {"eventTimeColumn": "at", "delayThreshold": "1 hour"},
            "lateDataConfig": {"strategy": "sendToDLQ", "dlqTopic": late},
            **kept_in(store),
        },
        errorHandlingConfig={"dlqConfig": {"dlqType": "kafka", "topic": bad}},
    )
    place.send(event(1, "2026-01-01T12:00:00Z"))
    run("run", path)
    too_old = event(2, "2026-01-01T10:59:59Z")
    place.send(too_old, b"poison", event(3, "2026-01-01T11:00:00Z"), partition=0)

    code, document = run("run", path)

    counts = [document["streams"][0][name] for name in ("written", "dead_lettered", "dropped")]
    assert (code, counts) == (0, [1, 2, 0])
    assert [(m["reason"], base64.b64decode(m["value_base64"])) for m in messages(place, late)] == [
        ("late", json.dumps(too_old).encode())
    ]
    assert [base64.b64decode(m["value_base64"]) for m in messages(place, bad)] == [b"poison"]
    assert place.ask("SELECT count(*) FROM $schema.floodmark_outbox") == [(0,)]
    assert place.ask("SELECT array_agg(id ORDER BY id) FROM $schema.events") == [([1, 3],)]
    for topic in (late, bad):
        place.admin.delete_topic(topic)


def messages(place: Place, topic: str) -> list[dict[str, Any]]:
    """What a topic of one partition holds."""
    end = place.admin.latest([topic]).at((topic, 0))
    where = [(topic, 0, number) for number in range(end)]
    sent = records_at({"bootstrap.servers": place.kafka.bootstrap}, where)
    return [json.loads(value or b"") for _, value in sent.values()]


@STORES
def test_a_partition_that_is_added_begins_at_its_first_record(
    place: Place, run: Run, store: str
) -> None:
    place.send(event(1))
    path = place.write(streamingConfigJson=kept_in(store))
    run("run", path)
    place.admin.add_partitions(place.name, 3)
    place.send(event(2), partition=2)

    code, document = run("run", path)

    assert (code, document["streams"][0]["written"]) == (0, 1)


@STORES
def test_records_that_are_gone_are_told_and_skipped_only_when_said(
    place: Place, run: Run, store: str
) -> None:
    place.send(event(1), event(2), partition=0)
    path = place.write(streamingConfigJson=kept_in(store), extract={**place.said["extract"], "connectionParams": {
        **place.said["extract"]["connectionParams"], "startingOffsets": json.dumps(
            {place.name: {"0": 0, "1": 0}})}})  # fmt: skip
    run("run", path)
    place.send(event(3), event(4), partition=0)
    place.admin.delete_records(Offsets.of({(place.name, 0): 3}))

    refused, document = run("run", path)
    code, skipped = run("run", path, "--skip-to-earliest")

    error = document["streams"][0]["error"]
    assert (refused, error["code"]) == (4, "FM-STREAM-023")
    assert "begins at 3, offset 2 is wanted" in error["found"]
    assert f"floodmark stream run {path} --skip-to-earliest" in error["next"]
    assert (code, skipped["streams"][0]["written"]) == (0, 1)
    notes = place.ask("SELECT note FROM $schema.batch_tracker WHERE note LIKE 'lost%'")
    assert len(notes) == 1


@STORES
def test_a_topic_that_was_recreated_is_refused_until_a_reset(
    place: Place, run: Run, store: str
) -> None:
    place.send(event(1))
    path = place.write(streamingConfigJson=kept_in(store))
    run("run", path)
    place.admin.delete_topic(place.name)
    time.sleep(1)
    place.admin.create_topic(place.name, 2)
    place.send(event(2))

    refused, document = run("run", path)
    unsure, _ = run("reset", path, "--to", "earliest")
    sure, _ = run("reset", path, "--to", "earliest", "--yes")
    code, after = run("run", path)

    assert (refused, document["streams"][0]["error"]["code"]) == (4, "FM-STREAM-024")
    assert (unsure, sure, code) == (2, 0, 0)
    assert after["streams"][0]["written"] == 1


def test_a_stream_that_begins_at_latest_remembers_where_that_was(place: Place, run: Run) -> None:
    place.send(event(1))
    params = {**place.said["extract"]["connectionParams"], "startingOffsets": "latest"}
    path = place.write(extract={**place.said["extract"], "connectionParams": params})

    run("run", path)
    place.send(event(2))
    code, document = run("run", path)

    assert (code, document["streams"][0]["written"]) == (0, 1)
    assert place.ask("SELECT id FROM $schema.events") == [(2,)]


def test_status_and_cleanup_tell_and_tidy(place: Place, run: Run) -> None:
    place.send(*map(event, range(3)))
    path = place.write()
    run("run", path)
    place.send(event(9))

    code, document = run("status", path)
    place.ask("UPDATE $schema.batch_tracker SET processed_at = now() - interval '40 days'")
    cleaned = run("cleanup", path, "--dead-letter-days", "30")[1]
    after = run("run", path)[1]

    (status,) = document["streams"]
    assert code == 0
    assert (status["records_behind"], status["records"]["written"]) == (1, 3)
    assert cleaned["removed"][place.name] >= 1
    assert (cleaned["dead_letters_removed"], cleaned["dead_letter_days"]) == ({place.name: 0}, 30)
    assert after["streams"][0]["written"] == 1


def test_a_lost_connection_is_tried_again_until_it_works(place: Place, run: Run) -> None:
    place.send(*map(event, range(3)))
    retry = {"maxAttempts": 5, "initialDelaySeconds": 0}
    path = place.write(errorHandlingConfig={"retryConfig": retry})
    runner = runner_of(access_of(load_stream(path)), local_session)
    assert isinstance(runner.writer, PostgresWriter)
    load, tries = runner.writer.load, []

    class CutOff:
        """Ends the connection of the first attempt, in the middle of the batch."""

        def apply(self, cursor: Any, *arguments: Any) -> Any:
            loaded = load.apply(cursor, *arguments)
            tries.append(1)
            if len(tries) == 1:
                place.ask(f"SELECT pg_terminate_backend({cursor.connection.info.backend_pid})")
            return loaded

    runner.writer.load = CutOff()

    totals = runner.run()

    assert (len(tries), totals.written) == (2, 3)
    assert place.ask("SELECT array_agg(id ORDER BY id) FROM $schema.events") == [([0, 1, 2],)]


def test_several_streams_run_in_one_process(place: Place, run: Run) -> None:
    place.send(*map(event, range(4)))
    (place.folder / "floodmark.yaml").write_text("project: shop\n")
    (place.folder / "streams").mkdir()
    for number in (1, 2):
        said = json.loads(json.dumps(place.said))
        said["pipelineId"] = f"{place.name}-{number}"
        said["load"]["table"] = f"{place.name}.events{number}"
        (place.folder / f"streams/{number}.json").write_text(json.dumps(said))

    code, document = run("run", "--project", place.folder)

    assert code == 0
    assert [stream["written"] for stream in document["streams"]] == [4, 4]
    assert place.ask("SELECT count(*) FROM $schema.events2") == [(4,)]


def test_the_full_example_of_the_seed_runs_here(
    place: Place, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only names of hosts, credentials and places are changed; one batch, so that it ends."""
    text = (Path(__file__).parents[1] / "fixtures/streams/production-events.json").read_text()
    for old, new in {
        "kafka-1:9092,kafka-2:9092,kafka-3:9092": place.kafka.bootstrap,
        "kafka-1:9092,kafka-2:9092": place.kafka.bootstrap,
        "postgres-primary.prod.internal": place.postgres.host,
        '"5432"': f'"{place.postgres.port}"',
        "events_db": place.postgres.database,
        "etl_writer": place.postgres.user,
        "/mnt/checkpoints": str(place.folder),
        '"latest"': '"earliest"',
        "processingtime=30 seconds": "availablenow",
    }.items():
        assert old in text
        text = text.replace(old, new)
    (place.folder / "seed.json").write_text(text)
    for name in ("event-schema", "event-table-schema"):
        (place.folder / f"schemas/{name}.ddl").write_text(
            "event_id BIGINT NOT NULL, event_timestamp TIMESTAMP"
        )
    monkeypatch.setenv("FLOODMARK_CREDENTIAL_KAFKA_PROD_SASL", '{"security.protocol": "PLAINTEXT"}')
    monkeypatch.setenv("FLOODMARK_CREDENTIAL_POSTGRES_PROD_WRITER", place.postgres.password)
    topics = ("production-events", "late-production-events", "failed-production-events")
    for topic in topics:
        place.admin.create_topic(topic)
    place.ask("CREATE TABLE production_events (event_id bigint, event_timestamp timestamptz)")
    values = [
        json.dumps({"event_id": i, "event_timestamp": "2026-01-01T00:00:00Z"}) for i in range(9)
    ]
    records = [Record("production-events", value.encode()) for value in [*values, "poison"]]
    KafkaProducer({"bootstrap.servers": place.kafka.bootstrap}).send(records)

    code, document = run("run", place.folder / "seed.json")

    (stream,) = document["streams"]
    assert code == 0, document
    assert (stream["written"], stream["dead_lettered"]) == (9, 1)
    sent = records_at({"bootstrap.servers": place.kafka.bootstrap}, [(topics[2], 0, 0)])
    assert len(sent) == 1
    for topic in topics:
        place.admin.delete_topic(topic)
    for table in ("production_events", "batch_tracker", "floodmark_stream", "floodmark_outbox",
                  "floodmark_dead_letters"):  # fmt: skip
        place.ask(f"DROP TABLE {table}")
