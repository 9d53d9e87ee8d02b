"""One unit of a run: what is new for it, the batch that is planned, and how far it is to come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from floodmark.coordinator import Probes
from floodmark.model import Batch, Settlement, Window
from floodmark.project.execution import Functions
from floodmark.project.full_refresh import begin_full_refresh
from floodmark.project.order import Unit
from floodmark.project.outcomes import BatchOutcome, Watcher
from floodmark.project.planning import ScopePlanning
from floodmark.sources import Scratch


@dataclass
class ScopeRun:
    """Brings one unit up to what was new when it began."""

    unit: Unit
    planning: ScopePlanning
    watcher: Watcher
    max_versions: int | None
    on_lost_range: Settlement | None
    loads_anew: frozenset[str]
    """The pipelines that load everything again."""
    has_news: bool = False
    """Whether the newest look saw something to do."""
    batch: Batch | None = None
    """The batch that is planned and not run yet."""
    outcomes: list[BatchOutcome] = field(default_factory=list)
    _preview: Batch | None = None
    _probes: Probes | None = None
    """What the newest look has seen: the plan is made of it."""
    _functions: Functions = field(default_factory=dict)
    _goal: dict[str, int] = field(default_factory=dict)
    """The newest versions seen by the first new plan: a live upstream has no end."""

    @property
    def seen(self) -> Sequence[Window]:
        """The windows of the newest look, and the tables that it would look up."""
        preview = self._preview
        return (*preview.windows, *preview.lookups) if preview else ()

    def discover(self) -> None:
        """Look what is new; journals nothing. Raises FM-CONFIG-006."""
        self.has_news = False
        coordinator, scratch = self.planning.definitions.coordinator, Scratch()
        self._probes = coordinator.planning.probes(scratch)
        self._preview = self.planning.preview_scope(
            self.unit.scope,
            self.unit.chosen,
            self.max_versions,
            self.on_lost_range,
            probes=self._probes,
        )
        # What is planned next reads the lists and answers that were seen here.
        scratch.keep(coordinator.storage)
        if self._preview.status != "NOOP":
            self._functions = self._functions_of(self._preview)
            self.has_news = True

    def discover_again(self) -> None:
        """The same once those before this unit have run, with what has to load everything again."""
        coordinator = self.planning.definitions.coordinator
        begin_full_refresh(coordinator, self.loads_anew.intersection(self.unit.names))
        self.discover()

    def plan(self) -> None:
        """Journal what was discovered as a batch; none if others have finished it meanwhile."""
        batch = self.planning.freeze_scope(
            self.unit.scope,
            self.unit.chosen,
            self.max_versions,
            self.on_lost_range,
            probes=self._probes,
        )
        is_done = batch.batch_id in [done.batch.batch_id for done in self.outcomes]
        self.batch = None if batch.batch_id is None or is_done else batch
        if self.batch is not None:
            self.watcher.planned(self.batch)

    def plan_next(self) -> None:
        """The batch after the one that was run; none at the goal, or where something is held."""
        done, self.batch = self.batch, None
        if done is None or self.outcomes[-1].held or self._is_at_goal(done):
            return
        self.discover()
        if self.has_news:
            self.plan()

    def functions(self, batch: Batch) -> Functions:
        """The functions to run for a batch."""
        is_as_seen = self._preview is not None and batch.batch_id == self._preview.batch_id
        return self._functions if is_as_seen else self._functions_of(batch)

    def _functions_of(self, batch: Batch) -> Functions:
        definitions, chosen = self.planning.definitions, set(self.unit.names)
        unfinished: Sequence[str] = (*batch.pipelines, *batch.seeds)
        if batch.batch_id:
            unfinished = definitions.unfinished(definitions.batch(batch.batch_id))
        return definitions.functions(n for n in dict.fromkeys(unfinished) if n in chosen)

    def _is_at_goal(self, batch: Batch) -> bool:
        if batch.reused:
            return False
        if not self._goal:
            self._goal = {window.upstream: window.latest_version for window in batch.windows}
        return all(
            window.through >= self._goal.get(window.upstream, -1) for window in batch.windows
        )
