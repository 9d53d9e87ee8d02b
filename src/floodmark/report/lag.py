"""How far watermarks are behind their upstreams, and what holds them."""

from __future__ import annotations

from datetime import datetime

from floodmark.control import ControlReader
from floodmark.deltalog import DeltaLog, Storage
from floodmark.errors import FloodmarkError
from floodmark.model.results import Lag
from floodmark.model.state import ScopedUpstream, State
from floodmark.model.window import NOTHING_PROCESSED


def lag_of(reader: ControlReader, storage: Storage, now: datetime) -> tuple[Lag, ...]:
    """The lag of every upstream that a pipeline reads or that ever advanced, worst first."""
    state = reader.state()
    registered = {(p.scope, u): None for p in state.pipelines.values() for u in p.upstreams}
    lags = [_lag(state, key, storage, now) for key in {**registered, **dict.fromkeys(state.marks)}]
    return tuple(sorted(lags, key=_worst_first))


def _lag(state: State, key: ScopedUpstream, storage: Storage, now: datetime) -> Lag:
    scope, upstream = key
    held_by, reason = _held(state, key)
    committed = state.committed_version(scope, upstream)
    shown = None if committed == NOTHING_PROCESSED else committed
    log = DeltaLog(upstream, storage)
    try:
        latest = log.facts().latest_version
        seconds = _age_of_first_unprocessed(log, committed, latest, now)
    except FloodmarkError as error:  # shown as the upstream's own line; the others still count
        return Lag(scope, upstream, None, shown, None, None, held_by, str(error.title))
    return Lag(scope, upstream, latest, shown, latest - committed, seconds, held_by, reason)


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
    reason = batch.held_because(key[1]) or "ready to advance"
    return tuple(batch.waiting_for(key[1])), f"{batch_id}: {reason}"


def _worst_first(lag: Lag) -> tuple[bool, int, str, str]:
    behind = lag.versions_behind
    return (behind is not None, -(behind or 0), lag.scope, lag.upstream)
