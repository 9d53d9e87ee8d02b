"""Running a project: unit by unit, batch by batch, pipelines side by side."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from floodmark.config import RetrySettings
from floodmark.errors import ConfigError, ControlError, FloodmarkError, SetupError
from floodmark.model import Batch, Caution, Finalized, OnLostTarget, Settlement, Window, batch_view
from floodmark.project.anew import begin_anew
from floodmark.project.failures import failure_of, with_caller
from floodmark.project.order import Order, Unit
from floodmark.project.outcomes import (
    BatchOutcome,
    OutcomeStatus,
    PipelineOutcome,
    RunSummary,
    Waiting,
    Watcher,
    outcome_of,
)
from floodmark.run.limits import Limits
from floodmark.sources import Scratch
from floodmark.work import Crew

if TYPE_CHECKING:
    from floodmark.project import Project

Functions = Mapping[str, Callable[..., Any]]
UnitKey = tuple[int, str]

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

    # Units ----------------------------------------------------------------------------------------

    def run_units(self, order: Order, max_versions: int | None) -> RunSummary:
        """Every unit until what was new is done, and what this run wrote for other units too."""
        course = _Course(order)
        waiting: Sequence[Unit] = order.units
        for _ in order.teams:
            works = {unit.key: _CatchUp(self, unit, max_versions) for unit in waiting}
            # A wrong name is told before anything has run, also by pipelines that come later.
            for work in works.values():
                work.is_ready = self._begin(work.look, work, course)
            for level in order.levels(waiting):
                self._run_level([works[unit.key] for unit in level], course)
            waiting = self._readers(list(works.values()), course)
            if not waiting:
                break
        return course.summary()

    def _run_level(self, works: Sequence[_CatchUp], course: _Course) -> None:
        """Plan and run units that do not read from one another."""
        going = [work for work in works if self._is_going(work, course)]
        # One after the other, so that the numbers of batches follow the file.
        ready = [work for work in going if self._begin(work.freeze, work, course)]
        self.crew.each([partial(self._finish, work, course) for work in ready])
        course.take(works)

    def _is_going(self, work: _CatchUp, course: _Course) -> bool:
        """Whether a unit has something to do, seen once those before it have run."""
        unit = course.admitted(work.unit)
        anew = self.terms.loads_anew.intersection(unit.names)
        is_seen = unit == work.unit and not anew and not course.has_run_before(unit)
        work.unit = unit
        if not unit.chosen:
            course.refused.pop(unit.key, None)
            return False
        if is_seen:
            return work.is_ready

        def look() -> bool:
            begin_anew(self.project.coordinator, anew)
            return work.look()

        return self._begin(look, work, course)

    def _begin(self, step: Callable[[], bool], work: _CatchUp, course: _Course) -> bool:
        """Whether a unit goes on after a step; raises ConfigError while nothing has run."""
        course.refused.pop(work.unit.key, None)
        try:
            return step()
        except ConfigError as error:
            if not course.has_begun:
                raise
            course.refused[work.unit.key] = error
        except FloodmarkError as error:  # this unit is refused; the others still run
            course.refused[work.unit.key] = error
        return False

    def _finish(self, work: _CatchUp, course: _Course) -> None:
        try:
            work.run(course.batches[work.unit.key])
        except (ConfigError, SetupError):  # true for every unit: said once
            raise
        except FloodmarkError as error:
            course.refused[work.unit.key] = error

    def _readers(self, works: Sequence[_CatchUp], course: _Course) -> list[Unit]:
        """The units that read what was written beside or after them, unless something holds them.

        Their order was not known: a circle, or a function that wrote a table for the first time.
        """
        writers = course.writers(works, self.project)
        if not writers:
            return []
        name_of = self.project.coordinator.stored_name

        def is_behind(unit: Unit) -> bool:
            return any(
                level >= unit.level and name != pipeline.pipeline
                for pipeline in unit.chosen
                for u in pipeline.upstreams
                for name, level in (*writers.get(u, ()), *writers.get(name_of(u), ()))
            )

        return [unit for unit in course.order.units if not course.is_held(unit) and is_behind(unit)]

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
            self.crew.go_on()
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
    """What has become of each unit so far."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.batches: dict[UnitKey, list[BatchOutcome]] = {unit.key: [] for unit in order.units}
        self.refused: dict[UnitKey, FloodmarkError] = {}
        self.cautions: dict[str, Caution] = {}
        self.waiting: dict[str, Waiting] = {}
        """The pipelines that were not planned because of those before them."""
        self._has_run: set[str] = set()
        """The pipelines that ran in this call, whatever became of them."""
        self._failed: set[str] = set()

    def take(self, works: Sequence[_CatchUp]) -> None:
        """What the units of a level have done, and what their newest look has seen."""
        windows = [window for work in works for window in work.seen]
        self.cautions |= {each.upstream: each.warning for each in windows if each.warning}
        for work in works:
            for outcome in (each for batch in work.outcomes for each in batch.pipelines):
                self._has_run.add(outcome.name)
                self._failed.discard(outcome.name)
                if outcome.error:
                    self._failed.add(outcome.name)
            if work.unit.key in self.refused:
                self._failed |= set(work.unit.names)

    def admitted(self, unit: Unit) -> Unit:
        """A unit without the pipelines that wait: what they would read is not there yet."""
        stopped = self._failed | set(self.waiting)
        for name in unit.names:
            before = [each for each in self.order.parents[name] if each in stopped]
            # A parent on the same level is one of a circle: nobody comes first there.
            before = [each for each in before if self._level_of(each) < unit.level]
            if before:
                mates = sorted(self.order.teams[name].intersection(unit.names))
                self.waiting |= {mate: Waiting(mate, unit.scope, tuple(before)) for mate in mates}
        return self.order.without(unit, [name for name in unit.names if name in self.waiting])

    def _level_of(self, pipeline: str) -> int:
        return next(unit.level for unit in self.order.units if pipeline in unit.names)

    def has_run_before(self, unit: Unit) -> bool:
        """Whether a pipeline ran whose tables this unit reads: its plan may have changed."""
        before = {parent for name in unit.names for parent in self.order.parents[name]}
        return not before.isdisjoint(self._has_run)

    @property
    def has_begun(self) -> bool:
        return any(self.batches.values())

    def is_held(self, unit: Unit) -> bool:
        done = self.batches[unit.key]
        return bool(done and done[-1].held)

    def writers(
        self, works: Sequence[_CatchUp], project: Project
    ) -> dict[str, list[tuple[str, int]]]:
        """The pipelines that wrote each target in these works, by its path and name, with levels."""
        found: dict[str, list[tuple[str, int]]] = {}
        for work in works:
            for batch_id in [o.batch.batch_id for o in work.outcomes if o.batch.batch_id]:
                for name, run in project.coordinator.status(batch_id)[0].runs.items():
                    for sink in run.sinks.values():
                        for target in (sink.target, sink.table):
                            found.setdefault(target or "", []).append((name, work.unit.level))
        return found

    def summary(self) -> RunSummary:
        """In the order in which units run, whatever came first."""
        batches = [outcome for outcomes in self.batches.values() for outcome in outcomes]
        refused = [self.refused[key] for key in self.batches if key in self.refused]
        return RunSummary(
            batches,
            refused,
            has_selection=bool(self.batches),
            cautions=self.cautions,
            waiting=list(self.waiting.values()),
        )


