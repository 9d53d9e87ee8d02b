"""Streams that keep state, windows and deduplication, through real Kafka, Spark and PostgreSQL."""

from __future__ import annotations

import json
import os
import shutil
import tracemalloc
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.streams import Place, Run, largest_result

from floodmark import failpoints
from floodmark.config import load_stream
from floodmark.engines.jvm import state_metric
from floodmark.engines.spark import local_session
from floodmark.streaming.parts import access_of, runner_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.postgres]

SHORT = {"window": "5 minutes", "groupBy": ["kind"], "measures": {"n": "count(*)"}}
FULL = os.environ.get("FLOODMARK_TEST_SIZE") == "full"
OUTPUTS = [("update", "upsert"), ("append", "append"), ("complete", "overwrite")]
WINDOWS = "SELECT to_char(window_start AT TIME ZONE 'UTC', 'HH24:MI'), kind, n FROM $schema.events"


def at(clock: str, number: int = 1, kind: str = "a") -> dict[str, Any]:
    return {"id": number, "at": f"2026-01-01T{clock}:00Z", "kind": kind}


def stateful(place: Place, load: dict[str, Any] | None = None, **more: Any) -> Path:
    run = {
        "offsetStore": "checkpoint",
        "checkpointLocation": "checkpoint",
        "watermark": {"eventTimeColumn": "at", "delayThreshold": "10 minutes"},
        **more,
    }
    return place.write(load=load or {}, streamingConfigJson=run)


def counts(document: dict[str, Any]) -> tuple[int, int, int, int]:
    (stream,) = document["streams"]
    assert stream["error"] is None, stream
    names = ("received", "written", "dead_lettered", "dropped")
    received, written, dead, dropped = (stream[name] for name in names)
    return received, written, dead, dropped


def test_a_window_is_written_once_it_is_closed_and_every_record_is_accounted_for(
    place: Place, run: Run
) -> None:
    path = stateful(place, aggregate={**SHORT, "measures": {"n": "count(*)", "last": "max(id)"}})
    poison = (b"poison", {"id": 4}, at("12:00", 8, "nul \0"))
    place.send(at("12:00"), at("12:04", 2), at("12:01", 3, "b"), *poison)
    first = counts(run("run", path)[1])
    open_windows = place.ask("SELECT count(*) FROM $schema.events")
    place.send(at("12:20", 5), at("11:00", 6), at("11:01", 7, "b"))
    second = counts(run("run", path)[1])

    assert (first, second) == ((6, 3, 3, 0), (3, 1, 0, 2))
    assert open_windows == [(0,)]
    assert place.ask(f"{WINDOWS} ORDER BY kind") == [("12:00", "a", 2), ("12:00", "b", 1)]
    assert place.ask("SELECT array_agg(last ORDER BY kind) FROM $schema.events") == [([2, 3],)]
    assert place.ask(
        "SELECT reason, column_name FROM $schema.floodmark_dead_letters ORDER BY 1"
    ) == [("malformed", None), ("null", "at"), ("value", "kind")]
    reached = place.ask("SELECT event_watermark FROM $schema.floodmark_stream")[0][0]
    assert reached == datetime(2026, 1, 1, 12, 10, tzinfo=UTC)


# A window that does not slide is one that slides by its own length.
@pytest.mark.parametrize("slide", [None, "2 minutes"] if FULL else ["2 minutes"])
def test_what_is_counted_as_late_is_what_spark_drops(
    place: Place, run: Run, monkeypatch: pytest.MonkeyPatch, slide: str | None
) -> None:
    """Each of these records is a group of its own, so that Spark's count is one of records."""
    window = {"window": "5 minutes", "groupBy": ["id"], "measures": {"n": "count(*)"}}
    path = stateful(place, aggregate={**window, **({"slide": slide} if slide else {})})
    place.send(at("12:00"))
    run("run", path)
    # The watermark is at 11:50: windows that end there are closed, the next one is open.
    place.send(*(at(f"11:{minute}", 100 + minute) for minute in range(40, 59)))
    runner = runner_of(access_of(load_stream(path)), local_session)
    write, told = runner.writer.write_results, []

    def noted(claim: Any, planned: Any, results: Any) -> Any:
        (query,) = runner.spark.streams.active
        rows = state_metric(query, "numRowsDroppedByWatermark")
        told.append((results.tally.late, rows))
        return write(claim, planned, results)

    monkeypatch.setattr(runner.writer, "write_results", noted)
    totals = runner.run()

    late = totals.dropped
    expected = 10 if slide is None else 6
    assert (totals.received, late, totals.written) == (19, expected, 19 - expected)
    # A record of several windows is dropped once, Spark drops it from each of them.
    assert [ours for ours, _ in told if ours] == [late]
    assert sum(rows for _, rows in told) >= late
    if slide is None:
        assert sum(rows for _, rows in told) == late


