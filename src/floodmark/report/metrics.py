"""What monitoring sees: the facts of `status` and `lag` as numbers with stable names.

No label holds an id or a text: the number of series follows the pipelines and upstreams, not time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

from floodmark import __version__
from floodmark.control import ControlReader
from floodmark.control.events import Event
from floodmark.control.journal import JOURNAL, unreadable
from floodmark.control.rules import fold
from floodmark.control.upkeep import last_upkeep
from floodmark.deltalog import Storage
from floodmark.model import NOTHING_PROCESSED, BatchStatus, Holder, Lag, Pipeline, RunStatus, State
from floodmark.model.names import is_of_source
from floodmark.report.lag import TimeLook, is_held, lags_in
from floodmark.report.runs import Track, efforts, tracks
from floodmark.report.watch import failures_in_a_row, stuck_batches

OPEN_STATUSES: tuple[BatchStatus, ...] = ("PENDING", "FAILED", "COMPLETED")
"""What an open batch can be; COMPLETED where only a paused pipeline still owes its part."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A name that monitoring may rely on."""

    name: str
    text: str
    labels: tuple[str, ...] = ()
    kind: Literal["gauge", "counter"] = "gauge"


@dataclass(frozen=True, slots=True)
class Sample:
    """One number, with the values of its metric's labels."""

    metric: Metric
    label_values: tuple[str, ...]
    value: float


@dataclass(frozen=True, slots=True)
class RunnerOfStream:
    """What is seen of the runner of a stream from outside of its process."""

    stream_id: str
    is_known: bool
    sign_age_seconds: float | None = None
    """None where no runner gave a sign of life."""
    is_gone: bool = False
    has_ended: bool = False


_UPSTREAM = ("scope", "upstream")
_PIPELINE = ("scope", "pipeline")
_SCOPE = ("scope",)
_STREAM = ("pipeline_id",)

BUILD_INFO = Metric("floodmark_build_info", "1, with the version of floodmark.", ("version",))
COLLECTED_AT = Metric("floodmark_metrics_timestamp_seconds", "When these numbers were collected.")
STORE_UP = Metric(
    "floodmark_store_up",
    "1 if the control store was read, 0 if it is not there or could not be read.",
)
JOURNAL_EVENTS = Metric(
    "floodmark_journal_events_total", "Events ever journaled: the journal's version.", (), "counter"
)
JOURNAL_UNFOLDED = Metric(
    "floodmark_journal_unfolded_events", "Events since the journal was last folded."
)
JOURNAL_NEWEST = Metric(
    "floodmark_journal_last_event_timestamp_seconds", "When anything was last journaled."
)
JOURNAL_BYTES = Metric(
    "floodmark_journal_size_bytes", "Bytes of the journal on storage, with what upkeep may remove."
)
JOURNAL_FILES = Metric("floodmark_journal_files", "Files of the journal, with its log.")
UPKEEP_AT = Metric(
    "floodmark_last_upkeep_timestamp_seconds", "When upkeep last finished; 0 if it never did."
)

LAG_VERSIONS = Metric(
    "floodmark_upstream_lag_versions",
    "Versions that are not committed; below 0 where the upstream went back. Absent if unknown.",
    _UPSTREAM,
)
LAG_SECONDS = Metric(
    "floodmark_upstream_lag_seconds",
    "Age of the oldest change that is not committed; 0 without one. Absent if unknown.",
    _UPSTREAM,
)
LAG_KNOWN = Metric(
    "floodmark_upstream_lag_known",
    "0 where the upstream could not be looked at, or the next change is gone from its log. Absent"
    " for web APIs and plug-ins, which only planning asks.",
    _UPSTREAM,
)
LATEST = Metric(
    "floodmark_upstream_latest_version",
    "The upstream's newest version. Absent if unknown.",
    _UPSTREAM,
)
COMMITTED = Metric(
    "floodmark_upstream_committed_version",
    "The committed watermark; -1 before the first, and where there are no versions.",
    _UPSTREAM,
)
COMMITTED_AT = Metric(
    "floodmark_upstream_committed_timestamp_seconds",
    "When the watermark last advanced; 0 if it never did.",
    _UPSTREAM,
)
HELD = Metric(
    "floodmark_upstream_held",
    "1 while an open batch has changes of the upstream that may not advance yet.",
    _UPSTREAM,
)
UPSTREAM_ROWS = Metric(
    "floodmark_upstream_last_batch_rows_read",
    "Rows of the upstream in the newest batch that has news of it. Absent if unknown.",
    _UPSTREAM,
)
UPSTREAM_SECONDS = Metric(
    "floodmark_upstream_last_batch_duration_seconds",
    "How long the slowest pipeline took that read the upstream in that batch. Absent until one has"
    " ended.",
    _UPSTREAM,
)
UPSTREAM_RETRIES = Metric(
    "floodmark_upstream_last_batch_retries",
    "Attempts beyond the first of the pipelines that read the upstream in that batch. Absent before"
    " the first batch.",
    _UPSTREAM,
)
READERS = Metric(
    "floodmark_upstream_readers",
    "Registered pipelines that read the upstream and are not paused.",
    _UPSTREAM,
)

