"""The coordinator: plans batches, runs pipelines on them, advances watermarks.

A batch freezes the exact versions of many upstreams; pipelines read exactly that; an upstream's
watermark advances only when every pipeline that depends on it has succeeded. The story of a whole
run is in `project.story`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from floodmark.control.events import Event
from floodmark.coordinator.admin import Admin
from floodmark.coordinator.look import Look
from floodmark.coordinator.operating import Operating
from floodmark.coordinator.outside import Outside
from floodmark.coordinator.planning import Planning
from floodmark.coordinator.probes import Probes
from floodmark.coordinator.probing import Prober
from floodmark.coordinator.running import Running
from floodmark.coordinator.store import Store
from floodmark.model import (
    DEFAULT_SCOPE,
    Batch,
    Checkpoint,
    Fallback,
    Finalized,
    Finding,
    Gap,
    Lag,
    OnLostTarget,
    PlannedBatch,
    RunResult,
    Settlement,
    Upstream,
)
from floodmark.model.arguments import checks_arguments
from floodmark.model.moved import moved_to
from floodmark.plan import rerun
from floodmark.run.databases import NO_DATABASES, Databases
from floodmark.run.leases import DEFAULT_TTL_SECONDS
from floodmark.run.limits import NO_LIMITS, Limits
from floodmark.run.runner import PipelineFunction
from floodmark.sources import Scratch

__all__ = ["Admin", "Coordinator", "Look", "Outside", "Prober", "Probes", "Store"]


@moved_to(
    "look", Look, "state", "state_if_any", "stuck", "failures", "stored_name", "refuse_unknown"
)
@moved_to(
    "admin",
    Admin,
    "doctor",
    "export_state",
    "import_state",
    "metrics",
    "planned_reset",
    "rebuild_from_targets",
    "rebuild_tables",
    "refresh",
    "rename",
    "reset",
    "upkeep",
)
@moved_to("running", Running, "refuse_if_leased", "sweep_landing")
@moved_to("store", Store, "actor", "coalesce", "frozen_lookup", "refuse_unresolved")
@checks_arguments
class Coordinator:
    """Plans batches over versioned upstreams, runs pipelines on them, advances watermarks.

    `spark` may be None for everything that only plans or reads state. A control store that does
    not exist is created by the first call that has to write. `look` answers questions and changes
    nothing, `admin` is for the upkeep of the store.
    """

    def __init__(
        self,
        control: str | os.PathLike[str],
        spark: Any = None,
        actor: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        *,
        lease_ttl: float = DEFAULT_TTL_SECONDS,
        base: str | None = None,
        schema: str | None = "gold",
        databases: Databases = NO_DATABASES,
        outside: Outside | None = None,
    ) -> None:
        self.store = Store(
            control,
            spark,
            actor,
            storage_options,
            lease_ttl=lease_ttl,
            base=base,
            schema=schema,
            databases=databases,
            outside=outside,
        )
        self.control, self.storage = self.store.control, self.store.storage
        self.outside = self.store.outside
        self.look = Look(self.store)
        self.planning = Planning(self.store)
        self.running = Running(self.store)
        self.operating = Operating(self.store)
        self.admin = Admin(self.store, self.operating)

    @property
    def spark(self) -> Any:
        """The session that runs read and write with; None until there is one."""
        return self.store.spark

    @spark.setter
    def spark(self, session: Any) -> None:
        self.store.spark = session

    # Plan ------------------------------------------------------------------------------------------

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
        self.planning.register(pipeline, upstreams, scope, lookups=lookups)

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
        return self.planning.create_batch(
            upstreams,
            pipelines=pipelines,
            scope=scope,
            max_versions=max_versions,
            on_lost_range=on_lost_range,
            registry=registry,
            fallback=fallback,
        )

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
        return self.planning.preview(
            upstreams,
            pipelines=pipelines,
            scope=scope,
            max_versions=max_versions,
            on_lost_range=on_lost_range,
            register=register,
            scratch=scratch,
        )

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
        return self.planning.plan_schemas(
            schemas, scope=scope, max_versions=max_versions, fallback=fallback
        )

    # Run and finalize ------------------------------------------------------------------------------

    def run_pipeline(
        self,
        pipeline: str,
        batch_id: str,
        function: PipelineFunction,
        on_lost_range: Settlement | None = None,
        *,
        limits: Limits = NO_LIMITS,
        on_lost_target: OnLostTarget | None = None,
        loads_anew: bool = False,
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
        the function may be called more than once. With `loads_anew` nodes that read everything from
        the beginning replace what their targets hold.
        """
        return self.running.run_pipeline(
            pipeline,
            batch_id,
            function,
            on_lost_range,
            limits=limits,
            on_lost_target=on_lost_target,
            loads_anew=loads_anew,
        )

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
        return self.running.record_run(
            pipeline,
            batch_id,
            status=status,
            rows_read=rows_read,
            rows_written=rows_written,
            metrics=metrics,
            error=error,
        )

    def inputs(self, batch_id: str, pipeline: str) -> Mapping[str, Any]:
        """The exact frames that a run of the pipeline gets, for a notebook; records nothing."""
        return self.running.inputs(batch_id, pipeline)

    def open_frozen(self, batch_id: str) -> Mapping[str, Any]:
        """Every upstream of a batch as a whole, at its frozen version, without change columns."""
        return self.running.open_frozen(batch_id)

    def finalize_batch(self, batch_id: str) -> tuple[str, ...]:
        """Advance every upstream of a batch that is ready; returns those that moved.

        Uses the registry copied into the plan. Called again it moves nothing. An unfinished batch
        is not an error: `finalize` says what is held and why.
        """
        return self.running.finalize_batch(batch_id)

    def finalize(self, batch_id: str) -> Finalized:
        """Like `finalize_batch`, and says what is held and why."""
        return self.running.finalize(batch_id)

    def cancel(self, batch_id: str) -> None:
        """Give up a batch that no runner has leased; its ranges will be planned again.

        Of a leased batch, windows that no pipeline reads can be given up once all else is
        finished. Cancelling twice changes nothing. Raises FM-CONTROL-012 if a runner has leased it.
        """
        self.running.cancel(batch_id)

    # Operate ---------------------------------------------------------------------------------------

    def backfill(
        self,
        upstream: str,
        *,
        start: rerun.Edge,
        end: rerun.Edge,
        pipelines: Sequence[str],
        scope: str = DEFAULT_SCOPE,
        allow_duplicates: bool = False,
        allow_stale: bool = False,
    ) -> Batch:
        """Plan a range that is committed once more, for these pipelines; watermarks stay.

        Both ends are included: versions; of an upstream without versions values of its column, as
        text, number, date or datetime (a day means all of it, of instants in UTC).
        The batch has receipts of its own, so its runs are exactly once too. Writes must be merges,
        or it has to be said that rows may double (`allow_duplicates`) or older rows replace newer
        ones (`allow_stale`). Called twice it plans two batches.
        """
        return self.operating.backfill(
            upstream,
            start=start,
            end=end,
            pipelines=pipelines,
            scope=scope,
            allow_duplicates=allow_duplicates,
            allow_stale=allow_stale,
        )

    def replay(
        self,
        batch_id: str,
        *,
        pipelines: Sequence[str] | None = None,
        allow_duplicates: bool = False,
        allow_stale: bool = False,
    ) -> Batch:
        """Plan the very windows of a completed batch once more; see `backfill`."""
        return self.operating.replay(
            batch_id,
            pipelines=pipelines,
            allow_duplicates=allow_duplicates,
            allow_stale=allow_stale,
        )

    def pause(self, pipeline: str) -> None:
        """Take a pipeline out: open batches no longer wait for it, new ones do not ask for it.

        Refused (FM-CONTROL-006) while a run of it is alive. A batch that it had begun stays its
        debt; it finishes that first once it is resumed. Pausing twice changes nothing.
        """
        self.operating.pause(pipeline)

    def resume(self, pipeline: str) -> None:
        """Let a paused pipeline take part again; the next plan catches it up to the watermark."""
        self.operating.resume(pipeline)

    def unregister(self, pipeline: str) -> None:
        """Remove a pipeline for good: nothing waits for it any more.

        Refused (FM-CONTROL-006) while a run of it is alive. Its targets stay as they are; a
        pipeline of that name that is registered later starts with everything. Twice is once.
        """
        self.operating.unregister(pipeline)

    # Look: each question is one of `look`, under the same name -------------------------------------

    def current_plan(self, scope: str | None = None) -> tuple[Batch, ...]:
        """The open batches, oldest first."""
        return self.look.current_plan(scope)

    def checkpoints(self, upstreams: Iterable[str] | None = None) -> tuple[Checkpoint, ...]:
        """The committed watermarks, of all upstreams or of some."""
        return self.look.checkpoints(upstreams)

    def frozen_set(self, batch_id: str) -> dict[str, int]:
        """The versions at which a batch sees its upstreams; -1 for one without versions."""
        return self.look.frozen_set(batch_id)

    def status(self, batch_id: str | None = None) -> tuple[PlannedBatch, ...]:
        """The open batches and the newest finished ones, newest first; or one batch."""
        return self.look.status(batch_id)

    def lag(self) -> tuple[Lag, ...]:
        """How far each upstream is behind, worst first, and what holds it."""
        return self.look.lag()

    def history(self, limit: int | None = None) -> list[Event]:
        """What happened, oldest first: every event, also those folded out of the journal."""
        return self.look.history(limit)

    def gaps(self) -> tuple[Gap, ...]:
        """Versions that a pipeline never processed although it is past them; empty if none."""
        return self.look.gaps()

    def verify(self) -> list[Finding]:
        """Check the guarantees on the journal, the sinks and the published tables."""
        return self.look.verify()
