"""What becomes of each unit while a project runs, and the summary at its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from floodmark.errors import ConfigError, FloodmarkError, SetupError
from floodmark.model import Caution
from floodmark.project.definitions import Definitions
from floodmark.project.order import Order, Unit
from floodmark.project.outcomes import BatchOutcome, RunSummary, Waiting
from floodmark.project.scope_run import ScopeRun

UnitKey = tuple[int, str]


class RunReport:
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

    def add(self, scope: ScopeRun, outcome: BatchOutcome) -> None:
        """A batch of a unit is finalized."""
        scope.outcomes.append(outcome)
        self.batches[scope.unit.key].append(outcome)

    @contextmanager
    def refusal_of(self, scope: ScopeRun) -> Iterator[None]:
        """Keep what refuses a unit: the others still run. Raises ConfigError while nothing has run."""
        self.refused.pop(scope.unit.key, None)
        try:
            yield
        except ConfigError as error:
            if not self.has_begun:
                raise
            self.refused[scope.unit.key] = error
        except FloodmarkError as error:
            self.refused[scope.unit.key] = error

    @contextmanager
    def failure_of(self, scope: ScopeRun) -> Iterator[None]:
        """The same for a unit that is run; raises what is true for every unit, so that it is said once."""
        try:
            yield
        except (ConfigError, SetupError):
            raise
        except FloodmarkError as error:
            self.refused[scope.unit.key] = error

    def take(self, scopes: Sequence[ScopeRun]) -> None:
        """What the units of a level have done, and what their newest look has seen."""
        windows = [window for scope in scopes for window in scope.seen]
        self.cautions |= {each.upstream: each.warning for each in windows if each.warning}
        for scope in scopes:
            for outcome in (each for batch in scope.outcomes for each in batch.pipelines):
                self._has_run.add(outcome.name)
                self._failed.discard(outcome.name)
                if outcome.error:
                    self._failed.add(outcome.name)
            if scope.unit.key in self.refused:
                self._failed |= set(scope.unit.names)

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
        self, scopes: Sequence[ScopeRun], definitions: Definitions
    ) -> dict[str, list[tuple[str, int]]]:
        """The pipelines that wrote each target in these works, by its path and name, with levels."""
        found: dict[str, list[tuple[str, int]]] = {}
        for scope in scopes:
            for batch_id in [o.batch.batch_id for o in scope.outcomes if o.batch.batch_id]:
                for name, run in definitions.batch(batch_id).runs.items():
                    for sink in run.sinks.values():
                        for target in (sink.target, sink.table):
                            found.setdefault(target or "", []).append((name, scope.unit.level))
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

    def levels(self, scopes: Sequence[ScopeRun]) -> list[list[ScopeRun]]:
        """These units, level by level."""
        levels = sorted({scope.unit.level for scope in scopes})
        return [[each for each in scopes if each.unit.level == level] for level in levels]

    def discover_again(self, scope: ScopeRun) -> None:
        """Look at a unit again if those before it have written what it reads.

        Takes the pipelines out of it that wait for one that failed.
        """
        if self._is_outdated(scope):
            with self.refusal_of(scope):
                scope.discover_again()

    def _is_outdated(self, scope: ScopeRun) -> bool:
        before, scope.unit = scope.unit, self.admitted(scope.unit)
        if not scope.unit.chosen:
            self.refused.pop(scope.unit.key, None)
            scope.has_news = False
            return False
        has_changed = scope.unit != before or self.has_run_before(scope.unit)
        return has_changed or bool(scope.loads_anew.intersection(scope.unit.names))

    def units_behind(self, scopes: Sequence[ScopeRun], definitions: Definitions) -> list[Unit]:
        """The units that read what was written beside or after them, unless something holds them.

        Their order was not known: a circle, or a function that wrote a table for the first time.
        """
        writers = self.writers(scopes, definitions)
        name_of = definitions.coordinator.look.stored_name

        def is_behind(unit: Unit) -> bool:
            return any(
                level >= unit.level and name != pipeline.pipeline
                for pipeline in unit.chosen
                for u in pipeline.upstreams
                for name, level in (*writers.get(u, ()), *writers.get(name_of(u), ()))
            )

        units = self.order.units if writers else ()
        return [unit for unit in units if not self.is_held(unit) and is_behind(unit)]
