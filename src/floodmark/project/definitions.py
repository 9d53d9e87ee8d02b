"""The pipelines of a project as its files define them, beside what its store knows of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import cached_property, partial

from floodmark.config import LoadedProject, PipelineSettings, ResolvedPipeline
from floodmark.config.plugins import Plugins
from floodmark.config.project import DIALECTS, parents_of
from floodmark.config.text import Report, Vault, choices
from floodmark.coordinator import Coordinator, Look, Outside
from floodmark.errors import ConfigError
from floodmark.model import Batch, PlannedBatch, Upstream
from floodmark.project.checks import function_of, place_finding, refuse_elsewhere, refuse_nodes
from floodmark.project.file_reads import file_readers_of
from floodmark.project.order import written_so_far
from floodmark.project.selection import Selection, chosen_from
from floodmark.run.databases import Databases
from floodmark.run.runner import PipelineFunction
from floodmark.sources import Readers


class Definitions:
    """What floodmark.yaml says, and the coordinator that works for it."""

    def __init__(self, file: LoadedProject, outside: Outside | None = None) -> None:
        self.file = file.with_upstreams()
        self.settings = self.file.settings
        self.root = file.root
        self._outside = outside

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
        coordinator.store.readers = {
            **self._database_readers(coordinator, vault),
            **file_readers_of(self.file, coordinator.control, coordinator.storage, plugins),
            **self._source_readers(coordinator, vault),
        }
        coordinator.store.writes = {each.name: each.specs for each in self.file.pipelines}
        return coordinator

    @cached_property
    def look(self) -> Look:
        """What the coordinator can be asked; `verify` also tells of a project that was moved."""
        return Look(self.coordinator.store, partial(place_finding, self.file, self.coordinator))

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

    @cached_property
    def pipelines(self) -> dict[str, PipelineSettings]:
        """The pipelines by name."""
        return {pipeline.pipeline: pipeline for pipeline in self.settings.pipelines}

    @cached_property
    def scopes(self) -> dict[str, list[PipelineSettings]]:
        """The pipelines of each scope."""
        scopes: dict[str, list[PipelineSettings]] = {}
        for pipeline in self.settings.pipelines:
            scopes.setdefault(pipeline.shared_scope, []).append(pipeline)
        return scopes

    def resolved(self, scope: str) -> list[ResolvedPipeline]:
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

    def to_run(
        self, selectors: Iterable[str] = (), exclude: Iterable[str] = ()
    ) -> dict[str, list[PipelineSettings]]:
        """The same for work; raises FM-CONFIG-016 for nodes of them that are not run."""
        scopes = self.select(selectors, exclude)
        refuse_nodes(self.file, [each for scope in scopes for each in self.scopes[scope]])
        return scopes

    def _failed_pipelines(self) -> set[str]:
        """The pipelines whose latest run in an open batch failed."""
        state = self.coordinator.look.state_if_any()
        batches = state.open_batches() if state else ()
        return {r.pipeline for b in batches for r in b.runs.values() if r.status == "FAILED"}

    def members(self, scope: str) -> dict[str, list[Upstream]]:
        """Every pipeline of a scope with its upstreams: all of them hold the scope's upstreams."""
        return {
            pipeline.pipeline: [
                *(upstream.upstream() for upstream in pipeline.declared),
                *(Upstream(name, lookup=True) for name in pipeline.lookups),
            ]
            for pipeline in self.scopes.get(scope, ())
        }

    def parents(self) -> dict[str, list[str]]:
        """The pipelines that write what each one reads: by the files, and as functions have done."""
        parents = parents_of(self.file.pipelines)
        writers = written_so_far(self.coordinator.look.state_if_any())
        for name, pipeline in self.pipelines.items() if writers else ():
            read = (*pipeline.upstreams, *pipeline.lookups)
            before = (writers.get(self.coordinator.look.stored_name(u), ()) for u in read)
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
        return list(dict.fromkeys(self.coordinator.look.stored_name(name) for name in known))

    def unresolved(self, scopes: Iterable[str] | None = None) -> list[str]:
        """The catalog names, of all scopes or of these, that Spark has to be asked for."""
        chosen = self.scopes if scopes is None else scopes
        members = [each for scope in chosen for each in self.members(scope).values()]
        names = dict.fromkeys(upstream.name for each in members for upstream in each)
        return self.coordinator.store.names.to_ask(names)

    def functions(self, names: Iterable[str]) -> dict[str, PipelineFunction]:
        """The functions of those pipelines that the project has; raises FM-CONFIG-006."""
        report = self.file.report()
        known = self.pipelines
        return {name: self._function(name, report) for name in names if name in known}

    def _function(self, name: str, report: Report) -> PipelineFunction:
        index = list(self.pipelines).index(name)
        return function_of(self.file, index, self.file.pipelines[index], report)

    def unfinished(
        self, batch: PlannedBatch, pipelines: Collection[str] | None = None
    ) -> list[str]:
        """The pipelines of a batch that have to run, of those named if any are; paused ones do not.

        Of a cancelled batch all of them: running them is then refused with the reason.
        """
        names = list(batch.required) if batch.is_cancelled else batch.unfinished_pipelines()
        registered = self.coordinator.look.state().pipelines
        resting = {name for name, pipeline in registered.items() if pipeline.is_paused}
        return [p for p in names if (p not in resting if pipelines is None else p in pipelines)]

    def debts(self, batch: Batch, pipelines: Collection[str]) -> list[PlannedBatch]:
        """Batches that some of the pipelines have to finish before this one, oldest first."""
        before = batch.seq or 0
        return [
            each
            for each in self.coordinator.look.state().open_batches(batch.scope)
            if each.is_ordered and each.seq < before and self.unfinished(each, pipelines)
        ]

    def readers_of(
        self, upstream: str, pipelines: Sequence[str]
    ) -> dict[str, list[PipelineSettings]]:
        """The pipelines that read an upstream, by scope; raises FM-CONFIG-007 if none does."""
        self.refuse_elsewhere()
        name_of = self.coordinator.look.stored_name
        found = {
            scope: [p for p in each if name_of(upstream) in map(name_of, p.upstreams)]
            for scope, each in self.to_run(pipelines).items()
        }
        found = {scope: each for scope, each in found.items() if each}
        if not found:
            known = [u for pipeline in self.settings.pipelines for u in pipeline.upstreams]
            title = f"no such pipeline reads {upstream}"
            raise wrong_argument(
                title, choices(list(dict.fromkeys(known)), upstream), rule="unknown_upstream"
            )
        return found

    def batch(self, batch_id: str) -> PlannedBatch:
        """A batch of any age; raises FM-CONTROL-004."""
        return self.coordinator.status(batch_id)[0]

    def refuse_elsewhere(self) -> None:
        """Raise FM-CONTROL-016 for a copied or moved project."""
        refuse_elsewhere(self.file, self.coordinator)


def wrong_argument(title: str, allowed: str, *, rule: str) -> ConfigError:
    return ConfigError(
        "FM-CONFIG-007",
        title,
        rule=rule,
        allowed=allowed,
        state="nothing was read or written",
        next="correct the argument",
    )
