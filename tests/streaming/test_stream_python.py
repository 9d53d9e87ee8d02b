"""Streams that run from Python, in the session of whoever runs them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from tests.support.streams import Place, event, until

import floodmark as fm
from floodmark.errors import StreamError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.postgres]


def stream_of(place: Place, **parts: object) -> fm.Stream:
    said = {**place.said, **parts}
    return fm.Stream.of(said, root=place.folder)


def test_a_stream_runs_in_the_session_it_is_given_and_goes_on_behind_what_is_there(
    place: Place, spark: SparkSession
) -> None:
    place.send(*map(event, range(10)))
    stream = stream_of(place)

    first = stream.run(spark=spark)
    place.send(*map(event, range(10, 12)))
    second = stream.run(spark=spark)

    assert (first.status, first.totals.written) == ("DONE", 10)
    assert second.totals.written == 2
    assert place.ask("SELECT array_agg(id ORDER BY id) FROM $schema.events") == [(list(range(12)),)]
    status = stream.status()
    assert (status.dead_letters, status.records_behind, status.is_running) == (0, 0, False)


def test_one_that_runs_in_this_process_is_seen_and_stopped_by_others(
    place: Place, spark: SparkSession
) -> None:
    settings = {**place.said["streamingConfigJson"], "triggerMode": "processingtime=1 second"}
    stream = stream_of(place, streamingConfigJson=settings)
    place.send(event(1))
    outcomes = []
    runner = threading.Thread(target=lambda: outcomes.append(stream.run(spark=spark)), daemon=True)
    runner.start()
    other = stream_of(place, streamingConfigJson=settings)
    until(lambda: _batches(other) == 1)

    assert other.status().is_running is True
    stopped = other.stop(wait=60)

    runner.join(60)
    assert (stopped.was_running, stopped.has_ended) == (True, True)
    assert [outcome.status for outcome in outcomes] == ["DONE"]
    assert other.status().is_running is False
    assert other.stop().was_running is False


def test_what_ends_it_is_raised_with_its_name(place: Place, spark: SparkSession) -> None:
    place.send(b"poison")
    stream = stream_of(place, errorHandling={"failFast": True})

    with pytest.raises(StreamError) as caught:
        stream.run(spark=spark)

    assert place.name in str(caught.value.where)


def test_it_is_asked_a_few_times_a_second_whether_to_end(place: Place, spark: SparkSession) -> None:
    settings = {**place.said["streamingConfigJson"], "triggerMode": "continuous"}
    stream = stream_of(place, streamingConfigJson=settings)
    place.send(event(1))
    written = "SELECT count(*) FROM pg_tables WHERE (schemaname, tablename) = ('NAME', 'events')"

    outcome = stream.run(
        spark=spark, is_stopped=lambda: place.ask(written.replace("NAME", place.name)) == [(1,)]
    )

    assert (outcome.status, outcome.totals.written) == ("DONE", 1)


def _batches(stream: fm.Stream) -> int | None:
    """The batches of the tracker; None before the runner has made it."""
    try:
        return stream.status().batches
    except StreamError as error:
        if error.code != "FM-STREAM-004":
            raise
        return None