@dataclass
class _CatchUp:
    """Brings one unit up to what was new when it began."""

    shift: Shift
    unit: Unit
    max_versions: int | None
    is_ready: bool = False
    """Whether the newest look saw something to do."""
    outcomes: list[BatchOutcome] = field(default_factory=list)
    _preview: Batch | None = None
    _batch: Batch | None = None
    _functions: Functions = field(default_factory=dict)
    _goal: dict[str, int] = field(default_factory=dict)
    """The newest versions seen by the first new plan: a live upstream has no end."""

    @property
    def seen(self) -> Sequence[Window]:
        """The windows of the newest look, and the tables that it would look up."""
        preview = self._preview
        return (*preview.windows, *preview.lookups) if preview else ()

    def look(self) -> bool:
        """Whether there is something to do; journals nothing. Raises FM-CONFIG-006."""
        project = self.shift.project
        lost = self.shift.terms.on_lost_range
        scope, chosen = self.unit.scope, self.unit.chosen
        scratch = Scratch()
        self._preview = project.preview_scope(scope, chosen, self.max_versions, lost, scratch)
        # What is frozen next is planned from the same answers, where a cache says that it may be.
        scratch.keep(project.coordinator.storage)
        if self._preview.status == "NOOP":
            return False
        self._functions = self._functions_of(self._preview)
        return True

    def freeze(self) -> bool:
        """Journal the batch that was looked at; False if others have finished it meanwhile."""
        project = self.shift.project
        lost = self.shift.terms.on_lost_range
        scope, chosen = self.unit.scope, self.unit.chosen
        self._batch = project.freeze_scope(scope, chosen, self.max_versions, lost)
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
        chosen = set(self.unit.names)
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
            window.through >= self._goal.get(window.upstream, -1) for window in batch.windows
        )