# Through the driver, windows are replaced after a batch that was cut off, too (below).
@pytest.mark.parametrize("driver_rows", [1_000, 0] if FULL else [0])
def test_update_output_replaces_rows_of_their_window(
    place: Place, run: Run, driver_rows: int
) -> None:
    load = {"writeMode": "upsert", "driverCopyRows": driver_rows}
    path = stateful(place, load, outputMode="update", aggregate=SHORT, maxRecordsPerTrigger=100)
    place.send(at("12:00"), at("12:04", 2), at("12:07", 3), {"id": 4, "at": at("12:00")["at"]})
    first = counts(run("run", path)[1])
    place.send(at("12:03", 5), at("12:08", 6, "b"))

    second = counts(run("run", path)[1])

    # A group without a name has no key, and so no row that could be replaced.
    assert (first, second) == ((4, 3, 1, 0), (2, 2, 0, 0))
    assert place.ask(f"{WINDOWS} ORDER BY 1, 2") == [
        ("12:00", "a", 3),
        ("12:05", "a", 1),
        ("12:05", "b", 1),
    ]


def test_complete_output_takes_the_place_of_the_table(place: Place, run: Run) -> None:
    load = {"writeMode": "overwrite"}
    path = stateful(place, load, outputMode="complete", aggregate=SHORT)
    place.send(at("12:00"), at("13:00", 2))
    run("run", path)
    place.ask("INSERT INTO $schema.events VALUES (now(), now(), 'of somebody else', 7)")
    place.send(at("01:00", 3), at("13:01", 4))

    told = counts(run("run", path)[1])

    # Complete output keeps every window, so nothing is late.
    assert told == (2, 2, 0, 0)
    assert place.ask(f"{WINDOWS} ORDER BY 1") == [("01:00", "a", 1), ("12:00", "a", 1), ("13:00", "a", 2)]  # fmt: skip


@pytest.mark.parametrize(
    ("state_timeout", "driver_rows", "last"),
    [(None, 1_000, (2, 1, 0, 1)), ("1 hour", 0, (2, 0, 0, 2))],
)
def test_a_record_that_comes_again_is_dropped_for_as_long_as_its_key_is_known(
    place: Place,
    run: Run,
    state_timeout: str | None,
    driver_rows: int,
    last: tuple[int, int, int, int],
) -> None:
    more = {"stateTimeout": state_timeout} if state_timeout else {}
    path = stateful(
        place,
        {"driverCopyRows": driver_rows},
        deduplicate={"columns": ["id"]},
        lateDataConfig={"strategy": "logAndDrop"},
        maxRecordsPerTrigger=100,
        **more,
    )
    place.send(at("12:00"), at("12:01"), at("12:00", 2), b"poison")
    first = counts(run("run", path)[1])
    place.send(at("12:30", 3))
    second = counts(run("run", path)[1])
    place.send(at("12:31"), at("11:00", 4))

    third = counts(run("run", path)[1])

    assert (first, second, third) == ((4, 2, 1, 1), (1, 1, 0, 0), last)
    ids = place.ask("SELECT array_agg(id ORDER BY id) FROM $schema.events")
    assert ids == [([1, 1, 2, 3] if state_timeout is None else [1, 2, 3],)]


@pytest.mark.parametrize(("output", "write"), OUTPUTS if FULL else OUTPUTS[:1])
def test_windows_of_records_that_count_once(
    place: Place, run: Run, output: str, write: str
) -> None:
    load = {"writeMode": write}
    path = stateful(
        place, load, outputMode=output, deduplicate={"columns": ["id"]}, aggregate=SHORT
    )
    place.send(at("12:00"), at("12:01"), at("12:02", 2), at("12:02", 2))
    first = counts(run("run", path)[1])
    # Late for the deduplication, whatever the windows would keep.
    place.send(at("12:20", 3), at("11:00", 4))

    second = counts(run("run", path)[1])

    assert (first, second) == ((4, 2, 0, 2), (2, 1, 0, 1))
    open_window = [] if output == "append" else [("12:20", "a", 1)]
    assert place.ask(f"{WINDOWS} ORDER BY 1") == [("12:00", "a", 2), *open_window]


