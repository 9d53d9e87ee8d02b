"""Registering pipelines, and freezing what is new as batches."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from floodmark import failpoints
from floodmark.control import (
    definition_hash,
    known_pipeline,
    refuse_odd_name,
    registration,
    with_baseline,
)
from floodmark.control.events import Body, Planned, Registered
from floodmark.coordinator.probes import Probes, commit_plan, frozen_lookups
from floodmark.coordinator.store import Store
from floodmark.errors import ConfigError
from floodmark.model import (
    DEFAULT_OPTIONS,
    DEFAULT_SCOPE,
    Batch,
    BatchKind,
    Draft,
    Fallback,
    Pipeline,
    PlannedBatch,
    PlanRequest,
    Seed,
    Settlement,
    State,
    Upstream,
    UpstreamOptions,
    batch_view,
    is_lookup,
    names_of,
)
from floodmark.plan import planner, seeds
from floodmark.plan.options import options_for
from floodmark.plan.refusals import (
    latest_unknown,
    nothing_to_plan,
    refuse_unknown_fallback,
    refuse_unknown_settlement,
)
from floodmark.sources import Scratch
from floodmark.sources.delta import tables_of

log = logging.getLogger("floodmark")


class Planning:
    """Registers pipelines, and freezes what is new as batches."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def register(
        self,
        pipeline: str,
        upstreams: Sequence[str | Upstream],
        scope: str = DEFAULT_SCOPE,
        *,
        lookups: Sequence[str] = (),
        probes: Probes | None = None,
    ) -> None:
        """See `Coordinator.register`."""
        refuse_odd_name(pipeline)
        read = [upstreams] if isinstance(upstreams, str) else upstreams
        everything = [*read, *(Upstream(name, lookup=True) for name in lookups)]
        self.store.names.learn(names_of(everything), journals=True)

        def plan(state: State, seen: Probes) -> tuple[None, list[Body]]:
            registered = self._registered(state, pipeline, everything, scope, seen)
            return None, registration(state, registered)

        commit_plan(self.store.writer(), plan, probes or self.probes())
        self.store.publish()

    def probes(self, scratch: Scratch | None = None) -> Probes:
        """Looks at upstreams as they are from now on, each taken once."""
        return Probes(self.store.prober(scratch))

    def _registered(
        self,
        state: State,
        pipeline: str,
        upstreams: Sequence[str | Upstream],
        scope: str,
        probes: Probes,
    ) -> Registered:
        everything = [upstreams] if isinstance(upstreams, str) else list(upstreams)
        lookups = tuple(self.store.names.stored(one.name) for one in everything if is_lookup(one))
        given = [one for one in everything if not is_lookup(one)]
        names = self.store.stored_names(names_of(given), what=f"pipeline {pipeline}")
        latest = partial(self._latest, probes.of([pipeline]))
        options = {
            name: with_baseline(state, scope, name, one.options, latest)
            for name, one in zip(names, given, strict=True)
            if isinstance(one, Upstream) and one.options != DEFAULT_OPTIONS
        }
        hashed = definition_hash(pipeline, scope, names, options, lookups)
        return Registered(pipeline, scope, names, hashed, options, lookups)

    def _latest(self, probes: Probes, upstream: str, options: UpstreamOptions) -> UpstreamOptions:
        """The options with what "latest" means now."""
        if options.has_versions:
            return replace(options, latest_at=probes.newest_version(upstream))
        newest = probes.newest_mark(upstream, options)
        if newest is None:
            raise latest_unknown(upstream)
        return replace(options, latest_mark=newest)

    def create_batch(
        self,
        upstreams: Sequence[str] | None = None,
        *,
        pipelines: Sequence[str] | None = None,
        scope: str = DEFAULT_SCOPE,
        max_versions: int | None = None,
        on_lost_range: Settlement | None = None,
        registry: Mapping[str, Sequence[str | Upstream]] | None = None,
        fallback: Fallback | None = None,
        probes: Probes | None = None,
    ) -> Batch:
        """See `Coordinator.create_batch`; with the `probes` of a preview it plans what that showed."""
        refuse_unknown_settlement(on_lost_range)
        refuse_unknown_fallback(fallback)
        store = self.store.writer()
        self.store.names.learn(_every_name(upstreams, registry), journals=True)
        batch_id = self.store.new_batch_id()

        def plan(state: State, seen: Probes) -> tuple[Batch, list[Body]]:
            state, registered = self._with_registry(state, registry, scope, seen)
            request = self._request(state, upstreams, pipelines, scope, max_versions)
            request = replace(request, on_lost_range=on_lost_range, fallback=fallback)
            batch, bodies = self._decide_plan(state, request, seen, batch_id)
            return batch, [*registered, *bodies]

        state, batch = commit_plan(store, plan, probes or self.probes())
        self.store.publish()
        # After a lost answer the journal may hold the windows of an earlier attempt of this call.
        planned = state.batches.get(batch_id)
        batch = batch if planned is None else _new_batch(state, planned)
        self.store.stages.planned(batch)
        return batch

    def preview(
        self,
        upstreams: Sequence[str] | None = None,
        *,
        pipelines: Sequence[str] | None = None,
        scope: str = DEFAULT_SCOPE,
        max_versions: int | None = None,
        on_lost_range: Settlement | None = None,
        register: Mapping[str, Sequence[str | Upstream]] | None = None,
        scratch: Scratch | None = None,
        probes: Probes | None = None,
    ) -> Batch:
        """See `Coordinator.preview`; `probes` remember what it has seen."""
        probes = probes or self.probes(scratch or Scratch())
        self.store.names.learn(_every_name(upstreams, register), journals=False)
        state = self.store.reader_or_empty().state()
        state, _ = self._with_registry(state, register, scope, probes)
        request = self._request(state, upstreams, pipelines, scope, max_versions)
        request = replace(request, on_lost_range=on_lost_range)
        return self._decide_plan(state, request, probes)[0]

    def _decide_plan(
        self, state: State, request: PlanRequest, probes: Probes, batch_id: str | None = None
    ) -> tuple[Batch, list[Body]]:
        """The batch to return, and what has to be journaled for it; nothing without an id."""
        upstreams = planner.closure(state, request)
        probes = probes.of(pipeline.name for pipeline in state.active_in(request.scope))
        batch = planner.open_batch(state, request.scope, upstreams)
        if batch:
            waiting = planner.unplanned(batch, request)
            return batch_view(batch, reused=True, unplanned=waiting), []
        draft = self._draft(state, request, upstreams, probes)
        if not draft.has_news and not draft.seeds:
            return self._open_seed(state, request, upstreams) or draft_view(draft), []
        bodies = self._plans(state, draft, batch_id or "", request.fallback, probes)
        return planned_view(bodies[-1], bodies[:-1], is_frozen=batch_id is not None), (
            list(bodies) if batch_id else []
        )

    def _plans(
        self,
        state: State,
        draft: Draft,
        batch_id: str,
        fallback: Fallback | None,
        probes: Probes,
    ) -> list[Planned]:
        """The seeds, each for its pipeline, and after them the batch; the last one has the id."""
        drafts: list[tuple[BatchKind, Draft]] = [
            ("seed", Draft(seed.scope, seed.windows, {seed.pipeline: seed.upstreams}))
            for seed in draft.seeds
        ]
        drafts += [("forward", draft)] if draft.has_news else []
        ids = [self.store.new_batch_id() for _ in drafts[1:]] + [batch_id]
        return [
            Planned(
                batch_id=own_id,
                batch_seq=state.batch_seq + number,
                scope=draft.scope,
                windows=draft.windows,
                required=draft.required,
                batch_kind=kind,
                fallback=fallback if kind == "forward" else None,
                lookups=frozen_lookups(state, draft.required, probes),
            )
            for number, ((kind, draft), own_id) in enumerate(zip(drafts, ids, strict=True), 1)
        ]

    def _open_seed(
        self, state: State, request: PlanRequest, upstreams: Sequence[str]
    ) -> Batch | None:
        """The oldest seed that still waits for a pipeline of the request."""
        for batch in state.open_batches(request.scope):
            if batch.kind == "seed" and batch.windows.keys() & set(upstreams):
                return batch_view(batch, reused=True)
        return None

    def _draft(
        self, state: State, request: PlanRequest, upstreams: Sequence[str], probes: Probes
    ) -> Draft:
        if probes.asks:
            failpoints.reached("plan.before_discover")
        news = {
            upstream: probes.probe(
                upstream,
                state.marks.get((request.scope, upstream)),
                options_for(state, request, upstream),
                request.max_versions,
            )
            for upstream in upstreams
        }
        recreated = planner.recreated_upstreams(state, request.scope, news)
        pipelines = seeds.pipelines_to_seed(state, request.scope, upstreams, recreated)
        drafts = [_draft_seed(state, pipeline, probes) for pipeline in pipelines]
        if probes.asks:
            failpoints.reached("plan.after_discover")
        return planner.draft_batch(state, request, news, drafts)

    def _request(
        self,
        state: State,
        upstreams: Sequence[str] | None,
        pipelines: Sequence[str] | None,
        scope: str,
        max_versions: int | None,
    ) -> PlanRequest:
        if max_versions is not None and max_versions < 1:
            raise ConfigError(
                "FM-CONFIG-007",
                f"max_versions is {max_versions}",
                rule="out_of_range",
                allowed="1 or more, or None for no limit",
                state="nothing was planned",
                next="correct the call",
            )
        named = (
            list(self.store.stored_names(upstreams, what="the request"))
            if upstreams is not None
            else []
        )
        for pipeline in pipelines or ():
            named += [u for u in known_pipeline(state, pipeline, scope) if u not in named]
        if upstreams is None and pipelines is None:
            named = list(dict.fromkeys(u for p in state.active_in(scope) for u in p.upstreams))
        if not named:
            raise nothing_to_plan(scope)
        return PlanRequest(tuple(named), scope, max_versions)

    def plan_schemas(
        self,
        schemas: Sequence[str],
        *,
        scope: str = DEFAULT_SCOPE,
        max_versions: int | None = None,
        fallback: Fallback | None = None,
    ) -> Batch:
        """See `Coordinator.plan_schemas`."""
        names: list[str] = []
        others: list[str] = []
        for schema in [schemas] if isinstance(schemas, str) else schemas:
            found, rest = tables_of(self.store.spark, schema)
            names += [table.name for table in found]
            others += rest
        if not names:
            raise nothing_to_plan(scope)
        batch = self.create_batch(names, scope=scope, max_versions=max_versions, fallback=fallback)
        return replace(batch, unplanned=(*batch.unplanned, *others))

    def _with_registry(
        self,
        state: State,
        registry: Mapping[str, Sequence[str | Upstream]] | None,
        scope: str,
        probes: Probes,
    ) -> tuple[State, list[Body]]:
        """The state with these pipelines registered, and what has to be journaled for that."""
        from floodmark.control.journal import number_events
        from floodmark.control.rules import fold

        journaled: list[Body] = []
        for pipeline, upstreams in (registry or {}).items():
            refuse_odd_name(pipeline)
            bodies = registration(
                state, self._registered(state, pipeline, upstreams, scope, probes)
            )
            events = number_events(state, bodies, "", self.store.actor, self.store.clock.now())
            state = fold(events, state, self.store.outside.apply)
            journaled += bodies
        return state, journaled


