"""The story: discover -> plan -> run -> finalize -> report.

A batch freezes the exact versions of many upstreams; pipelines read exactly that; an upstream's
watermark advances only when every pipeline that depends on it has succeeded.
"""

from __future__ import annotations

import getpass
import logging
import sys
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal, get_args

from floodmark import failpoints
from floodmark.control import operations
from floodmark.control.delta import DeltaEventLog
from floodmark.control.events import (
    Body,
    Cancelled,
    Created,
    Event,
    Named,
    Planned,
    Registered,
)
from floodmark.control.heartbeats import FileHeartbeats, Heartbeats, Pulse
from floodmark.control.history import all_events, past_batch
from floodmark.control.journal import EventLog, Journal
from floodmark.control.projections import Projector
from floodmark.control.refusals import cannot_cancel, no_store
from floodmark.control.registry import (
    definition_hash,
    known_pipeline,
    refuse_odd_name,
    registration,
    with_baseline,
)
from floodmark.control.turns import turn
from floodmark.control.upkeep import compact_if_due
from floodmark.deltalog import DeltaLog, Storage, absolute, is_delta_table
from floodmark.errors import ConfigError, ControlError, PlanError
from floodmark.finalize import advance_watermarks
from floodmark.model.clock import Clock, SystemClock
from floodmark.model.plan import DEFAULT_SCOPE, Draft, PlanRequest, Probe, Seed
from floodmark.model.results import (
    Batch,
    Checkpoint,
    Finalized,
    Finding,
    Gap,
    Lag,
    Metrics,
    RunResult,
    StoreContent,
    Stuck,
    Upkeep,
    batch_view,
)
from floodmark.model.state import (
    BatchKind,
    Fallback,
    Holder,
    Mark,
    OnLostTarget,
    Pipeline,
    PlannedBatch,
    State,
    TableName,
)
from floodmark.model.upstream import (
    DEFAULT_OPTIONS,
    Upstream,
    UpstreamOptions,
    is_lookup,
    names_of,
)
from floodmark.model.window import Settlement, Window
from floodmark.plan import again, planner, seeds
from floodmark.plan.options import options_for
from floodmark.plan.refusals import (
    nothing_to_plan,
    refuse_unknown_fallback,
    refuse_unknown_settlement,
)
from floodmark.run.engine import Engine, spark_engine
from floodmark.run.external import ExternalReport
from floodmark.run.leases import (
    DEFAULT_TTL_SECONDS,
    LeaseOffice,
    batch_for_run,
    is_proven_dead,
    known_batch,
    this_process,
)
from floodmark.run.limits import NO_LIMITS, Limits
from floodmark.run.runner import Inputs, PipelineFunction, Runner, new_run_id, result_of
from floodmark.sources.names import (
    is_catalog_name,
    refuse_other_table,
    resolve,
    tables_of,
    unresolved,
)
from floodmark.sources.probe import probe_between, probe_delta

log = logging.getLogger("floodmark")


