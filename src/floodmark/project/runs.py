"""The calls of a project that run something: each checks its arguments, then tells its story."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from floodmark.config import RetrySettings
from floodmark.config.project import MAX_JOBS
from floodmark.config.text import choices
from floodmark.errors import ControlError, UnknownNameError
from floodmark.model import Batch, OnLostTarget, PlannedBatch, Settlement, batch_view, durations
from floodmark.next_steps import command
from floodmark.plan.rerun import Edge
from floodmark.project import planfile
from floodmark.project.definitions import Definitions, wrong_argument
from floodmark.project.execution import Execution, Terms
from floodmark.project.full_refresh import pipelines_anew, refuse_debts, refuse_shared_targets
from floodmark.project.order import order_of
from floodmark.project.outcomes import NullWatcher, RunSummary, Watcher
from floodmark.project.planning import ScopePlanning
from floodmark.project.session import Session
from floodmark.project.story import run_batches, run_project
from floodmark.run.leases import paused
from floodmark.work import Workers

Retry = RetrySettings | Mapping[str, Any]


class Runs:
    """Runs the pipelines of a project."""

    def __init__(self, definitions: Definitions, session: Session, planning: ScopePlanning) -> None:
        self._definitions = definitions
        self._session = session
        self._planning = planning
        self.stop: threading.Event | None = None
        """Ends runs once it is set, as an interrupt would that arrives in their thread."""

    def run(
        self,
        *pipelines: str,
        exclude: Sequence[str] = (),
        max_versions: int | None = None,
        jobs: int | None = None,
        timeout: str | float | None = None,
        retry: Retry | None = None,
        on_lost_range: Settlement | None = None,
        on_lost_target: OnLostTarget | None = None,
        force_first_run: bool = False,
        full_refresh: bool = False,
        watcher: Watcher | None = None,
    ) -> RunSummary:
        """See `Project.run`."""
        scopes = self._definitions.to_run(pipelines, exclude)
        self._definitions.refuse_elsewhere()
        anew = pipelines_anew(scopes, force_first_run=force_first_run, full_refresh=full_refresh)
        refuse_shared_targets(self._definitions.file.pipelines, anew)
        execution = self._execution(
            jobs,
            timeout,
            retry,
            watcher,
            on_lost_range=on_lost_range,
            on_lost_target=on_lost_target,
            loads_anew=anew,
        )
        refuse_debts(self._definitions.coordinator, anew)
        self._definitions.functions(sorted(anew))
        self._session.connect_names(scopes, execution.watcher)
        with self._definitions.coordinator.store.coalesce():
            order = order_of(scopes, self._definitions.scopes, self._definitions.parents())
            summary = run_project(order, self._planning, execution, max_versions)
            if not summary.batches:  # no finalize has looked for what a crash left behind
                self._definitions.coordinator.running.sweep_landing()
            return summary

    def retry(
        self,
        batch_id: str,
        *pipelines: str,
        jobs: int | None = None,
        on_lost_range: Settlement | None = None,
        on_lost_target: OnLostTarget | None = None,
        full_refresh: bool = False,
        watcher: Watcher | None = None,
    ) -> RunSummary:
        """See `Project.retry`."""
        self._definitions.select(pipelines)
        batch = self._definitions.batch(batch_id)
        for name in pipelines:
            if name not in batch.required:
                raise _not_in_batch(name, batch)
        if not pipelines:
            self._refuse_paused(batch)
        anew = frozenset(pipelines or batch.unfinished_pipelines()) if full_refresh else frozenset()
        refuse_shared_targets(self._definitions.file.pipelines, anew)
        return self.run_batches(
            [batch],
            pipelines,
            jobs=jobs,
            on_lost_range=on_lost_range,
            on_lost_target=on_lost_target,
            loads_anew=anew,
            watcher=watcher,
        )

    def _refuse_paused(self, batch: PlannedBatch) -> None:
        """Raise FM-CONTROL-018 if every pipeline that has to run is paused: nothing would happen."""
        left = batch.unfinished_pipelines()
        if left and not batch.is_cancelled and not self._definitions.unfinished(batch):
            raise paused(left[0])

    def run_plan(
        self, path: str | Path, *, jobs: int | None = None, watcher: Watcher | None = None
    ) -> RunSummary:
        """See `Project.run_plan`."""
        plan = planfile.read_plan_file(Path(path))
        state = self._definitions.coordinator.look.state_if_any()
        control_id = state.control_id if state else ""
        planfile.refuse_other_store(plan, control_id, self._definitions.coordinator.control)
        batches = [self._batch_of(plan, batch_id) for batch_id in plan.batch_ids]
        return self.run_batches(batches, jobs=jobs, watcher=watcher)

    def run_batches(
        self,
        batches: Sequence[PlannedBatch],
        pipelines: Sequence[str] = (),
        *,
        jobs: int | None = None,
        on_lost_range: Settlement | None = None,
        on_lost_target: OnLostTarget | None = None,
        loads_anew: frozenset[str] = frozenset(),
        watcher: Watcher | None = None,
        are_new: bool = False,
    ) -> RunSummary:
        """Run the unfinished pipelines of these batches (or the named ones) and finalize each."""
        self._definitions.refuse_elsewhere()
        work = [
            (
                batch_view(batch, reused=not are_new),
                self._definitions.functions(self._definitions.unfinished(batch, pipelines or None)),
            )
            for batch in batches
        ]
        with self._definitions.coordinator.store.coalesce():
            execution = self._execution(
                jobs,
                None,
                None,
                watcher,
                on_lost_range=on_lost_range,
                on_lost_target=on_lost_target,
                loads_anew=loads_anew,
                rebuilds_anew=loads_anew,
            )
            return run_batches(execution, work)

    def backfill(
        self,
        upstream: str,
        *pipelines: str,
        start: Edge,
        end: Edge,
        allow_duplicates: bool = False,
        allow_stale: bool = False,
        jobs: int | None = None,
        watcher: Watcher | None = None,
    ) -> RunSummary:
        """See `Project.backfill`."""
        chosen = self._definitions.readers_of(upstream, pipelines)
        self._definitions.functions(
            pipeline.pipeline for each in chosen.values() for pipeline in each
        )
        batches = [
            self._definitions.coordinator.backfill(
                upstream,
                start=start,
                end=end,
                pipelines=[pipeline.pipeline for pipeline in each],
                scope=scope,
                allow_duplicates=allow_duplicates,
                allow_stale=allow_stale,
            )
            for scope, each in chosen.items()
        ]
        return self._run_again(batches, jobs, watcher)

    def replay(
        self,
        batch_id: str,
        *pipelines: str,
        allow_duplicates: bool = False,
        allow_stale: bool = False,
        jobs: int | None = None,
        watcher: Watcher | None = None,
    ) -> RunSummary:
        """See `Project.replay`."""
        self._definitions.select(pipelines)
        self._definitions.functions(pipelines or self._definitions.batch(batch_id).required)
        batch = self._definitions.coordinator.replay(
            batch_id,
            pipelines=pipelines or None,
            allow_duplicates=allow_duplicates,
            allow_stale=allow_stale,
        )
        return self._run_again([batch], jobs, watcher)

    def _run_again(
        self, batches: Sequence[Batch], jobs: int | None, watcher: Watcher | None
    ) -> RunSummary:
        planned = [self._definitions.batch(batch.batch_id) for batch in batches if batch.batch_id]
        return self.run_batches(planned, jobs=jobs, watcher=watcher, are_new=True)

    def _execution(
        self,
        jobs: int | None,
        timeout: str | float | None,
        retry: Retry | None,
        watcher: Watcher | None,
        *,
        on_lost_range: Settlement | None = None,
        on_lost_target: OnLostTarget | None = None,
        loads_anew: frozenset[str] = frozenset(),
        rebuilds_anew: frozenset[str] = frozenset(),
    ) -> Execution:
        self._session.try_again()
        terms = Terms(
            jobs=_checked_jobs(jobs) or self._definitions.settings.jobs,
            timeout_seconds=_checked_timeout(timeout),
            retry=_checked_retry(retry),
            on_lost_range=on_lost_range,
            on_lost_target=on_lost_target,
            loads_anew=loads_anew,
            rebuilds_anew=rebuilds_anew,
        )
        workers = Workers(terms.jobs, self.stop)
        return Execution(self._definitions, self._session, terms, watcher or NullWatcher(), workers)

    def _batch_of(self, plan: planfile.PlanFile, batch_id: str) -> PlannedBatch:
        try:
            batch = self._definitions.batch(batch_id)
        except ControlError as error:
            if error.code != "FM-CONTROL-004":
                raise
            raise planfile.gone(plan, batch_id) from error
        planfile.refuse_finished(plan, batch)
        return batch


def _checked_jobs(jobs: int | None) -> int | None:
    if jobs is not None and not 1 <= jobs <= MAX_JOBS:
        raise wrong_argument(f"jobs is {jobs}", f"1 to {MAX_JOBS}", rule="out_of_range")
    return jobs


def _checked_timeout(timeout: str | float | None) -> float | None:
    try:
        seconds = durations.seconds_of(timeout) if isinstance(timeout, str) else timeout
    except ValueError as error:
        raise wrong_argument(
            f"timeout is {timeout!r}", durations.ALLOWED, rule="duration"
        ) from error
    if seconds is not None and seconds <= 0:
        raise wrong_argument(f"timeout is {timeout}", "more than nothing", rule="out_of_range")
    return seconds


def _checked_retry(retry: Retry | None) -> RetrySettings | None:
    if retry is None or isinstance(retry, RetrySettings):
        return retry
    try:
        return RetrySettings.model_validate(dict(retry))
    except ValidationError as error:
        allowed = '{"attempts": 3, "backoff": "30s"}'
        raise wrong_argument(f"retry is {dict(retry)}", allowed, rule="retry") from error


def _not_in_batch(name: str, batch: PlannedBatch) -> ControlError:
    return UnknownNameError(
        "FM-CONTROL-005",
        f"pipeline {name} is not part of batch {batch.batch_id}",
        allowed=choices(list(batch.required), name) or "the batch was planned for no pipeline",
        state="nothing was read or written; a plan keeps the registry of its moment",
        next=command("status", batch.batch_id),
    )
