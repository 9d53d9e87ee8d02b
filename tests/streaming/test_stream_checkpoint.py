"""Streams that keep their offsets in a checkpoint of Spark."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
from dataclasses import dataclass, field

import pytest
from tests.support.streams import Place, Run, event, kept_in, until

from floodmark import failpoints
from floodmark.config import load_stream
from floodmark.engines.spark import local_session
from floodmark.errors import StreamError
from floodmark.streaming.parts import access_of, runner_of
from floodmark.streaming.running.watching import Nobody

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.postgres]

FULL = os.environ.get("FLOODMARK_TEST_SIZE") == "full"


def test_a_checkpoint_that_is_deleted_loses_and_doubles_nothing(place: Place, run: Run) -> None:
    place.send(*map(event, range(20)), b"poison")
    path = place.checkpointed(maxRecordsPerTrigger=8)
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
    path = place.checkpointed()
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
    path = place.checkpointed()
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
@pytest.mark.parametrize(
    "point",
    [*failpoints.QUERY_POINTS, *failpoints.STREAM_POINTS] if FULL else ["stream.after_commit"],
)
def test_a_killed_query_loses_and_doubles_nothing(place: Place, run: Run, point: str) -> None:
    place.send(*(event(i) if i % 10 else b"poison" for i in range(60)))
    path = place.checkpointed(maxRecordsPerTrigger=20)

    killed = place.started(path, FLOODMARK_FAILPOINT=f"{point}:2")
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
    path = place.checkpointed()
    said = json.loads(path.read_text())
    said["errorHandlingConfig"] = {"failFast": True}
    path.write_text(json.dumps(said))

    refused, document = run("run", path)
    said["errorHandlingConfig"] = {"failFast": False}
    path.write_text(json.dumps(said))
    code, after = run("run", path)

    assert (refused, document["streams"][0]["error"]["code"]) == (4, "FM-STREAM-009")
    assert (code, after["streams"][0]["written"]) == (0, 1)
