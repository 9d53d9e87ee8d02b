"""Batches that the driver leaves to tasks: too large for it, or with records that only Spark judges."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.support.streams import Place, Run, event

from floodmark.config import load_stream
from floodmark.streaming.load.stage_task import MAX_OTHERS
from floodmark.streaming.parts import access_of, runner_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.postgres]


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
    assert place.staged_tables() == 0


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
    assert place.staged_tables() == 0


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