RUN_STATUS = Metric(
    "floodmark_pipeline_last_run_status",
    "1 for the status of the newest run, 0 for the others. Absent before the first run.",
    (*_PIPELINE, "status"),
)
RUN_STARTED = Metric(
    "floodmark_pipeline_last_run_start_timestamp_seconds",
    "When the newest run started. Absent before the first run.",
    _PIPELINE,
)
RUN_SECONDS = Metric(
    "floodmark_pipeline_last_run_duration_seconds",
    "How long the newest run took. Absent while it runs.",
    _PIPELINE,
)
ROWS_READ = Metric(
    "floodmark_pipeline_last_run_rows_read",
    "Rows the newest run read. Absent if unknown.",
    _PIPELINE,
)
ROWS_WRITTEN = Metric(
    "floodmark_pipeline_last_run_rows_written",
    "Rows the newest run wrote. Absent if unknown.",
    _PIPELINE,
)
RETRIES = Metric(
    "floodmark_pipeline_last_run_retries",
    "Attempts of its batch before the newest run. Absent before the first run.",
    _PIPELINE,
)
FAILURES = Metric(
    "floodmark_pipeline_failures_in_a_row", "Failures since the last success.", _PIPELINE
)
SUCCEEDED_AT = Metric(
    "floodmark_pipeline_last_success_timestamp_seconds",
    "When the pipeline last succeeded; 0 if it never did.",
    _PIPELINE,
)
BEHIND = Metric(
    "floodmark_pipeline_lag_versions",
    "Versions of the upstream it is furthest behind with that it has not processed, whatever "
    "other pipelines hold. Absent if unknown, or if no upstream has versions.",
    _PIPELINE,
)
PAUSED = Metric("floodmark_pipeline_paused", "1 while the pipeline is paused.", _PIPELINE)

OPEN_BATCHES = Metric(
    "floodmark_open_batches",
    "Open batches; COMPLETED where only a paused pipeline owes its part.",
    (*_SCOPE, "status"),
)
OLDEST_OPEN = Metric(
    "floodmark_oldest_open_batch_age_seconds",
    "Age of the oldest open batch; 0 without one.",
    _SCOPE,
)
STUCK = Metric(
    "floodmark_stuck_batches",
    "Batches that are open for longer than --stuck-after, or whose process on this host is gone.",
    _SCOPE,
)

STREAM_KNOWN = Metric(
    "floodmark_stream_runner_known",
    "1 if the ledger of the stream was asked for its runner; 0 if it cannot be, or has no tables yet.",
    _STREAM,
)
STREAM_SIGN = Metric(
    "floodmark_stream_runner_sign_age_seconds",
    "Seconds since the last sign of life of the stream's runner, which gives one every 10 seconds."
    " Absent if it has ended as it should, or gave none.",
    _STREAM,
)
STREAM_GONE = Metric(
    "floodmark_stream_runner_gone",
    "1 if the stream's runner was killed or ended by an error: no sign of life for a minute, and no"
    " end. 0 while it runs, and after a stop. Absent before the first run.",
    _STREAM,
)

METRICS = (
    *(BUILD_INFO, COLLECTED_AT, STORE_UP),
    *(JOURNAL_EVENTS, JOURNAL_UNFOLDED, JOURNAL_NEWEST, JOURNAL_BYTES, JOURNAL_FILES),
    UPKEEP_AT,
    *(LAG_VERSIONS, LAG_SECONDS, LAG_KNOWN, LATEST, COMMITTED, COMMITTED_AT, HELD, READERS),
    *(UPSTREAM_ROWS, UPSTREAM_SECONDS, UPSTREAM_RETRIES),
    *(RUN_STATUS, RUN_STARTED, RUN_SECONDS, ROWS_READ, ROWS_WRITTEN, RETRIES),
    *(FAILURES, SUCCEEDED_AT, BEHIND, PAUSED),
    *(OPEN_BATCHES, OLDEST_OPEN, STUCK),
    *(STREAM_KNOWN, STREAM_SIGN, STREAM_GONE),
)
"""Every metric, in the order of the output."""


