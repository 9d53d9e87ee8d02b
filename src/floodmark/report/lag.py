"""How far watermarks are behind their upstreams, and what holds them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from floodmark.control import ControlReader
from floodmark.deltalog import DeltaLog, Storage
from floodmark.errors import FloodmarkError
from floodmark.model import (
    NOTHING_PROCESSED,
    AnyMark,
    Lag,
    Mark,
    PlannedBatch,
    ScopedUpstream,
    State,
    TableFacts,
    TimeFacts,
    UpstreamOptions,
    start_of,
)
from floodmark.model.names import ASK_CATALOG, is_catalog_name, is_of_source
from floodmark.report.watch import failed_attempts

TimeLook = Callable[[str, str, AnyMark | None, UpstreamOptions], TimeFacts | None]
"""What is new in an upstream without versions, after a mark; None where only Spark can look."""


def lag_of(
    reader: ControlReader, storage: Storage, now: datetime, look: TimeLook | None = None
) -> tuple[Lag, ...]:
    """The lag of every upstream that a pipeline reads or that ever advanced, worst first."""
    return lags_in(reader.state(), storage, now, look)


def lags_in(
    state: State, storage: Storage, now: datetime, look: TimeLook | None = None
) -> tuple[Lag, ...]:
    """The same, of a state that was read before."""
    registered = {(p.scope, u): None for p in state.pipelines.values() for u in p.upstreams}
    keys = {**registered, **dict.fromkeys(state.marks)}
    timed = _without_versions(state)
    lags = [
        _time_lag(state, key, timed[key], now, look)
        if key in timed
        else _lag(state, key, storage, now)
        for key in keys
    ]
    return tuple(sorted(lags, key=_worst_first))


def is_above(lag: Lag, versions: int | None, seconds: float | None) -> bool:
    """Whether a lag is above a threshold; one that is not known is, unless nobody may ask.

    `versions` are files where an upstream is a list of files.
    """
    if is_of_source(lag.upstream):
        return False
    # Of a cursor nobody counts what is new: that there is something counts as one.
    is_unknown = lag.versions_behind is None and not lag.is_known
    has_news = lag.latest_mark != lag.committed_mark
    behind = int(has_news) if lag.versions_behind is None else lag.versions_behind
    if versions is not None and (is_unknown or behind > versions):
        return True
    return seconds is not None and (lag.seconds_behind is None or lag.seconds_behind > seconds)


def is_held(state: State, key: ScopedUpstream) -> bool:
    """Whether a batch has changes of the upstream that may not advance yet."""
    batch_id = state.open_windows.get(key)
    return batch_id is not None and state.batches[batch_id].held_because(key[1]) is not None


def _lag(state: State, key: ScopedUpstream, storage: Storage, now: datetime) -> Lag:
    scope, upstream = key
    held_by, reason = _held(state, key)
    committed = state.committed_version(scope, upstream)
    shown = None if committed == NOTHING_PROCESSED else committed
    place = state.place_of(upstream)
    if is_catalog_name(place):
        return Lag(scope, upstream, None, shown, None, None, held_by, reason or ASK_CATALOG)
    log = DeltaLog(place, storage)
    try:
        facts = log.facts()
        latest = facts.latest_version
        other = _another_table(state.marks.get(key), facts)
        if other is not None:
            return Lag(scope, upstream, latest, shown, None, None, held_by, other)
        seconds = _age_of_first_unprocessed(log, committed, latest, now)
    except FloodmarkError as error:  # shown as the upstream's own line; the others still count
        return Lag(scope, upstream, None, shown, None, None, held_by, str(error.title))
    behind = latest - committed
    if behind and reason is None:
        reason = _not_planned(state, key)
    return Lag(scope, upstream, latest, shown, behind, seconds, held_by, reason)


def _without_versions(state: State) -> dict[ScopedUpstream, UpstreamOptions]:
    """The upstreams without versions, and how they are read."""
    before = {key: mark.options for key, mark in state.marks.items()}
    found = {key: options for key, options in before.items() if options is not None}
    for pipeline in state.pipelines.values():
        for upstream, options in pipeline.options.items():
            if not options.has_versions and upstream in pipeline.upstreams:
                found[pipeline.scope, upstream] = options
    return found


def _time_lag(
    state: State,
    key: ScopedUpstream,
    options: UpstreamOptions,
    now: datetime,
    look: TimeLook | None,
) -> Lag:
    scope, upstream = key
    held_by, reason = _held(state, key)
    mark = state.marks.get(key)
    committed = mark.shown_mark if mark else None
    unknown = Lag(
        scope,
        upstream,
        None,
        None,
        None,
        None,
        held_by,
        kind=options.kind,
        committed_mark=committed,
    )
    try:
        found = look(scope, upstream, start_of(mark, options), options) if look else None
    except FloodmarkError as error:  # shown as the upstream's own line; the others still count
        return replace(unknown, reason=str(error.title))
    if found is None:
        who = "planning asks it" if is_of_source(upstream) else "Spark can look into it"
        return replace(unknown, reason=reason or f"only {who}")
    unknown = replace(unknown, warning=found.warning)
    if found.newest is None:
        counted = 0 if found.counts_items else None
        return replace(
            unknown,
            versions_behind=counted,
            seconds_behind=0.0,
            latest_mark=committed,
            reason=reason,
        )
    oldest = found.oldest.instant if found.oldest else found.since
    return replace(
        unknown,
        versions_behind=found.items,
        seconds_behind=max(0.0, (now - oldest).total_seconds()) if oldest else None,
        latest_mark=found.newest.encoded(),
        reason=reason or _not_planned(state, key),
    )


def _another_table(mark: Mark | None, facts: TableFacts) -> str | None:
    """Why the versions of the table cannot be counted from the watermark; None where they can."""
    if mark is None or mark.table_id == facts.table_id:
        return None
    return f"the table was recreated: the watermark is version {mark.version} of another one"


def _age_of_first_unprocessed(
    log: DeltaLog, committed: int, latest: int, now: datetime
) -> float | None:
    """Seconds since the oldest change that is not processed; None if its commit is gone."""
    if latest <= committed:
        return 0.0
    first = committed + 1
    if log.facts().earliest_version > first:
        return None
    return max(0.0, (now - log.versions(first, first)[0].committed_at).total_seconds())


def _held(state: State, key: ScopedUpstream) -> tuple[tuple[str, ...], str | None]:
    batch_id = state.open_windows.get(key)
    if batch_id is None:
        return (), None
    batch = state.batches[batch_id]
    waiting = batch.waiting_for(key[1])
    if not waiting:
        return (), f"{batch_id}: {batch.held_because(key[1]) or 'ready to advance'}"
    words = ", ".join(_word(batch, pipeline) for pipeline in waiting)
    return tuple(waiting), f"{batch_id}: waiting for {words}"


def _word(batch: PlannedBatch, pipeline: str) -> str:
    """A pipeline that holds an upstream, and what it is doing."""
    run = batch.runs.get(pipeline)
    if run is None:
        return f"{pipeline} (not started)"
    failed = failed_attempts(run)
    times = f", {failed} failures in a row" if failed > 1 else ""
    return f"{pipeline} ({run.status}{times})"


def _not_planned(state: State, key: ScopedUpstream) -> str:
    scope, upstream = key
    readers = [p for p in state.pipelines_in(scope) if upstream in p.upstreams]
    if readers and all(p.is_paused for p in readers):
        return f"every pipeline that reads it is paused: {', '.join(p.name for p in readers)}"
    return "not planned yet" if readers else "no pipeline reads it any more"


def _worst_first(lag: Lag) -> tuple[bool, int, str, str]:
    return (lag.is_known, -(lag.versions_behind or 0), lag.scope, lag.upstream)
