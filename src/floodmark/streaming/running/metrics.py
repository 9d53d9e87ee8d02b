"""Numbers of running streams, in the text format of Prometheus."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from floodmark.errors import StreamError
from floodmark.observe import visible
from floodmark.streaming.ledger.batches import Claim

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric as Family

    from floodmark.streaming.running.watching import BatchDone

RATE_SECONDS = 60.0
BREAKER_STATES = ("closed", "half_open", "open")


@dataclass(frozen=True)
class StreamMetric:
    """One metric of a stream; its only label is `pipeline_id`."""

    name: str
    text: str
    value: Callable[[StreamNumbers], float | None]
    kind: Literal["gauge", "counter"] = "gauge"


@dataclass
class StreamNumbers:
    """What is known of one running stream; told by its runner, read by whoever scrapes."""

    stream_id: str
    clock: Callable[[], float] = time.time
    started_at: float = 0.0
    last_batch_id: int | None = None
    last_processed_at: float | None = None
    records_behind: int | None = None
    received: int = 0
    written: int = 0
    dead_lettered: int = 0
    dropped: int = 0
    duplicates: int = 0
    repeated: int = 0
    retries: int = 0
    tracked: int | None = None
    outbox: int | None = None
    breaker_state: str = "closed"
    last_seen_at: float | None = None
    """When the runner last got through: a batch, or a look that found nothing."""
    error: str | None = None
    """What it is waiting for, or ended with."""
    is_running: bool = False
    _recent: deque[float] = field(default_factory=deque)
    _guard: threading.RLock = field(default_factory=threading.RLock)

    def claimed(self, claim: Claim) -> None:
        """The stream is ours."""
        with self._guard:
            self.is_running, self.started_at = True, self.clock()
            self.last_seen_at = self.started_at
            self.last_batch_id = claim.batch_id

    def starting_session(self) -> None:
        """Spark starts; nothing to count."""

    def committed(self, batch: BatchDone) -> None:
        """Count a batch."""
        with self._guard:
            now = self.clock()
            self.last_batch_id, self.last_processed_at = batch.batch_id, now
            self.last_seen_at, self.error = now, None
            self.records_behind = batch.records_behind
            self.received += batch.counts.received
            self.written += batch.counts.written
            self.dead_lettered += batch.counts.dead_lettered
            self.dropped += batch.counts.dropped
            self.duplicates += batch.counts.duplicates
            self.repeated += batch.is_repeated
            self.tracked = None if self.tracked is None else self.tracked + 1
            self._recent.append(now)

    def waiting(self, error: StreamError, attempt: int, seconds: float) -> None:
        """Count a retry."""
        del attempt, seconds
        with self._guard:
            self.retries += 1
            self.error = error.in_one_line()

    def idle(self, records_behind: int) -> None:
        """There was nothing to read."""
        with self._guard:
            self.last_seen_at, self.error = self.clock(), None
            self.records_behind = records_behind

    def breaker(self, state: str) -> None:
        """The circuit breaker is in another state."""
        with self._guard:
            self.breaker_state = state

    def counted(self, tracked: int | None, outbox: int | None) -> None:
        """Rows of the tracker, messages of the outbox; None: as before."""
        with self._guard:
            self.tracked = self.tracked if tracked is None else tracked
            self.outbox = self.outbox if outbox is None else outbox

    def ended(self, error: str | None) -> None:
        """The runner is gone."""
        with self._guard:
            self.is_running, self.error = False, error

    def batches_per_minute(self) -> float:
        """The batches of the last minute."""
        with self._guard:
            since = self.clock() - RATE_SECONDS
            while self._recent and self._recent[0] < since:
                self._recent.popleft()
            return float(len(self._recent))

    def lag_seconds(self) -> float | None:
        """How long records have been waiting at most: 0 where none is."""
        with self._guard:
            if self.records_behind is None:
                return None
            since = self.last_processed_at or self.started_at
            return 0.0 if not self.records_behind else max(0.0, self.clock() - since)


METRICS: tuple[StreamMetric, ...] = (
    StreamMetric(
        "etl_batch_processing_lag_seconds",
        "Seconds since the last batch while records are waiting; 0 where none is.",
        StreamNumbers.lag_seconds,
    ),
    StreamMetric("etl_batch_last_id", "The last batch.", lambda n: n.last_batch_id),
    StreamMetric(
        "etl_batch_last_processed_timestamp_seconds",
        "When the last batch was committed.",
        lambda n: n.last_processed_at,
    ),
    StreamMetric(
        "etl_batch_rate_per_minute",
        "Batches of the last minute.",
        StreamNumbers.batches_per_minute,
    ),
    StreamMetric(
        "etl_batch_duplicates_total",
        "Batches that were found applied and skipped.",
        lambda n: n.repeated,
        "counter",
    ),
    StreamMetric(
        "etl_batch_tracker_records_total", "Rows of batch_tracker.", lambda n: n.tracked
    ),
    *(
        StreamMetric(
            f"floodmark_stream_records_{name}_total",
            f"Records {text} by this runner.",
            lambda n, name=name: getattr(n, name),  # type: ignore[misc]
            "counter",
        )
        for name, text in (
            ("received", "read from Kafka"),
            ("written", "written"),
            ("dead_lettered", "that became dead letters"),
            ("dropped", "dropped because they were late"),
        )
    ),
    StreamMetric(
        "floodmark_stream_lag_records", "Offsets that are not read yet.", lambda n: n.records_behind
    ),
    StreamMetric(
        "floodmark_stream_retries_total", "Attempts that failed and were repeated.",
        lambda n: n.retries, "counter",
    ),
    StreamMetric(
        "floodmark_stream_breaker_state",
        "The circuit breaker: 0 closed, 1 half-open, 2 open.",
        lambda n: BREAKER_STATES.index(n.breaker_state),
    ),
    StreamMetric(
        "floodmark_stream_outbox_messages", "Messages that wait for Kafka.", lambda n: n.outbox
    ),
    StreamMetric("floodmark_stream_up", "Whether the runner runs.", lambda n: n.is_running),
)  # fmt: skip


def text_of(streams: Sequence[StreamNumbers]) -> str:
    """The numbers of streams as text; what is not known is left out."""
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(streams))
    return generate_latest(registry).decode()


class _Collector:
    def __init__(self, streams: Sequence[StreamNumbers]) -> None:
        self._streams = streams

    def describe(self) -> Iterable[Family]:
        return []

    def collect(self) -> Iterable[Family]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for metric in METRICS:
            kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = kind(metric.name, metric.text, labels=["pipeline_id"])
            for stream in self._streams:
                value = metric.value(stream)
                if value is not None:
                    family.add_metric([visible(stream.stream_id)], float(value))
            if family.samples:
                yield family
