"""Numbers and health of running streams."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass

from floodmark.errors import StreamError
from floodmark.streaming.ledger.batches import LoadCounts
from floodmark.streaming.running.health import health, served
from floodmark.streaming.running.metrics import METRICS, StreamNumbers, text_of
from floodmark.streaming.running.watching import BatchDone

NAMES = {
    "etl_batch_processing_lag_seconds",
    "etl_batch_last_id",
    "etl_batch_rate_per_minute",
    "etl_batch_duplicates_total",
    "etl_batch_tracker_records_total",
    "etl_batch_last_processed_timestamp_seconds",
}


@dataclass
class Clock:
    """A clock that is set."""

    now: float = 1_000.0

    def __call__(self) -> float:
        return self.now


def running(clock: Clock) -> StreamNumbers:
    numbers = StreamNumbers("events", clock)
    numbers.is_running, numbers.started_at, numbers.last_seen_at = True, clock.now, clock.now
    return numbers


def batch(number: int, behind: int = 0, *, is_repeated: bool = False) -> BatchDone:
    return BatchDone(number, LoadCounts(10, 7, 2, 1), behind, 0.5, is_repeated)


def test_the_names_of_the_seed_are_there() -> None:
    assert {metric.name for metric in METRICS} >= NAMES


def test_batches_are_counted() -> None:
    clock = Clock()
    numbers = running(clock)
    numbers.tracked = 4

    numbers.committed(batch(7, behind=20))
    numbers.committed(batch(8, is_repeated=True))
    numbers.waiting(StreamError("FM-STREAM-005", "down", retryable=True), 1, 2.0)
    text = text_of([numbers])

    assert 'etl_batch_last_id{pipeline_id="events"} 8.0' in text
    assert 'etl_batch_rate_per_minute{pipeline_id="events"} 2.0' in text
    assert 'etl_batch_duplicates_total{pipeline_id="events"} 1.0' in text
    assert 'etl_batch_tracker_records_total{pipeline_id="events"} 6.0' in text
    assert 'floodmark_stream_records_dead_lettered_total{pipeline_id="events"} 4.0' in text
    assert 'floodmark_stream_retries_total{pipeline_id="events"} 1.0' in text
    assert 'floodmark_stream_breaker_state{pipeline_id="events"} 0.0' in text


def test_the_rate_forgets_and_the_lag_grows_only_while_records_wait() -> None:
    clock = Clock()
    numbers = running(clock)
    numbers.committed(batch(1, behind=5))

    clock.now += 90

    assert numbers.batches_per_minute() == 0
    assert numbers.lag_seconds() == 90
    numbers.idle(0)
    assert numbers.lag_seconds() == 0


def test_a_stream_is_healthy_while_it_gets_through() -> None:
    clock = Clock()
    numbers = running(clock)
    assert health([numbers])["ok"]

    numbers.breaker("open")
    assert not health([numbers])["ok"]

    numbers.breaker("closed")
    clock.now += 400
    assert not health([numbers])["ok"]

    numbers.idle(0)
    assert health([numbers])["ok"]
    numbers.ended("FM-STREAM-001")
    assert not health([numbers])["ok"]


def asked(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_health_and_metrics_are_served() -> None:
    clock = Clock()
    numbers = running(clock)

    with served([numbers], "127.0.0.1", 0) as port:
        well = asked(port, "/healthz")
        numbers.ended(None)
        ill = asked(port, "/healthz")
        metrics = asked(port, "/metrics")
        other = asked(port, "/etc/passwd")

    assert well[0] == 200
    assert json.loads(well[1])["ok"] is True
    assert ill[0] == 503
    assert 'floodmark_stream_up{pipeline_id="events"} 0.0' in metrics[1]
    assert other[0] == 404
