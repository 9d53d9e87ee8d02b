"""Running a project: scope by scope, batch by batch, pipelines side by side."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from floodmark.config import PipelineSettings, RetrySettings
from floodmark.errors import ConfigError, ControlError, FloodmarkError, SetupError
from floodmark.model.results import Batch, Finalized, batch_view
from floodmark.model.state import OnLostTarget
from floodmark.model.window import Caution, Settlement, Window
from floodmark.project.crew import Crew
from floodmark.project.failures import failure_of, with_caller
from floodmark.project.outcomes import (
    BatchOutcome,
    OutcomeStatus,
    PipelineOutcome,
    RunSummary,
    Watcher,
    outcome_of,
)
from floodmark.run.limits import Limits

if TYPE_CHECKING:
    from floodmark.project import Project

Functions = Mapping[str, Callable[..., Any]]

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


@dataclass
class Shift:
    """One call of `run` or `retry`."""

    project: Project
    terms: Terms
    watcher: Watcher
    crew: Crew

    # Scopes ---------------------------------------------------------------------------------------

    def run_scopes(
        self, scopes: Mapping[str, Sequence[PipelineSettings]], max_versions: int | None
    ) -> RunSummary:
        """Every scope until what was new is done, and what this run wrote for other scopes too."""
        course = _Course(list(scopes))
        waiting = dict(scopes)
        for _ in scopes:
            works = [_CatchUp(self, s, chosen, max_versions) for s, chosen in waiting.items()]
            ready = [work for work in works if self._begin(work.look, work.scope, course)]
            # One after the other, so that the numbers of batches follow the file.
            ready = [work for work in ready if self._begin(work.freeze, work.scope, course)]
            self.crew.each([partial(self._finish, work, course) for work in ready])
            course.take_cautions(works)
            waiting = self._readers(scopes, course.written_by(ready, self.project), course)
            if not waiting:
                break
        return course.summary()

    def _begin(self, step: Callable[[], bool], scope: str, course: _Course) -> bool:
        """Whether a scope goes on after a step; raises ConfigError while nothing has run."""
        course.refused.pop(scope, None)
        try:
            return step()
        except ConfigError as error:
            if not course.has_begun:
                raise
            course.refused[scope] = error
        except FloodmarkError as error:  # this scope is refused; the others still run
            course.refused[scope] = error
        return False

    def _finish(self, work: _CatchUp, course: _Course) -> None:
        try:
            work.run(course.batches[work.scope])
        except (ConfigError, SetupError):  # true for every scope: said once
            raise
        except FloodmarkError as error:
            course.refused[work.scope] = error

    def _readers(
        self,
        scopes: Mapping[str, Sequence[PipelineSettings]],
        written: set[str],
        course: _Course,
    ) -> dict[str, Sequence[PipelineSettings]]:
        """The scopes that read what was just written, unless something holds them."""
        name_of = self.project.coordinator.stored_name
        return {
            scope: chosen
            for scope, chosen in scopes.items()
            if not course.is_held(scope)
            and any(
                u in written or name_of(u) in written
                for pipeline in chosen
                for u in pipeline.upstreams
            )
        }

    # Batches --------------------------------------------------------------------------------------

    def run_batches(self, work: Sequence[tuple[Batch, Functions]]) -> RunSummary:
        """Run these pipelines of these batches, and finalize each; what they owe comes first."""
        for batch, _ in work:
            self.watcher.planned(batch)
        # What was said about losses was said about the batches that were named.
        plain = replace(self, terms=replace(self.terms, on_lost_range=None, on_lost_target=None))
        tasks = [partial(self.run_in_order, batch, functions, plain) for batch, functions in work]
        return RunSummary([outcome for outcomes in self.crew.each(tasks) for outcome in outcomes])

    def run_in_order(
        self, batch: Batch, functions: Functions, for_debts: Shift | None = None
    ) -> list[BatchOutcome]:
        """The batches that these pipelines have to finish before, oldest first, then this one."""
        is_ordered = batch.kind in ("forward", "seed")
        debts = self.project.debts(batch, functions) if is_ordered else []
        done = []
        for debt in debts:
            owed = {name: functions[name] for name in self.project.unfinished(debt, functions)}
            first = (for_debts or self).run_batch(batch_view(debt, reused=True), owed)
            done.append(first)
            failed = {outcome.name for outcome in first.pipelines if outcome.error}
            functions = {name: f for name, f in functions.items() if name not in failed}
        return [*done, self.run_batch(batch, functions)]

    def run_batch(self, batch: Batch, functions: Functions) -> BatchOutcome:
        """Run these pipelines of a batch, then finalize it."""
        batch_id = batch.batch_id or ""
        tasks = [partial(self._run, name, batch_id, each) for name, each in functions.items()]
        outcomes = self.crew.each(tasks)
        done: Finalized = self.project.coordinator.finalize(batch_id)
        return BatchOutcome(batch, tuple(outcomes), done.advanced, done.held)

    # Pipelines ------------------------------------------------------------------------------------

    def _run(self, name: str, batch_id: str, function: Callable[..., Any]) -> PipelineOutcome:
        """One pipeline, as often as its retry policy allows."""
        for attempt in itertools.count(1):
            with self.crew.place():
                outcome = self._attempt(name, batch_id, function, attempt)
            delay = self._delay(outcome)
            if delay is None:
                break
            self.watcher.waiting(outcome, delay)
            self.crew.pause(delay)
        self.watcher.finished(outcome)
        return outcome

    def _attempt(
        self, name: str, batch_id: str, function: Callable[..., Any], attempt: int
    ) -> PipelineOutcome:
        # The boundary to the user's function: its error is recorded by then, and shown at the end.
        coordinator, root = self.project.coordinator, self.project.root
        try:
            coordinator.refuse_if_leased(name, batch_id)
            self.project.ensure_session(self.watcher)
            self.watcher.started(name, batch_id)
            result = coordinator.run_pipeline(
                name,
                batch_id,
                function,
                self.terms.on_lost_range,
                limits=self._limits(name),
                on_lost_target=self.terms.on_lost_target,
                loads_anew=name in self.terms.loads_anew,
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
        run = self.project.coordinator.status(batch_id)[0].runs.get(name)
        seconds = (run.changed_at - run.started_at).total_seconds() if run else None
        return replace(outcome, duration_seconds=seconds)

    def _limits(self, name: str) -> Limits:
        settings = self.project.pipelines.get(name)
        own = settings.timeout_seconds if settings else None
        return Limits(self.terms.timeout_seconds or own, self.crew.stop)

    def _delay(self, outcome: PipelineOutcome) -> float | None:
        """How long to wait before the next attempt; None if there is none."""
        settings = self.project.pipelines.get(outcome.name)
        policy = self.terms.retry or (settings.retry if settings else None)
        error = outcome.error
        if policy is None or error is None or outcome.attempts >= policy.attempts:
            return None
        # While another runner lives it does the work: nothing is gained by waiting for its lease.
        is_worth_it = error.retryable or error.code in USERS_FAILURES
        if not is_worth_it or error.code == LEASE_HELD:
            return None
        return policy.delay_seconds(outcome.attempts)


class _Course:
    """What has become of each scope so far."""

    def __init__(self, scopes: Sequence[str]) -> None:
        self.batches: dict[str, list[BatchOutcome]] = {scope: [] for scope in scopes}
        self.refused: dict[str, FloodmarkError] = {}
        self.cautions: dict[str, Caution] = {}

    def take_cautions(self, works: Sequence[_CatchUp]) -> None:
        """What the newest look of each scope has seen."""
        windows = [window for work in works for window in work.seen]
        self.cautions |= {each.upstream: each.warning for each in windows if each.warning}

    @property
    def has_begun(self) -> bool:
        return any(self.batches.values())

    def is_held(self, scope: str) -> bool:
        done = self.batches[scope]
        return bool(done and done[-1].held)

    def written_by(self, works: Sequence[_CatchUp], project: Project) -> set[str]:
        """The targets that these scopes wrote in their last round, by path and by name."""
        ids = [o.batch.batch_id for work in works for o in work.outcomes if o.batch.batch_id]
        runs = [run for i in ids for run in project.coordinator.status(i)[0].runs.values()]
        sinks = [sink for run in runs for sink in run.sinks.values()]
        return {sink.target for sink in sinks} | {sink.table for sink in sinks if sink.table}

    def summary(self) -> RunSummary:
        """In the order of the scopes, whatever came first."""
        batches = [outcome for outcomes in self.batches.values() for outcome in outcomes]
        refused = [self.refused[s] for s in self.batches if s in self.refused]
        return RunSummary(
            batches, refused, has_selection=bool(self.batches), cautions=self.cautions
        )


@dataclass
class _CatchUp:
    """Brings one scope up to what was new when it began."""

    shift: Shift
    scope: str
    chosen: Sequence[PipelineSettings]
    max_versions: int | None
    outcomes: list[BatchOutcome] = field(default_factory=list)
    _preview: Batch | None = None
    _batch: Batch | None = None
    _functions: Functions = field(default_factory=dict)
    _goal: dict[str, int] = field(default_factory=dict)
    """The newest versions seen by the first new plan: a live upstream has no end."""

    @property
    def seen(self) -> Sequence[Window]:
        """The windows of the newest look."""
        return self._preview.windows if self._preview else ()

    def look(self) -> bool:
        """Whether there is something to do; journals nothing. Raises FM-CONFIG-006."""
        project = self.shift.project
        lost = self.shift.terms.on_lost_range
        self._preview = project.preview_scope(self.scope, self.chosen, self.max_versions, lost)
        if self._preview.status == "NOOP":
            return False
        self._functions = self._functions_of(self._preview)
        return True

    def freeze(self) -> bool:
        """Journal the batch that was looked at; False if others have finished it meanwhile."""
        project = self.shift.project
        lost = self.shift.terms.on_lost_range
        self._batch = project.freeze_scope(self.scope, self.chosen, self.max_versions, lost)
        batch_id = self._batch.batch_id
        if batch_id is None or batch_id in [done.batch.batch_id for done in self.outcomes]:
            self._batch = None
            return False
        self.shift.watcher.planned(self._batch)
        return True

    def run(self, done: list[BatchOutcome]) -> None:
        """Batch after batch; stops at the goal, or where something is held."""
        while (batch := self._batch) is not None:
            self._batch = None
            outcomes = self.shift.run_in_order(batch, self._functions_for(batch))
            self.outcomes += outcomes
            done += outcomes
            if not outcomes[-1].held and not self._is_done(batch) and self.look():
                self.freeze()

    def _functions_for(self, batch: Batch) -> Functions:
        is_as_seen = self._preview is not None and batch.batch_id == self._preview.batch_id
        return self._functions if is_as_seen else self._functions_of(batch)

    def _functions_of(self, batch: Batch) -> Functions:
        project = self.shift.project
        chosen = {pipeline.pipeline for pipeline in self.chosen}
        open_ones: Sequence[str] = (*batch.pipelines, *batch.seeds)
        if batch.batch_id:
            open_ones = project.unfinished(project.coordinator.status(batch.batch_id)[0])
        return project.functions(name for name in dict.fromkeys(open_ones) if name in chosen)

    def _is_done(self, batch: Batch) -> bool:
        if batch.reused:
            return False
        if not self._goal:
            self._goal = {window.upstream: window.latest_version for window in batch.windows}
        return all(
            window.through_version >= self._goal.get(window.upstream, -1)
            for window in batch.windows
        )
