"""Streams into Delta tables: rows, receipt and offsets in one commit, from real Kafka by Spark."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.streams import Place, Run, event, largest_result, until

from floodmark import failpoints
from floodmark.config import load_stream
from floodmark.deltalog import DeltaLog
from floodmark.engines.kafka import records_at
from floodmark.engines.spark import local_session
from floodmark.errors import StreamError
from floodmark.model.receipt import metadata_of
from floodmark.streaming.ledger.batches import claim_of
from floodmark.streaming.ledger.delta import BESIDE, DEAD_LETTERS
from floodmark.streaming.ledger.delta_letters import FILE_LETTERS
from floodmark.streaming.parts import access_of, ledger_of, runner_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.postgres]

FULL = os.environ.get("FLOODMARK_TEST_SIZE") == "full"
POINTS = [
    "stream.after_wal",
    "sink.before_commit",
    "sink.after_commit",
    "stream.before_commit",
    "stream.after_commit",
]


def delta(place: Place, load: dict[str, Any] | None = None, **more: Any) -> Path:
    said = json.loads(json.dumps(place.said))
    said["load"] = {
        "sinkType": "delta",
        "table": "events",
        "path": "lake/events",
        "createTable": True,
        **(load or {}),
    }
    said["streamingConfigJson"] = {
        "checkpointLocation": "checkpoint",
        "triggerMode": "availableNow",
        **more,
    }
    path = place.folder / "stream.json"
    path.write_text(json.dumps(said))
    return path


def table_of(place: Place) -> str:
    return str(place.folder / "lake/events")


def ids(spark: SparkSession, place: Place) -> list[int]:
    rows = spark.read.format("delta").load(table_of(place)).select("id").collect()
    return sorted(row["id"] for row in rows)


def letters(spark: SparkSession, place: Place) -> list[tuple[str, int, bytes]]:
    rows = spark.read.format("delta").load(table_of(place) + DEAD_LETTERS).collect()
    return sorted((row["reason"], row["kafka_offset"], bytes(row["record_value"])) for row in rows)


def test_records_are_there_once_with_their_offsets_in_the_commit(
    place: Place, run: Run, spark: SparkSession
) -> None:
    path = delta(place)
    place.send(*map(event, range(10)), b"poison", partition=0)
    code, first = run("run", path)
    place.send(*map(event, range(10, 15)), partition=0)

    again, second = run("run", path)
    _, status = run("status", path)

    assert (code, again) == (0, 0), (first, second)
    told = [(s["written"], s["dead_lettered"]) for s in (first["streams"][0], second["streams"][0])]
    assert told == [(10, 1), (5, 0)]
    assert ids(spark, place) == list(range(15))
    assert letters(spark, place) == [("malformed", 10, b"poison")]
    log = DeltaLog(table_of(place))
    (app_id,) = log.transactions()
    assert app_id == f"floodmark/stream/{place.name}/1"
    commit = log.find_transaction(app_id, log.transactions()[app_id])
    assert commit is not None
    said = metadata_of(commit.user_metadata)
    assert json.loads(said["start_offsets"])[place.name]["0"] == 11
    assert json.loads(said["end_offsets"])[place.name]["0"] == 16
    (stream,) = status["streams"]
    assert (stream["records_behind"], stream["records"]["written"]) == (0, 15)
    assert (stream["dead_letters"], stream["incarnation"]) == (1, 1)

    cleaned = run("cleanup", path, "--dead-letter-days", "0")[1]
    place.send(b"more poison")
    following, _ = run("run", path)

    assert cleaned["dead_letters_removed"] == {place.name: 1}
    assert following == 0
    assert [(reason, value) for reason, _, value in letters(spark, place)] == [
        ("malformed", b"more poison")
    ]


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_record_that_the_table_refuses_holds_up_no_other(
    place: Place, run: Run, spark: SparkSession, mode: str
) -> None:
    table = f"delta.`{table_of(place)}`"
    spark.sql(f"CREATE TABLE {table} (id BIGINT, at TIMESTAMP, kind VARCHAR(2)) USING delta")
    spark.sql(f"ALTER TABLE {table} ADD CONSTRAINT small CHECK (id < 100)")
    keys = {"writeMode": "upsert", "upsertKeys": ["id"]} if mode == "upsert" else {}
    path = delta(place, {"createTable": False, **keys})
    long = {**event(5), "kind": "long"}
    place.send(*map(event, range(3)), event(500), long, *map(event, range(3, 5)), partition=0)

    code, told = run("run", path)

    assert code == 0, told
    assert ids(spark, place) == list(range(5))
    found = [(reason, offset) for reason, offset, _ in letters(spark, place)]
    assert found == [("check", 3), ("check", 4)]
    (stream,) = told["streams"]
    assert (stream["written"], stream["dead_lettered"]) == (5, 2)


def sent_to(place: Place, topic: str) -> list[dict[str, Any]]:
    end = place.admin.latest([topic]).at((topic, 0))
    found = records_at(
        {"bootstrap.servers": place.kafka.bootstrap}, [(topic, 0, n) for n in range(end)]
    )
    return [json.loads(value or b"") for _, (_, value) in sorted(found.items())]


def with_topics(path: Path, dead: str, late: str) -> Path:
    said = json.loads(path.read_text())
    said["errorHandlingConfig"] = {"dlqConfig": {"dlqType": "kafka", "topic": dead}}
    said["streamingConfigJson"] |= {
        "watermark": {"eventTimeColumn": "at", "delayThreshold": "1 hour"},
        "lateDataConfig": {"strategy": "sendToDLQ", "dlqTopic": late},
    }
    path.write_text(json.dumps(said))
    return path


def test_dead_letters_and_late_records_reach_their_topics_once_the_broker_takes_them(
    place: Place, run: Run, spark: SparkSession
) -> None:
    dead, late = f"{place.name}-dead", f"{place.name}-late"
    path = with_topics(delta(place, maxRecordsPerTrigger=6), dead, late)
    place.admin.create_topic(dead, 1)
    place.send(*map(event, range(5)), b"poison", partition=0)
    code, first = run("run", path)
    place.send(event(9, "2020-01-01T00:00:00Z"), b"more", {"id": None}, partition=0)
    again, second = run("run", path)
    waits = run("status", path)[1]["streams"][0]["outbox"]
    place.admin.create_topic(late, 1)

    last, _ = run("run", path)

    assert (code, again, last) == (0, 0, 0), (first, second)
    told = [(each["reason"], each["offset"]) for each in sent_to(place, dead)]
    assert (told, waits) == ([("malformed", 5), ("malformed", 7), ("null", 8)], 1)
    assert [(each["reason"], each["offset"]) for each in sent_to(place, late)] == [("late", 6)]
    assert run("status", path)[1]["streams"][0]["outbox"] == 0
    assert [offset for _, offset, _ in letters(spark, place)] == [6, 5, 7, 8]
    for topic in (dead, late):
        place.admin.delete_topic(topic)


def cut_off(path: Path, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    monkeypatch.setenv("FLOODMARK_FAILPOINT", point)
    monkeypatch.setenv("FLOODMARK_FAILPOINT_ACTION", "raise")
    failpoints.rearm()
    with pytest.raises((failpoints.FailpointReached, StreamError)):
        runner_of(access_of(load_stream(path)), local_session).run()
    monkeypatch.delenv("FLOODMARK_FAILPOINT")
    failpoints.rearm()


@pytest.mark.parametrize("point", ["stream.before_commit", "letters.after_withdrawal"])
def test_records_that_are_judged_otherwise_after_a_cut_off_batch_are_in_one_place(
    place: Place, run: Run, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """The first attempt wrote letters by a schema that was corrected before the second one."""
    path = delta(place)
    place.send(event(1), {"id": 2}, {"id": 3, "kind": "c", "at": "no time"}, partition=0)
    (place.folder / "schemas/event.ddl").write_text(
        "id BIGINT NOT NULL, at STRING, kind STRING NOT NULL"
    )
    cut_off(path, monkeypatch, "stream.before_commit")
    (place.folder / "schemas/event.ddl").write_text("id BIGINT NOT NULL, at TIMESTAMP, kind STRING")
    if point != "stream.before_commit":
        cut_off(path, monkeypatch, point)

    code, document = run("run", path)

    spark = local_session()
    assert code == 0, document
    assert ids(spark, place) == [1, 2]
    assert [offset for _, offset, _ in letters(spark, place)] == [2]


def test_letters_of_a_batch_without_rows_are_there_once_although_its_checkpoint_is_deleted(
    place: Place, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead, late = f"{place.name}-dead", f"{place.name}-late"
    for topic in (dead, late):
        place.admin.create_topic(topic, 1)
    path = with_topics(delta(place, maxRecordsPerTrigger=3), dead, late)
    place.send(event(0), b"bad 1", event(2), b"bad 3", event(4), b"bad 5", b"bad 6", partition=0)
    cut_off(path, monkeypatch, "stream.before_commit:2")
    shutil.rmtree(place.folder / "checkpoint")
    said = json.loads(path.read_text())
    said["streamingConfigJson"]["maxRecordsPerTrigger"] = 2
    path.write_text(json.dumps(said))
    cut_off(path, monkeypatch, "letters.after_withdrawal")

    code, document = run("run", path)

    spark = local_session()
    assert code == 0, document
    assert ids(spark, place) == [0, 2, 4]
    assert [offset for _, offset, _ in letters(spark, place)] == [1, 3, 5, 6]
    assert [each["offset"] for each in sent_to(place, dead)] == [1, 3, 5, 6]
    for topic in (dead, late):
        place.admin.delete_topic(topic)


def test_a_flood_of_dead_letters_stays_with_the_executors(
    place: Place, run: Run, spark: SparkSession
) -> None:
    """40 MB of them, where a job that gave the driver a tenth would fail; in files of a thousand."""
    path = delta(place, maxRecordsPerTrigger=10_000)
    for _ in range(4):
        place.send(*(os.urandom(10_000) for _ in range(1_000)), partition=0)
    place.send(event(1), partition=0)

    with largest_result(spark, "4m"):
        code, document = run("run", path)

    assert code == 0, document
    (stream,) = document["streams"]
    assert (stream["written"], stream["dead_lettered"], stream["batches"]) == (1, 4_000, 1)
    found = spark.read.format("delta").load(table_of(place) + DEAD_LETTERS)
    assert found.count() == found.select("kafka_offset").distinct().count() == 4_000
    assert max(row["count"] for row in found.groupBy("_metadata.file_path").count().collect()) <= FILE_LETTERS  # fmt: skip


def test_an_upsert_keeps_the_last_record_of_a_key(
    place: Place, run: Run, spark: SparkSession
) -> None:
    path = delta(place, {"writeMode": "upsert", "upsertKeys": ["id"]})
    place.send({"id": 1, "kind": "a"}, {"id": 1, "kind": "b"}, {"id": 2, "kind": "c"}, partition=1)
    run("run", path)
    place.send({"id": 2, "kind": "d"}, {"id": 3, "kind": "e"}, {"id": 3, "kind": "f"}, partition=1)

    code, document = run("run", path)

    rows = spark.read.format("delta").load(table_of(place)).collect()
    assert (code, document["streams"][0]["written"]) == (0, 3)
    assert sorted((row["id"], row["kind"]) for row in rows) == [(1, "b"), (2, "d"), (3, "f")]


UPSERT = {"writeMode": "upsert", "upsertKeys": ["id"]}
CUT_OFF = {
    "planned": ("stream.after_wal:2", {}),
    # The second commit of a batch with dead letters is that of its rows.
    "between letters and rows": ("sink.before_commit:2", {}),
    "committed": ("stream.after_commit:2", UPSERT),
    # Leaves the same behind as the one between letters and rows.
    "behind letters": ("sink.after_commit:1", UPSERT),
}
TRIED = list(CUT_OFF) if FULL else list(CUT_OFF)[:3]


@pytest.mark.parametrize(("point", "load"), [CUT_OFF[name] for name in TRIED], ids=TRIED)
def test_a_batch_that_is_cut_off_is_there_once(
    place: Place,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    point: str,
    load: dict[str, Any],
) -> None:
    path = delta(place, load, maxRecordsPerTrigger=4)
    place.send(*(event(n) if n % 4 else b"poison" for n in range(10)), partition=0)
    monkeypatch.setenv("FLOODMARK_FAILPOINT", point)
    monkeypatch.setenv("FLOODMARK_FAILPOINT_ACTION", "raise")
    failpoints.rearm()
    with pytest.raises((failpoints.FailpointReached, StreamError)):
        runner_of(access_of(load_stream(path)), local_session).run()
    monkeypatch.delenv("FLOODMARK_FAILPOINT")
    failpoints.rearm()

    code, document = run("run", path)

    spark = local_session()
    assert code == 0, document
    assert ids(spark, place) == [n for n in range(10) if n % 4]
    assert [offset for _, offset, _ in letters(spark, place)] == [0, 4, 8]


@pytest.mark.parametrize("point", ["stream.before_commit", "stream.after_commit"])
def test_a_record_that_the_table_refuses_holds_up_no_other_with_state_either(
    place: Place, run: Run, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """Cut off between the letters and the rows, or behind both; what is refused holds no key."""
    table, spark = f"delta.`{table_of(place)}`", local_session()
    columns = "id BIGINT, at TIMESTAMP, kind VARCHAR(2)"
    spark.sql(f"CREATE TABLE {table} ({columns}) USING delta")
    spark.sql(f"ALTER TABLE {table} ADD CONSTRAINT small CHECK (id < 100)")
    once = {
        "watermark": {"eventTimeColumn": "at", "delayThreshold": "10 minutes"},
        "deduplicate": {"columns": ["id"]},
    }
    path = delta(place, {"createTable": False}, **once)
    long = {**event(5), "kind": "long"}
    sent = (long, event(1), event(500), event(1), b"poison", event(5))
    place.send(*sent, partition=0)
    cut_off(path, monkeypatch, point)

    code, told = run("run", path)

    spark = local_session()
    assert code == 0, told
    assert ids(spark, place) == [1, 5]
    found = letters(spark, place)
    assert [(reason, offset) for reason, offset, _ in found] == [
        ("check", 0),
        ("check", 2),
        ("malformed", 4),
    ]
    assert [value for _, _, value in found] == [json.dumps(long).encode(), json.dumps(event(500)).encode(), b"poison"]  # fmt: skip


def test_what_a_window_is_of_is_judged_by_record_and_a_measure_stops_the_stream(
    place: Place, run: Run, spark: SparkSession
) -> None:
    table = f"delta.`{table_of(place)}`"
    columns = "window_start TIMESTAMP, window_end TIMESTAMP, kind STRING NOT NULL, id BIGINT"
    spark.sql(f"CREATE TABLE {table} ({columns}) USING delta")
    spark.sql(f"ALTER TABLE {table} ADD CONSTRAINT few CHECK (id < 3)")
    path = delta(
        place,
        {"writeMode": "upsert", "createTable": False},
        outputMode="update",
        watermark={"eventTimeColumn": "at", "delayThreshold": "10 minutes"},
        aggregate={"window": "5 minutes", "groupBy": ["kind"], "measures": {"id": "count(*)"}},
    )
    # The measure has the name of a column of the payload, whose values are no business of the table.
    place.send(event(30), {**event(4), "kind": None}, event(33), partition=0)
    first, told = run("run", path)
    place.send(event(36), {**event(7), "kind": None}, partition=0)

    refused, document = run("run", path)
    rows = spark.read.format("delta").load(table_of(place)).collect()
    kept = [offset for _, offset, _ in letters(spark, place)]
    spark.sql(f"ALTER TABLE {table} DROP CONSTRAINT few")
    after, _ = run("run", path)

    assert first == 0, told
    assert [(row["kind"], row["id"]) for row in rows] == [("k0", 2)]
    error = document["streams"][0]["error"]
    assert (refused, error["code"]) == (4, "FM-STREAM-014"), error
    assert "few" in error["found"]
    assert kept == [1]
    assert after == 0
    rows = spark.read.format("delta").load(table_of(place)).collect()
    assert [(row["kind"], row["id"]) for row in rows] == [("k0", 3)]
    assert [(reason, offset) for reason, offset, _ in letters(spark, place)] == [
        ("null", 1),
        ("null", 4),
    ]


def test_a_value_that_the_table_refuses_is_not_shown(
    place: Place, run: Run, spark: SparkSession
) -> None:
    path = delta(place)
    place.send(event(1))
    run("run", path)
    spark.sql(f"ALTER TABLE delta.`{table_of(place)}` ADD CONSTRAINT kinds CHECK (kind <> '4711')")
    place.send({"id": 2, "kind": "4711"})

    code, document = run("run", path)

    assert code == 0, document
    assert (ids(spark, place), len(letters(spark, place))) == ([1], 1)
    assert "4711" not in json.dumps(document)


def test_a_checkpoint_that_is_deleted_loses_and_doubles_nothing(
    place: Place, run: Run, spark: SparkSession
) -> None:
    path = delta(place)
    place.send(*map(event, range(4)))
    run("run", path)
    shutil.rmtree(place.folder / "checkpoint")
    place.send(*map(event, range(4, 6)))

    code, document = run("run", path)

    assert (code, document["streams"][0]["written"]) == (0, 2), document
    assert ids(spark, place) == list(range(6))
    apps = DeltaLog(table_of(place)).transactions()
    assert sorted(apps) == [f"floodmark/stream/{place.name}/{n}" for n in (1, 2)]


def test_a_table_that_is_dropped_is_refused_until_somebody_decides(
    place: Place, run: Run, spark: SparkSession
) -> None:
    path = delta(place)
    place.send(*map(event, range(4)))
    run("run", path)
    shutil.rmtree(table_of(place))

    behind, first = run("run", path)
    rewound, _ = run("rewind", path)
    code, _ = run("run", path)
    run("run", path)
    shutil.rmtree(table_of(place))
    forgot, second = run("run", path)
    run("reset", path, "--to", "earliest", "--yes")
    again, _ = run("run", path)

    assert (behind, first["streams"][0]["error"]["code"]) == (4, "FM-STREAM-035")
    assert (forgot, second["streams"][0]["error"]["code"]) == (4, "FM-STREAM-034")
    assert (rewound, code, again) == (0, 0, 0)
    assert ids(spark, place) == list(range(4))


def test_a_table_that_was_restored_is_refused_until_somebody_decides(
    place: Place, run: Run, spark: SparkSession
) -> None:
    path = delta(place)
    place.send(event(0), partition=0)
    run("run", path)
    place.send(event(1), partition=0)
    run("run", path)
    spark.sql(f"RESTORE TABLE delta.`{table_of(place)}` TO VERSION AS OF 0")
    place.send(event(2), partition=0)

    refused, document = run("run", path)
    offsets = json.dumps({place.name: {"0": 1, "1": 0}})
    run("reset", path, "--to", offsets, "--yes")
    code, after = run("run", path)

    error = document["streams"][0]["error"]
    assert (refused, error["code"]) == (4, "FM-SINK-009"), error
    assert f"floodmark stream reset {path}" in error["next"]
    assert (code, after["streams"][0]["written"]) == (0, 2), after
    assert ids(spark, place) == [0, 1, 2]


@pytest.mark.slow
@pytest.mark.skipif(not FULL, reason="what they leave is tried in this process above")
@pytest.mark.parametrize("point", POINTS)
def test_a_killed_driver_loses_and_doubles_nothing(place: Place, run: Run, point: str) -> None:
    """A process of its own: what a commit leaves when it dies is seen by nothing else.

    A minute of processor time each, for Spark, Delta and Kafka from the beginning.
    """
    source = str(Path(__file__).parents[2] / "src")
    path = delta(place, maxRecordsPerTrigger=20)
    place.send(*(event(n) if n % 10 else b"poison" for n in range(60)))

    killed = subprocess.run(
        [sys.executable, "-m", "floodmark", "stream", "run", str(path)],
        env={**os.environ, "PYTHONPATH": source, "FLOODMARK_FAILPOINT": f"{point}:2"},
        capture_output=True,
        check=False,
    )
    code, _ = run("run", path)

    spark = local_session()
    assert (killed.returncode, code) == (-signal.SIGKILL, 0), killed.stderr[-500:]
    assert ids(spark, place) == [n for n in range(60) if n % 10]
    assert len(letters(spark, place)) == 6


def test_the_target_alone_tells_where_its_stream_stands(
    place: Place, run: Run, spark: SparkSession
) -> None:
    path = delta(place)
    place.send(*map(event, range(4)))
    run("run", path)
    shutil.rmtree(table_of(place) + BESIDE)
    place.send(event(4))

    code, document = run("run", path)

    assert (code, document["streams"][0]["written"]) == (0, 1), document
    assert ids(spark, place) == list(range(5))
    assert len(DeltaLog(table_of(place)).transactions()) == 1


def test_a_target_that_forgot_adopts_what_the_checkpoint_committed(
    place: Place, run: Run, spark: SparkSession
) -> None:
    path = delta(place)
    place.send(*map(event, range(4)))
    run("run", path)
    copied = str(place.folder / "copied")
    spark.read.format("delta").load(table_of(place)).write.format("delta").save(copied)
    shutil.rmtree(table_of(place))
    shutil.rmtree(table_of(place) + BESIDE)
    shutil.move(copied, table_of(place))
    place.send(event(4))

    refused, document = run("run", path)
    adopted, _ = run("adopt", path)
    code, after = run("run", path)

    assert (refused, document["streams"][0]["error"]["code"]) == (4, "FM-STREAM-034")
    assert (adopted, code, after["streams"][0]["written"]) == (0, 0, 1), after
    assert ids(spark, place) == list(range(5))


def test_a_second_runner_takes_over_and_the_first_one_is_fenced(place: Place, run: Run) -> None:
    path = delta(place)
    place.send(event(1))
    ledger = ledger_of(access_of(load_stream(path)))
    run("run", path)
    row = ledger.stored()
    assert row is not None
    run("run", path)

    with pytest.raises(StreamError) as caught:
        ledger.refuse_fenced(claim_of(row))

    assert caught.value.code == "FM-STREAM-001"


def test_windows_are_merged_into_their_table(place: Place, run: Run, spark: SparkSession) -> None:
    path = delta(
        place,
        {"writeMode": "upsert"},
        outputMode="update",
        watermark={"eventTimeColumn": "at", "delayThreshold": "10 minutes"},
        aggregate={"window": "5 minutes", "groupBy": ["kind"], "measures": {"n": "count(*)"}},
    )
    place.send(event(0), event(3), event(1), b"poison")
    _, first = run("run", path)
    place.send(event(6))

    code, second = run("run", path)

    told = [document["streams"][0] for document in (first, second)]
    assert [(s["received"], s["written"], s["dead_lettered"]) for s in told] == [(4, 3, 1), (1, 1, 0)]  # fmt: skip
    assert code == 0
    rows = spark.read.format("delta").load(table_of(place)).collect()
    assert sorted((row["kind"], row["n"]) for row in rows) == [("k0", 3), ("k1", 1)]


@pytest.mark.slow
def test_stop_reaches_a_runner_of_another_machine(
    place: Place, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.send(*map(event, range(5)))
    path = delta(place, triggerMode="continuous")
    running = place.started(path)
    until(lambda: run("status", path)[1]["streams"][0]["records"].get("written") == 5)

    monkeypatch.setattr(socket, "gethostname", lambda: "another-machine")
    seen = run("status", path)[1]["streams"][0]
    code, stopped = run("stop", path)
    again, nobody = run("stop", path)
    out, _ = running.communicate(timeout=300)

    assert (code, again, running.returncode) == (0, 0, 0)
    assert (seen["is_running"], seen["has_ended"]) == (True, False)
    assert (stopped["was_running"], stopped["has_ended"]) == (True, True)
    assert not nobody["was_running"]
    assert json.loads(out)["streams"][0]["written"] == 5
