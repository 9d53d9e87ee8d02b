"""A project: the pipelines of a floodmark.yaml, planned and run through the coordinator."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from floodmark.config import (
    LoadedProject,
    PipelineSettings,
    ResolvedPipeline,
    RetrySettings,
    built,
    find_project_file,
    load_project,
    survey_project,
)
from floodmark.config.plugins import Plugins
from floodmark.config.project import DIALECTS, MAX_JOBS, parents_of
from floodmark.config.text import Report, Vault, choices
from floodmark.coordinator import Coordinator, Outside
from floodmark.engines.catalog import is_in_memory
from floodmark.errors import (
    ConfigError,
    ControlError,
    FloodmarkError,
    SetupError,
    UnknownNameError,
)
from floodmark.model import (
    Batch,
    Finding,
    OnLostTarget,
    PlannedBatch,
    Settlement,
    Upstream,
    batch_view,
    durations,
)
from floodmark.model.arguments import checks_arguments
from floodmark.plan.again import Edge
from floodmark.project import naming, planfile
from floodmark.project.advised import advised
from floodmark.project.anew import pipelines_anew, refuse_debts, refuse_shared_targets
from floodmark.project.checks import (
    Checks,
    function_of,
    place_finding,
    refuse_elsewhere,
    refuse_nodes,
    strays,
)
from floodmark.project.file_reads import file_readers_of
from floodmark.project.following import with_followers
from floodmark.project.order import order_of, written_so_far
from floodmark.project.outcomes import (
    BatchOutcome,
    Nobody,
    PipelineOutcome,
    RunSummary,
    ScopePlan,
    Waiting,
    Watcher,
)
from floodmark.project.running import Shift, Terms
from floodmark.project.selection import Selection, chosen_from
from floodmark.run.databases import Databases
from floodmark.run.leases import paused
from floodmark.sources import Readers, Scratch
from floodmark.work import Crew

__all__ = [
    "BatchOutcome",
    "PipelineOutcome",
    "Project",
    "RunSummary",
    "ScopePlan",
    "Waiting",
    "Watcher",
]

Retry = RetrySettings | Mapping[str, Any]


def _local_session(conf: Mapping[str, str]) -> Any:
    from floodmark.engines.spark import local_session

    return local_session(conf)


def _has_active_session() -> bool:
    """Whether somebody has started Spark in this process; asks without importing it."""
    if "pyspark.sql" not in sys.modules:
        return False
    from floodmark.engines.spark import active_session

    return active_session() is not None


@checks_arguments
class Project:
    """The pipelines of a project file and the coordinator they share.

    `session` gives the Spark session when, and only when, there is something to run.
    """

    def __init__(
        self,
        file: LoadedProject,
        session: Callable[[], Any] | None = None,
        outside: Outside | None = None,
    ) -> None:
        self.file = file.with_upstreams()
        self.settings = self.file.settings
        self.root = file.root
        self._session = session or partial(_local_session, file.settings.spark)
        self._outside = outside
        self._has_session = False
        self._no_session: SetupError | None = None
        self._starting = threading.Lock()
        self.stop: threading.Event | None = None
        """Ends runs once it is set, as an interrupt would that arrives in their thread."""

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        *,
        env: str | None = None,
        session: Callable[[], Any] | None = None,
        outside: Outside | None = None,
    ) -> Project:
        """The project at a folder, or above the working directory, with the overlay of `env`.

        Without `env` the environment variable FLOODMARK_ENV names it. Without `session` Spark is
        started when there is something to run. Raises ConfigError FM-CONFIG-001 if there is no
        project, and every error of its files at once.
        """
        return cls(load_project(_project_file(path), env), session, outside)

    @classmethod
    def of(
        cls,
        project: str,
        pipelines: Sequence[PipelineSettings],
        *,
        root: str | Path = ".",
        **settings: Any,
    ) -> Project:
        """A project built in Python: the same settings and plans as from files that say the same.

        `settings` are the other keys of floodmark.yaml; relative paths start at `root`. Raises
        every error at once.
        """
        return cls(built(Path(root), project, pipelines, **settings))

    @classmethod
    def check(
        cls,
        path: str | Path | None = None,
        *,
        env: str | None = None,
        connect: bool = False,
        watcher: Watcher | None = None,
        session: Callable[[], Any] | None = None,
        outside: Outside | None = None,
    ) -> Project:
        """The project, if nothing is wrong with its file and with what the file names.

        Raises every error at once: broken entries of the file do not hide what is wrong with the
        functions and upstreams of the others. Imports the modules of the functions, reads the
        logs of upstreams on this machine, and plans them; writes nothing. With `connect` it also
        asks databases, web APIs and object stores, and starts Spark if catalog names have to be
        asked for; without, those are not checked.
        """
        file, report = survey_project(_project_file(path), env)
        project = cls(file, session, outside) if file else None
        if project:
            if connect:
                project.connect_names(project.select(), watcher or Nobody())
            checks = Checks(project.file, project.coordinator, report, connects=connect)
            checks.run()
            # With errors before it planning would only meet them again.
            if not report.found and (names := checks.plannable):
                checks.take_plans(project.plan_scopes(names))
        report.raise_if_any()
        assert project is not None  # noqa: S101  (nothing is missing without an error)
        project.file = replace(project.file, warnings=tuple(report.warnings))
        return project

    @cached_property
    def plugins(self) -> Plugins:
        """The formats, sources and sinks of its modules and of installed packages."""
        return Plugins(self.root, self.settings.plugins)

    @cached_property
    def coordinator(self) -> Coordinator:
        """The coordinator of the project's control store."""
        vault, plugins = Vault(self.root), self.plugins
        coordinator = Coordinator(
            self.settings.control,
            base=str(self.root),
            schema=self.settings.catalog_schema,
            lease_ttl=self.settings.lease_ttl_seconds,
            databases=Databases(self.settings.connections, vault, plugins),
            outside=self._outside,
        )
        coordinator.readers = {
            **self._database_readers(coordinator, vault),
            **file_readers_of(self.file, coordinator.control, coordinator.storage, plugins),
            **self._source_readers(coordinator, vault),
        }
        coordinator.writes = {each.name: each.specs for each in self.file.pipelines}
        return coordinator

    def _database_readers(self, coordinator: Coordinator, vault: Vault) -> Readers:
        """Readers of databases; their modules are loaded only where there are some."""
        if self._kinds_of_connections.isdisjoint(DIALECTS):
            return {}
        from floodmark.project.databases import readers_of

        return readers_of(self.file, vault, coordinator.storage)

    def _source_readers(self, coordinator: Coordinator, vault: Vault) -> Readers:
        """Readers of web APIs and plug-ins; their modules are loaded only where there are some."""
        if self._kinds_of_connections.isdisjoint(("http", "plugin")):
            return {}
        from floodmark.project.source_reads import SourceReads

        place = coordinator.control, coordinator.storage
        return SourceReads(self.file, vault, *place, self.plugins).readers()

    @property
    def _kinds_of_connections(self) -> set[str]:
        return {connection.type for connection in self.settings.connections.values()}

    # Choosing -------------------------------------------------------------------------------------

    @cached_property
    def pipelines(self) -> dict[str, PipelineSettings]:
        return {pipeline.pipeline: pipeline for pipeline in self.settings.pipelines}

    @cached_property
    def _scopes(self) -> dict[str, list[PipelineSettings]]:
        scopes: dict[str, list[PipelineSettings]] = {}
        for pipeline in self.settings.pipelines:
            scopes.setdefault(pipeline.shared_scope, []).append(pipeline)
        return scopes

    def _resolved(self, scope: str) -> list[ResolvedPipeline]:
        return [each for each in self.file.pipelines if each.settings.shared_scope == scope]

    def select(
        self, selectors: Iterable[str] = (), exclude: Iterable[str] = ()
    ) -> dict[str, list[PipelineSettings]]:
        """The selected pipelines (all if none is) by scope.

        Raises FM-CONFIG-008 for an unknown name, FM-CONFIG-007 for another grammar.
        """
        known = self.pipelines
        selection = Selection(tuple(selectors), tuple(exclude))
        failed = self._failed_pipelines() if selection.needs_state else set()
        scopes: dict[str, list[PipelineSettings]] = {}
        for name in selection.names(chosen_from(self.file.pipelines), failed):
            scopes.setdefault(known[name].shared_scope, []).append(known[name])
        return scopes

    def _to_run(
        self, selectors: Iterable[str] = (), exclude: Iterable[str] = ()
    ) -> dict[str, list[PipelineSettings]]:
        """The same for work; raises FM-CONFIG-016 for nodes of them that are not run."""
        scopes = self.select(selectors, exclude)
        refuse_nodes(self.file, [each for scope in scopes for each in self._scopes[scope]])
        return scopes

    def _failed_pipelines(self) -> set[str]:
        """The pipelines whose latest run in an open batch failed."""
        state = self.coordinator.state_if_any()
        batches = state.open_batches() if state else ()
        return {r.pipeline for b in batches for r in b.runs.values() if r.status == "FAILED"}

    def members(self, scope: str) -> dict[str, list[Upstream]]:
        """Every pipeline of a scope with its upstreams: all of them hold the scope's upstreams."""
        return {
            pipeline.pipeline: [
                *(upstream.upstream() for upstream in pipeline.declared),
                *(Upstream(name, lookup=True) for name in pipeline.lookups),
            ]
            for pipeline in self._scopes.get(scope, ())
        }

    def parents(self) -> dict[str, list[str]]:
        """The pipelines that write what each one reads: by the files, and as functions have done."""
        parents = parents_of(self.file.pipelines)
        writers = written_so_far(self.coordinator.state_if_any())
        for name, pipeline in self.pipelines.items() if writers else ():
            read = (*pipeline.upstreams, *pipeline.lookups)
            before = (writers.get(self.coordinator.stored_name(u), ()) for u in read)
            known = [w for each in before for w in each if w in self.pipelines and w != name]
            parents[name] = list(dict.fromkeys([*parents[name], *known]))
        return parents

    def file_writers(self, pipelines: Iterable[str]) -> list[str]:
        """The nodes of these pipelines whose writes are at least once, since files keep no receipts."""
        by_name = {each.name: each for each in self.file.pipelines}
        nodes = [node for name in pipelines if name in by_name for node in by_name[name].nodes]
        return [node.name for node in nodes if node.write and node.write.is_at_least_once]

    def upstreams(self) -> list[str]:
        """The stored names of every upstream of the project."""
        names = [u for pipeline in self.settings.pipelines for u in pipeline.upstreams]
        unknown = self.unresolved()
        known = [name for name in names if name not in unknown]
        return list(dict.fromkeys(self.coordinator.stored_name(name) for name in known))

    def unresolved(self, scopes: Iterable[str] | None = None) -> list[str]:
        """The catalog names, of all scopes or of these, that Spark has to be asked for."""
        chosen = self._scopes if scopes is None else scopes
        members = [each for scope in chosen for each in self.members(scope).values()]
        names = dict.fromkeys(upstream.name for each in members for upstream in each)
        return self.coordinator.names.to_ask(names)

    def connect_names(self, scopes: Iterable[str], watcher: Watcher) -> None:
        """Start Spark if a catalog name of these scopes has to be asked for; the run uses it too."""
        if self.unresolved(scopes):
            self.ensure_session(watcher)

    # Plan -----------------------------------------------------------------------------------------

    def plan(self, *pipelines: str, max_versions: int | None = None) -> list[Batch]:
        """What a run would do now, scope by scope; writes nothing."""
        return _batches(self.plan_scopes(pipelines, max_versions=max_versions))

    def freeze(self, *pipelines: str, max_versions: int | None = None) -> list[Batch]:
        """Register the pipelines and freeze what is new, one batch per scope.

        Called again it returns the same batches while they are open. Raises the error of the first
        scope that cannot be planned, once the others are frozen.
        """
        return _batches(self.plan_scopes(pipelines, max_versions=max_versions, freeze=True))

    def plan_scopes(
        self,
        selectors: Sequence[str] = (),
        *,
        exclude: Sequence[str] = (),
        max_versions: int | None = None,
        on_lost_range: Settlement | None = None,
        freeze: bool = False,
        watcher: Watcher | None = None,
    ) -> list[ScopePlan]:
        """The plan of each scope, or its error: one bad scope hides no other.

        Writes nothing unless `freeze` is said; then Spark is started if catalog names have to be
        asked for. Raises FM-CONTROL-016 for a copied or moved project.
        """
        scopes = self._to_run(selectors, exclude)
        refuse_elsewhere(self.file, self.coordinator)
        if not freeze:
            preview = partial(self.preview_scope, on_lost_range=on_lost_range, scratch=Scratch())
            plans = [self._plan_scope(preview, *scope, max_versions) for scope in scopes.items()]
            plans = with_followers(plans, scopes, self.parents())
            name_of = self.coordinator.stored_name
            return [advised(each, self._resolved(each.scope), name_of) for each in plans]
        self.connect_names(scopes, watcher or Nobody())
        freezing = partial(self.freeze_scope, on_lost_range=on_lost_range)
        with self.coordinator.coalesce():
            return [self._plan_scope(freezing, *scope, max_versions) for scope in scopes.items()]

    def _plan_scope(
        self,
        make: Callable[..., Batch],
        scope: str,
        chosen: Sequence[PipelineSettings],
        max_versions: int | None,
    ) -> ScopePlan:
        found = strays(self.coordinator.state_if_any(), scope, self.members(scope))
        try:
            return ScopePlan(scope, batch=make(scope, chosen, max_versions), strays=found)
        except FloodmarkError as error:
            return ScopePlan(scope, error=error, strays=found)

    def preview_scope(
        self,
        scope: str,
        chosen: Sequence[PipelineSettings],
        max_versions: int | None,
        on_lost_range: Settlement | None = None,
        scratch: Scratch | None = None,
    ) -> Batch:
        """What freezing a scope for these pipelines would give; writes nothing.

        Catalog names that only Spark could tell of are left out, and named, while it is not there.
        For `scratch` see `Coordinator.preview`.
        """
        members = self.members(scope)
        unknown = [] if self._has_session else self.unresolved([scope])
        seen = naming.without(members, unknown) if unknown else members
        names = [pipeline.pipeline for pipeline in chosen]
        batch = naming.nothing_known(scope)
        if any(name in seen for name in names):
            batch = self.coordinator.preview(
                pipelines=[name for name in names if name in seen],
                scope=scope,
                max_versions=max_versions,
                on_lost_range=on_lost_range,
                register=seen,
                scratch=scratch,
            )
        if not unknown:
            return batch
        readers = [name for name in naming.readers_of(members, unknown) if name in names]
        return naming.with_unresolved(batch, unknown, readers)

    def freeze_scope(
        self,
        scope: str,
        chosen: Sequence[PipelineSettings],
        max_versions: int | None,
        on_lost_range: Settlement | None = None,
    ) -> Batch:
        """Register every pipeline of the scope, and freeze what is new for the chosen ones."""
        for name, upstreams in self.members(scope).items():
            self.coordinator.register(name, upstreams, scope)
        return self.coordinator.create_batch(
            pipelines=[pipeline.pipeline for pipeline in chosen],
            scope=scope,
            max_versions=max_versions,
            on_lost_range=on_lost_range,
        )

    # Run ------------------------------------------------------------------------------------------

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
        """Plan, run and finalize until everything that was new at the beginning is done.

        A batch left open by an earlier run is finished first. A pipeline that writes a table comes
        before those that read it; if it fails they wait (`waiting` in the summary). A pipeline that
        fails holds its upstreams; the others go on, at most `jobs` at once. Called again it is the retry. `timeout`
        and `retry` are for every pipeline, in the place of what floodmark.yaml says. Raises
        ConfigError before anything is journaled if a function cannot be found. With `full_refresh`
        the pipelines load everything again, with `force_first_run` those with a `first_run_query`;
        their nodes replace what their targets hold, unless they say what becomes of missing rows.
        """
        scopes = self._to_run(pipelines, exclude)
        refuse_elsewhere(self.file, self.coordinator)
        anew = pipelines_anew(scopes, force_first_run=force_first_run, full_refresh=full_refresh)
        refuse_shared_targets(self.file.pipelines, anew)
        shift = self._shift(
            jobs,
            timeout,
            retry,
            watcher,
            on_lost_range=on_lost_range,
            on_lost_target=on_lost_target,
            loads_anew=anew,
        )
        refuse_debts(self.coordinator, anew)
        self.functions(sorted(anew))
        self.connect_names(scopes, shift.watcher)
        with self.coordinator.coalesce():
            order = order_of(scopes, self._scopes, self.parents())
            summary = shift.run_units(order, max_versions)
            if not summary.batches:  # no finalize has looked for what a crash left behind
                self.coordinator.sweep_landing()
            return summary

    def retry(
        self,
        batch_id: str,
        *pipelines: str,
        jobs: int | None = None,
        on_lost_range: Settlement | None = None,
        on_lost_target: OnLostTarget | None = None,
        watcher: Watcher | None = None,
    ) -> RunSummary:
        """Run the unfinished pipelines of a batch (or the named ones) and finalize it.

        `on_lost_range` is the way forward for ranges that an upstream has lost, `on_lost_target`
        for targets that lost rows; see run_pipeline.
        Pipelines that have succeeded are not called again. Raises FM-CONTROL-004 for an unknown
        batch, FM-CONTROL-005 for a pipeline that is not part of it, and FM-CONTROL-018 if all that
        are left are paused.
        """
        self.select(pipelines)
        batch = self._batch(batch_id)
        for name in pipelines:
            if name not in batch.required:
                raise _not_in_batch(name, batch)
        if not pipelines:
            self._refuse_paused(batch)
        return self.run_batches(
            [batch],
            pipelines,
            jobs=jobs,
            on_lost_range=on_lost_range,
            on_lost_target=on_lost_target,
            watcher=watcher,
        )

    def _refuse_paused(self, batch: PlannedBatch) -> None:
        """Raise FM-CONTROL-018 if every pipeline that has to run is paused: nothing would happen."""
        left = batch.unfinished_pipelines()
        if left and not batch.is_cancelled and not self.unfinished(batch):
            raise paused(left[0])

    def run_plan(
        self, path: str | Path, *, jobs: int | None = None, watcher: Watcher | None = None
    ) -> RunSummary:
        """Run exactly the batches of a plan file, and finalize them.

        Raises FM-CONFIG-009 if the file is no plan, FM-PLAN-012 if a batch of it is gone or
        finished, or if it is of another store; nothing is run then.
        """
        plan = planfile.read_plan_file(Path(path))
        state = self.coordinator.state_if_any()
        control_id = state.control_id if state else ""
        planfile.refuse_other_store(plan, control_id, self.coordinator.control)
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
        watcher: Watcher | None = None,
        are_new: bool = False,
    ) -> RunSummary:
        """Run the unfinished pipelines of these batches (or the named ones) and finalize each."""
        refuse_elsewhere(self.file, self.coordinator)
        work = [
            (
                batch_view(batch, reused=not are_new),
                self.functions(self.unfinished(batch, pipelines or None)),
            )
            for batch in batches
        ]
        with self.coordinator.coalesce():
            shift = self._shift(
                jobs,
                None,
                None,
                watcher,
                on_lost_range=on_lost_range,
                on_lost_target=on_lost_target,
            )
            return shift.run_batches(work)

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
        """Process the range `start` to `end` of an upstream once more, and finalize; marks stay.

        Versions, or values of its time or cursor column; see `Coordinator.backfill`.
        One batch per scope of the pipelines; without names, of those that read the upstream.
        Raises ConfigError before anything is journaled. Called twice it processes them twice.
        """
        chosen = self._readers_of(upstream, pipelines)
        self.functions(pipeline.pipeline for each in chosen.values() for pipeline in each)
        batches = [
            self.coordinator.backfill(
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
        """Process the windows of a completed batch once more, for its pipelines or the named ones.

        Raises ConfigError before anything is journaled. Called twice it processes them twice.
        """
        self.select(pipelines)
        self.functions(pipelines or self._batch(batch_id).required)
        batch = self.coordinator.replay(
            batch_id,
            pipelines=pipelines or None,
            allow_duplicates=allow_duplicates,
            allow_stale=allow_stale,
        )
        return self._run_again([batch], jobs, watcher)

    def _run_again(
        self, batches: Sequence[Batch], jobs: int | None, watcher: Watcher | None
    ) -> RunSummary:
        planned = [self._batch(batch.batch_id) for batch in batches if batch.batch_id]
        return self.run_batches(planned, jobs=jobs, watcher=watcher, are_new=True)

    def _readers_of(
        self, upstream: str, pipelines: Sequence[str]
    ) -> dict[str, list[PipelineSettings]]:
        """The pipelines that read an upstream, by scope; raises FM-CONFIG-007 if none does."""
        refuse_elsewhere(self.file, self.coordinator)
        name_of = self.coordinator.stored_name
        found = {
            scope: [p for p in each if name_of(upstream) in map(name_of, p.upstreams)]
            for scope, each in self._to_run(pipelines).items()
        }
        found = {scope: each for scope, each in found.items() if each}
        if not found:
            known = [u for pipeline in self.settings.pipelines for u in pipeline.upstreams]
            title = f"no such pipeline reads {upstream}"
            raise _wrong_argument(title, choices(list(dict.fromkeys(known)), upstream))
        return found

    def functions(self, names: Iterable[str]) -> dict[str, Callable[..., Any]]:
        """The functions of those pipelines that the project has; raises FM-CONFIG-006."""
        report = self.file.report()
        known = self.pipelines
        return {name: self._function(name, report) for name in names if name in known}

    def unfinished(
        self, batch: PlannedBatch, pipelines: Collection[str] | None = None
    ) -> list[str]:
        """The pipelines of a batch that have to run, of those named if any are; paused ones do not.

        Of a cancelled batch all of them: running them is then refused with the reason.
        """
        names = list(batch.required) if batch.is_cancelled else batch.unfinished_pipelines()
        registered = self.coordinator.state().pipelines
        resting = {name for name, pipeline in registered.items() if pipeline.is_paused}
        return [p for p in names if (p not in resting if pipelines is None else p in pipelines)]

    def debts(self, batch: Batch, pipelines: Collection[str]) -> list[PlannedBatch]:
        """Batches that some of the pipelines have to finish before this one, oldest first."""
        before = batch.seq or 0
        return [
            each
            for each in self.coordinator.state().open_batches(batch.scope)
            if each.is_ordered and each.seq < before and self.unfinished(each, pipelines)
        ]

    def ensure_session(self, watcher: Watcher) -> None:
        """Start Spark if it is not there; raises SetupError, once found, without trying again."""
        with self._starting:
            if self._has_session:
                return
            if self._no_session is not None:
                raise self._no_session
            self._start_session(watcher)

    def _start_session(self, watcher: Watcher) -> None:
        if not _has_active_session():
            watcher.starting_session()
        try:
            self.coordinator.spark = self._session()
        except SetupError as error:
            self._no_session = error
            raise
        if is_in_memory(self.coordinator.spark):  # nobody could read tables registered there
            self.coordinator.schema = None
        self._has_session = True

    def _shift(
        self,
        jobs: int | None,
        timeout: str | float | None,
        retry: Retry | None,
        watcher: Watcher | None,
        *,
        on_lost_range: Settlement | None = None,
        on_lost_target: OnLostTarget | None = None,
        loads_anew: frozenset[str] = frozenset(),
    ) -> Shift:
        self._no_session = None
        terms = Terms(
            jobs=_checked_jobs(jobs) or self.settings.jobs,
            timeout_seconds=_checked_timeout(timeout),
            retry=_checked_retry(retry),
            on_lost_range=on_lost_range,
            on_lost_target=on_lost_target,
            loads_anew=loads_anew,
        )
        return Shift(self, terms, watcher or Nobody(), Crew(terms.jobs, self.stop))

    def _batch(self, batch_id: str) -> PlannedBatch:
        return self.coordinator.status(batch_id)[0]

    def _batch_of(self, plan: planfile.PlanFile, batch_id: str) -> PlannedBatch:
        try:
            batch = self._batch(batch_id)
        except ControlError as error:
            if error.code != "FM-CONTROL-004":
                raise
            raise planfile.gone(plan, batch_id) from error
        planfile.refuse_finished(plan, batch)
        return batch

    def _function(self, name: str, report: Report) -> Callable[..., Any]:
        index = list(self.pipelines).index(name)
        return function_of(self.file, index, self.file.pipelines[index], report)

    # Look -----------------------------------------------------------------------------------------

    def verify(self) -> list[Finding]:
        """The findings of the store, and whether the project is where its store was filled."""
        found = self.coordinator.verify()
        return [*place_finding(self.file, self.coordinator), *found]


def _project_file(path: str | Path | None) -> Path:
    return find_project_file(Path(path) if path is not None else None)


def _batches(plans: Sequence[ScopePlan]) -> list[Batch]:
    for plan in plans:
        if plan.error:
            raise plan.error
    return [plan.batch for plan in plans if plan.batch]


def _checked_jobs(jobs: int | None) -> int | None:
    if jobs is not None and not 1 <= jobs <= MAX_JOBS:
        raise _wrong_argument(f"jobs is {jobs}", f"1 to {MAX_JOBS}")
    return jobs


def _checked_timeout(timeout: str | float | None) -> float | None:
    try:
        seconds = durations.seconds_of(timeout) if isinstance(timeout, str) else timeout
    except ValueError as error:
        raise _wrong_argument(f"timeout is {timeout!r}", durations.ALLOWED) from error
    if seconds is not None and seconds <= 0:
        raise _wrong_argument(f"timeout is {timeout}", "more than nothing")
    return seconds


def _checked_retry(retry: Retry | None) -> RetrySettings | None:
    if retry is None or isinstance(retry, RetrySettings):
        return retry
    try:
        return RetrySettings.model_validate(dict(retry))
    except ValidationError as error:
        allowed = '{"attempts": 3, "backoff": "30s"}'
        raise _wrong_argument(f"retry is {dict(retry)}", allowed) from error


def _wrong_argument(title: str, allowed: str) -> ConfigError:
    return ConfigError(
        "FM-CONFIG-007",
        title,
        allowed=allowed,
        state="nothing was read or written",
        next="correct the argument",
    )


def _not_in_batch(name: str, batch: PlannedBatch) -> ControlError:
    return UnknownNameError(
        "FM-CONTROL-005",
        f"pipeline {name} is not part of batch {batch.batch_id}",
        allowed=choices(list(batch.required), name) or "the batch was planned for no pipeline",
        state="nothing was read or written; a plan keeps the registry of its moment",
        next=f"floodmark status {batch.batch_id}",
    )
