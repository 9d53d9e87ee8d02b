"""Checks that look beyond floodmark.yaml: functions, upstreams, and whether the store is here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path

from floodmark.config import (
    PROJECT_FILE,
    Finding,
    LoadedProject,
    PipelineSettings,
    ResolvedNode,
    ResolvedPipeline,
)
from floodmark.config.checks import (
    UNREAD_SQL,
    add_finding,
    database_problems,
    foreseen_refusals,
    has_plugins,
    plugin_problems,
    unsupported_keys,
)
from floodmark.config.plugins import Plugins, load_function
from floodmark.config.text import Report, is_inside, key_name, table_name
from floodmark.coordinator import Coordinator
from floodmark.deltalog import is_local
from floodmark.errors import ConfigError, ControlError, FloodmarkError
from floodmark.model import Finding as StoreFinding
from floodmark.model import State, bad, pipeline_of
from floodmark.model.names import is_asked, is_of_project
from floodmark.project.older_csv import read_by_older_rules
from floodmark.project.outcomes import ScopePlan
from floodmark.run.runner import PipelineFunction
from floodmark.sources import LookSpec, reader_of
from floodmark.sources.delta import log_of
from floodmark.sources.time import probe_place

_ABSENT = ("FM-PLAN-001", "FM-PLAN-030")
_OF_PLUGINS = ("FM-TRANSFORM-012", "FM-TRANSFORM-013")
"""Errors of modules with transforms, whoever uses them."""


@dataclass(frozen=True)
class Checks:
    """The checks of `validate`; what is wrong goes into the report."""

    file: LoadedProject
    coordinator: Coordinator
    report: Report
    connects: bool = False
    """Whether databases are asked."""

    def run(self) -> None:
        """Everything, one after the other; an error of one hides no other."""
        for position, pipeline in enumerate(self.file.pipelines):
            for index, node in enumerate(pipeline.nodes):
                for finding in self._of_node(("pipelines", position, "nodes", index), node):
                    self._note(finding)
            if pipeline.nodes:
                self._check_graph(position, pipeline)
            elif pipeline.settings.function:
                self._check_function(position, pipeline)
        self._check_upstreams()
        self._check_csv()
        self._check_place()

    @property
    def plannable(self) -> list[str]:
        """The pipelines whose scopes can be planned without asking anybody, as far as allowed."""
        if self.connects:
            return [pipeline.name for pipeline in self.file.pipelines]
        if not self._has_store_at_hand:
            return []
        asked = {p.settings.shared_scope for p in self.file.pipelines if self._asks_somebody(p)}
        return [p.name for p in self.file.pipelines if p.settings.shared_scope not in asked]

    @property
    def _has_store_at_hand(self) -> bool:
        """Whether the control store can be read without a network, or a network may be used."""
        return self.connects or is_local(self.coordinator.control)

    def _asks_somebody(self, pipeline: ResolvedPipeline) -> bool:
        names = [*pipeline.settings.upstreams, *pipeline.settings.lookups]
        return any(is_asked(name) or self._is_remote(name, pipeline) for name in names)

    def _is_remote(self, upstream: str, pipeline: ResolvedPipeline) -> bool:
        """Whether an upstream is on another machine, or has a name that only Spark resolves."""
        if is_of_project(upstream):
            reader = self.coordinator.store.readers[pipeline.name, upstream]
            return not is_local(getattr(reader, "root", ""))
        if self.coordinator.store.names.to_ask([upstream]):
            return self.coordinator.spark is None
        stored = self.coordinator.look.stored_name(upstream)
        return not is_local(self.coordinator.store.names.place(stored))

    def take_plans(self, plans: Sequence[ScopePlan]) -> None:
        """What planning refuses is refused here too, with its own way out."""
        for plan in plans:
            # What is not there was told before, unless a node of the project writes it.
            if plan.error is None or plan.error.code in _ABSENT:
                continue
            of_scope = (
                p
                for p, e in enumerate(self.file.pipelines)
                if e.settings.shared_scope == plan.scope
            )
            self._add(("pipelines", next(of_scope)), plan.error)
            self.report.found[-1][1].next = plan.error.next

    @cached_property
    def _plugins(self) -> Plugins:
        return Plugins(self.file.root, self.file.settings.plugins)

    @cached_property
    def _has_plugins(self) -> bool:
        return has_plugins(self.file.settings)

    def _check_function(self, position: int, pipeline: ResolvedPipeline) -> None:
        try:
            function_of(self.file, position, pipeline, self.report)
        except ConfigError as error:
            place = self.file.place("pipelines", position, "function")
            self.report.found.append((place, error))

    def _of_node(self, path: tuple[str | int, ...], node: ResolvedNode) -> Iterator[Finding]:
        """What a node names that is not there, and SQL and parameters that cannot be right."""
        for number, step in enumerate(node.settings.transform):
            if step.python is not None:
                self._check_import((*path, "transform", number, "python"), step.python.function)
        is_whole = self.file.is_whole(*path, "read") and self.file.is_whole(*path, "write")
        has_modules = self.file.is_whole("plugins")
        if is_whole and has_modules:
            for below, error in plugin_problems(node, self._plugins):
                # Without plug-ins the rules of the file have said that the format is unknown.
                if below[-1] != "format" or self._has_plugins:
                    yield Finding.of((*path, *below), error)
        if is_whole and node.kind == "database":
            from floodmark.sources.cursor import sql as queries

            for below, problem in database_problems(node, queries):
                yield Finding.of((*path, *below), problem)
        if node.settings.transform and has_modules:
            yield from self._of_steps((*path, "transform"), node)

    def _of_steps(self, path: tuple[str | int, ...], node: ResolvedNode) -> Iterator[Finding]:
        from floodmark.run.nodes.steps import step_problems, unread_sql

        title = "the SQL of a step could not be read, so only Spark can tell whether it is right"
        for position, why in unread_sql(node.settings):
            yield Finding((*path, position, "sql"), UNREAD_SQL, title, why, "SQL as Spark takes it")
        for error in step_problems(node.settings, self.file.settings.plugins, self.file.root):
            if error.code == "FM-TRANSFORM-001" and not self._has_plugins:
                continue  # the rules of the file have said it
            if error.code not in _OF_PLUGINS:
                below = () if error.step is None else (error.step - 1,)
                yield Finding.of((*path, *below), error)
            elif not self._is_known(error):  # every node would find it: once, where its cause is
                yield Finding.of(("plugins",), error)

    def _check_graph(self, position: int, pipeline: ResolvedPipeline) -> None:
        """What `plan` refuses of the nodes, and what their writes would refuse in some batch."""
        from floodmark.transforms import sql

        if not all(
            self.file.is_whole(*part) for part in (("connections",), ("pipelines", position))
        ):
            return  # what is missing may be the very thing that would make the rest right
        for finding in (
            *unsupported_keys(pipeline, self.file.pipelines),
            *foreseen_refusals(pipeline, self.file.pipelines, sql),
        ):
            path = self.file.written(("pipelines", position, *finding.path))
            if not self._has_error_at(path) and not self._is_known(finding):
                self._note(replace(finding, path=path))

    def _has_error_at(self, path: tuple[str | int, ...]) -> bool:
        """Whether that part of the node is wrong already: one mistake is one error."""
        part = f": {key_name(path[:5])}"
        return any(part in (error.where or "") for _, error in self.report.found)

    def _is_known(self, error: FloodmarkError | Finding) -> bool:
        return any(
            each.code == error.code and each.title == error.title for _, each in self.report.found
        )

    def _check_import(self, path: tuple[str | int, ...], function: str) -> None:
        written = self.file.written(path)
        place = self.file.place(*written)
        where = self.report.where(place, self.file.key(*written))
        try:
            load_function(self.file.root, function, where)
        except ConfigError as error:
            self.report.found.append((place, error))

    def _check_upstreams(self) -> None:
        names: dict[tuple[str, str], str] = {}
        for position, pipeline in enumerate(self.file.pipelines):
            for index, upstream in _each_once(pipeline.settings.upstreams):
                path = self._path_of(position, pipeline, index)
                if not self._is_read_known(path, pipeline):
                    continue
                if is_asked(upstream):
                    self._check_connection(path, upstream, pipeline.name)
                elif is_of_project(upstream):
                    self._check_folder(path, upstream, pipeline)
                elif self._may_look_at(upstream, pipeline):
                    self._check_table(path, upstream, pipeline, names)

    @cached_property
    def _to_come(self) -> set[str]:
        """The tables and folders that the project writes: they may not be there yet."""
        return {table for each in self.file.pipelines for table in each.writes()}

    def _name(self, upstream: str) -> str:
        return table_name(upstream, str(self.file.root))

    def _may_look_at(self, upstream: str, pipeline: ResolvedPipeline) -> bool:
        # Without its store nobody knows where a table is: the store remembers tables that moved.
        at_hand = self._has_store_at_hand and not self._is_remote(upstream, pipeline)
        return self.connects or at_hand

    def _check_table(
        self,
        path: tuple[str | int, ...],
        upstream: str,
        pipeline: ResolvedPipeline,
        names: dict[tuple[str, str], str],
    ) -> None:
        """Whether a table is there, under one name in its scope; `names` has those seen so far."""
        try:
            table_id = self._table_id(upstream, pipeline)
        except FloodmarkError as error:
            if error.code == "FM-PLAN-030" and self.coordinator.spark is None:
                return  # only Spark can tell: it is shown, not refused
            is_absent = error.code in _ABSENT
            may_come = self._name(upstream) in self._to_come or not self._targets_are_known
            if not (is_absent and may_come):
                self._add(path, error)
            return
        stored = self.coordinator.look.stored_name(upstream)
        other = names.setdefault((pipeline.settings.shared_scope, table_id), stored)
        if other != stored:
            self._add(path, _two_names(other, stored, table_id))

    def _check_connection(self, path: tuple[str | int, ...], upstream: str, pipeline: str) -> None:
        """With `--connect` the database is asked what a run would ask it first."""
        if not self.connects:
            return
        try:
            reader = reader_of(self.coordinator.store.readers, upstream, pipeline)
            reader.examine(LookSpec(datetime.now(UTC), spark=self.coordinator.spark))
        except FloodmarkError as error:
            self._add(path, error)

    def _check_folder(
        self, path: tuple[str | int, ...], upstream: str, pipeline: ResolvedPipeline
    ) -> None:
        """Whether there is a place where files could be; another machine is asked by --connect."""
        from floodmark.sources.files import FileReader

        reader = self.coordinator.store.readers[pipeline.name, upstream]
        is_near = self.connects or (isinstance(reader, FileReader) and is_local(reader.root))
        if not self._targets_are_known or not is_near:
            return
        node = pipeline.nodes[int(path[3])] if path[4:] == ("read",) else None
        wanted = node.reads if node is not None else ()
        if any(is_inside(name, table) for name in wanted for table in self._to_come):
            return  # a node of the project writes these files
        try:
            reader.examine(LookSpec(datetime.now(UTC)))
        except FloodmarkError as error:
            self._add(path, error)

    def _check_csv(self) -> None:
        """Name the targets that an older version has filled from CSV by other rules."""
        if not self._has_store_at_hand:
            return
        for finding in read_by_older_rules(self.file, self.coordinator.look.state_if_any()):
            self._note(finding)

    def _path_of(
        self, position: int, pipeline: ResolvedPipeline, index: int
    ) -> tuple[str | int, ...]:
        """Where an upstream is named: in its list, or by the first node that reads it."""
        if not pipeline.nodes:
            return ("pipelines", position, "upstreams", index)
        name = pipeline.settings.upstreams[index]
        for number, node in enumerate(pipeline.nodes):
            if node.upstream is not None and node.upstream.name == name:
                return ("pipelines", position, "nodes", number, "read")
        return ("pipelines", position, "nodes")

    def _is_read_known(self, path: tuple[str | int, ...], pipeline: ResolvedPipeline) -> bool:
        """Whether what the files say about an upstream is sound enough to look for it."""
        if not self.file.is_whole(*self.file.written(path)):
            return False
        if path[4:] == ("read",) and self._has_error_at(self.file.written(path)):
            return False
        read = pipeline.nodes[int(path[3])].read if path[4:] == ("read",) else None
        name = read.settings.connection if read is not None else None
        if name is None:
            return True
        is_sound = not self._has_error_at(("connections", name))  # a variable that is not set
        return is_sound and name in self.file.settings.connections

    @cached_property
    def _targets_are_known(self) -> bool:
        """Whether every table is known that the project writes, and that others may wait for."""
        nodes = [node for each in self.file.pipelines for node in each.nodes]
        writes = [node.write.settings for node in nodes if node.write is not None]
        named = {write.connection for write in writes if write.connection is not None}
        broken = [gone[4:5] for gone in self.file.left_out if gone[2:3] == ("nodes",)]
        is_sound = not {(), ("write",)} & set(broken)
        return is_sound and named <= set(self.file.settings.connections)

    def _table_id(self, upstream: str, pipeline: ResolvedPipeline) -> str:
        if self.coordinator.spark is not None:
            self.coordinator.store.names.learn([upstream], journals=False)
        self.coordinator.store.refuse_unresolved(upstream)
        stored = self.coordinator.look.stored_name(upstream)
        place = self.coordinator.store.names.place(stored)
        said = next(
            (d.upstream() for d in pipeline.settings.declared or () if d.name == upstream), None
        )
        if said is not None and not said.options.has_versions:
            return probe_place(place, said.options, self.coordinator.storage).facts.table_id
        log = log_of(place, self.coordinator.storage, self.coordinator.spark)
        return log.facts().table_id

    def _check_place(self) -> None:
        if not self._has_store_at_hand:
            return
        try:
            moved = moved_from(self.file, self.coordinator)
        except ControlError as error:
            self._add(("control",), error)
            return
        if moved is not None:
            self._add(("control",), elsewhere(moved, self.file.root, self.coordinator.control))

    def _note(self, finding: Finding) -> None:
        add_finding(finding, self.file.document, self.report)

    def _add(self, path: tuple[str | int, ...], error: FloodmarkError) -> None:
        self._note(Finding.of(path, error))
        if error.code == "FM-CONTROL-016":  # nothing in the file is wrong: say what to do instead
            self.report.found[-1][1].next = error.next


def _each_once(upstreams: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Upstreams with their positions; that one is there twice is an error of its own."""
    seen: set[str] = set()
    for index, upstream in enumerate(upstreams):
        if table_name(upstream) not in seen:
            seen.add(table_name(upstream))
            yield index, upstream


