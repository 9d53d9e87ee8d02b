"""The fold: events -> state. Pure, and the only place where the protocol's rules are enforced.

Every event has a check and an effect. A check answers with the reason why the event must not
happen, or None; a writer folds its own events before it appends them, so an event that breaks a
rule never reaches the journal, and one that did (another program wrote it) is refused on reading.
The same table serves the product, the simulator and `floodmark verify`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from floodmark.control.events import (
    Advanced,
    Amended,
    Cancelled,
    Created,
    Event,
    Failed,
    Leased,
    Named,
    Paused,
    Planned,
    Rebuilt,
    Refreshed,
    Registered,
    Removed,
    Renamed,
    Reset,
    Resumed,
    SinkWritten,
    Snapshot,
    Succeeded,
    TargetSettled,
)
from floodmark.errors import ControlError
from floodmark.model.state import Advance, Mark, Pipeline, PlannedBatch, Run, State
from floodmark.model.window import NOTHING_PROCESSED, Window


class Rule(NamedTuple):
    """What must hold before an event, and what it does."""

    check: Callable[[State, Any], str | None]
    effect: Callable[[State, Event], State]


def fold(events: Iterable[Event], state: State | None = None) -> State:
    """The state after `events`, starting from `state` or from nothing."""
    current = state or State()
    for event in events:
        current = apply(current, event)
    return current


def apply(state: State, event: Event) -> State:
    """The state after one event; raises ControlError FM-CONTROL-010 if a rule forbids it."""
    rule = RULES[type(event.body)]
    problem = _out_of_place(state, event) or rule.check(state, event.body)
    if problem:
        raise rejected(event, problem)
    return replace(rule.effect(state, event), seq=event.seq)


def rejected(event: Event, problem: str) -> ControlError:
    return ControlError(
        "FM-CONTROL-010",
        f"the journal refused {event.kind}: {problem}",
        where=f"event {event.seq}, {event.body.key}, by {event.actor}",
        state="nothing was journaled; the watermarks stay where they are",
        next="floodmark status",
    )


def _out_of_place(state: State, event: Event) -> str | None:
    if isinstance(event.body, Snapshot):
        return None if state.seq == 0 else "a snapshot can only come first"
    if event.seq != state.seq + 1:
        return f"it has number {event.seq}, expected {state.seq + 1}"
    return None


# CREATE, REGISTER ---------------------------------------------------------------------------------


def _check_created(state: State, body: Created) -> str | None:
    return "the store exists already" if state.control_id else None


def _created(state: State, event: Event) -> State:
    return replace(state, control_id=event.body.key)


def _check_registered(state: State, body: Registered) -> str | None:
    known = state.pipelines.get(body.pipeline)
    if known and known.scope != body.scope:
        return f"pipeline {body.pipeline} belongs to scope {known.scope}"
    if not body.upstreams:
        return f"pipeline {body.pipeline} reads nothing"
    if len(set(body.upstreams)) < len(body.upstreams):
        return f"pipeline {body.pipeline} names an upstream twice"
    return None


def _registered(state: State, event: Event) -> State:
    body: Registered = event.body  # type: ignore[assignment]
    known = state.pipelines.get(body.pipeline)
    pipeline = Pipeline(
        name=body.pipeline,
        scope=body.scope,
        upstreams=body.upstreams,
        definition_hash=body.definition_hash,
        updated_at=event.at,
        is_paused=known is not None and known.is_paused,
        lookups=body.lookups,
        options=body.options,
    )
    return replace(state, pipelines={**state.pipelines, body.pipeline: pipeline})


def _check_named(state: State, body: Named) -> str | None:
    known = state.names.get(body.table.name)
    return f"{known.name} stands for {known.path}" if known else None


def _named(state: State, event: Event) -> State:
    body: Named = event.body  # type: ignore[assignment]
    return replace(state, names={**state.names, body.table.name: body.table})


# PLAN, CANCEL -------------------------------------------------------------------------------------


def _check_planned(state: State, body: Planned) -> str | None:
    check = {"forward": _check_forward, "seed": _check_seed}.get(body.batch_kind, _check_again)
    return _check_batch_number(state, body) or check(state, body)


def _check_forward(state: State, body: Planned) -> str | None:
    problem = _check_required(state, body)
    if problem:
        return problem
    for window in body.windows:
        problem = check_window(state, body.scope, window)
        if problem:
            return f"{window.upstream}: {problem}"
    return _check_seeded(state, body)


def _check_batch_number(state: State, body: Planned) -> str | None:
    if body.batch_seq != state.batch_seq + 1:
        return f"batch number {body.batch_seq} does not follow {state.batch_seq}"
    if body.batch_id in state.batches:
        return "the batch id is taken"
    if not any(window.has_news for window in body.windows):
        return "no upstream has news"
    return None


def check_window(state: State, scope: str, window: Window) -> str | None:
    """G1: ranges of one upstream are disjoint and leave no gap; NOOP stands at the mark."""
    mark = state.marks.get((scope, window.upstream))
    if (scope, window.upstream) in state.open_windows:
        return "it has an open window already"
    if window.versions < 0:
        return "the window ends before it starts"
    begins = {p.options_of(window.upstream).first_after for p in state.pipelines_in(scope)}
    begins = {mark.version} if mark else {*begins, NOTHING_PROCESSED}
    if mark and window.reload and mark.table_id != window.table_id:
        begins = {NOTHING_PROCESSED}
    elif mark and mark.table_id != window.table_id:
        return f"table id {window.table_id} is not {mark.table_id}, which was processed before"
    if window.after_version not in begins:
        return f"the window starts after {window.after_version}, the watermark is {max(begins)}"
    return None


def _check_required(state: State, body: Planned) -> str | None:
    if body.required != state.required_pipelines(body.scope, body.windows):
        return "the required pipelines are not those that are registered"
    planned = {window.upstream for window in body.windows}
    for pipeline, upstreams in body.required.items():
        unplanned = [u for u in upstreams if u not in planned]
        if unplanned:
            return f"pipeline {pipeline} also reads {unplanned[0]}, which is not in the batch"
    return None


def _check_seeded(state: State, body: Planned) -> str | None:
    """G4: a pipeline is listed for a window only if it has processed, or has to, all before it."""
    after = {window.upstream: window.after_version for window in body.windows}
    reloads = {window.upstream for window in body.windows if window.reload}
    for pipeline, upstreams in body.required.items():
        for upstream in upstreams:
            # Nobody has processed anything of a table that took the place of another.
            if upstream in reloads:
                continue
            if state.will_have_processed(pipeline, upstream) != after[upstream]:
                return f"pipeline {pipeline} has not processed {upstream} up to the window"
    return None


def _check_seed(state: State, body: Planned) -> str | None:
    """A seed brings one pipeline, which owes nothing else, from where it stands to the watermark."""
    name = next(iter(body.required), "")
    pipeline = state.pipelines.get(name)
    if pipeline is None or len(body.required) != 1 or pipeline.is_paused:
        return "a seed is for one pipeline that takes part"
    if (pipeline.scope, pipeline.upstreams) != (body.scope, body.required[name]):
        return f"pipeline {name} is registered otherwise"
    if state.batches_owed_by(name):
        return f"pipeline {name} has to finish another batch first"
    if {window.upstream for window in body.windows} != set(pipeline.upstreams):
        return f"the windows are not the upstreams of {name}"
    for window in body.windows:
        problem = check_seed_window(state, body.scope, name, window)
        if problem:
            return f"{window.upstream}: {problem}"
    return None


def check_seed_window(state: State, scope: str, pipeline: str, window: Window) -> str | None:
    """From what the pipeline has processed to the watermark, while nothing moves that."""
    mark = state.marks.get((scope, window.upstream))
    committed = mark.version if mark else state.processed_through(pipeline, window.upstream)
    if (scope, window.upstream) in state.open_windows:
        return "a window is open there: its end would be missed"
    if window.after_version != state.processed_through(pipeline, window.upstream):
        return f"the window starts after {window.after_version}, not where the pipeline stands"
    if window.through_version != committed:
        return f"the window ends at {window.through_version}, the watermark is {committed}"
    if mark and mark.table_id != window.table_id:
        return f"table id {window.table_id} is not {mark.table_id}, which was processed before"
    return None


def _check_again(state: State, body: Planned) -> str | None:
    """A backfill or replay covers only what is committed, for pipelines of the scope."""
    planned = {window.upstream for window in body.windows}
    for name, upstreams in body.required.items():
        pipeline = state.pipelines.get(name)
        if pipeline is None or pipeline.scope != body.scope or pipeline.is_paused:
            return f"pipeline {name} takes no part in scope {body.scope}"
        if not set(upstreams) <= planned:
            return f"not every upstream of {name} is in the batch"
    if not body.required:
        return "no pipeline is asked for"
    for window in body.windows:
        mark = state.marks.get((body.scope, window.upstream))
        if window.has_news and (mark is None or window.through_version > mark.version):
            return f"{window.upstream}: only what is committed can be processed again"
        if mark and mark.table_id != window.table_id:
            return f"{window.upstream}: table id {window.table_id} is not {mark.table_id}"
    return None


def _planned(state: State, event: Event) -> State:
    body: Planned = event.body  # type: ignore[assignment]
    batch = PlannedBatch(
        batch_id=body.batch_id,
        seq=body.batch_seq,
        scope=body.scope,
        planned_at=event.at,
        planned_by=event.actor,
        windows={window.upstream: window for window in body.windows},
        required=body.required,
        kind=body.batch_kind,
        allows=body.allows,
        fallback=body.fallback,
        lookups={window.upstream: window for window in body.lookups},
    )
    fresh = [w.upstream for w in body.windows if w.has_news] if batch.kind == "forward" else []
    opened = {(body.scope, upstream): body.batch_id for upstream in fresh}
    return replace(
        _with_batch(state, batch),
        batch_seq=body.batch_seq,
        open_windows={**state.open_windows, **opened},
    )


def _check_cancelled(state: State, body: Cancelled) -> str | None:
    batch = state.batches.get(body.batch_id)
    if batch is None or batch.is_cancelled:
        return "there is no such open batch"
    if not batch.can_be_cancelled:
        return "a runner has leased the batch; from then on it only goes forward"
    if batch.kind == "seed":
        later = [b for b in state.batches_owed_by(next(iter(batch.required))) if b.seq > batch.seq]
        return f"batch {later[0].batch_id} starts where this one ends" if later else None
    return None


def _cancelled(state: State, event: Event) -> State:
    batch = state.batches[event.body.key]
    if batch.runs and batch.is_ordered:
        # Only what nobody reads is given up; who has begun the batch still has to finish it.
        given_up = replace(batch, released=batch.released | set(batch.pending_upstreams()))
    else:
        given_up = replace(batch, is_cancelled=True)
    kept = {k: b for k, b in state.open_windows.items() if b != batch.batch_id}
    return replace(_with_batch(state, given_up), open_windows=kept)


# LEASE, SINK_DONE, SUCCESS, FAILED ----------------------------------------------------------------


def _check_leased(state: State, body: Leased) -> str | None:
    batch = state.batches.get(body.batch_id)
    if batch is None or batch.is_cancelled or not batch.upstreams_of(body.pipeline):
        return "the batch does not ask for this pipeline"
    if body.epoch != state.epochs.get(body.pipeline, 0) + 1:
        return f"epoch {body.epoch} does not follow {state.epochs.get(body.pipeline, 0)}"
    run = batch.runs.get(body.pipeline)
    if run and run.status == "SUCCESS":
        return "the pipeline has succeeded for this batch; that is final"
    if run and run.status == "RUNNING" and run.run_id != body.replaces:
        return f"run {run.run_id} holds the lease"
    return _check_turn(state, batch, body.pipeline)


def _check_turn(state: State, batch: PlannedBatch, pipeline: str) -> str | None:
    if is_paused(state, pipeline):
        return "the pipeline is paused"
    earlier = earlier_unfinished(state, batch, pipeline)
    if earlier:
        return f"batch {earlier.batch_id} comes first"
    other = running_elsewhere(state, batch, pipeline)
    return f"the pipeline is running for batch {other.batch_id}" if other else None


def is_paused(state: State, pipeline: str) -> bool:
    return pipeline in state.pipelines and state.pipelines[pipeline].is_paused


def earlier_unfinished(state: State, batch: PlannedBatch, pipeline: str) -> PlannedBatch | None:
    """G7: the oldest batch before this one that the pipeline still has to finish."""
    for other in state.batches_owed_by(pipeline) if batch.is_ordered else ():
        if other.is_ordered and other.seq < batch.seq:
            return other
    return None


def running_elsewhere(state: State, batch: PlannedBatch, pipeline: str) -> PlannedBatch | None:
    """A batch outside the order of this one that the pipeline is running for: they would mix."""
    for other in state.batches_owed_by(pipeline):
        run = other.runs.get(pipeline)
        is_apart = not (other.is_ordered and batch.is_ordered) and other.batch_id != batch.batch_id
        if is_apart and run and run.status == "RUNNING":
            return other
    return None


def _leased(state: State, event: Event) -> State:
    body: Leased = event.body  # type: ignore[assignment]
    before = state.batches[body.batch_id].runs.get(body.pipeline)
    run = Run(
        pipeline=body.pipeline,
        batch_id=body.batch_id,
        run_id=body.run_id,
        epoch=body.epoch,
        holder=body.holder,
        ttl_seconds=body.ttl_seconds,
        status="RUNNING",
        started_at=event.at,
        changed_at=_strictly_after(before, event.at),
        retries=before.retries + 1 if before else 0,
        is_external=body.is_external,
        sinks=before.sinks if before else {},
    )
    epochs = {**state.epochs, body.pipeline: body.epoch}
    return replace(_with_run(state, run), epochs=epochs)


def check_fence(state: State, batch_id: str, pipeline: str, epoch: int) -> str | None:
    """G8: only the newest lease may record anything, and only while it runs."""
    batch = state.batches.get(batch_id)
    run = batch.runs.get(pipeline) if batch else None
    if run is None:
        return "there is no such run"
    newest = state.epochs.get(pipeline, 0)  # of any batch: one may have been left by a removal
    if epoch != newest or epoch != run.epoch:
        return f"epoch {epoch} was replaced by epoch {newest}"
    if run.status != "RUNNING":
        return f"the run is {run.status}"
    return None


def _check_run_event(
    state: State, body: SinkWritten | TargetSettled | Succeeded | Failed
) -> str | None:
    return check_fence(state, body.batch_id, body.pipeline, body.epoch)


def _check_amended(state: State, body: Amended) -> str | None:
    """G2: only the way of reading may change, and only for the run that says so."""
    fenced = check_fence(state, body.batch_id, body.pipeline, body.epoch)
    if fenced:
        return fenced
    batch, window = state.batches[body.batch_id], body.window
    if window.upstream not in batch.upstreams_of(body.pipeline):
        return f"pipeline {body.pipeline} does not read {window.upstream}"
    planned = batch.windows[window.upstream]
    if _range(window) != _range(planned):
        return "only the way of reading may be amended"
    if window.method not in ("snapshot", "lost"):
        return f"a range cannot be amended to {window.method}"
    return None


def _range(window: Window) -> tuple[object, ...]:
    return window.after_version, window.through_version, window.table_id, window.reload


def _amended(state: State, event: Event) -> State:
    body: Amended = event.body  # type: ignore[assignment]
    batch = state.batches[body.batch_id]
    windows = {**batch.amended.get(body.pipeline, {}), body.window.upstream: body.window}
    return _with_batch(state, replace(batch, amended={**batch.amended, body.pipeline: windows}))


def _sink_written(state: State, event: Event) -> State:
    body: SinkWritten | TargetSettled = event.body  # type: ignore[assignment]
    run = state.batches[body.batch_id].runs[body.pipeline]
    run = replace(run, sinks={**run.sinks, body.sink.write_name: body.sink})
    sinks = {**state.sinks, body.sink.app_id: body.sink}
    return replace(_with_run(state, run), sinks=sinks)


def _succeeded(state: State, event: Event) -> State:
    body: Succeeded = event.body  # type: ignore[assignment]
    run = state.batches[body.batch_id].runs[body.pipeline]
    run = replace(
        run,
        status="SUCCESS",
        changed_at=_strictly_after(run, event.at),
        rows_read=body.rows_read,
        rows_written=body.rows_written,
        metrics=body.metrics,
        error=None,
    )
    return _with_run(_caught_up(state, body), run)


def _caught_up(state: State, body: Succeeded) -> State:
    """What a success says at once about how far a pipeline is; a forward one waits for ADVANCE."""
    batch = state.batches[body.batch_id]
    is_at_once = batch.kind == "seed" or (batch.kind == "forward" and body.pipeline in batch.aside)
    if not is_at_once or body.pipeline not in state.pipelines:
        return state
    reached = {
        (body.pipeline, upstream): batch.windows[upstream].through_version
        for upstream in batch.upstreams_of(body.pipeline)
        if batch.windows[upstream].has_news
    }
    return replace(state, seeded_through={**state.seeded_through, **reached})


def _failed(state: State, event: Event) -> State:
    body: Failed = event.body  # type: ignore[assignment]
    run = state.batches[body.batch_id].runs[body.pipeline]
    changed_at = _strictly_after(run, event.at)
    return _with_run(state, replace(run, status="FAILED", changed_at=changed_at, error=body.error))


# ADVANCE ------------------------------------------------------------------------------------------


def _check_advanced(state: State, body: Advanced) -> str | None:
    batch = state.batches.get(body.batch_id)
    if batch is None:
        return "there is no such batch"
    if batch.kind != "forward":
        return f"a {batch.kind} moves no watermark"
    if not body.upstreams:
        return "nothing advances"
    for upstream, version in body.upstreams.items():
        problem = _check_advance(batch, upstream, version)
        if problem:
            return f"{upstream}: {problem}"
    return None


def _check_advance(batch: PlannedBatch, upstream: str, version: int) -> str | None:
    if not batch.is_pending(upstream):
        return "it is not pending in this batch"
    if version != batch.windows[upstream].through_version:
        return f"version {version} is not the planned end"
    return batch.held_because(upstream)


def _advanced(state: State, event: Event) -> State:
    body: Advanced = event.body  # type: ignore[assignment]
    batch = state.batches[body.batch_id]
    marks = {
        (batch.scope, upstream): Mark(
            scope=batch.scope,
            upstream=upstream,
            version=version,
            table_id=batch.windows[upstream].table_id,
            feed_enabled=batch.windows[upstream].feed_enabled,
            schema_fingerprint=batch.windows[upstream].schema_fingerprint,
            batch_id=batch.batch_id,
            advanced_at=event.at,
            advanced_by=event.actor,
        )
        for upstream, version in body.upstreams.items()
    }
    seeded = {
        (pipeline, upstream): version
        for upstream, version in body.upstreams.items()
        for pipeline, upstreams in batch.required.items()
        if upstream in upstreams and pipeline in state.pipelines
    }
    for upstream in body.upstreams:
        if batch.windows[upstream].reload:
            unread = [p for p in state.pipelines_in(batch.scope) if p.name not in batch.required]
            seeded |= {(p.name, upstream): NOTHING_PROCESSED for p in unread}
    moved = {upstream: Advance(event.at, event.actor) for upstream in body.upstreams}
    batch = replace(batch, advanced={**batch.advanced, **moved})
    still_open = {k: b for k, b in state.open_windows.items() if k not in marks}
    return replace(
        _with_batch(state, batch),
        marks={**state.marks, **marks},
        seeded_through={**state.seeded_through, **seeded},
        open_windows=still_open,
    )


# RESET --------------------------------------------------------------------------------------------


def _check_reset(state: State, body: Reset) -> str | None:
    for batch in state.open_batches(body.scope):
        if body.upstream in batch.windows:
            return f"batch {batch.batch_id} holds {body.upstream} and has to finish first"
    is_read = any(body.upstream in p.upstreams for p in state.pipelines_in(body.scope))
    if not is_read and (body.scope, body.upstream) not in state.marks:
        return f"scope {body.scope} does not know {body.upstream}"
    if body.version < NOTHING_PROCESSED or (body.version >= 0 and not body.table_id):
        return f"version {body.version} is none of a table"
    return None


def _reset(state: State, event: Event) -> State:
    body: Reset = event.body  # type: ignore[assignment]
    key = (body.scope, body.upstream)
    before = state.marks.get(key)
    marks = {k: mark for k, mark in state.marks.items() if k != key}
    if body.version != NOTHING_PROCESSED:
        marks[key] = Mark(
            scope=body.scope,
            upstream=body.upstream,
            version=body.version,
            table_id=body.table_id,
            feed_enabled=body.feed_enabled,
            schema_fingerprint=body.schema_fingerprint,
            batch_id=before.batch_id if before else "",
            advanced_at=event.at,
            advanced_by=event.actor,
        )
    # Whoever was where the mark was, or beyond its new place, stands there too; a newcomer that
    # still has to be seeded stays where it is.
    line = min(body.version, before.version if before else NOTHING_PROCESSED)
    moved = {
        (p.name, body.upstream): body.version
        for p in state.pipelines_in(body.scope)
        if body.upstream in p.upstreams and state.processed_through(p.name, body.upstream) >= line
    }
    return replace(state, marks=marks, seeded_through={**state.seeded_through, **moved})


# PAUSE, RESUME, REMOVE, RENAME, REFRESH -----------------------------------------------------------


def unread_without(state: State, pipeline: str, *, for_good: bool) -> dict[str, tuple[str, ...]]:
    """The windows, by batch, that nobody reads once a pipeline is taken out.

    A paused pipeline keeps what it alone reads in a batch that it has leased: its targets may hold
    a part of it already, and nobody else waits.
    """
    found = {}
    for batch in _to_leave(state, pipeline, for_good=for_good):
        if batch.kind == "forward" and (for_good or pipeline not in batch.runs):
            sole = [u for u in batch.pending_upstreams() if batch.readers(u) == [pipeline]]
            if sole:
                found[batch.batch_id] = tuple(sole)
    return found


def _to_leave(state: State, pipeline: str, *, for_good: bool) -> list[PlannedBatch]:
    """Whoever is removed also leaves what it has finished: ADVANCE must not count it any more."""
    return state.open_batches_of(pipeline) if for_good else state.batches_owed_by(pipeline)


def _check_taken_out(state: State, body: Paused | Removed) -> str | None:
    pipeline = state.pipelines.get(body.pipeline)
    for_good = isinstance(body, Removed)
    if pipeline is None or (pipeline.is_paused and not for_good):
        return f"pipeline {body.pipeline} takes no part"
    for batch in state.batches_owed_by(body.pipeline):
        run = batch.runs.get(body.pipeline)
        if run and run.status == "RUNNING" and run.run_id != body.seen_dead:
            return f"run {run.run_id} holds the lease"
    if dict(body.released) != unread_without(state, body.pipeline, for_good=for_good):
        return "the windows that nobody reads any more are others"
    return None


def _paused(state: State, event: Event) -> State:
    body: Paused = event.body  # type: ignore[assignment]
    state = _taken_out(state, body, for_good=False)
    paused = replace(state.pipelines[body.pipeline], is_paused=True, updated_at=event.at)
    return replace(state, pipelines={**state.pipelines, body.pipeline: paused})


def _removed(state: State, event: Event) -> State:
    body: Removed = event.body  # type: ignore[assignment]
    state = _taken_out(state, body, for_good=True)
    return replace(
        state,
        pipelines={n: p for n, p in state.pipelines.items() if n != body.pipeline},
        seeded_through={k: v for k, v in state.seeded_through.items() if k[0] != body.pipeline},
    )


def _taken_out(state: State, body: Paused | Removed, *, for_good: bool) -> State:
    for batch in _to_leave(state, body.pipeline, for_good=for_good):
        state = _with_batch(state, _without(batch, body, for_good=for_good))
    freed = {(b, u) for b, upstreams in body.released.items() for u in upstreams}
    kept = {k: b for k, b in state.open_windows.items() if (b, k[1]) not in freed}
    return replace(state, open_windows=kept)


def _without(batch: PlannedBatch, body: Paused | Removed, *, for_good: bool) -> PlannedBatch:
    pipeline = body.pipeline
    others = {p: upstreams for p, upstreams in batch.required.items() if p != pipeline}
    aside = {p: upstreams for p, upstreams in batch.aside.items() if p != pipeline}
    has_leased = pipeline in batch.runs
    if has_leased and not for_good:
        aside[pipeline] = batch.upstreams_of(pipeline)
        alone = tuple(u for u in batch.pending_upstreams() if batch.readers(u) == [pipeline])
        others |= {pipeline: alone} if alone else {}
    released = batch.released | set(body.released.get(batch.batch_id, ()))
    left = replace(batch, required=others, aside=aside, released=released)
    nothing_happens = not left.pending_upstreams() and not left.advanced and not aside
    return replace(left, is_cancelled=nothing_happens)


def _check_resumed(state: State, body: Resumed) -> str | None:
    return None if is_paused(state, body.pipeline) else f"{body.pipeline} is not paused"


def _resumed(state: State, event: Event) -> State:
    name = event.body.key
    resumed = replace(state.pipelines[name], is_paused=False, updated_at=event.at)
    return replace(state, pipelines={**state.pipelines, name: resumed})


def _check_free(state: State, pipeline: str) -> str | None:
    if pipeline not in state.pipelines:
        return f"there is no pipeline {pipeline}"
    # Also one that it has finished: ADVANCE will say how far the pipeline is.
    busy = state.open_batches_of(pipeline)
    return f"pipeline {pipeline} has a part in batch {busy[0].batch_id}" if busy else None


def _check_renamed(state: State, body: Renamed) -> str | None:
    if body.new_name in state.pipelines or body.new_name in state.epochs:
        return f"there is or was a pipeline {body.new_name}"
    return _check_free(state, body.pipeline)


def _renamed(state: State, event: Event) -> State:
    body: Renamed = event.body  # type: ignore[assignment]
    old, new = body.pipeline, body.new_name
    moved = replace(state.pipelines[old], name=new, updated_at=event.at)
    return replace(
        state,
        pipelines={
            new if n == old else n: moved if n == old else p for n, p in state.pipelines.items()
        },
        seeded_through={
            (new if p == old else p, u): v for (p, u), v in state.seeded_through.items()
        },
    )


def _check_refreshed(state: State, body: Refreshed) -> str | None:
    return _check_free(state, body.pipeline)


def _refreshed(state: State, event: Event) -> State:
    name = event.body.key
    kept = {k: v for k, v in state.seeded_through.items() if k[0] != name}
    return replace(state, seeded_through=kept)


# SNAPSHOT -----------------------------------------------------------------------------------------


def snapshot_of(state: State, keep_windows: int) -> Snapshot:
    """The state as one event; finished batches beyond the newest `keep_windows` windows are left
    to the history table.
    """
    return Snapshot(
        control_id=state.control_id,
        batch_seq=state.batch_seq,
        pipelines=tuple(state.pipelines.values()),
        marks=tuple(state.marks.values()),
        batches=tuple(_kept_batches(state, keep_windows)),
        epochs=state.epochs,
        seeded_through=tuple((p, u, v) for (p, u), v in state.seeded_through.items()),
        sinks=state.sinks,
        names=tuple(state.names.values()),
    )


def _kept_batches(state: State, keep_windows: int) -> list[PlannedBatch]:
    kept, room = [], keep_windows
    for batch in sorted(state.batches.values(), key=lambda b: b.seq, reverse=True):
        room -= len(batch.windows)
        if room >= 0 or batch.is_open:
            kept.append(batch)
    return kept[::-1]


def _restored(state: State, event: Event) -> State:
    body: Snapshot = event.body  # type: ignore[assignment]
    return State(
        control_id=body.control_id,
        batch_seq=body.batch_seq,
        pipelines={p.name: p for p in body.pipelines},
        marks={(m.scope, m.upstream): m for m in body.marks},
        batches={b.batch_id: b for b in body.batches},
        open_windows={
            (b.scope, u): b.batch_id
            for b in body.batches
            if b.kind == "forward"
            for u in b.pending_upstreams()
        },
        open_ids=frozenset(b.batch_id for b in body.batches if b.is_open),
        epochs=body.epochs,
        seeded_through={(p, u): v for p, u, v in body.seeded_through},
        sinks=body.sinks,
        names={table.name: table for table in body.names},
    )


def _check_rebuilt(state: State, body: Rebuilt) -> str | None:
    return "the store exists already" if state.control_id else None


def _rebuilt(state: State, event: Event) -> State:
    body: Rebuilt = event.body  # type: ignore[assignment]
    return _restored(state, replace(event, body=body.state))


# --------------------------------------------------------------------------------------------------


def _with_batch(state: State, batch: PlannedBatch) -> State:
    one = {batch.batch_id}
    open_ids = state.open_ids | one if batch.is_open else state.open_ids - one
    return replace(state, batches={**state.batches, batch.batch_id: batch}, open_ids=open_ids)


def _with_run(state: State, run: Run) -> State:
    batch = state.batches[run.batch_id]
    return _with_batch(state, replace(batch, runs={**batch.runs, run.pipeline: run}))


def _strictly_after(before: Run | None, at: datetime) -> datetime:
    # Published order is by this instant, so it must grow even if a clock was set back.
    return max(at, before.changed_at + timedelta(microseconds=1)) if before else at


def _always(state: State, body: Any) -> str | None:
    return None


RULES: Mapping[type[Any], Rule] = {
    Created: Rule(_check_created, _created),
    Registered: Rule(_check_registered, _registered),
    Named: Rule(_check_named, _named),
    Planned: Rule(_check_planned, _planned),
    Leased: Rule(_check_leased, _leased),
    Amended: Rule(_check_amended, _amended),
    SinkWritten: Rule(_check_run_event, _sink_written),
    TargetSettled: Rule(_check_run_event, _sink_written),
    Succeeded: Rule(_check_run_event, _succeeded),
    Failed: Rule(_check_run_event, _failed),
    Advanced: Rule(_check_advanced, _advanced),
    Cancelled: Rule(_check_cancelled, _cancelled),
    Paused: Rule(_check_taken_out, _paused),
    Resumed: Rule(_check_resumed, _resumed),
    Removed: Rule(_check_taken_out, _removed),
    Renamed: Rule(_check_renamed, _renamed),
    Refreshed: Rule(_check_refreshed, _refreshed),
    Snapshot: Rule(_always, _restored),
    Reset: Rule(_check_reset, _reset),
    Rebuilt: Rule(_check_rebuilt, _rebuilt),
}