class Coordinator:
    """Plans batches over versioned upstreams, runs pipelines on them, advances watermarks.

    `spark` may be None for everything that only plans or reads state. A control store that does
    not exist is created by the first call that has to write.
    """

    def __init__(
        self,
        control: str,
        spark: Any = None,
        actor: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        *,
        lease_ttl: float = DEFAULT_TTL_SECONDS,
        base: str | None = None,
        schema: str | None = "gold",
    ) -> None:
        self.storage = Storage(storage_options)
        self.control = absolute(control, base)
        self.base = base
        self.spark = spark
        self.actor = actor or current_user()
        self.schema = schema
        self._lease_ttl = lease_ttl
        self._clock: Clock = SystemClock()
        self._holder: Holder = this_process()
        self._is_gone: Callable[[Holder], bool] = is_proven_dead
        self._delta_log = DeltaEventLog(self.control, self.storage)
        self._log: EventLog = self._delta_log
        self._heartbeats: Heartbeats = FileHeartbeats(self.control, self.storage)
        self._projector: Projector | None = Projector(self.control, self.storage)
        self._store: Journal | None = None
        self._engine: Engine | None = None
        self._is_coalescing = False
        self._dead_runs: set[str] = set()
        self._resolved: dict[str, TableName] = {}
        """Catalog names that this coordinator has resolved or found in the journal."""
        self._opening = threading.RLock()
        """Threads that share a coordinator open its store once."""

    # Registry -------------------------------------------------------------------------------------

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
        self._learn(names_of(everything), journals=True)

        def decide(state: State) -> list[Body]:
            return registration(state, self._registered(state, pipeline, everything, scope))

        self._writer().commit(decide)
        self._publish()

    def _registered(
        self, state: State, pipeline: str, upstreams: Sequence[str | Upstream], scope: str
    ) -> Registered:
        everything = [upstreams] if isinstance(upstreams, str) else list(upstreams)
        lookups = tuple(self.stored_name(one.name) for one in everything if is_lookup(one))
        given = [one for one in everything if not is_lookup(one)]
        names = self._names(names_of(given), what=f"pipeline {pipeline}")
        options = {
            name: with_baseline(state, scope, name, one.options, self._latest_version)
            for name, one in zip(names, given, strict=True)
            if isinstance(one, Upstream) and one.options != DEFAULT_OPTIONS
        }
        hashed = definition_hash(pipeline, scope, names, options, lookups)
        return Registered(pipeline, scope, names, hashed, options, lookups)

    def _latest_version(self, upstream: str) -> int:
        return DeltaLog(upstream, self.storage).facts().latest_version

    # Plan -----------------------------------------------------------------------------------------

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
        self._learn(_every_name(upstreams, registry), journals=True)
        batch_id = self._new_batch_id()
        outcome: list[Batch] = []

        def decide(state: State) -> list[Body]:
            state, registered = self._with_registry(state, registry, scope)
            request = self._request(state, upstreams, pipelines, scope, max_versions)
            request = replace(request, on_lost_range=on_lost_range, fallback=fallback)
            batch, bodies = self._decide_plan(state, request, batch_id)
            outcome[:] = [batch]
            return [*registered, *bodies]

        state = store.commit(decide)
        self._publish()
        # After a lost answer the journal may hold the windows of an earlier attempt of this call.
        planned = state.batches.get(batch_id)
        if planned is None:
            return outcome[0]
        before = [b for b in state.open_batches(scope) if b.kind == "seed" and b.seq < planned.seq]
        waiting = tuple(name for seed in before for name in seed.required)
        return replace(batch_view(planned, reused=False), seeds=waiting)

    def preview(
        self,
        upstreams: Sequence[str] | None = None,
        *,
        pipelines: Sequence[str] | None = None,
        scope: str = DEFAULT_SCOPE,
        max_versions: int | None = None,
        on_lost_range: Settlement | None = None,
        register: Mapping[str, Sequence[str | Upstream]] | None = None,
    ) -> Batch:
        """What `create_batch` would do now; writes nothing.

        `register` previews pipelines of the scope as if they were registered.
        """
        self._learn(_every_name(upstreams, register), journals=False)
        state = self._reader_or_empty().state()
        state, _ = self._with_registry(state, register, scope)
        request = self._request(state, upstreams, pipelines, scope, max_versions)
        return self._decide_plan(state, replace(request, on_lost_range=on_lost_range))[0]

    def _decide_plan(
        self, state: State, request: PlanRequest, batch_id: str | None = None
    ) -> tuple[Batch, list[Body]]:
        """The batch to return, and what has to be journaled for it; nothing without an id."""
        upstreams = planner.closure(state, request)
        batch = planner.open_batch(state, request.scope, upstreams)
        if batch:
            waiting = planner.unplanned(batch, request)
            return batch_view(batch, reused=True, unplanned=waiting), []
        draft = self._draft(state, request, upstreams)
        if not draft.has_news and not draft.seeds:
            return self._open_seed(state, request, upstreams) or draft_view(draft), []
        bodies = self._plans(state, draft, batch_id or "", request.fallback)
        return planned_view(bodies[-1], bodies[:-1], is_frozen=batch_id is not None), (
            list(bodies) if batch_id else []
        )

    def _plans(
        self, state: State, draft: Draft, batch_id: str, fallback: Fallback | None
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
                lookups=self._frozen_lookups(state, draft.required),
            )
            for number, ((kind, draft), own_id) in enumerate(zip(drafts, ids, strict=True), 1)
        ]

    def _frozen_lookups(self, state: State, pipelines: Iterable[str]) -> tuple[Window, ...]:
        """The lookups of these pipelines, as they are now."""
        known = [state.pipelines[name] for name in pipelines if name in state.pipelines]
        names = dict.fromkeys(lookup for pipeline in known for lookup in pipeline.lookups)
        probes = {name: self._probe_between(name, -1, None) for name in names}
        return tuple(
            seeds.standing_window(name, probe, probe.facts.latest_version)
            for name, probe in probes.items()
        )

    def _open_seed(
        self, state: State, request: PlanRequest, upstreams: Sequence[str]
    ) -> Batch | None:
        """The oldest seed that still waits for a pipeline of the request."""
        for batch in state.open_batches(request.scope):
            if batch.kind == "seed" and batch.windows.keys() & set(upstreams):
                return batch_view(batch, reused=True)
        return None

    def _draft(self, state: State, request: PlanRequest, upstreams: Sequence[str]) -> Draft:
        failpoints.reached("plan.before_discover")
        probes = {
            upstream: self._probe(
                upstream,
                state.marks.get((request.scope, upstream)),
                request,
                options_for(state, request, upstream),
            )
            for upstream in upstreams
        }
        recreated = planner.recreated_upstreams(state, request.scope, probes)
        pipelines = seeds.pipelines_to_seed(state, request.scope, upstreams, recreated)
        drafts = [self._draft_seed(state, pipeline) for pipeline in pipelines]
        failpoints.reached("plan.after_discover")
        return planner.draft_batch(state, request, probes, drafts)

    def _draft_seed(self, state: State, pipeline: Pipeline) -> Seed:
        probes = {
            upstream: self._probe_between(
                upstream,
                state.processed_through(pipeline.name, upstream),
                state.marks.get((pipeline.scope, upstream)),
            )
            for upstream in pipeline.upstreams
        }
        return seeds.draft_seed(state, pipeline, probes)

    def _probe_between(self, upstream: str, after: int, mark: Mark | None) -> Probe:
        return probe_between(upstream, after, mark, self.storage)

    def _probe(
        self, upstream: str, mark: Mark | None, request: PlanRequest, options: UpstreamOptions
    ) -> Probe:
        return probe_delta(upstream, mark, request.max_versions, self.storage, options)

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

    # Run ------------------------------------------------------------------------------------------

    def run_pipeline(
        self,
        pipeline: str,
        batch_id: str,
        function: PipelineFunction,
        on_lost_range: Settlement | None = None,
        *,
        limits: Limits = NO_LIMITS,
        on_lost_target: OnLostTarget | None = None,
    ) -> RunResult:
        """Run a pipeline's function on exactly the windows of a batch.

        What it writes with `run.write` happens exactly once. An error is recorded as FAILED and
        raised again; calling this again is the retry. After SUCCESS the function is not called
        again and the stored result comes back. `on_lost_range` names the way forward for windows
        that an upstream has lost: "snapshot" reads the whole table at the planned end instead,
        "accept" what is left; it is journaled, and windows that can be read are not touched. With
        `limits` the function runs in a thread of its own; after the timeout the run is fenced,
        recorded as FAILED and raises FM-RUN-007, although the thread may still be running.
        `on_lost_target` names the way forward for targets that were dropped, recreated, restored or
        emptied: "rebuild" writes them anew, as a first run at the batch's versions would, "accept"
        goes on from what they hold; targets that lost nothing are not touched by it. For a rebuild
        the function may be called more than once.
        """
        if on_lost_target not in (None, *get_args(OnLostTarget)):
            raise ConfigError(
                "FM-CONFIG-007",
                f"on_lost_target is {on_lost_target!r}",
                allowed="rebuild, accept, or None",
                state="nothing was read or written",
                next="correct the call",
            )
        refuse_unknown_settlement(on_lost_range)
        store = self._writer()
        earlier = self._batch(batch_id).runs.get(pipeline)
        if earlier and earlier.status == "SUCCESS":
            return result_of(earlier, is_repeat=True)
        # Refuse before a Spark session is asked for.
        batch_for_run(store.state(), batch_id, pipeline)
        engine = self._engine or spark_engine(self.spark, self.storage)
        try:
            runner = replace(self._runner(store, on_lost_target), on_lost_range=on_lost_range)
            return runner.run(pipeline, batch_id, function, engine, limits)
        finally:
            self._publish()

    def record_run(
        self,
        pipeline: str,
        batch_id: str,
        *,
        status: Literal["RUNNING", "SUCCESS", "FAILED"],
        rows_read: int | None = None,
        rows_written: int | None = None,
        metrics: Mapping[str, object] | None = None,
        error: str | None = None,
    ) -> RunResult:
        """Record a run that happens elsewhere (dbt, a notebook); exactly once is its own business.

        RUNNING counts as a lease, SUCCESS is final and may be repeated, batches must come in
        order. Recording the same status again changes nothing.
        """
        if status not in ("RUNNING", "SUCCESS", "FAILED"):
            raise ConfigError(
                "FM-CONFIG-007",
                f"a run cannot have status {status!r}",
                allowed="RUNNING, SUCCESS, FAILED",
                state="nothing was recorded",
                next="correct the call",
            )
        report = ExternalReport(
            pipeline=pipeline,
            batch_id=batch_id,
            status=status,
            run_id=new_run_id(self._clock),
            ttl_seconds=self._lease_ttl,
            said=Metrics(rows_read, rows_written, metrics or {}),
            error=error,
        )
        store = self._writer()
        earlier = self._batch(batch_id).runs.get(pipeline)
        if earlier and earlier.status == status == "SUCCESS":
            return result_of(earlier, is_repeat=True)
        state = store.commit(report.events)
        self._publish()
        return result_of(state.batches[batch_id].runs[pipeline])

    # Finalize -------------------------------------------------------------------------------------

    def finalize_batch(self, batch_id: str) -> tuple[str, ...]:
        """Advance every upstream of a batch that is ready; returns those that moved.

        Uses the registry copied into the plan. Called again it moves nothing. An unfinished batch
        is not an error: `finalize` says what is held and why.
        """
        return self.finalize(batch_id).advanced

    def finalize(self, batch_id: str) -> Finalized:
        """Like `finalize_batch`, and says what is held and why."""
        store = self._writer()
        if not self._batch(batch_id).is_open:
            return Finalized(batch_id, advanced=(), held=())
        outcome = advance_watermarks(store, batch_id)
        self._publish()
        return outcome

    def cancel(self, batch_id: str) -> None:
        """Give up a batch that no runner has leased; its ranges will be planned again.

        Of a leased batch, windows that no pipeline reads can be given up once all else is
        finished. Cancelling twice changes nothing. Raises FM-CONTROL-012 if a runner has leased it.
        """

        def decide(state: State) -> list[Body]:
            batch = known_batch(state, batch_id)
            if batch.is_cancelled or (batch.released and not batch.pending_upstreams()):
                return []
            if not batch.can_be_cancelled:
                raise cannot_cancel(batch)
            return [Cancelled(batch_id)]

        self._writer().commit(decide)
        self._publish()

    # Operate --------------------------------------------------------------------------------------

    def pause(self, pipeline: str) -> None:
        """Take a pipeline out: open batches no longer wait for it, new ones do not ask for it.

        Refused (FM-CONTROL-006) while a run of it is alive. A batch that it had begun stays its
        debt; it finishes that first once it is resumed. Pausing twice changes nothing.
        """
        self._operate(lambda state, dead: operations.pausing(state, pipeline, dead), pipeline)

    def resume(self, pipeline: str) -> None:
        """Let a paused pipeline take part again; the next plan catches it up to the watermark."""
        self._operate(lambda state, _: operations.resuming(state, pipeline))

    def unregister(self, pipeline: str) -> None:
        """Remove a pipeline for good: nothing waits for it any more.

        Refused (FM-CONTROL-006) while a run of it is alive. Its targets stay as they are; a
        pipeline of that name that is registered later starts with everything. Twice is once.
        """
        self._operate(lambda state, dead: operations.removing(state, pipeline, dead), pipeline)

    def rename(self, pipeline: str, new_name: str) -> None:
        """Give a pipeline another name; it goes on where it stands, with receipts of that name."""
        refuse_odd_name(new_name)
        self._operate(lambda state, _: operations.renaming(state, pipeline, new_name))

    def refresh(self, pipeline: str) -> None:
        """Let one pipeline load everything again: its next batch is a seed of the whole tables.

        The watermarks and the other pipelines of its scope stay. The function sees snapshots; an
        append has to say `allow_full=True`, or better overwrite.
        """
        self._operate(lambda state, _: operations.refreshing(state, pipeline))

    def _operate(
        self, events: Callable[[State, str | None], list[Body]], ended: str | None = None
    ) -> None:
        """Journal what an operation means; `ended` names a pipeline that must not be running."""
        store = self._writer()
        dead = self._office(store).proven_dead(ended, store.state()) if ended else None
        store.commit(lambda state: events(state, dead))
        self._publish()

    def backfill(
        self,
        upstream: str,
        *,
        start: int,
        end: int,
        pipelines: Sequence[str],
        scope: str = DEFAULT_SCOPE,
        allow_duplicates: bool = False,
        allow_stale: bool = False,
    ) -> Batch:
        """Plan a range that is committed once more, for these pipelines; watermarks stay.

        The batch has receipts of its own, so its runs are exactly once too. Writes must be merges,
        or it has to be said that rows may double (`allow_duplicates`) or older rows replace newer
        ones (`allow_stale`). Called twice it plans two batches.
        """
        name = self.stored_name(upstream)
        allows = _allowed(allow_duplicates, allow_stale)

        def draft(state: State) -> Draft:
            chosen = tuple(operations.known(state, pipeline) for pipeline in pipelines)
            request = again.Backfill(scope, name, start, end, chosen)
            marks = {u: state.marks.get((scope, u)) for u in request.upstreams()}
            marks[name] = request.mark(state)
            probes = {
                u: self._probe_between(u, start - 1 if u == name else mark.version, mark)
                if mark
                else self._probe_between(u, -1, None)
                for u, mark in marks.items()
            }
            return again.backfilling(state, request, probes)

        return self._plan_again("backfill", draft, allows)

    def replay(
        self,
        batch_id: str,
        *,
        pipelines: Sequence[str] | None = None,
        allow_duplicates: bool = False,
        allow_stale: bool = False,
    ) -> Batch:
        """Plan the very windows of a completed batch once more; see `backfill`."""
        allows = _allowed(allow_duplicates, allow_stale)
        batch = self._batch(batch_id)
        names = tuple(batch.required) if pipelines is None else pipelines
        return self._plan_again(
            "replay", lambda state: again.replaying(state, batch, names), allows
        )

    def _plan_again(
        self, kind: BatchKind, draft: Callable[[State], Draft], allows: tuple[str, ...]
    ) -> Batch:
        batch_id = self._new_batch_id()

        def decide(state: State) -> list[Body]:
            drafted = draft(state)
            return [
                Planned(
                    batch_id=batch_id,
                    batch_seq=state.batch_seq + 1,
                    scope=drafted.scope,
                    windows=drafted.windows,
                    required=drafted.required,
                    batch_kind=kind,
                    allows=allows,
                    lookups=self._frozen_lookups(state, drafted.required),
                )
            ]

        state = self._writer().commit(decide)
        self._publish()
        return batch_view(state.batches[batch_id], reused=False)

    # What this version refuses --------------------------------------------------------------------

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
        batch = self.create_batch(
            names, scope=scope, max_versions=max_versions, fallback=fallback
        )
        return replace(batch, unplanned=(*batch.unplanned, *others))

    # Looking --------------------------------------------------------------------------------------

    def state(self) -> State:
        """The newest state; raises FM-CONTROL-001 if there is no store."""
        return self._reader().state()

    def state_if_any(self) -> State | None:
        """The newest state, None if there is no store; an outage is still an error."""
        return self._reader().state() if self._has_store() else None

    def current_plan(self, scope: str | None = None) -> tuple[Batch, ...]:
        """The open batches, oldest first."""
        return tuple(batch_view(b, reused=True) for b in self.state().open_batches(scope))

    def checkpoints(self, upstreams: Iterable[str] | None = None) -> tuple[Checkpoint, ...]:
        """The committed watermarks, of all upstreams or of some."""
        names = None if upstreams is None else {self.stored_name(u) for u in upstreams}
        marks = self.state().marks.values()
        return tuple(
            Checkpoint(m.scope, m.upstream, m.version, m.table_id, m.batch_id, m.advanced_at)
            for m in marks
            if names is None or m.upstream in names
        )

    def frozen_set(self, batch_id: str) -> dict[str, int]:
        """The versions at which a batch sees its upstreams."""
        batch = self._batch(batch_id)
        frozen = {**batch.windows, **batch.lookups}
        return {upstream: window.through_version for upstream, window in frozen.items()}

    def inputs(self, batch_id: str, pipeline: str) -> Mapping[str, Any]:
        """The exact frames that a run of the pipeline gets, for a notebook; records nothing."""
        batch = self._batch(batch_id)
        if not batch.upstreams_of(pipeline):
            batch_for_run(self._reader().state(), batch_id, pipeline)
        source = (self._engine or spark_engine(self.spark, self.storage)).source()
        windows = [batch.window_for(pipeline, u) for u in batch.upstreams_of(pipeline)]
        for window in windows:
            source.check(window)
        return Inputs({w.upstream: source.read(w) for w in windows}, self.stored_name)

    def open_frozen(self, batch_id: str) -> Mapping[str, Any]:
        """Every upstream of a batch as a whole, at its frozen version, without change columns."""
        source = (self._engine or spark_engine(self.spark, self.storage)).source()
        batch = self._batch(batch_id)
        windows = (*batch.windows.values(), *batch.lookups.values())
        tables = {w.upstream: source.table(w, w.through_version) for w in windows}
        return Inputs(tables, self.stored_name)

    def status(self, batch_id: str | None = None) -> tuple[PlannedBatch, ...]:
        """The open batches and the newest finished ones, newest first; or one batch."""
        state = self.state()
        if batch_id is not None:
            return (self._batch(batch_id),)
        return tuple(sorted(state.batches.values(), key=lambda b: b.seq, reverse=True))

    def lag(self) -> tuple[Lag, ...]:
        """How far each upstream is behind, worst first, and what holds it."""
        from floodmark.report.lag import lag_of

        return lag_of(self._reader(), self.storage, self._clock.now())

    def stuck(self, after: float | str = "1d") -> tuple[Stuck, ...]:
        """Open batches that will not move by themselves: open for longer than `after`, or left
        RUNNING by a process of this host that is gone.
        """
        from floodmark.config.durations import seconds_of
        from floodmark.report.watch import stuck_batches

        seconds = seconds_of(after) if isinstance(after, str) else float(after)
        return stuck_batches(self.state(), self._clock.now(), self._is_gone, seconds)

    def failures(self) -> dict[str, int]:
        """How often each pipeline failed since it last succeeded; only those that did."""
        from floodmark.report.watch import failures_in_a_row

        return failures_in_a_row(self.state())

    def history(self, limit: int | None = None) -> list[Event]:
        """What happened, oldest first: every event, also those folded out of the journal."""
        events = all_events(self._reader(), self.control, self.storage)
        return events[-limit:] if limit else events

    def gaps(self) -> tuple[Gap, ...]:
        """Versions that a pipeline never processed although it is past them; empty if none."""
        from floodmark.report.gaps import gaps_of

        return gaps_of(self._reader(), self.control, self.storage)

    def verify(self) -> list[Finding]:
        """Check the guarantees on the journal, the sinks and the published tables."""
        from floodmark.report.verify import verify_store

        return verify_store(self._reader(), self.control, self.storage)

    def doctor(self, upstreams: Iterable[str] = ()) -> list[Finding]:
        """Look for what will hurt: the machine, the store, the upstreams. Changes nothing."""
        from floodmark.engines.environment import examine_machine
        from floodmark.report import doctor
        from floodmark.report.lag import lag_of

        reader = self._reader_or_empty()
        store = doctor.examine_store(reader, self.control, self.storage)
        findings = [*examine_machine(), *store]
        if not store[0].ok:
            return findings  # a store that cannot be read tells nothing of the rest
        state, lags = reader.state(), lag_of(reader, self.storage, self._clock.now())
        names = [self.stored_name(u) for u in upstreams] + [u for _, u in state.marks]
        for name in dict.fromkeys(names):
            marks = [mark for mark in state.marks.values() if mark.upstream == name]
            behind = [lag for lag in lags if lag.upstream == name]
            findings += doctor.examine_upstream(name, marks, behind, state, self.storage)
        for sink in {sink.target: sink for sink in state.sinks.values()}.values():
            findings += doctor.examine_target(sink, self.storage)
        return findings

    def rebuild_tables(self) -> bool:
        """Write the published tables anew; whether every event since the beginning was at hand."""
        from floodmark.control.rebuild import rebuild_tables

        is_complete = rebuild_tables(self._reader(), self.control, self.storage)
        self._register_tables()
        return is_complete

    # Upkeep ---------------------------------------------------------------------------------------

    def upkeep(self, retain: float | str = "7d", *, allow_short: bool = False) -> Upkeep:
        """Fold the journal, join small files, remove what nobody needs; says what it did.

        Files that were replaced stay for `retain` (seconds, or text such as "30d"), at least an
        hour unless `allow_short`. State, guarantees and `history` stay as they are. Killed
        anywhere it leaves a sound store; called again, it does what is left. Raises
        FM-CONTROL-001 if there is no store.
        """
        from floodmark.config.durations import seconds_of
        from floodmark.control.retention import SAFE_SECONDS
        from floodmark.control.upkeep import keep_up, refuse_short

        seconds = seconds_of(retain) if isinstance(retain, str) else float(retain)
        refuse_short(seconds, 0.0 if allow_short else SAFE_SECONDS)
        state = self._reader().state()
        projector = self._projector or Projector(self.control, self.storage)
        done = keep_up(self._delta_log, projector, state, seconds, self._clock.now())
        self._register_tables()
        return done

    def reset(
        self, upstream: str, *, scope: str = DEFAULT_SCOPE, to_version: int | None = None
    ) -> None:
        """Put a watermark elsewhere: marks only, rows and receipts in targets stay.

        The next plan starts after `to_version`; with None nothing counts as processed. Going back
        processes versions again, going on leaves a gap that `gaps` shows. Called twice, the
        second call changes nothing. Raises FM-CONTROL-023 while a batch holds the upstream.
        """
        from floodmark.control.resetting import decide_reset, reset_of

        body = reset_of(self.stored_name(upstream), scope, to_version, self.storage)
        self._reader().state()  # a store that is not there is not made for this
        self._writer().commit(lambda state: decide_reset(state, body))
        self._publish()

    def export_state(self, file: str) -> StoreContent:
        """Write every event into one text file, and say what is in it.

        Raises FM-CONFIG-007 if the file is there already.
        """
        from floodmark.control import transfer

        events = all_events(self._reader(), self.control, self.storage)
        content = transfer.export_text(events, self._clock.now())
        transfer.write_export(absolute(file), content, self.storage)
        return transfer.content_of(self.control, events, self.state())

    def import_state(self, file: str) -> StoreContent:
        """Make the store that a file holds, under its old control id, in an empty place.

        Raises FM-CONTROL-021 if there is a store, FM-CONTROL-022 if the file is no whole export.
        The store it was exported from must not be used any more.
        """
        from floodmark.control import transfer

        return self._filled(transfer.read_export(absolute(file), self.storage))

    def rebuild_from_targets(
        self, targets: Sequence[str], pipelines: Mapping[str, tuple[str, Sequence[str]]] | None = None
    ) -> StoreContent:
        """Restore a lost store from the commits of its targets; says what could not be restored.

        `pipelines` gives scope and upstreams of pipelines that are known from elsewhere. Raises
        FM-CONTROL-021 if there is a store, FM-CONTROL-024 if the targets are not of one store.
        """
        from floodmark.control import recovery, transfer
        from floodmark.control.journal import new_op_id

        transfer.refuse_existing(self._delta_log, Projector(self.control, self.storage))
        names = [self.stored_name(target) for target in targets]
        known = {
            name: recovery.Known(scope, tuple(self.stored_name(u) for u in upstreams))
            for name, (scope, upstreams) in (pipelines or {}).items()
        }
        found = recovery.gather(names, known, self.storage)
        now = self._clock.now()
        body, missing = recovery.rebuilt(found, names, self.storage, self.actor, now)
        content = self._filled([Event(1, body, new_op_id(), self.actor, now)])
        return replace(content, not_restored=tuple(missing))

    def _filled(self, events: Sequence[Event]) -> StoreContent:
        from floodmark.control import transfer

        transfer.fill(self._delta_log, Projector(self.control, self.storage), events)
        self.rebuild_tables()
        return transfer.content_of(self.control, events, self.state())

    # ----------------------------------------------------------------------------------------------

    @contextmanager
    def coalesce(self) -> Iterator[Coordinator]:
        """A context in which the published tables are refreshed once, at its end."""
        self._is_coalescing = True
        try:
            yield self
        finally:
            self._is_coalescing = False
            self._publish()

    def stored_name(self, name: str) -> str:
        """The name under which an upstream is stored: the absolute path or URI.

        For a name of a catalog it is the path that the name was resolved to.
        """
        table = self._table_of(name) if is_catalog_name(name) else None
        return table.path if table else absolute(name, self.base)

    def refuse_unresolved(self, name: str) -> None:
        """Raise FM-PLAN-030 for a catalog name that nobody has resolved yet; asks no catalog."""
        if is_catalog_name(name) and self._table_of(name) is None:
            raise unresolved(name, "it was not resolved yet, and nothing is asked of a catalog here")

    def _table_of(self, name: str) -> TableName | None:
        """What a catalog name was resolved to; not asked of the catalog, nor of the newest state:
        it may be wanted in the middle of a commit.
        """
        if name not in self._resolved:
            self._resolved |= self._reader_or_empty().known_state().names
        return self._resolved.get(name)

    def _learn(self, names: Iterable[str], *, journals: bool) -> None:
        """Resolve the catalog names among these that nobody has resolved yet, and remember them.

        A remembered one is asked for again only if its table has gone from its place.
        """
        for name in filter(is_catalog_name, names):
            known = self._table_of(name)
            if known is None:
                self._remember(resolve(self.spark, name), journals=journals)
            elif self.spark is not None and not is_delta_table(known.path, self.storage):
                marks = self._reader_or_empty().state().marks.values()
                committed = {m.scope: m.version for m in marks if m.upstream == known.path}
                refuse_other_table(known, resolve(self.spark, name), committed)

    def _remember(self, table: TableName, *, journals: bool) -> None:
        def decide(state: State) -> list[Body]:
            return [] if table.name in state.names else [Named(table)]

        names = self._writer().commit(decide).names if journals else {}
        self._resolved[table.name] = names.get(table.name, table)

    def _batch(self, batch_id: str) -> PlannedBatch:
        """A batch of any age; raises FM-CONTROL-004."""
        state = self._reader().state()
        if batch_id not in state.batches:
            past = past_batch(self.control, self.storage, batch_id)
            if past:
                return past
        return known_batch(state, batch_id)

    def _names(self, upstreams: Sequence[str], *, what: str) -> tuple[str, ...]:
        if isinstance(upstreams, str):
            upstreams = [upstreams]
        for name in upstreams:
            self.refuse_unresolved(name)
        names = tuple(self.stored_name(name) for name in upstreams)
        if not names:
            raise PlanError(
                "FM-PLAN-004",
                f"{what} names no upstream",
                allowed="at least one",
                state="nothing was journaled",
                next="name the upstreams",
            )
        planner.refuse_repeated(names)
        return names

    def _with_registry(
        self,
        state: State,
        registry: Mapping[str, Sequence[str | Upstream]] | None,
        scope: str,
    ) -> tuple[State, list[Body]]:
        """The state with these pipelines registered, and what has to be journaled for that."""
        from floodmark.control.fold import fold
        from floodmark.control.journal import number_events

        journaled: list[Body] = []
        for pipeline, upstreams in (registry or {}).items():
            refuse_odd_name(pipeline)
            bodies = registration(state, self._registered(state, pipeline, upstreams, scope))
            state = fold(number_events(state, bodies, "", self.actor, self._clock.now()), state)
            journaled += bodies
        return state, journaled

    def refuse_if_leased(self, pipeline: str, batch_id: str) -> None:
        """Raise what a run of the pipeline would be refused with now, before Spark is started.

        A holder that cannot be proven dead is watched for as long as a run would watch it.
        """
        self._office(self._reader()).refuse_if_held(pipeline, batch_id)

    def _office(self, store: Journal) -> LeaseOffice:
        return LeaseOffice(
            store,
            self._heartbeats,
            self._clock,
            self._holder,
            self._is_gone,
            self._lease_ttl,
            self._dead_runs,
        )

    def _runner(self, store: Journal, on_lost_target: OnLostTarget | None = None) -> Runner:
        return Runner(
            store=store,
            office=self._office(store),
            pulse=self._pulse,
            clock=self._clock,
            name_of=self.stored_name,
            on_lease=lambda: self._publish_running(store),
            on_lost_target=on_lost_target,
        )

    def _pulse(self, run_id: str, ttl_seconds: float) -> Pulse:
        return Pulse(self._heartbeats, run_id, ttl_seconds, self._clock)

    def _reader(self) -> Journal:
        """The store for looking; raises FM-CONTROL-001 if there is none."""
        with self._opening:
            if self._store is None:
                if self._log is self._delta_log and not self._delta_log.exists():
                    raise no_store(self.control)
                self._store = self._journal()
            return self._store

    def _has_store(self) -> bool:
        return self._store is not None or self._log is not self._delta_log or self._delta_log.exists()

    def _reader_or_empty(self) -> Journal:
        """The store for a preview: an empty one where none was created yet."""
        from floodmark.control.memory import MemoryEventLog

        if self._store is None and self._log is self._delta_log and not self._delta_log.exists():
            return Journal(MemoryEventLog(), actor=self.actor)
        return self._reader()

    def _writer(self) -> Journal:
        """The store for writing; created if there is none."""
        with self._opening:
            if self._store is None:
                if self._log is self._delta_log and not self._delta_log.exists():
                    self._delta_log.create()
                    sys.stderr.write(f"floodmark: created the control store {self.control}\n")
                self._store = self._journal()
                self._store.commit(
                    lambda state: [] if state.control_id else [Created(uuid.uuid4().hex)]
                )
            return self._store

    def _journal(self) -> Journal:
        observer = self._projector.observe if self._projector else None
        return Journal(self._log, actor=self.actor, clock=self._clock, observer=observer)

    def _new_batch_id(self) -> str:
        return f"batch_{self._clock.now():%Y%m%dT%H%M%S%fZ}_{uuid.uuid4().hex[:8]}"

    def _publish(self) -> None:
        """Refresh the published tables, and compact the journal if that is due.

        What was journaled stands whatever happens here: a table that cannot be refreshed lags
        behind and is warned about, it never changes the outcome of a call.
        """
        if self._projector is None or self._store is None or self._is_coalescing:
            return
        try:
            self._take_turn(self._store, "history")
            compact_if_due(self._delta_log, self._projector)
            self._register_tables()
        except ControlError as error:
            log.warning("%s", error.in_one_line())

    def _publish_running(self, store: Journal) -> None:
        if self._projector is None:
            return
        try:
            self._take_turn(store, "pipeline_checkpoints", only=("pipeline_checkpoints",))
        except ControlError as error:
            log.warning("%s", error.in_one_line())

    def _take_turn(
        self, store: Journal, table: str, only: tuple[str, ...] | None = None
    ) -> None:
        """Refresh the published tables, unless whoever had the turn before did it for us.

        `table` is the last one to be refreshed: what it shows, all of them show.
        """
        if self._projector is None:
            return
        wanted = store.state().seq
        with turn(self.control) as has_waited:
            if not has_waited or self._projector.published_through(table) < wanted:
                self._projector.refresh(store.state(), only=only)

    def _register_tables(self) -> None:
        if self.spark is not None and self.schema:
            from floodmark.engines.catalog import register_control_tables

            register_control_tables(self.spark, self.control, self.schema)


def _every_name(
    upstreams: Sequence[str] | None, registry: Mapping[str, Sequence[str | Upstream]] | None
) -> list[str]:
    """The names that a request gives, itself or in a registry."""
    named = [upstreams] if isinstance(upstreams, str) else list(upstreams or ())
    return named + [name for each in (registry or {}).values() for name in names_of(each)]


def current_user() -> str:
    """Who runs this, for the records; a container may have no name for its user."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def _allowed(duplicates: bool, stale: bool) -> tuple[str, ...]:  # noqa: FBT001 the caller names them
    return (*(("duplicates",) if duplicates else ()), *(("stale",) if stale else ()))


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