def _draft_seed(state: State, pipeline: Pipeline, probes: Probes) -> Seed:
    probes = probes.of([pipeline.name])
    news = {
        upstream: probes.probe_again(
            upstream,
            state.processed_through(pipeline.name, upstream),
            state.marks.get((pipeline.scope, upstream)),
            pipeline.options_of(upstream),
        )
        for upstream in pipeline.upstreams
    }
    return seeds.draft_seed(state, pipeline, news)


def planned_view(plan: Planned, before: Sequence[Planned], *, is_frozen: bool) -> Batch:
    """A batch that is about to be journaled, or would be, as the user sees it."""
    return Batch(
        batch_id=plan.batch_id if is_frozen else None,
        seq=plan.batch_seq if is_frozen else None,
        scope=plan.scope,
        status="PENDING",
        windows=plan.windows,
        pipelines=tuple(plan.required),
        kind=plan.batch_kind,
        fallback=plan.fallback,
        seeds=tuple(name for seed in before for name in seed.required),
        lookups=plan.lookups,
    )


def draft_view(draft: Draft) -> Batch:
    """A draft without news as the user sees it."""
    return Batch(
        batch_id=None,
        seq=None,
        scope=draft.scope,
        status="PENDING" if draft.has_news else "NOOP",
        windows=draft.windows,
        pipelines=tuple(draft.required),
    )


def _every_name(
    upstreams: Sequence[str] | None, registry: Mapping[str, Sequence[str | Upstream]] | None
) -> list[str]:
    """The names that a request gives, itself or in a registry."""
    named = [upstreams] if isinstance(upstreams, str) else list(upstreams or ())
    return named + [name for each in (registry or {}).values() for name in names_of(each)]


def _new_batch(state: State, planned: PlannedBatch) -> Batch:
    """A batch that was just journaled, and which pipelines are brought to its start before it."""
    opened = state.open_batches(planned.scope)
    before = [batch for batch in opened if batch.kind == "seed" and batch.seq < planned.seq]
    waiting = tuple(name for seed in before for name in seed.required)
    return replace(batch_view(planned, reused=False), seeds=waiting)
