"""Streams from a real broker through Spark into a real PostgreSQL, run by the commands."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from floodmark import failpoints
from floodmark.config.stream_files import load_stream
from floodmark.engines.kafka import KafkaProducer, Record, records_at
from floodmark.engines.spark import local_session
from floodmark.errors import StreamError
from floodmark.model.offsets import Offsets
from floodmark.streaming.parts import access_of, runner_of
from floodmark.streaming.runner import StreamRunner
from floodmark.streaming.stage_task import MAX_OTHERS
from floodmark.streaming.watching import Nobody
from floodmark.streaming.writing import BatchWriter
from floodmark.testing.streams import Place, Run, event

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.postgres]


FULL = os.environ.get("FLOODMARK_TEST_SIZE") == "full"
POINTS = [
    "stream.after_wal",
    "stream.after_begin",
    "stream.mid_copy",
    "stream.before_tracker",
    "stream.before_commit",
    "stream.after_commit",
    "stream.after_return",
]


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


@pytest.mark.parametrize("driver_rows", [1_000, 0])
def test_records_that_only_spark_can_judge_are_of_the_same_batch(
    place: Place, run: Run, driver_rows: int
) -> None:
    """Upserts: the order of offsets counts across both ways to read."""
    odd, number = b' {"id": 7, "kind": "newest"}', b'{"id": 8, "at": 1700000000, "kind": 5}'
    plain = [{"id": n % 50, "kind": f"k{n}"} for n in range(100)]
    place.send(*plain, odd, number, b'{"id": 9, "id": 10}', b"poison", partition=0)
    load = {"writeMode": "upsert", "upsertKeys": ["id"], "driverCopyRows": driver_rows}
    path = place.write(load=load, streamingConfigJson={"maxRecordsPerTrigger": 1_000})

    code, document = run("run", path)

    (stream,) = document["streams"]
    assert code == 0
    assert (stream["received"], stream["written"], stream["dead_lettered"]) == (104, 103, 1)
    kinds = dict(place.ask("SELECT id, kind FROM $schema.events"))
    assert (len(kinds), kinds[6], kinds[7], kinds[8]) == (50, "k56", "newest", "5")


@pytest.mark.parametrize(
    ("driver_rows", "records"), [(1_000, 60), (0, 60), (0, 2 * (MAX_OTHERS + 1))]
)
def test_records_that_are_mostly_left_to_spark_are_given_to_it_at_once(
    place: Place,
    spark: SparkSession,
    caplog: pytest.LogCaptureFixture,
    driver_rows: int,
    records: int,
) -> None:
    told = "more than a partition should send" if records > MAX_OTHERS else "30 of 30"
    place.send(*(f' {{"id": {n}}}'.encode() for n in range(records)), partition=0)
    path = place.write(
        load={"driverCopyRows": driver_rows},
        streamingConfigJson={"maxRecordsPerTrigger": records // 2},
    )

    with caplog.at_level("INFO", "floodmark.streaming"):
        totals = runner_of(access_of(load_stream(path)), lambda: spark).run()

    assert (totals.batches, totals.written) == (2, records)
    counted = place.ask("SELECT count(*), count(DISTINCT id) FROM $schema.events")
    assert counted == [(records, records)]
    assert caplog.text.count("parsed again by Spark") == 1
    assert told in caplog.text
    assert staged_tables(place) == 0


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


STORES = pytest.mark.parametrize("store", ["database", "checkpoint"])


def kept_in(store: str) -> dict[str, Any]:
    """Where a stream keeps its offsets."""
    return {"offsetStore": store, "triggerMode": "availableNow"} | (
        {"checkpointLocation": "checkpoint"} if store == "checkpoint" else {}
    )


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
    cleaned = run("cleanup", path)[1]
    after = run("run", path)[1]

    (status,) = document["streams"]
    assert code == 0
    assert (status["records_behind"], status["records"]["written"]) == (1, 3)
    assert cleaned["removed"][place.name] >= 1
    assert after["streams"][0]["written"] == 1


def started(
    place: Place, path: Path, *, own_group: bool = False, **environment: str
) -> subprocess.Popen[str]:
    source = str(Path(__file__).parents[2] / "src")
    return subprocess.Popen(
        [sys.executable, "-m", "floodmark", "stream", "run", str(path), "--json"],
        env={**os.environ, "PYTHONPATH": source, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=own_group,
    )


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS[1:] if FULL else ["stream.before_commit"])
def test_a_killed_driver_loses_and_doubles_nothing(place: Place, run: Run, point: str) -> None:
    place.send(*(event(i) if i % 10 else b"poison" for i in range(100)))
    path = place.write(streamingConfigJson={"maxRecordsPerTrigger": 30})

    killed = started(place, path, FLOODMARK_FAILPOINT=f"{point}:2")
    killed.communicate(timeout=300)
    before = place.ask("SELECT count(*) FROM $schema.events")[0][0]
    code, _ = run("run", path)

    assert killed.returncode == -signal.SIGKILL
    assert 0 < before < 90
    assert code == 0
    ids = place.ask("SELECT array_agg(id ORDER BY id) FROM $schema.events")[0][0]
    assert ids == [i for i in range(100) if i % 10]
    assert place.ask("SELECT count(*) FROM $schema.floodmark_dead_letters") == [(10,)]
    assert place.ask(
        "SELECT sum(record_count), sum(written + dead_lettered + dropped)"
        " FROM $schema.batch_tracker"
    ) == [(100, 100)]


def test_dead_letters_reach_their_topic_although_the_relay_is_cut_off(
    place: Place, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = f"{place.name}-letters"
    place.admin.create_topic(letters, 1)
    dlq = {"dlqType": "kafka", "topic": letters}
    path = place.write(errorHandlingConfig={"dlqConfig": dlq})
    place.send(event(1), b"poison", partition=0)
    monkeypatch.setenv("FLOODMARK_FAILPOINT", "dlq.after_send")
    monkeypatch.setenv("FLOODMARK_FAILPOINT_ACTION", "raise")
    failpoints.rearm()
    with pytest.raises(failpoints.FailpointReached):
        run_directly(path)
    monkeypatch.delenv("FLOODMARK_FAILPOINT")
    waiting = place.ask("SELECT count(*) FROM $schema.floodmark_outbox")

    code, _ = run("run", path)

    assert (waiting, code) == ([(1,)], 0)
    assert place.ask("SELECT count(*) FROM $schema.floodmark_outbox") == [(0,)]
    sent = records_at(
        {"bootstrap.servers": place.kafka.bootstrap}, [(letters, 0, 0), (letters, 0, 1)]
    )
    told = [json.loads(value or b"") for _, value in sent.values()]
    assert [(each["partition"], each["offset"]) for each in told] == [(0, 1), (0, 1)]
    assert {each["value_base64"] for each in told} == {base64.b64encode(b"poison").decode()}
    place.admin.delete_topic(letters)


def run_directly(path: Path) -> None:
    """Without threads: what a failpoint raises comes out."""
    access = access_of(load_stream(path))
    runner_of(access, local_session).run()


def test_a_second_runner_takes_over_and_the_first_one_is_fenced(place: Place, run: Run) -> None:
    place.send(event(1))
    path = place.write()
    first = runner_of(access_of(load_stream(path)), local_session)
    assert isinstance(first, StreamRunner)
    first.ledger.ensure()
    claim = first.claimed()
    run("run", path)

    with pytest.raises(StreamError) as caught:
        list(first.batches(claim))

    assert caught.value.code == "FM-STREAM-001"
    assert caught.value.exit_code == 4
    assert place.ask("SELECT count(*) FROM $schema.events") == [(1,)]


@pytest.mark.slow
@pytest.mark.parametrize("store", ["database", "checkpoint"] if FULL else ["database"])
def test_a_runner_that_was_paused_in_a_batch_is_fenced_and_ends_with_4(
    place: Place, run: Run, store: str
) -> None:
    place.send(*map(event, range(20)))
    path = checkpointed(place, offsetStore=store)
    paused = started(
        place, path, FLOODMARK_FAILPOINT="stream.before_commit", FLOODMARK_FAILPOINT_ACTION="stop"
    )
    until(lambda: state_of(paused) == "T")

    code, taken_over = run("run", path)
    paused.send_signal(signal.SIGCONT)
    out, _ = paused.communicate(timeout=300)

    (first,) = json.loads(out)["streams"]
    assert (code, taken_over["streams"][0]["written"]) == (0, 20)
    assert (paused.returncode, first["status"], first["written"]) == (4, "FENCED", 0)
    assert first["error"]["code"] == "FM-STREAM-001"
    assert place.ask("SELECT count(*), count(DISTINCT id) FROM $schema.events") == [(20, 20)]


def state_of(process: subprocess.Popen[str]) -> str:
    """As the system names it: T for one that is stopped."""
    said = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(process.pid)], capture_output=True, text=True, check=False
    )
    return said.stdout[:1]


def until(is_so: Callable[[], bool], seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.parametrize("point", failpoints.RELAY_POINTS if FULL else ["dlq.after_send"])
def test_a_driver_that_is_killed_at_its_relay_drops_no_dead_letter(
    place: Place, run: Run, point: str
) -> None:
    letters = f"{place.name}-letters"
    place.admin.create_topic(letters, 1)
    dlq = {"dlqType": "kafka", "topic": letters}
    path = place.write(errorHandlingConfig={"dlqConfig": dlq})
    place.send(event(1), b"poison", b"more poison", partition=0)

    killed = started(place, path, FLOODMARK_FAILPOINT=point)
    killed.communicate(timeout=300)
    code, _ = run("run", path)

    assert (killed.returncode, code) == (-signal.SIGKILL, 0)
    assert place.ask("SELECT count(*) FROM $schema.floodmark_outbox") == [(0,)]
    assert place.ask("SELECT count(*) FROM $schema.floodmark_dead_letters") == [(2,)]
    end = place.admin.latest([letters]).at((letters, 0))
    sent = records_at(
        {"bootstrap.servers": place.kafka.bootstrap}, [(letters, 0, n) for n in range(end)]
    )
    told = {json.loads(value or b"")["offset"] for _, value in sent.values()}
    assert (told, len(sent)) == ({1, 2}, 2 if point == "dlq.before_relay" else 4)
    place.admin.delete_topic(letters)


def test_a_lost_connection_is_tried_again_until_it_works(place: Place, run: Run) -> None:
    place.send(*map(event, range(3)))
    retry = {"maxAttempts": 5, "initialDelaySeconds": 0}
    path = place.write(errorHandlingConfig={"retryConfig": retry})
    runner = runner_of(access_of(load_stream(path)), local_session)
    assert isinstance(runner.writer, BatchWriter)
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


@pytest.mark.slow
def test_stop_ends_a_continuous_stream_after_its_batch(place: Place, run: Run) -> None:
    place.send(*map(event, range(5)))
    path = place.write(streamingConfigJson={"triggerMode": "continuous"})
    running = started(place, path)
    until(lambda: place.ask("SELECT to_regclass('$schema.events')::text") != [(None,)])

    _, told = run("status", path)
    asked, stopped = run("stop", path)
    out, _ = running.communicate(timeout=300)
    _, nobody = run("stop", path)
    _, told_later = run("status", path)

    assert running.returncode == 0
    assert (asked, stopped["was_running"], stopped["has_ended"]) == (0, True, True)
    assert nobody["was_running"] is False
    breakers = [each["streams"][0]["breaker"] for each in (told, told_later)]
    assert breakers == ["closed", None]
    assert json.loads(out)["streams"][0]["written"] == 5


@pytest.mark.slow
def test_a_signal_that_ends_spark_too_is_a_stop(place: Place) -> None:
    """As systemd sends it; a process of its own, since it ends the JVM."""
    place.send(*map(event, range(5)))
    path = checkpointed(place, triggerMode="continuous")
    running = started(place, path, own_group=True)
    until(lambda: place.ask("SELECT to_regclass('$schema.events')::text") != [(None,)])

    os.killpg(running.pid, signal.SIGTERM)
    out, err = running.communicate(timeout=300)

    (stream,) = json.loads(out)["streams"]
    assert (running.returncode, stream["status"], stream["error"]) == (0, "DONE", None), err
    assert not {"Traceback", "MicroBatchExecution"} & set(err.replace(":", " ").split()), err


# Batches that are too large for the driver ------------------------------------------------------


def staged_tables(place: Place) -> int:
    found = place.ask(
        f"SELECT count(*) FROM pg_tables WHERE schemaname = '{place.name}'"
        " AND tablename LIKE 'floodmark_stg%'"
    )
    return int(found[0][0])


@pytest.mark.parametrize("store", ["database", "checkpoint"])
def test_a_batch_that_is_too_large_for_the_driver_is_one_batch_all_the_same(
    place: Place, run: Run, store: str
) -> None:
    place.ask("CREATE TABLE $schema.events (id bigint PRIMARY KEY, at timestamptz, kind text)")
    place.send(*map(event, range(40)), b"poison", event(7), partition=0)
    path = place.write(
        load={"driverCopyRows": 10},
        streamingConfigJson={
            "offsetStore": store,
            "checkpointLocation": "checkpoint",
            "maxRecordsPerTrigger": 1000,
            "watermark": {"eventTimeColumn": "at", "delayThreshold": "1 hour"},
            "lateDataConfig": {"strategy": "drop"},
        },
    )

    code, first = run("run", path)
    old = [event(i, "2020-01-01T00:00:00Z") for i in range(100, 120)]
    place.send(*old, *map(event, range(40, 50)), partition=1)
    again, second = run("run", path)

    (stream,), (next_stream,) = first["streams"], second["streams"]
    assert (code, again) == (0, 0), (first, second)
    assert (stream["batches"], stream["written"], stream["dead_lettered"]) == (1, 40, 2)
    assert (next_stream["written"], next_stream["dropped"]) == (10, 20)
    ids = place.ask("SELECT array_agg(id ORDER BY id) FROM $schema.events")
    assert ids == [(list(range(50)),)]
    letters = "SELECT reason, record_value FROM $schema.floodmark_dead_letters ORDER BY 1"
    assert [(reason, bytes(value)) for reason, value in place.ask(letters)] == [
        ("23505", json.dumps(event(7)).encode()),
        ("malformed", b"poison"),
    ]
    assert staged_tables(place) == 0


@pytest.mark.slow
def test_a_driver_that_is_killed_behind_its_staging_leaves_nothing_for_long(
    place: Place, run: Run
) -> None:
    place.send(*map(event, range(50)))
    path = place.write(load={"driverCopyRows": 10}, streamingConfigJson={"triggerMode": "once",
                       "maxRecordsPerTrigger": 100})  # fmt: skip

    killed = started(place, path, FLOODMARK_FAILPOINT="stream.after_stage:1")
    killed.communicate(timeout=300)
    left = staged_tables(place)
    code, after = run("run", path)

    assert (killed.returncode, left > 0) == (-signal.SIGKILL, True)
    assert (code, after["streams"][0]["written"]) == (0, 50)
    assert place.ask("SELECT count(*), count(DISTINCT id) FROM $schema.events") == [(50, 50)]
    assert staged_tables(place) == 0


def test_a_role_that_may_not_stage_is_told_at_once(place: Place, run: Run) -> None:
    place.send(*map(event, range(5)))
    path = place.write(
        load={"driverCopyRows": 1}, streamingConfigJson={"maxRecordsPerTrigger": 100}
    )
    assert run("run", path)[0] == 0
    place.ask(f"CREATE ROLE {place.name} LOGIN PASSWORD '{place.postgres.password}'")
    place.ask(f"GRANT USAGE ON SCHEMA $schema TO {place.name}")
    place.ask(f"GRANT ALL ON ALL TABLES IN SCHEMA $schema TO {place.name}")
    place.ask(f"GRANT ALL ON ALL SEQUENCES IN SCHEMA $schema TO {place.name}")
    place.send(*map(event, range(5, 9)))
    said = json.loads(path.read_text())
    said["load"]["connectionParams"]["user"] = place.name
    path.write_text(json.dumps(said))

    code, document = run("run", path)

    (stream,) = document["streams"]
    place.ask(f"DROP OWNED BY {place.name}; DROP ROLE {place.name}")
    assert (code, stream["error"]["code"], stream["error"]["retryable"]) == (
        4,
        "FM-STREAM-013",
        False,
    )
    assert "42501" in stream["error"]["found"]
    assert place.ask("SELECT count(*) FROM $schema.events") == [(5,)]


# With a checkpoint ------------------------------------------------------------------------------


def checkpointed(place: Place, **more: Any) -> Path:
    run = {"offsetStore": "checkpoint", "checkpointLocation": "checkpoint", **more}
    return place.write(streamingConfigJson=run)


def test_a_checkpoint_that_is_deleted_loses_and_doubles_nothing(place: Place, run: Run) -> None:
    place.send(*map(event, range(20)), b"poison")
    path = checkpointed(place, maxRecordsPerTrigger=8)
    code, first = run("run", path)
    place.send(*map(event, range(20, 25)))
    again, second = run("run", path)
    shutil.rmtree(place.folder / "checkpoint")
    place.send(*map(event, range(25, 30)))

    third, last = run("run", path)

    assert (code, again, third) == (0, 0, 0), (first, second, last)
    assert [d["streams"][0]["written"] for d in (first, second, last)] == [20, 5, 5]
    ids = place.ask("SELECT array_agg(id ORDER BY id) FROM $schema.events")
    assert ids == [(list(range(30)),)]
    tracked = place.ask("SELECT array_agg(batch_id ORDER BY batch_id) FROM $schema.batch_tracker")
    assert tracked[0][0] == list(range(len(tracked[0][0])))
    assert place.ask("SELECT incarnation FROM $schema.floodmark_stream") == [(2,)]


def test_a_database_that_was_restored_is_refused_until_a_rewind(place: Place, run: Run) -> None:
    place.send(*map(event, range(4)))
    path = checkpointed(place)
    run("run", path)
    row = place.ask("SELECT * FROM $schema.floodmark_stream")
    place.ask("CREATE TABLE $schema.kept AS SELECT * FROM $schema.floodmark_stream")
    place.send(*map(event, range(4, 6)))
    run("run", path)
    place.ask("DELETE FROM $schema.events WHERE id >= 4")
    place.ask("DELETE FROM $schema.batch_tracker WHERE batch_id > 0")
    place.ask("DELETE FROM $schema.floodmark_stream")
    place.ask("INSERT INTO $schema.floodmark_stream SELECT * FROM $schema.kept")

    refused, document = run("run", path)
    run("rewind", path)
    code, after = run("run", path)

    assert len(row) == 1
    assert (refused, document["streams"][0]["error"]["code"]) == (4, "FM-STREAM-035")
    assert (code, after["streams"][0]["written"]) == (0, 2)
    ids = place.ask("SELECT array_agg(id ORDER BY id) FROM $schema.events")
    assert ids == [(list(range(6)),)]


def test_a_target_that_forgot_adopts_what_the_checkpoint_committed(place: Place, run: Run) -> None:
    place.send(*map(event, range(4)))
    path = checkpointed(place)
    run("run", path)
    place.ask("DELETE FROM $schema.floodmark_stream")
    place.ask("DELETE FROM $schema.batch_tracker")
    place.send(event(4))

    refused, document = run("run", path)
    adopted, _ = run("adopt", path)
    code, after = run("run", path)

    assert (refused, document["streams"][0]["error"]["code"]) == (4, "FM-STREAM-034")
    assert (adopted, code, after["streams"][0]["written"]) == (0, 0, 1)
    assert place.ask("SELECT count(*), count(DISTINCT id) FROM $schema.events") == [(5, 5)]


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS if FULL else ["stream.after_commit"])
def test_a_killed_query_loses_and_doubles_nothing(place: Place, run: Run, point: str) -> None:
    place.send(*(event(i) if i % 10 else b"poison" for i in range(60)))
    path = checkpointed(place, maxRecordsPerTrigger=20)

    killed = started(place, path, FLOODMARK_FAILPOINT=f"{point}:2")
    killed.communicate(timeout=300)
    code, _ = run("run", path)

    assert killed.returncode == -signal.SIGKILL
    assert code == 0
    ids = place.ask("SELECT array_agg(id ORDER BY id) FROM $schema.events")[0][0]
    assert ids == [i for i in range(60) if i % 10]
    assert place.ask("SELECT count(*) FROM $schema.floodmark_dead_letters") == [(6,)]


@dataclass
class Waits(Nobody):
    """Remembers what a runner waited for."""

    codes: list[str] = field(default_factory=list)

    def waiting(self, error: StreamError, attempt: int, seconds: float) -> None:
        del attempt, seconds
        self.codes.append(error.code)


@pytest.mark.slow
def test_a_query_that_spark_ended_is_started_again_once_the_broker_answers(
    place: Place, run: Run
) -> None:
    """The broker of the run hangs for a while; a partition that is added meanwhile is read too."""
    patience = {"kafka.default.api.timeout.ms": "2000", "kafka.request.timeout.ms": "1000"}
    params = {**place.said["extract"]["connectionParams"], **patience}
    often = {"maxAttempts": 100, "initialDelaySeconds": 1, "maxDelaySeconds": 1}
    path = place.write(
        extract={"connectionParams": params},
        streamingConfigJson={**kept_in("checkpoint"), "triggerMode": "continuous"},
        errorHandlingConfig={"retryConfig": often, "circuitBreakerConfig": {"enabled": False}},
    )
    place.send(event(1))
    waits = Waits()
    runner = runner_of(access_of(load_stream(path)), local_session, watcher=waits)
    running = threading.Thread(target=runner.run, daemon=True)
    running.start()
    until(lambda: runner.totals.written == 1)

    place.kafka.pause()
    try:
        until(lambda: bool(waits.codes))
    finally:
        place.kafka.resume()
    place.send(event(2))
    until(lambda: runner.totals.written == 2)
    place.admin.add_partitions(place.name, 3)
    place.send(event(3), partition=2)
    until(lambda: runner.totals.written == 3)
    runner.stop.set()
    running.join(timeout=60)

    assert waits.codes[0] == "FM-STREAM-026"
    assert not running.is_alive()
    assert place.ask("SELECT array_agg(id ORDER BY id) FROM $schema.events") == [([1, 2, 3],)]
    assert place.ask("SELECT epoch > 1, incarnation FROM $schema.floodmark_stream") == [(True, 1)]


def test_an_error_of_a_batch_ends_the_query_and_is_told(place: Place, run: Run) -> None:
    place.send(event(1), b"poison")
    path = checkpointed(place)
    said = json.loads(path.read_text())
    said["errorHandlingConfig"] = {"failFast": True}
    path.write_text(json.dumps(said))

    refused, document = run("run", path)
    said["errorHandlingConfig"] = {"failFast": False}
    path.write_text(json.dumps(said))
    code, after = run("run", path)

    assert (refused, document["streams"][0]["error"]["code"]) == (4, "FM-STREAM-009")
    assert (code, after["streams"][0]["written"]) == (0, 1)


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