def function_of(
    file: LoadedProject, position: int, pipeline: ResolvedPipeline, report: Report
) -> PipelineFunction:
    """The function of a pipeline; raises FM-CONFIG-006 with its place in the file."""
    refuse_nodes(file, [pipeline.settings])
    if pipeline.nodes:
        # Imported here: reading SQL takes a quarter of a second to load, and most verbs need none.
        from floodmark.run.nodes.graph import pipeline_nodes

        place = partial(_place_of, file, position, pipeline)
        return pipeline_nodes(pipeline, file.settings.plugins, file.root, place)
    path = ("pipelines", position, "function")
    where = report.where(file.place(*path), file.key(*path))
    return load_function(file.root, pipeline.settings.function or "", where)


def refuse_nodes(file: LoadedProject, pipelines: Sequence[PipelineSettings]) -> None:
    """Raise FM-CONFIG-016 for the first key of these pipelines' nodes that is not run."""
    for error in not_run(file, pipelines):
        raise error


def not_run(file: LoadedProject, pipelines: Sequence[PipelineSettings]) -> Iterator[ConfigError]:
    """What of the nodes of these pipelines this version does not run, with its place."""
    names = {pipeline.pipeline for pipeline in pipelines if pipeline.nodes}
    for position, pipeline in enumerate(file.pipelines):
        for finding in unsupported_keys(pipeline, file.pipelines) if pipeline.name in names else ():
            path = file.document.known(("pipelines", position, *finding.path))
            yield ConfigError(
                finding.code,
                finding.title,
                where=file.report().where(file.place(*path), file.key(*path)),
                allowed=finding.allowed,
                state="nothing was read or written",
                next="change the key, or select other pipelines",
            )
        if pipeline.name in names:
            yield from _unknown_plugins(file, position, pipeline)