def measure(
    reader: ControlReader,
    control: str,
    storage: Storage,
    *,
    now: datetime,
    is_gone: Callable[[Holder], bool],
    stuck_after_seconds: float,
    look: TimeLook | None = None,
) -> tuple[Sample, ...]:
    """Every number that the store and the upstreams' logs tell.

    The journal is read whole each time: a reader that only looks for news would not notice that
    the store is gone. Raises what reading it raises; an upstream that cannot be looked at is a
    sample of its own.
    """
    events = reader.events()
    state = fold(events)
    lags = sorted(lags_in(state, storage, now, look), key=lambda lag: (lag.scope, lag.upstream))
    stuck = stuck_batches(state, now, is_gone, stuck_after_seconds)
    return (
        *_preamble(now, is_up=True),
        *_journal(events, control, storage),
        Sample(UPKEEP_AT, (), _upkept_at(control, storage)),
        *(sample for lag in lags for sample in _upstream(state, lag)),
        *_readers(state, lags),
        *_efforts(state, lags, control, storage),
        *_pipelines(state, lags, tracks(state, control, storage)),
        *_scopes(state, now, {(each.scope, each.batch_id) for each in stuck}),
    )


def runner_samples(runner: RunnerOfStream) -> Iterator[Sample]:
    """The numbers of the runner of a stream."""
    key = (runner.stream_id,)
    yield Sample(STREAM_KNOWN, key, runner.is_known)
    if runner.sign_age_seconds is not None:
        yield Sample(STREAM_GONE, key, runner.is_gone)
        if not runner.has_ended:
            yield Sample(STREAM_SIGN, key, runner.sign_age_seconds)


def out_of_reach(now: datetime) -> tuple[Sample, ...]:
    """What there is to say of a store that could not be read."""
    return tuple(_preamble(now, is_up=False))


def _preamble(now: datetime, *, is_up: bool) -> Iterator[Sample]:
    yield Sample(BUILD_INFO, (__version__,), 1.0)
    yield Sample(COLLECTED_AT, (), now.timestamp())
    yield Sample(STORE_UP, (), is_up)


def _journal(events: Sequence[Event], control: str, storage: Storage) -> Iterator[Sample]:
    if events:
        yield Sample(JOURNAL_EVENTS, (), events[-1].seq)
        yield Sample(JOURNAL_NEWEST, (), events[-1].at.timestamp())
    yield Sample(JOURNAL_UNFOLDED, (), sum(event.kind != "SNAPSHOT" for event in events))
    path = f"{control}/{JOURNAL}"
    try:
        files = [
            entry
            for folder in (path, f"{path}/_delta_log")
            for entry in storage.list(folder)
            if not entry.is_folder
        ]
    except FileNotFoundError:
        return  # a journal that is kept in memory
    except OSError as error:
        raise unreadable(path, error) from error
    yield Sample(JOURNAL_BYTES, (), sum(entry.size for entry in files))
    yield Sample(JOURNAL_FILES, (), len(files))


def _upkept_at(control: str, storage: Storage) -> float:
    try:
        at = last_upkeep(control, storage)
    except OSError as error:
        raise unreadable(control, error) from error
    return at.timestamp() if at else 0.0


def _upstream(state: State, lag: Lag) -> Iterator[Sample]:
    key = (lag.scope, lag.upstream)
    mark = state.marks.get(key)
    yield from _if_known(LAG_VERSIONS, key, lag.versions_behind)
    yield from _if_known(LAG_SECONDS, key, lag.seconds_behind)
    if not is_of_source(lag.upstream):
        yield Sample(LAG_KNOWN, key, lag.is_known)
    yield from _if_known(LATEST, key, lag.latest)
    yield Sample(COMMITTED, key, NOTHING_PROCESSED if lag.committed is None else lag.committed)
    yield Sample(COMMITTED_AT, key, mark.advanced_at.timestamp() if mark else 0.0)
    yield Sample(HELD, key, is_held(state, key))