@pytest.mark.parametrize("point", ["stream.before_commit", "stream.after_commit"])
def test_windows_are_right_although_a_batch_is_cut_off(
    place: Place, run: Run, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    load = {"writeMode": "upsert"}
    path = stateful(place, load, outputMode="update", aggregate=SHORT, maxRecordsPerTrigger=2)
    place.send(*(at(f"12:0{n}", n) for n in range(5)), b"poison", partition=0)
    monkeypatch.setenv("FLOODMARK_FAILPOINT", f"{point}:2")
    monkeypatch.setenv("FLOODMARK_FAILPOINT_ACTION", "raise")
    failpoints.rearm()
    with pytest.raises(failpoints.FailpointReached):
        runner_of(access_of(load_stream(path)), local_session).run()
    monkeypatch.delenv("FLOODMARK_FAILPOINT")
    failpoints.rearm()

    code, document = run("run", path)

    assert code == 0, document
    assert place.ask(WINDOWS) == [("12:00", "a", 5)]
    assert place.ask(
        "SELECT sum(record_count), sum(written), sum(dead_lettered) FROM $schema.batch_tracker"
    ) == [(6, 5, 1)]


def test_a_flood_of_dead_letters_is_never_all_in_the_driver(
    place: Place, run: Run, spark: SparkSession
) -> None:
    """40 MB of them through the driver in pieces of 8 MB: into their table and the outbox, once."""
    topic = f"{place.name}-dead"
    place.admin.create_topic(topic, 1)
    path = stateful(place, deduplicate={"columns": ["id"]}, maxRecordsPerTrigger=10_000)
    said = json.loads(path.read_text())
    said["errorHandlingConfig"] = {"dlqConfig": {"dlqType": "kafka", "topic": topic}}
    path.write_text(json.dumps(said))
    for _ in range(4):
        place.send(*(os.urandom(10_000) for _ in range(1_000)), partition=0)
    place.send(at("12:00"), at("12:00"), at("12:00", 2))
    run("tables", path)

    tracemalloc.start()
    with largest_result(spark, "20m"):
        code, document = run("run", path)
    peak = tracemalloc.get_traced_memory()[1] / 1024**2
    tracemalloc.stop()

    assert (code, counts(document)) == (0, (4_003, 2, 4_000, 1)), document
    sizes = "SELECT count(DISTINCT kafka_offset), sum(length(record_value)) FROM"
    assert place.ask(f"{sizes} $schema.floodmark_dead_letters") == [(4_000, 40_000_000)]
    assert place.admin.latest([topic]).at((topic, 0)) == 4_000
    place.admin.delete_topic(topic)
    # A thousand messages at once, each with its record in base64, are 13 MB and are held in two copies.
    assert peak < 60


def test_state_is_given_up_only_when_that_is_said(place: Place, run: Run) -> None:
    path = stateful(place, deduplicate={"columns": ["id"]})
    place.send(at("12:00"))
    run("run", path)
    unsure, rewound = run("rewind", path)
    shutil.rmtree(place.folder / "checkpoint")
    place.send(at("12:01"), at("12:01", 2))

    refused, document = run("run", path)
    code, after = run("run", path, "--accept-state-loss")

    error = document["streams"][0]["error"]
    assert (unsure, rewound["error"]["code"]) == (4, "FM-STREAM-033")
    assert (refused, error["code"]) == (4, "FM-STREAM-033")
    assert "--accept-state-loss" in error["next"]
    assert (code, counts(after)) == (0, (2, 2, 0, 0))


def test_other_windows_are_not_counted_on_with_old_state(place: Place, run: Run) -> None:
    load = {"writeMode": "upsert"}
    place.send(at("12:00"))
    run("run", stateful(place, load, outputMode="update", aggregate=SHORT))
    path = stateful(place, load, outputMode="update", aggregate={**SHORT, "window": "10 minutes"})
    place.send(at("12:07", 2))

    refused, document = run("run", path)
    code, after = run("run", path, "--accept-state-loss")
    place.send(at("12:08", 3))
    again, last = run("run", path)

    error = document["streams"][0]["error"]
    assert (refused, error["code"]) == (4, "FM-STREAM-033"), error
    assert (code, again, counts(after), counts(last)) == (0, 0, (1, 1, 0, 0), (1, 1, 0, 0))
    ten = "WHERE window_end - window_start = interval '10 minutes'"
    assert place.ask(f"{WINDOWS} {ten}") == [("12:00", "a", 2)]


def test_a_measure_that_spark_cannot_compute_is_refused_before_anything_is_read(
    place: Place, run: Run
) -> None:
    place.send(at("12:00"))
    path = stateful(place, aggregate={**SHORT, "measures": {"n": "sum(amount)"}})

    code, document = run("run", path)

    error = document["streams"][0]["error"]
    assert (code, error["code"], error["retryable"]) == (4, "FM-STREAM-043", False)
    assert "amount" in error["found"]


def test_a_row_of_a_window_that_is_refused_stops_the_stream_and_is_not_left_out(
    place: Place, run: Run
) -> None:
    place.ask(
        "CREATE TABLE $schema.events (window_start timestamptz, window_end timestamptz, kind text,"
        " n bigint CHECK (n < 2))"
    )
    path = stateful(place, {"writeMode": "overwrite"}, outputMode="complete", aggregate=SHORT)
    place.send(at("12:00"), at("12:01", 2))

    refused, document = run("run", path)
    place.ask("ALTER TABLE $schema.events DROP CONSTRAINT events_n_check")
    code, after = run("run", path)

    error = document["streams"][0]["error"]
    assert (refused, error["code"]) == (4, "FM-STREAM-014"), json.dumps(error)
    assert "23514" in error["found"]
    assert (code, counts(after)) == (0, (2, 2, 0, 0))
    assert place.ask(WINDOWS) == [("12:00", "a", 2)]
