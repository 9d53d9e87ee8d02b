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
from floodmark.coordinator.probing import Prober
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


class Planning(Store):
    """The part of the coordinator that plans."""

    def register(
        self,
        pipeline: str,
        upstreams: Sequence[str | Upstream],
        scope: str = DEFAULT_SCOPE,
        *,
        lookups: Sequence[str] = (),
    ) -> None:
        """Say that a pipeline reads these upstreams: from the next plan on they wait for it.

        An upstream is a name, or an fm.Upstream that also says how it is read; baseline "latest"
        means the newest version at the first registration. `lookups` are tables that each batch
        freezes for the pipeline (`run.table`); they neither hold a batch nor trigger one.
        Registering the same again changes nothing. Batches that are planned keep the registry of
        their moment. Raises FM-CONTROL-011 if the name is taken in another scope.
        """
        refuse_odd_name(pipeline)
        read = [upstreams] if isinstance(upstreams, str) else upstreams
        everything = [*read, *(Upstream(name, lookup=True) for name in lookups)]
        self.names.learn(names_of(everything), journals=True)
        prober = self._prober()

        def decide(state: State) -> list[Body]:
            registered = self._registered(state, pipeline, everything, scope, prober)
            return registration(state, registered)

        self._writer().commit(decide)
        self._publish()

    def _registered(
        self,
        state: State,
        pipeline: str,
        upstreams: Sequence[str | Upstream],
        scope: str,
        prober: Prober,
    ) -> Registered:
        everything = [upstreams] if isinstance(upstreams, str) else list(upstreams)
        lookups = tuple(self.names.stored(one.name) for one in everything if is_lookup(one))
        given = [one for one in everything if not is_lookup(one)]
        names = self._names(names_of(given), what=f"pipeline {pipeline}")
        latest = partial(self._latest, prober.of([pipeline]))
        options = {
            name: with_baseline(state, scope, name, one.options, latest)
            for name, one in zip(names, given, strict=True)
            if isinstance(one, Upstream) and one.options != DEFAULT_OPTIONS
        }
        hashed = definition_hash(pipeline, scope, names, options, lookups)
        return Registered(pipeline, scope, names, hashed, options, lookups)

    def _latest(self, prober: Prober, upstream: str, options: UpstreamOptions) -> UpstreamOptions:
        """The options with what "latest" means now."""
        if options.has_versions:
            return replace(options, latest_at=prober.log(upstream).facts().latest_version)
        found = prober.look(upstream, None, options)
        if found is None:
            raise latest_unknown(upstream)
        return replace(options, latest_mark=found.newest)

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
    ) -> Batch:
        """Freeze what is new in the upstreams as one batch, in one commit.

        Every other upstream of the pipelines concerned is frozen with it. An open batch on any of
        them is returned instead (`reused`). With no news at all nothing is journaled and status
        NOOP comes back. Called twice, the second call returns the batch of the first.
        `on_lost_range` is the way forward where commits are gone that were not planned yet:
        "snapshot" reads the whole table, "accept" declares them lost. `registry` registers
        pipelines in the same commit. `fallback="any_success"` lets upstreams that no registered
        pipeline reads advance when any pipeline has succeeded: weaker, and shown in the result.
        """
        refuse_unknown_settlement(on_lost_range)
        refuse_unknown_fallback(fallback)
        store = self._writer()
        self.names.learn(_every_name(upstreams, registry), journals=True)
        batch_id, prober = self._new_batch_id(), self._prober()
        outcome: list[Batch] = []

        def decide(state: State) -> list[Body]:
            state, registered = self._with_registry(state, registry, scope, prober)
            request = self._request(state, upstreams, pipelines, scope, max_versions)
            request = replace(request, on_lost_range=on_lost_range, fallback=fallback)
            batch, bodies = self._decide_plan(state, request, prober, batch_id)
            outcome[:] = [batch]
            return [*registered, *bodies]

        state = store.commit(decide)
        self._publish()
        # After a lost answer the journal may hold the windows of an earlier attempt of this call.
        planned = state.batches.get(batch_id)
        batch = outcome[0] if planned is None else _new_batch(state, planned)
        self._stages.planned(batch)
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
    ) -> Batch:
        """What `create_batch` would do now; writes nothing.

        `register` previews pipelines of the scope as if they were registered. Previews that share
        a `scratch` ask a web API with a cache once.
        """
        prober = self._prober(scratch or Scratch())
        self.names.learn(_every_name(upstreams, register), journals=False)
        state = self._reader_or_empty().state()
        state, _ = self._with_registry(state, register, scope, prober)
        request = self._request(state, upstreams, pipelines, scope, max_versions)
        request = replace(request, on_lost_range=on_lost_range)
        return self._decide_plan(state, request, prober)[0]

    def _decide_plan(
        self, state: State, request: PlanRequest, prober: Prober, batch_id: str | None = None
    ) -> tuple[Batch, list[Body]]:
        """The batch to return, and what has to be journaled for it; nothing without an id."""
        upstreams = planner.closure(state, request)
        prober = prober.of(pipeline.name for pipeline in state.active_in(request.scope))
        batch = planner.open_batch(state, request.scope, upstreams)
        if batch:
            waiting = planner.unplanned(batch, request)
            return batch_view(batch, reused=True, unplanned=waiting), []
        draft = self._draft(state, request, upstreams, prober)
        if not draft.has_news and not draft.seeds:
            return self._open_seed(state, request, upstreams) or draft_view(draft), []
        bodies = self._plans(state, draft, batch_id or "", request.fallback, prober)
        return planned_view(bodies[-1], bodies[:-1], is_frozen=batch_id is not None), (
            list(bodies) if batch_id else []
        )

    def _plans(
        self,
        state: State,
        draft: Draft,
        batch_id: str,
        fallback: Fallback | None,
        prober: Prober,
    ) -> list[Planned]:
        """The seeds, each for its pipeline, and after them the batch; the last one has the id."""
        drafts: list[tuple[BatchKind, Draft]] = [
            ("seed", Draft(seed.scope, seed.windows, {seed.pipeline: seed.upstreams}))
            for seed in draft.seeds
        ]
        drafts += [("forward", draft)] if draft.has_news else []
        ids = [self._new_batch_id() for _ in drafts[1:]] + [batch_id]
        return [
            Planned(
                batch_id=own_id,
                batch_seq=state.batch_seq + number,
                scope=draft.scope,
                windows=draft.windows,
                required=draft.required,
                batch_kind=kind,
                fallback=fallback if kind == "forward" else None,
                lookups=self._frozen_lookups(state, draft.required, prober),
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
        self, state: State, request: PlanRequest, upstreams: Sequence[str], prober: Prober
    ) -> Draft:
        failpoints.reached("plan.before_discover")
        probes = {
            upstream: prober.probe(
                upstream,
                state.marks.get((request.scope, upstream)),
                options_for(state, request, upstream),
                request.max_versions,
            )
            for upstream in upstreams
        }
        recreated = planner.recreated_upstreams(state, request.scope, probes)
        pipelines = seeds.pipelines_to_seed(state, request.scope, upstreams, recreated)
        drafts = [_draft_seed(state, pipeline, prober) for pipeline in pipelines]
        failpoints.reached("plan.after_discover")
        return planner.draft_batch(state, request, probes, drafts)

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
                allowed="1 or more, or None for no limit",
                state="nothing was planned",
                next="correct the call",
            )
        named = list(self._names(upstreams, what="the request")) if upstreams is not None else []
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
        """Like `create_batch`, for every Delta table of some schemas of the session's catalog.

        What else is in the schemas (views, tables of other formats) is not planned and named in
        `unplanned`. Needs a session: which tables there are is asked of the catalog each time.
        """
        names: list[str] = []
        others: list[str] = []
        for schema in [schemas] if isinstance(schemas, str) else schemas:
            found, rest = tables_of(self.spark, schema)
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
        prober: Prober,
    ) -> tuple[State, list[Body]]:
        """The state with these pipelines registered, and what has to be journaled for that."""
        from floodmark.control.journal import number_events
        from floodmark.control.rules import fold

        journaled: list[Body] = []
        for pipeline, upstreams in (registry or {}).items():
            refuse_odd_name(pipeline)
            bodies = registration(
                state, self._registered(state, pipeline, upstreams, scope, prober)
            )
            events = number_events(state, bodies, "", self.actor, self._clock.now())
            state = fold(events, state, self.outside.apply)
            journaled += bodies
        return state, journaled


def _draft_seed(state: State, pipeline: Pipeline, prober: Prober) -> Seed:
    prober = prober.of([pipeline.name])
    probes = {
        upstream: prober.probe_again(
            upstream,
            state.processed_through(pipeline.name, upstream),
            state.marks.get((pipeline.scope, upstream)),
            pipeline.options_of(upstream),
        )
        for upstream in pipeline.upstreams
    }
    return seeds.draft_seed(state, pipeline, probes)


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
