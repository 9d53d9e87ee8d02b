"""CREATE, REGISTER, NAME: a store begins, pipelines say what they read."""

from __future__ import annotations

from dataclasses import replace

from floodmark.control.events import (
    Created,
    Event,
    Named,
    Registered,
)
from floodmark.model.state import Pipeline, State


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
    return replace(state, names={**state.names, body.table.name: body.table})
