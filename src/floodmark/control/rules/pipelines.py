"""PAUSE, RESUME, REMOVE, RENAME, REFRESH: what operators do to pipelines."""

from __future__ import annotations

from floodmark.control.events.bodies import (
    Event,
    Paused,
    Refreshed,
    Removed,
    Renamed,
    Resumed,
)
from floodmark.control.rules.parts import is_paused, with_batch
from floodmark.model import PlannedBatch, SinkDone, State, app_prefix
from floodmark.model.copying import replace


def unread_without(state: State, pipeline: str, *, for_good: bool) -> dict[str, tuple[str, ...]]:
    """The windows, by batch, that nobody reads once a pipeline is taken out.

    A paused pipeline keeps what it alone reads in a batch that it has leased: its targets may hold
    a part of it already, and nobody else waits. For the same reason a window stays that a pipeline
    has begun which was paused before: it falls to that one.
    """
    found = {}
    for batch in _to_leave(state, pipeline, for_good=for_good):
        if batch.kind == "forward" and (for_good or pipeline not in batch.runs):
            sole = [u for u in _read_alone(batch, pipeline) if not _heirs(batch, pipeline, u)]
            if sole:
                found[batch.batch_id] = tuple(sole)
    return found


def _read_alone(batch: PlannedBatch, pipeline: str) -> list[str]:
    """What waits for this pipeline and for nobody else."""
    return [u for u in batch.pending_upstreams() if batch.readers(u) == [pipeline]]


def _heirs(batch: PlannedBatch, pipeline: str, upstream: str) -> list[str]:
    """The pipelines that were paused after they had begun to process an upstream of the batch."""
    others = {p: upstreams for p, upstreams in batch.aside.items() if p != pipeline}
    return [p for p, upstreams in others.items() if upstream in upstreams and batch.owes(p)]


def _to_leave(state: State, pipeline: str, *, for_good: bool) -> list[PlannedBatch]:
    """Whoever is removed also leaves what it has finished: ADVANCE must not count it any more."""
    return state.open_batches_of(pipeline) if for_good else state.batches_owed_by(pipeline)


def check_taken_out(state: State, body: Paused | Removed) -> str | None:
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


def paused(state: State, event: Event) -> State:
    body: Paused = event.body  # type: ignore[assignment]
    state = _taken_out(state, body, for_good=False)
    paused = replace(state.pipelines[body.pipeline], is_paused=True, updated_at=event.at)
    return replace(state, pipelines={**state.pipelines, body.pipeline: paused})


def removed(state: State, event: Event) -> State:
    body: Removed = event.body  # type: ignore[assignment]
    state = _taken_out(state, body, for_good=True)
    return replace(
        state,
        pipelines={n: p for n, p in state.pipelines.items() if n != body.pipeline},
        seeded_through={k: v for k, v in state.seeded_through.items() if k[0] != body.pipeline},
        seeded_marks={k: v for k, v in state.seeded_marks.items() if k[0] != body.pipeline},
    )


def _taken_out(state: State, body: Paused | Removed, *, for_good: bool) -> State:
    for batch in _to_leave(state, body.pipeline, for_good=for_good):
        state = with_batch(state, _without(batch, body, for_good=for_good))
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
        alone = tuple(_read_alone(batch, pipeline))
        others |= {pipeline: alone} if alone else {}
    else:
        for upstream in _read_alone(batch, pipeline):
            for heir in _heirs(batch, pipeline, upstream):
                others[heir] = (*others.get(heir, ()), upstream)
    released = batch.released | set(body.released.get(batch.batch_id, ()))
    left = replace(batch, required=others, aside=aside, released=released)
    nothing_happens = not left.pending_upstreams() and not left.advanced and not aside
    return replace(left, is_cancelled=nothing_happens)


def check_resumed(state: State, body: Resumed) -> str | None:
    return None if is_paused(state, body.pipeline) else f"{body.pipeline} is not paused"


def resumed(state: State, event: Event) -> State:
    name = event.body.key
    resumed = replace(state.pipelines[name], is_paused=False, updated_at=event.at)
    return replace(state, pipelines={**state.pipelines, name: resumed})


def _check_free(state: State, pipeline: str) -> str | None:
    if pipeline not in state.pipelines:
        return f"there is no pipeline {pipeline}"
    # Also one that it has finished: ADVANCE will say how far the pipeline is.
    busy = state.open_batches_of(pipeline)
    return f"pipeline {pipeline} has a part in batch {busy[0].batch_id}" if busy else None


def check_renamed(state: State, body: Renamed) -> str | None:
    if body.new_name in state.pipelines or body.new_name in state.epochs:
        return f"there is or was a pipeline {body.new_name}"
    return _check_free(state, body.pipeline)


def renamed(state: State, event: Event) -> State:
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
        seeded_marks={(new if p == old else p, u): v for (p, u), v in state.seeded_marks.items()},
        sinks={**state.sinks, **_inherited(state, old, new)},
    )


def _inherited(state: State, old: str, new: str) -> dict[str, SinkDone]:
    """The targets as the pipeline left them, under its new name, so that a loss is noticed; their
    receipts stay those of the old one.
    """
    before, after = app_prefix(state.control_id, old), app_prefix(state.control_id, new)
    renamed = {a: after + a.removeprefix(before) for a in state.sinks if a.startswith(before)}
    return {new: replace(state.sinks[a], app_id=new, seq=None) for a, new in renamed.items()}


def check_refreshed(state: State, body: Refreshed) -> str | None:
    return _check_free(state, body.pipeline)


def refreshed(state: State, event: Event) -> State:
    name = event.body.key
    kept = {k: v for k, v in state.seeded_through.items() if k[0] != name}
    marks = {k: v for k, v in state.seeded_marks.items() if k[0] != name}
    return replace(state, seeded_through=kept, seeded_marks=marks)
