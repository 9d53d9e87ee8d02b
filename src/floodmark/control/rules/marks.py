"""ADVANCE, RESET: where watermarks go."""

from __future__ import annotations

from floodmark.control.events.bodies import (
    Advanced,
    Event,
    Reset,
)
from floodmark.control.rules.parts import with_batch, with_progress
from floodmark.model import NOTHING_PROCESSED, Advance, Mark, PlannedBatch, State, TimeMark
from floodmark.model.copying import replace


def check_advanced(state: State, body: Advanced) -> str | None:
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
    if version != batch.windows[upstream].through:
        return f"version {version} is not the planned end"
    return batch.held_because(upstream)


def advanced(state: State, event: Event) -> State:
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
            query=batch.windows[upstream].query,
            mark=batch.windows[upstream].through_mark,
        )
        for upstream, version in body.upstreams.items()
    }
    seeded = {
        (pipeline, upstream): version
        for upstream, version in body.upstreams.items()
        for pipeline, upstreams in batch.required.items()
        if upstream in upstreams and pipeline in state.pipelines
    }
    state = with_progress(state, seeded, {u: w.through_mark for u, w in batch.windows.items()})
    state = with_progress(state, _left_behind(state, batch, body), {})
    moved = {upstream: Advance(event.at, event.actor) for upstream in body.upstreams}
    batch = replace(batch, advanced={**batch.advanced, **moved})
    still_open = {k: b for k, b in state.open_windows.items() if k not in marks}
    return replace(
        with_batch(state, batch),
        marks={**state.marks, **marks},
        open_windows=still_open,
    )


def _left_behind(state: State, batch: PlannedBatch, body: Advanced) -> dict[tuple[str, str], int]:
    """Pipelines outside the batch have processed nothing of a table that took another's place."""
    unread = [p.name for p in state.pipelines_in(batch.scope) if p.name not in batch.required]
    reloads = [upstream for upstream in body.upstreams if batch.windows[upstream].reload]
    return {(name, upstream): NOTHING_PROCESSED for upstream in reloads for name in unread}


def check_reset(state: State, body: Reset) -> str | None:
    for batch in state.open_batches(body.scope):
        if body.upstream in batch.windows:
            return f"batch {batch.batch_id} holds {body.upstream} and has to finish first"
    is_read = any(body.upstream in p.upstreams for p in state.pipelines_in(body.scope))
    if not is_read and (body.scope, body.upstream) not in state.marks:
        return f"scope {body.scope} does not know {body.upstream}"
    if body.version < NOTHING_PROCESSED or (body.version >= 0 and not body.table_id):
        return f"version {body.version} is none of a table"
    return _check_reset_mark(state, body) if body.query is not None else None


def _check_reset_mark(state: State, body: Reset) -> str | None:
    """Steps are never used twice: each stands for one mark."""
    before = state.marks.get((body.scope, body.upstream))
    if body.mark is None:
        return "an upstream without versions stands at a mark"
    if before and before.query != body.query:
        return f"it was processed by {before.kind}, in another way"
    if body.version != state.committed_version(body.scope, body.upstream) + 1:
        return f"step {body.version} is not the next one"
    return None


def reset(state: State, event: Event) -> State:
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
            query=body.query,
            mark=body.mark,
        )
    # Whoever was where the mark was, or beyond its new place, stands there too, also one that does
    # not read it at present; a newcomer that still has to be seeded stays where it is.
    moved = {
        (p.name, body.upstream): body.version
        for p in state.pipelines_in(body.scope)
        if body.upstream in p.upstreams or (p.name, body.upstream) in state.seeded_through
        if _goes_along(state, p.name, body, before)
    }
    return with_progress(replace(state, marks=marks), moved, {body.upstream: body.mark})


def _goes_along(state: State, pipeline: str, body: Reset, before: Mark | None) -> bool:
    stands_at = state.processed_through(pipeline, body.upstream)
    committed = before.version if before else NOTHING_PROCESSED
    if stands_at >= committed or body.mark is None:
        return stands_at >= min(body.version, committed)
    mark = state.mark_of(pipeline, body.upstream, body.mark)
    if not isinstance(mark, TimeMark) or not isinstance(body.mark, TimeMark):
        return False
    return mark.number >= body.mark.number