def _unknown_plugins(
    file: LoadedProject, position: int, pipeline: ResolvedPipeline
) -> Iterator[ConfigError]:
    plugins = Plugins(file.root, file.settings.plugins)
    for index, node in enumerate(pipeline.nodes):
        for below, error in plugin_problems(node, plugins):
            path = file.document.known(("pipelines", position, "nodes", index, *below))
            error.where = file.report().where(file.place(*path), file.key(*path))
            yield error


def _place_of(
    file: LoadedProject, position: int, pipeline: ResolvedPipeline, node: str, step: int | None
) -> str:
    """Where a node, or a step of it, stands in the files."""
    index = next(i for i, each in enumerate(pipeline.nodes) if each.name == node)
    of_step = () if step is None else ("transform", step)
    path = file.document.known(("pipelines", position, "nodes", index, *of_step))
    return file.report().where(file.place(*path), file.key(*path))


# A project that is not where its store was filled --------------------------------------------------


def moved_from(file: LoadedProject, coordinator: Coordinator) -> str | None:
    """The folder for which the store was filled, if it is another one than the project's.

    None once that folder is gone: tables that moved with the project are known by their ids.
    """
    state = coordinator.look.state_if_any()
    if state is None:
        return None
    registered = {p.name: p.upstreams for p in state.pipelines.values()}
    written: dict[str, list[str]] = {}
    for sink in state.sinks.values():
        written.setdefault(pipeline_of(sink.app_id), []).append(sink.target)
    for pipeline in file.pipelines:
        upstreams, targets = registered.get(pipeline.name, ()), written.get(pipeline.name, ())
        for upstream in pipeline.settings.upstreams:
            root = _other_root(upstream, coordinator.look.stored_name(upstream), upstreams)
            # A folder of the project itself is where a name was misspelled, not where it came from.
            if root and not Path(root).is_relative_to(file.root) and Path(root).exists():
                return root
        for target in pipeline.writes():
            root = _other_root(target, coordinator.look.stored_name(target), targets)
            # Only a copy: a lake may have another root by now.
            if root and (Path(root) / PROJECT_FILE).exists():
                return root
    return None


