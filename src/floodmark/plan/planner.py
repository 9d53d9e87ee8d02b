"""Which upstreams belong into a batch, and what the batch looks like."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from floodmark.errors import PlanError
from floodmark.model import Draft, PlannedBatch, PlanRequest, Probe, Seed, State, Window
from floodmark.plan.options import options_for
from floodmark.plan.windows import next_window, standing_window


def open_batch(state: State, scope: str, upstreams: Iterable[str]) -> PlannedBatch | None:
    """The oldest batch that has to finish first: it has an open window on one of the upstreams, or
    a pipeline that reads one of them left it unfinished when it was paused.
    """
    wanted = set(upstreams)
    ids = {state.open_windows.get((scope, upstream)) for upstream in wanted}
    found = [state.batches[batch_id] for batch_id in ids if batch_id]
    for pipeline in state.active_in(scope):
        if wanted & set(pipeline.upstreams):
            owed = state.batches_owed_by(pipeline.name)
            found += [batch for batch in owed if pipeline.name in batch.aside]
    return min(found, key=lambda batch: batch.seq, default=None)


def unplanned(batch: PlannedBatch, request: PlanRequest) -> tuple[str, ...]:
    """The requested upstreams that a reused batch does not cover."""
    pending = batch.pending_upstreams()
    return tuple(u for u in request.upstreams if u not in pending)


def closure(state: State, request: PlanRequest) -> tuple[str, ...]:
    """The requested upstreams, and every other one their pipelines read, and so on.

    A pipeline reads all its upstreams at one frozen set of versions, so none may be left out.
    """
    wanted = dict.fromkeys(request.upstreams)
    pipelines = state.active_in(request.scope)
    size = 0
    while size < len(wanted):
        size = len(wanted)
        for pipeline in pipelines:
            if wanted.keys() & set(pipeline.upstreams):
                wanted.update(dict.fromkeys(pipeline.upstreams))
    return tuple(wanted)


def draft_batch(
    state: State, request: PlanRequest, probes: Mapping[str, Probe], seeds: Sequence[Seed] = ()
) -> Draft:
    """The batch that should follow, from the state and the facts; NOOP windows included.

    `seeds` are planned with it, before it. Raises PlanError if one upstream has two names, if a
    window cannot be read exactly, or if a pipeline is not where the batch starts.
    """
    refuse_two_names(state, request.scope, probes)
    waiting = {} if request.fallback else _readers_that_are_paused(state, request.scope)
    windows = tuple(
        _window(state, request, upstream, probe, waiting.get(upstream, ()))
        for upstream, probe in probes.items()
    )
    required = state.required_pipelines(request.scope, windows)
    draft = Draft(request.scope, windows, required, tuple(seeds))
    refuse_latecomers(state, draft)
    return draft


def _window(
    state: State, request: PlanRequest, upstream: str, probe: Probe, paused: Sequence[str]
) -> Window:
    """What comes next of an upstream; nothing while all that read it are `paused`."""
    mark = state.marks.get((request.scope, upstream))
    options = options_for(state, request, upstream)
    if paused:
        # Planned, it would be held, and by nobody who could finish it.
        reason = f"waits: {', '.join(paused)} paused"
        return standing_window(upstream, probe, mark, options, reason)
    return next_window(upstream, probe, mark, request.max_versions, options)


def _readers_that_are_paused(state: State, scope: str) -> dict[str, list[str]]:
    """The pipelines of each upstream that only paused ones read."""
    read = {upstream for pipeline in state.active_in(scope) for upstream in pipeline.upstreams}
    paused: dict[str, list[str]] = {}
    for pipeline in state.pipelines_in(scope):
        for upstream in pipeline.upstreams:
            if upstream not in read:
                paused.setdefault(upstream, []).append(pipeline.name)
    return paused


def recreated_upstreams(state: State, scope: str, probes: Mapping[str, Probe]) -> set[str]:
    """The upstreams in whose place another table stands than was processed."""
    marks = {u: state.marks.get((scope, u)) for u in probes}
    return {u for u, mark in marks.items() if mark and mark.table_id != probes[u].facts.table_id}


def refuse_two_names(state: State, scope: str, probes: Mapping[str, Probe]) -> None:
    """One table is one upstream: two names would process its rows twice."""
    names = {
        window.table_id: window.upstream
        for batch in state.open_batches(scope)
        for window in batch.windows.values()
    }
    names |= {mark.table_id: mark.upstream for mark in state.marks.values() if mark.scope == scope}
    for upstream, probe in probes.items():
        other = names.setdefault(probe.facts.table_id, upstream)
        if other != upstream:
            raise PlanError(
                "FM-PLAN-003",
                "one table has two names",
                found=f"{_with_readers(state, scope, other)} and {_with_readers(state, scope, upstream)}"
                f" are both table {probe.facts.table_id}",
                allowed="one name for a table within a scope",
                state="nothing was planned",
                next=f"use {other} everywhere, or plan {upstream} in a scope of its own; if the lake "
                "was copied or moved, give it a control store of its own, with new targets",
            )


def _with_readers(state: State, scope: str, upstream: str) -> str:
    readers = [p.name for p in state.pipelines_in(scope) if upstream in p.upstreams]
    return f"{upstream} (read by {', '.join(readers)})" if readers else upstream


def refuse_repeated(upstreams: Iterable[str]) -> None:
    """An upstream may be asked for once."""
    repeated = [name for name, count in Counter(upstreams).items() if count > 1]
    if repeated:
        raise PlanError(
            "FM-PLAN-003",
            f"upstream {repeated[0]} is named twice",
            allowed="each upstream once",
            state="nothing was planned",
            next="remove the repetition",
        )


def refuse_latecomers(state: State, draft: Draft) -> None:
    """G4: a pipeline may only be listed for a window if it has processed all before it."""
    after: dict[str, Window] = {window.upstream: window for window in draft.windows}
    seeded = {seed.pipeline for seed in draft.seeds}
    for pipeline, upstreams in draft.required.items():
        for upstream in upstreams:
            if after[upstream].reload:
                continue
            seen = state.will_have_processed(pipeline, upstream)
            if seen != after[upstream].after and pipeline not in seeded:
                raise _latecomer(pipeline, after[upstream], seen)


def _latecomer(pipeline: str, window: Window, seen: int) -> PlanError:
    seen_text = f"it has processed version {seen}" if seen >= 0 else "it has processed nothing"
    return PlanError(
        "FM-PLAN-008",
        f"pipeline {pipeline} joined after data of {window.upstream} was committed",
        found=f"{seen_text}; the watermark of the scope is {window.after}",
        allowed="pipelines that have processed everything up to the watermark",
        state="nothing was planned; without this refusal it would silently miss those rows",
        next=f"register {pipeline} in a scope and with targets of its own: it starts with a full load",
    )
