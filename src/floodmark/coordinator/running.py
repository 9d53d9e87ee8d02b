"""Running pipelines of a batch, and finalizing it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal, get_args

from floodmark.control import cannot_cancel
from floodmark.control.events import Body, Cancelled
from floodmark.control.journal import Journal
from floodmark.coordinator.store import Store
from floodmark.errors import ConfigError, ControlError
from floodmark.finalize import advance_watermarks
from floodmark.model import (
    DELTA,
    Finalized,
    Metrics,
    OnLostTarget,
    PlannedBatch,
    RunResult,
    Settlement,
    State,
)
from floodmark.model.names import connection_of
from floodmark.plan.refusals import (
    refuse_unknown_settlement,
)
from floodmark.run.deferred import freeze_ends
from floodmark.run.engine import Engine, spark_engine
from floodmark.run.external import ExternalReport
from floodmark.run.landing import LandingFolder, ranges_folder
from floodmark.run.leases import (
    batch_for_run,
    known_batch,
)
from floodmark.run.limits import NO_LIMITS, Limits
from floodmark.run.runner import Inputs, PipelineFunction, Runner, result_of
from floodmark.sinks.delta import TargetNames
from floodmark.sources import Source, first_of

log = logging.getLogger("floodmark")


class Running:
    """Runs pipelines of a batch, and finalizes it."""

    def __init__(self, store: Store) -> None:
        self.store = store

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
        rebuilds_anew: bool = False,
    ) -> RunResult:
        """See `Coordinator.run_pipeline`.

        With `rebuilds_anew` every target is made again from all that its upstreams hold.
        """
        if on_lost_target not in (None, *get_args(OnLostTarget)):
            raise ConfigError(
                "FM-CONFIG-007",
                f"on_lost_target is {on_lost_target!r}",
                rule="unknown_choice",
                allowed="rebuild, accept, or None",
                state="nothing was read or written",
                next="correct the call",
            )
        refuse_unknown_settlement(on_lost_range)
        store = self.store.existing()
        earlier = self.store.batch(batch_id).runs.get(pipeline)
        if earlier and earlier.status == "SUCCESS":
            return result_of(earlier, is_repeat=True)
        # Refuse before a Spark session is asked for.
        batch_for_run(store.state(), batch_id, pipeline)
        engine = self._engine_of(pipeline)
        if self._may_write_delta(pipeline):
            engine.refuse_without_receipts(pipeline)
        self.store.name_tables_again(store.state())
        try:
            runner = replace(
                self._runner(store, on_lost_target, on_lost_range, loads_anew=loads_anew),
                rebuilds_anew=rebuilds_anew,
            )
            return runner.run(pipeline, batch_id, function, engine, limits)
        finally:
            self.store.publish()

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
        """See `Coordinator.record_run`."""
        if status not in ("RUNNING", "SUCCESS", "FAILED"):
            raise ConfigError(
                "FM-CONFIG-007",
                f"a run cannot have status {status!r}",
                rule="unknown_choice",
                allowed="RUNNING, SUCCESS, FAILED",
                state="nothing was recorded",
                next="correct the call",
            )
        report = ExternalReport(
            pipeline=pipeline,
            batch_id=batch_id,
            status=status,
            run_id=self.store.outside.ids.run(self.store.clock.now()),
            ttl_seconds=self.store.lease_ttl,
            said=Metrics(rows_read, rows_written, metrics or {}),
            error=error,
        )
        store = self.store.existing()
        earlier = self.store.batch(batch_id).runs.get(pipeline)
        if earlier and earlier.status == status == "SUCCESS":
            return result_of(earlier, is_repeat=True)
        state = store.commit(report.events)
        self.store.publish()
        return result_of(state.batches[batch_id].runs[pipeline])

    def finalize_batch(self, batch_id: str) -> tuple[str, ...]:
        """See `Coordinator.finalize_batch`."""
        return self.finalize(batch_id).advanced

    def finalize(self, batch_id: str) -> Finalized:
        """See `Coordinator.finalize`."""
        store = self.store.existing()
        landing = LandingFolder(self.store.control, self.store.storage)
        if not self.store.batch(batch_id).is_open:
            landing.sweep(store.state)
            return Finalized(batch_id, advanced=(), held=())
        outcome = advance_watermarks(store, batch_id)
        landing.sweep(store.state)
        self.store.publish()
        self.store.stages.finalized(outcome)
        return outcome

    def sweep_landing(self) -> None:
        """Remove what finished batches have put aside; each finalize does that too."""
        LandingFolder(self.store.control, self.store.storage).sweep(self.store.state)

    def cancel(self, batch_id: str) -> None:
        """See `Coordinator.cancel`."""

        def decide(state: State) -> list[Body]:
            batch = known_batch(state, batch_id)
            if batch.is_cancelled or (batch.released and not batch.pending_upstreams()):
                return []
            if not batch.can_be_cancelled:
                raise cannot_cancel(batch)
            return [Cancelled(batch_id)]

        self.store.existing().commit(decide)
        self.store.publish()

    def inputs(self, batch_id: str, pipeline: str) -> Mapping[str, Any]:
        """See `Coordinator.inputs`."""
        batch = self.store.batch(batch_id)
        if not batch.upstreams_of(pipeline):
            batch_for_run(self.store.reader().state(), batch_id, pipeline)
        source = self._engine_of(pipeline).source()
        batch = self._frozen_elsewhere(batch, pipeline, source)
        windows = [batch.window_for(pipeline, u) for u in batch.upstreams_of(pipeline)]
        for window in windows:
            source.check(window)
        return Inputs({w.upstream: source.read(w) for w in windows}, self.store.names.stored)

    def _frozen_elsewhere(self, batch: PlannedBatch, pipeline: str, source: Source) -> PlannedBatch:
        """The batch, with its deferred ends frozen for a run of the pipeline that is elsewhere."""
        run = batch.runs.get(pipeline)
        is_deferred = any(batch.windows[u].deferred for u in batch.upstreams_of(pipeline))
        if not is_deferred or run is None or not run.is_external:
            return batch
        store = self.store.existing()

        def record(body: Callable[[State], Body | None]) -> State:
            return store.commit(lambda state: [b for b in [body(state)] if b is not None])

        freeze_ends(store.state(), run, source, self.store.clock.now, record)
        self.store.publish()
        return store.state().batches[batch.batch_id]

    def open_frozen(self, batch_id: str) -> Mapping[str, Any]:
        """See `Coordinator.open_frozen`."""
        batch = self.store.batch(batch_id)
        source = self._engine_of(*batch.required).source()
        windows = (*batch.windows.values(), *batch.lookups.values())
        tables = {w.upstream: source.table(w, w.through) for w in windows}
        return Inputs(tables, self.store.names.stored)

    def _may_write_delta(self, pipeline: str) -> bool:
        """Whether a run of the pipeline may write a Delta table; a function does not tell before."""
        writes = self.store.writes.get(pipeline)
        return not writes or any(
            spec.format == DELTA and connection_of(spec.target) is None for spec in writes
        )

    def _engine_of(self, *pipelines: str) -> Engine:
        """The engine that reads upstreams as these pipelines say."""
        if self.store.outside.engine is not None:
            return self.store.outside.engine
        folder = ranges_folder(self.store.control)
        readers = first_of(self.store.readers, pipelines)
        return spark_engine(self.store.spark, self.store.storage, readers, folder)

    def refuse_if_leased(self, pipeline: str, batch_id: str) -> None:
        """Raise what a run of the pipeline would be refused with now, before Spark is started.

        A holder that cannot be proven dead is watched for as long as a run would watch it.
        """
        self.store.leases(self.store.reader()).refuse_if_held(pipeline, batch_id)

    def _runner(
        self,
        store: Journal,
        on_lost_target: OnLostTarget | None = None,
        on_lost_range: Settlement | None = None,
        *,
        loads_anew: bool = False,
    ) -> Runner:
        return Runner(
            store=store,
            office=self.store.leases(store),
            pulse=self.store.pulse,
            clock=self.store.clock,
            ids=self.store.outside.ids,
            stages=self.store.stages,
            name_of=self.store.names.stored,
            on_lease=lambda: self._publish_running(store),
            on_lost_target=on_lost_target,
            on_lost_range=on_lost_range,
            loads_anew=loads_anew,
            targets=TargetNames(
                self.store.spark, self.store.storage, self.store.home_schema, self.store.lake()
            ),
            landing=LandingFolder(self.store.control, self.store.storage),
            databases=self.store.databases,
            readers=self.store.readers,
            freeze_lookup=self.store.frozen_lookup,
        )

    def _publish_running(self, store: Journal) -> None:
        try:
            self.store.publisher.publish_runs(store)
        except ControlError as error:
            log.warning("%s", error.in_one_line())
