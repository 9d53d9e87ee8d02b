"""Running what is planned: pipelines side by side, again where that may help, and finalizing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from floodmark.config import RetrySettings
from floodmark.errors import ControlError, FloodmarkError, SetupError
from floodmark.model import Batch, OnLostTarget, Settlement, batch_view
from floodmark.project.definitions import Definitions
from floodmark.project.failures import failure_of, with_caller
from floodmark.project.outcomes import (
    BatchOutcome,
    OutcomeStatus,
    PipelineOutcome,
    Watcher,
    outcome_of,
)
from floodmark.project.session import Session
from floodmark.run.limits import Limits
from floodmark.run.runner import PipelineFunction
from floodmark.work import Workers

Functions = Mapping[str, PipelineFunction]

USERS_FAILURES = ("FM-RUN-001", "FM-RUN-005")
LEASE_HELD = "FM-CONTROL-006"


@dataclass(frozen=True)
class Terms:
    """How pipelines are run; what is None here is as floodmark.yaml says."""

    jobs: int
    timeout_seconds: float | None = None
    retry: RetrySettings | None = None
    on_lost_range: Settlement | None = None
    """The way forward where an upstream has lost what was to be read."""
    on_lost_target: OnLostTarget | None = None
    """The way forward where a target has lost rows of ours."""
    loads_anew: frozenset[str] = frozenset()
    """The pipelines whose nodes replace what their targets hold, where they load everything."""
    rebuilds_anew: frozenset[str] = frozenset()
    """The pipelines that make their targets again with the batch, wherever it begins."""


@dataclass(frozen=True)
class Execution:
    """How one call of `run` or `retry` runs pipelines."""

    definitions: Definitions
    session: Session
    terms: Terms
    watcher: Watcher
    workers: Workers

    def without_losses(self) -> Execution:
        """The same without what an operator said of the batches that he named."""
        nothing = frozenset[str]()
        terms = replace(
            self.terms,
            on_lost_range=None,
            on_lost_target=None,
            loads_anew=nothing,
            rebuilds_anew=nothing,
        )
        return replace(self, terms=terms)

    def due(
        self, batch: Batch, functions: Functions, done: Sequence[BatchOutcome]
    ) -> Iterator[tuple[Batch, Functions]]:
        """The batches that these pipelines have to finish first, oldest first, then this one.

        Each with the functions to run for it. `done` is what the caller has done so far: a
        pipeline that failed in an earlier batch is left out of the later ones.
        """
        is_ordered = batch.kind in ("forward", "seed")
        for debt in self.definitions.debts(batch, functions) if is_ordered else ():
            owing = self.definitions.unfinished(debt, functions)
            yield batch_view(debt, reused=True), {name: functions[name] for name in owing}
            failed = {outcome.name for outcome in done[-1].pipelines if outcome.error}
            functions = {name: f for name, f in functions.items() if name not in failed}
        yield batch, functions

    def run_pipelines(self, batch: Batch, functions: Functions) -> list[PipelineOutcome]:
        """Run these pipelines of a batch, as many at once as was said."""
        batch_id = batch.batch_id or ""
        tasks = [partial(self._run, name, batch_id, each) for name, each in functions.items()]
        return self.workers.each(tasks)

    def finalize(self, batch: Batch, outcomes: Sequence[PipelineOutcome]) -> BatchOutcome:
        """Advance what is ready, and say what is held."""
        done = self.definitions.coordinator.finalize(batch.batch_id or "")
        return BatchOutcome(batch, tuple(outcomes), done.advanced, done.held)

    def _run(self, name: str, batch_id: str, function: PipelineFunction) -> PipelineOutcome:
        """One pipeline, as often as its retry policy allows."""
        for attempt in itertools.count(1):
            with self.workers.place():
                outcome = self._attempt(name, batch_id, function, attempt)
            delay = self._delay(outcome)
            if delay is None:
                break
            self.watcher.waiting(outcome, delay)
            self.workers.pause(delay)
        self.watcher.finished(outcome)
        return outcome

    def _attempt(
        self, name: str, batch_id: str, function: PipelineFunction, attempt: int
    ) -> PipelineOutcome:
        # The boundary to the user's function: its error is recorded by then, and shown at the end.
        coordinator, root = self.definitions.coordinator, self.definitions.root
        try:
            coordinator.running.refuse_if_leased(name, batch_id)
            self.session.ensure_session(self.watcher)
            self.workers.go_on()
            self.watcher.started(name, batch_id)
            result = coordinator.running.run_pipeline(
                name,
                batch_id,
                function,
                self.terms.on_lost_range,
                limits=self._limits(name),
                on_lost_target=self.terms.on_lost_target,
                loads_anew=name in self.terms.loads_anew,
                rebuilds_anew=name in self.terms.rebuilds_anew,
            )
        except SetupError:
            raise
        except FloodmarkError as error:
            return self._failed(name, batch_id, with_caller(error, root), attempt)
        except Exception as error:  # noqa: BLE001
            return self._failed(name, batch_id, failure_of(error, name, batch_id, root), attempt)
        return outcome_of(result, attempt)

    def _failed(
        self, name: str, batch_id: str, error: FloodmarkError, attempt: int
    ) -> PipelineOutcome:
        status: OutcomeStatus = "REFUSED" if isinstance(error, ControlError) else "FAILED"
        outcome = PipelineOutcome(name, batch_id, status, error=error, attempts=attempt)
        if status == "REFUSED":
            return outcome
        run = self.definitions.coordinator.status(batch_id)[0].runs.get(name)
        seconds = (run.changed_at - run.started_at).total_seconds() if run else None
        return replace(outcome, duration_seconds=seconds)

    def _limits(self, name: str) -> Limits:
        settings = self.definitions.pipelines.get(name)
        own = settings.timeout_seconds if settings else None
        return Limits(self.terms.timeout_seconds or own, self.workers.stop)

    def _delay(self, outcome: PipelineOutcome) -> float | None:
        """How long to wait before the next attempt; None if there is none."""
        settings = self.definitions.pipelines.get(outcome.name)
        retry = self.terms.retry or (settings.retry if settings else None)
        error = outcome.error
        if retry is None or error is None or not retry.policy.allows(outcome.attempts):
            return None
        # While another runner lives it does the work: nothing is gained by waiting for its lease.
        is_worth_it = error.retryable or error.code in USERS_FAILURES
        if not is_worth_it or error.code == LEASE_HELD:
            return None
        return retry.policy.wait_seconds(outcome.attempts)
