"""CREATE, REGISTER, NAME, MOVE: a store begins, pipelines say what they read, and where it is."""

from __future__ import annotations

from floodmark.control.events.bodies import (
    Created,
    Event,
    Moved,
    Named,
    Registered,
)
from floodmark.control.rules.parts import located
from floodmark.model import Pipeline, PlannedBatch, State
from floodmark.model.copying import replace


def check_created(state: State, body: Created) -> str | None:
    return "the store exists already" if state.control_id else None


def created(state: State, event: Event) -> State:
    return replace(state, control_id=event.body.key)


def check_registered(state: State, body: Registered) -> str | None:
    known = state.pipelines.get(body.pipeline)
    if known and known.scope != body.scope:
        return f"pipeline {body.pipeline} belongs to scope {known.scope}"
    if not body.upstreams:
        return f"pipeline {body.pipeline} reads nothing"
    if len(set(body.upstreams)) < len(body.upstreams):
        return f"pipeline {body.pipeline} names an upstream twice"
    return None


def registered(state: State, event: Event) -> State:
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


def check_named(state: State, body: Named) -> str | None:
    known = state.names.get(body.table.name)
    return f"{known.name} stands for {known.path}" if known else None


def named(state: State, event: Event) -> State:
    body: Named = event.body  # type: ignore[assignment]
    names = {**state.names, body.table.name: body.table}
    places = {**state.places, body.table.path: body.table.name} if body.table.is_managed else None
    return replace(state, names=names, places=state.places if places is None else places)


def check_moved(state: State, body: Moved) -> str | None:
    run = state.running_on(body.upstream)
    if run:
        return f"run {run.run_id} may be reading it"
    if state.place_of(body.upstream) == body.path:
        return f"{body.upstream} is there already"
    others = {*state.places.values(), *_known(state)} - {body.upstream}
    return f"{body.path} is another upstream" if body.path in others else None


def _known(state: State) -> set[str]:
    marks = {upstream for _, upstream in state.marks}
    return marks | {u for p in state.pipelines.values() for u in (*p.upstreams, *p.lookups)}


def moved(state: State, event: Event) -> State:
    body: Moved = event.body  # type: ignore[assignment]
    others = {name: place for name, place in state.places.items() if name != body.upstream}
    is_back = body.path == body.upstream
    state = replace(state, places=others if is_back else {**others, body.upstream: body.path})
    batches = {i: _relocated(state, batch) for i, batch in state.batches.items()}
    return replace(state, batches=batches)


def _relocated(state: State, batch: PlannedBatch) -> PlannedBatch:
    """A batch that still has to be read, or read again, finds its tables where they are now."""
    amended = {
        pipeline: {u: located(state, window) for u, window in windows.items()}
        for pipeline, windows in batch.amended.items()
    }
    return replace(
        batch,
        windows={u: located(state, window) for u, window in batch.windows.items()},
        lookups={u: located(state, window) for u, window in batch.lookups.items()},
        amended=amended,
    )