def _readers(state: State, lags: Sequence[Lag]) -> Iterator[Sample]:
    active = [p for p in state.pipelines.values() if not p.is_paused]
    readers = Counter((p.scope, upstream) for p in active for upstream in p.upstreams)
    for lag in lags:
        yield Sample(READERS, (lag.scope, lag.upstream), readers[lag.scope, lag.upstream])


def _efforts(state: State, lags: Sequence[Lag], control: str, storage: Storage) -> Iterator[Sample]:
    known = efforts(state, control, storage)
    for key in [(lag.scope, lag.upstream) for lag in lags]:
        if effort := known.get(key):
            yield from _if_known(UPSTREAM_ROWS, key, effort.rows_read)
            yield from _if_known(UPSTREAM_SECONDS, key, effort.duration_seconds)
            yield from _if_known(UPSTREAM_RETRIES, key, effort.retries)


def _pipelines(state: State, lags: Sequence[Lag], known: Mapping[str, Track]) -> Iterator[Sample]:
    failures = failures_in_a_row(state)
    latest = {lag.upstream: lag.latest for lag in lags if lag.latest is not None}
    for scope, name in _names(state):
        key = (scope, name)
        track = known.get(name)
        if track:
            yield from _last_run(key, track)
        succeeded_at = track.succeeded_at if track else None
        yield Sample(FAILURES, key, failures.get(name, 0))
        yield Sample(SUCCEEDED_AT, key, succeeded_at.timestamp() if succeeded_at else 0.0)
        if registered := state.pipelines.get(name):
            yield from _if_known(BEHIND, key, _behind(state, registered, latest))
            yield Sample(PAUSED, key, registered.is_paused)


def _names(state: State) -> list[tuple[str, str]]:
    """(scope, pipeline) of what is registered, and of what else has a part in an open batch."""
    found = {p.name: p.scope for p in state.pipelines.values()}
    for batch in state.open_batches():
        for name in (*batch.required, *batch.aside, *batch.runs):
            found.setdefault(name, batch.scope)
    return sorted((scope, name) for name, scope in found.items())


def _last_run(key: tuple[str, str], track: Track) -> Iterator[Sample]:
    run = track.newest
    for status in get_args(RunStatus):
        yield Sample(RUN_STATUS, (*key, status), run.status == status)
    yield Sample(RUN_STARTED, key, run.started_at.timestamp())
    yield from _if_known(RUN_SECONDS, key, run.duration_seconds)
    yield from _if_known(ROWS_READ, key, run.rows_read)
    yield from _if_known(ROWS_WRITTEN, key, run.rows_written)
    yield Sample(RETRIES, key, run.retries)


def _behind(state: State, pipeline: Pipeline, latest: Mapping[str, int]) -> int | None:
    behind = [
        latest[upstream] - _reached(state, pipeline, upstream)
        for upstream in pipeline.upstreams
        if upstream in latest
    ]
    return max(0, *behind) if behind else None


def _reached(state: State, pipeline: Pipeline, upstream: str) -> int:
    """How far a pipeline is, also where others hold what it has finished."""
    reached = state.processed_through(pipeline.name, upstream)
    batch_id = state.open_windows.get((pipeline.scope, upstream))
    if batch_id is None or not state.batches[batch_id].has_succeeded(pipeline.name):
        return reached
    return max(reached, state.batches[batch_id].windows[upstream].through)


def _scopes(state: State, now: datetime, stuck: set[tuple[str, str]]) -> Iterator[Sample]:
    batches = list(state.open_batches())
    counts = Counter((batch.scope, batch.status) for batch in batches)
    stuck_in = Counter(scope for scope, _ in stuck)
    ages: dict[str, float] = {}
    for batch in batches:
        age = max(0.0, (now - batch.planned_at).total_seconds())
        ages[batch.scope] = max(age, ages.get(batch.scope, 0.0))
    scopes = {p.scope for p in state.pipelines.values()} | {scope for scope, _ in state.marks}
    for scope in sorted(scopes | set(ages)):
        for status in OPEN_STATUSES:
            yield Sample(OPEN_BATCHES, (scope, status), counts[scope, status])
        yield Sample(OLDEST_OPEN, (scope,), ages.get(scope, 0.0))
        yield Sample(STUCK, (scope,), stuck_in[scope])


def _if_known(metric: Metric, key: tuple[str, ...], value: float | None) -> Iterator[Sample]:
    if value is not None:
        yield Sample(metric, key, value)