def _other_root(upstream: str, here: str, stored: Sequence[str]) -> str | None:
    """The folder below which the store knows an upstream that the file names relative to itself."""
    relative = upstream.removeprefix("./").strip("/")
    is_relative = "/" in upstream and "://" not in upstream and upstream[:1] not in ("/", ".")
    if not (is_relative or upstream.startswith("./")) or here in stored:
        return None
    ends = [name for name in stored if name.endswith(f"/{relative}") and name.startswith("/")]
    return ends[0].removesuffix(f"/{relative}") or "/" if ends else None


def refuse_elsewhere(file: LoadedProject, coordinator: Coordinator) -> None:
    """Raise FM-CONTROL-016 for a project that was copied or moved together with its store."""
    moved = moved_from(file, coordinator)
    if moved is not None:
        raise elsewhere(moved, file.root, coordinator.control)


def elsewhere(before: str, root: Path, control: str) -> ControlError:
    is_copy = (Path(before) / "floodmark.yaml").exists()
    what = "copied" if is_copy else "moved"
    back = (
        f"put the project back to {before}; or, if it moved for good and nothing there is needed,"
        f" take {before} away, then run the same command again"
    )
    here = f"work in {before}; for a copy of its own name another control: and other targets"
    return ControlError(
        "FM-CONTROL-016",
        f"this project was {what}: its control store was filled for another folder",
        where=control,
        found=f"its tables are registered below {before}, the project is {root}",
        allowed="one folder for a control store: paths are stored absolute",
        state="nothing was read or written; here every table would look new and load again",
        next=here if is_copy else back,
    )


def place_finding(file: LoadedProject, coordinator: Coordinator) -> list[StoreFinding]:
    """The same for `verify`: one finding, or none if all is well."""
    moved = moved_from(file, coordinator)
    if moved is None:
        return []
    error = elsewhere(moved, file.root, coordinator.control)
    return [bad("place", f"{error.title}; {error.found}", error.next)]


def strays(state: State | None, scope: str, members: Mapping[str, object]) -> tuple[str, ...]:
    """Pipelines that hold a scope in the store although the project does not have them."""
    known = state.pipelines_in(scope) if state else []
    return tuple(pipeline.name for pipeline in known if pipeline.name not in members)


def _two_names(first: str, second: str, table_id: str) -> ConfigError:
    return ConfigError(
        "FM-PLAN-003",
        "one table has two names",
        found=f"{first} and {second} are both table {table_id}",
        allowed="one name for a table within a scope",
    )
