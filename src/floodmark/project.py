"""A project: the pipelines of a floodmark.yaml, planned and run through the coordinator."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol

from floodmark.config import (
    LoadedFile,
    PipelineSettings,
    find_project_file,
    load_file,
    load_function,
)
from floodmark.config.places import Report, choices
from floodmark.coordinator import Coordinator
from floodmark.deltalog import DeltaLog
from floodmark.errors import (
    ConfigError,
    ControlError,
    FloodmarkError,
    RunError,
    SetupError,
)
from floodmark.model.results import ALREADY_APPLIED, Batch, Finalized, Held, RunResult
from floodmark.model.state import PlannedBatch
from floodmark.plan.refusals import refuse_catalog_name
from floodmark.run.leases import batch_for_run

OutcomeStatus = Literal["SUCCESS", "FAILED", "REFUSED"]

_OWN_CODE = str(Path(__file__).parent)
_MAX_FOUND = 800


@dataclass(frozen=True, slots=True)
class PipelineOutcome:
    """What became of one pipeline of one batch; REFUSED means that it was not started."""

    name: str
    batch_id: str
    status: OutcomeStatus
    rows_read: int | None = None
    rows_written: int | None = None
    duration_seconds: float | None = None
    error: FloodmarkError | None = None
    story: str | None = None
    already_applied: str | None = None
    """Writes that an earlier attempt had committed and that were not repeated."""


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """What became of one batch in this run."""

    batch: Batch
    pipelines: tuple[PipelineOutcome, ...]
    advanced: tuple[str, ...]
    held: tuple[Held, ...]


@dataclass
class RunSummary:
    """What a whole run did, batch after batch."""

    batches: list[BatchOutcome] = field(default_factory=list)
    refused: list[FloodmarkError] = field(default_factory=list)
    """Scopes that could not be planned; the others were run all the same."""

    @property
    def outcomes(self) -> list[PipelineOutcome]:
        return [outcome for batch in self.batches for outcome in batch.pipelines]

    @property
    def held(self) -> list[Held]:
        """What is held at the end: a later batch of a scope speaks for the earlier ones."""
        last = {outcome.batch.scope: outcome for outcome in self.batches}
        return [held for outcome in last.values() for held in outcome.held]

    @property
    def exit_code(self) -> int:
        """1 if a function failed, else that of the first refusal, else 0."""
        errors = [o.error for o in self.outcomes if o.error] + self.refused
        codes = [error.exit_code for error in errors]
        return 1 if 1 in codes else next(iter(codes), 0)


class Watcher(Protocol):
    """Sees a run while it happens."""

    def planned(self, batch: Batch) -> None: ...
    def starting_session(self) -> None: ...
    def started(self, pipeline: str, batch_id: str) -> None: ...
    def finished(self, outcome: PipelineOutcome) -> None: ...


class _Nobody:
    def planned(self, batch: Batch) -> None: ...
    def starting_session(self) -> None: ...
    def started(self, pipeline: str, batch_id: str) -> None: ...
    def finished(self, outcome: PipelineOutcome) -> None: ...


def _local_session() -> Any:
    from floodmark.engines.spark import local_session

    return local_session()


def _has_active_session() -> bool:
    """Whether somebody has started Spark in this process; asks without importing it."""
    pyspark = sys.modules.get("pyspark.sql")
    return pyspark is not None and pyspark.SparkSession.getActiveSession() is not None


def _dies_with_the_process(spark: Any) -> bool:
    """Whether the session's catalog is in memory: tables registered there, nobody could read."""
    conf = getattr(spark, "conf", None)
    return conf is None or conf.get("spark.sql.catalogImplementation") == "in-memory"


class Project:
    """The pipelines of a project file and the coordinator they share.

    `session` gives the Spark session when, and only when, there is something to run.
    """

    def __init__(self, file: LoadedFile, session: Callable[[], Any] = _local_session) -> None:
        self.file = file
        self.settings = file.settings
        self.root = file.root
        self._session = session
        self._has_session = False

    @classmethod
    def load(cls, path: str | Path | None = None) -> Project:
        """The project at a folder, or above the working directory.

        Raises ConfigError FM-CONFIG-001 if there is none, and every error of its file at once.
        """
        return cls(load_file(find_project_file(Path(path) if path is not None else None)))

    @cached_property
    def coordinator(self) -> Coordinator:
        """The coordinator of the project's control store."""
        return Coordinator(
            self.settings.control,
            base=str(self.root),
            schema=self.settings.catalog_schema,
            lease_ttl=self.settings.lease_ttl_seconds,
        )

    # Choosing -------------------------------------------------------------------------------------

    @property
    def pipelines(self) -> dict[str, PipelineSettings]:
        return {pipeline.pipeline: pipeline for pipeline in self.settings.pipelines}

    def select(self, names: Iterable[str] = ()) -> dict[str, list[PipelineSettings]]:
        """The named pipelines (all if none is named) by scope; raises FM-CONFIG-008."""
        known = self.pipelines
        for name in names:
            if name not in known:
                raise _unknown_pipeline(name, list(known))
        chosen = [known[name] for name in dict.fromkeys(names)] or list(known.values())
        scopes: dict[str, list[PipelineSettings]] = {}
        for pipeline in chosen:
            scopes.setdefault(pipeline.shared_scope, []).append(pipeline)
        return scopes

    def members(self, scope: str) -> dict[str, list[str]]:
        """Every pipeline of a scope with its upstreams: all of them hold the scope's upstreams."""
        return {
            pipeline.pipeline: pipeline.upstreams
            for pipeline in self.settings.pipelines
            if pipeline.shared_scope == scope
        }

    def upstreams(self) -> list[str]:
        """The stored names of every upstream of the project."""
        names = [u for pipeline in self.settings.pipelines for u in pipeline.upstreams]
        return list(dict.fromkeys(self.coordinator.stored_name(name) for name in names))

    # Plan -----------------------------------------------------------------------------------------

    def plan(self, *pipelines: str, max_versions: int | None = None) -> list[Batch]:
        """What a run would do now, scope by scope; writes nothing."""
        scopes = self.select(pipelines)
        return [self.preview_scope(scope, chosen, max_versions) for scope, chosen in scopes.items()]

    def freeze(self, *pipelines: str, max_versions: int | None = None) -> list[Batch]:
        """Register the pipelines and freeze what is new, one batch per scope.

        Called again it returns the same batches while they are open.
        """
        with self.coordinator.coalesce():
            return [
                self.freeze_scope(scope, chosen, max_versions)
                for scope, chosen in self.select(pipelines).items()
            ]

    def preview_scope(
        self, scope: str, chosen: Sequence[PipelineSettings], max_versions: int | None
    ) -> Batch:
        """What freezing a scope for these pipelines would give; writes nothing."""
        return self.coordinator.preview(
            pipelines=[pipeline.pipeline for pipeline in chosen],
            scope=scope,
            max_versions=max_versions,
            register=self.members(scope),
        )

    def freeze_scope(
        self, scope: str, chosen: Sequence[PipelineSettings], max_versions: int | None
    ) -> Batch:
        """Register every pipeline of the scope, and freeze what is new for the chosen ones."""
        for name, upstreams in self.members(scope).items():
            self.coordinator.register(name, upstreams, scope)
        return self.coordinator.create_batch(
            pipelines=[pipeline.pipeline for pipeline in chosen],
            scope=scope,
            max_versions=max_versions,
        )

    # Run ------------------------------------------------------------------------------------------

    def run(
        self, *pipelines: str, max_versions: int | None = None, watcher: Watcher | None = None
    ) -> RunSummary:
        """Plan, run and finalize until everything that was new at the beginning is done.

        A batch left open by an earlier run is finished first. A pipeline that fails holds its
        upstreams; the others go on. Called again it is the retry. Raises ConfigError before
        anything is journaled if a function cannot be found.
        """
        scopes = self.select(pipelines)
        summary = RunSummary()
        with self.coordinator.coalesce():
            for scope, chosen in scopes.items():
                catch_up = _CatchUp(self, scope, chosen, max_versions, watcher or _Nobody())
                try:
                    catch_up.run(summary)
                except (ConfigError, SetupError):  # true for every scope: said once
                    raise
                except FloodmarkError as error:  # this scope is refused; the others still run
                    summary.refused.append(error)
        return summary

    def retry(self, batch_id: str, *pipelines: str, watcher: Watcher | None = None) -> RunSummary:
        """Run the unfinished pipelines of a batch (or the named ones) and finalize it.

        Pipelines that have succeeded are not called again. Raises FM-CONTROL-004 for an unknown
        batch and FM-CONTROL-005 for a pipeline that is not part of it.
        """
        self.select(pipelines)
        batch = self._batch(batch_id)
        for name in pipelines:
            if name not in batch.required:
                raise _not_in_batch(name, batch)
        watcher = watcher or _Nobody()
        names = [p for p in batch.unfinished_pipelines() if not pipelines or p in pipelines]
        functions = self.functions(names)
        with self.coordinator.coalesce():
            view = self._view(batch)
            watcher.planned(view)
            outcome = self.run_batch(view, functions, watcher)
        return RunSummary([outcome])

    def run_batch(
        self, batch: Batch, functions: Mapping[str, Callable[..., Any]], watcher: Watcher
    ) -> BatchOutcome:
        """Run these pipelines of a batch one after the other, then finalize it."""
        batch_id = batch.batch_id or ""
        outcomes = []
        for name, function in functions.items():
            outcome = self._refusal(name, batch_id)
            if outcome is None:
                self._ensure_session(watcher)
                watcher.started(name, batch_id)
                outcome = self._run_pipeline(name, batch_id, function)
            watcher.finished(outcome)
            outcomes.append(outcome)
        done: Finalized = self.coordinator.finalize(batch_id)
        return BatchOutcome(batch, tuple(outcomes), done.advanced, done.held)

    def functions(self, names: Iterable[str]) -> dict[str, Callable[..., Any]]:
        """The functions of those pipelines that the project has; raises FM-CONFIG-006."""
        report = self.file.report()
        found = {}
        for name in names:
            if name in self.pipelines:
                found[name] = self._function(name, report)
        return found

    def unfinished(self, batch_id: str) -> list[str]:
        """The required pipelines of a batch that have not succeeded."""
        return self._batch(batch_id).unfinished_pipelines()

    def _batch(self, batch_id: str) -> PlannedBatch:
        return self.coordinator.status(batch_id)[0]

    def _view(self, batch: PlannedBatch) -> Batch:
        from floodmark.model.results import batch_view

        return batch_view(batch, reused=True)

    def _ensure_session(self, watcher: Watcher) -> None:
        if not self._has_session:
            if not _has_active_session():
                watcher.starting_session()
            self.coordinator.spark = self._session()
            if _dies_with_the_process(self.coordinator.spark):
                self.coordinator.schema = None
            self._has_session = True

    def _refusal(self, name: str, batch_id: str) -> PipelineOutcome | None:
        """Why a pipeline may not run now, told before Spark is started for it."""
        try:
            batch_for_run(self.coordinator.state(), batch_id, name)
        except ControlError as error:
            return PipelineOutcome(name, batch_id, "REFUSED", error=error)
        return None

    def _run_pipeline(
        self, name: str, batch_id: str, function: Callable[..., Any]
    ) -> PipelineOutcome:
        # The boundary to the user's function: its error is recorded by then, and shown at the end.
        try:
            result = self.coordinator.run_pipeline(name, batch_id, function)
        except FloodmarkError as error:
            return self._failed(name, batch_id, with_caller(error, self.root))
        except Exception as error:  # noqa: BLE001
            return self._failed(name, batch_id, failure_of(error, name, batch_id, self.root))
        return outcome_of(result)

    def _failed(self, name: str, batch_id: str, error: FloodmarkError) -> PipelineOutcome:
        status: OutcomeStatus = "REFUSED" if isinstance(error, ControlError) else "FAILED"
        run = self._batch(batch_id).runs.get(name)
        seconds = (run.changed_at - run.started_at).total_seconds() if run else None
        return PipelineOutcome(name, batch_id, status, duration_seconds=seconds, error=error)

    def _function(self, name: str, report: Report) -> Callable[..., Any]:
        path = ("pipelines", list(self.pipelines).index(name), "function")
        where = report.where(self.file.place(*path), self.file.key(*path))
        return load_function(self.root, self.pipelines[name].function, where)

    # Validate -------------------------------------------------------------------------------------

    def validate(self) -> None:
        """Check what the file names: functions and upstreams; raises all errors at once.

        Imports the modules of the functions; reads the upstreams' logs; writes nothing.
        """
        report = self.file.report()
        for position, name in enumerate(self.pipelines):
            try:
                self._function(name, report)
            except ConfigError as error:
                report.found.append((self.file.place("pipelines", position, "function"), error))
        self._check_upstreams(report)
        report.raise_if_any()

    def _check_upstreams(self, report: Report) -> None:
        names: dict[tuple[str, str], str] = {}
        for position, pipeline in enumerate(self.settings.pipelines):
            for index, upstream in enumerate(pipeline.upstreams):
                path = ("pipelines", position, "upstreams", index)
                try:
                    table_id = self._table_id(upstream)
                except FloodmarkError as error:
                    self._add(report, path, error)
                    continue
                stored = self.coordinator.stored_name(upstream)
                other = names.setdefault((pipeline.shared_scope, table_id), stored)
                if other != stored:
                    self._add(report, path, _two_names(other, stored, table_id))

    def _table_id(self, upstream: str) -> str:
        refuse_catalog_name(upstream)
        stored = self.coordinator.stored_name(upstream)
        return DeltaLog(stored, self.coordinator.storage).facts().table_id

    def _add(self, report: Report, path: tuple[str | int, ...], error: FloodmarkError) -> None:
        report.add(
            error.code,
            error.title,
            self.file.place(*path),
            key=self.file.key(*path),
            found=error.found or error.where,
            allowed=error.allowed,
        )


@dataclass
class _CatchUp:
    """Brings one scope up to what was new when it began."""

    project: Project
    scope: str
    chosen: Sequence[PipelineSettings]
    max_versions: int | None
    watcher: Watcher
    goal: dict[str, int] = field(default_factory=dict)
    """The newest versions seen by the first new plan: a live upstream has no end."""

    def run(self, summary: RunSummary) -> None:
        """Batch after batch; stops at the goal, or where something is held."""
        while True:
            preview = self.project.preview_scope(self.scope, self.chosen, self.max_versions)
            if preview.status == "NOOP":
                return
            functions = self._functions(preview)
            batch = self.project.freeze_scope(self.scope, self.chosen, self.max_versions)
            if batch.batch_id is None:
                return
            self.watcher.planned(batch)
            functions = functions if batch.batch_id == preview.batch_id else self._functions(batch)
            summary.batches.append(self.project.run_batch(batch, functions, self.watcher))
            if summary.batches[-1].held or self._is_done(batch):
                return

    def _functions(self, batch: Batch) -> dict[str, Callable[..., Any]]:
        chosen = {pipeline.pipeline for pipeline in self.chosen}
        open_ones = self.project.unfinished(batch.batch_id) if batch.batch_id else batch.pipelines
        return self.project.functions(name for name in open_ones if name in chosen)

    def _is_done(self, batch: Batch) -> bool:
        if batch.reused:
            return False
        if not self.goal:
            self.goal = {window.upstream: window.latest_version for window in batch.windows}
        return all(
            window.through_version >= self.goal.get(window.upstream, -1) for window in batch.windows
        )


def outcome_of(result: RunResult) -> PipelineOutcome:
    """A finished run as a part of a summary."""
    return PipelineOutcome(
        name=result.pipeline,
        batch_id=result.batch_id,
        status="SUCCESS",
        rows_read=result.rows_read,
        rows_written=result.rows_written,
        duration_seconds=result.duration_seconds,
        story=result.story,
        already_applied=result.metrics.get(ALREADY_APPLIED),
    )


def failure_of(error: Exception, pipeline: str, batch_id: str, root: Path) -> RunError:
    """FM-RUN-001 with the lines of the user's own files; FM-RUN-005 if there is none."""
    lines = own_lines(error, root)
    kind = type(error).__name__
    title = f"the function of pipeline {pipeline} raised {kind}"
    return RunError(
        "FM-RUN-001" if lines else "FM-RUN-005",
        title if lines else f"the run of pipeline {pipeline} failed with {kind}",
        where=lines[-1] if lines else f"pipeline {pipeline}",
        found=f"{kind}: {str(error).strip()}"[:_MAX_FOUND],
        state="the run is recorded as FAILED; writes that committed stand and are not repeated; "
        "the watermarks of its upstreams stay",
        next=f"correct the cause, then: floodmark retry {batch_id}",
        details={"batch": batch_id, **({"called": "\n".join(lines[:-1])} if lines[1:] else {})},
    )


def with_caller(error: FloodmarkError, root: Path) -> FloodmarkError:
    """The error, with the user's line it comes from where there is one."""
    lines = own_lines(error, root)
    if lines:
        error.details.setdefault("at", lines[-1])
    return error


def own_lines(error: BaseException, root: Path, limit: int = 3) -> list[str]:
    """The last lines of the traceback that lie in the user's own files."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if f.filename.startswith(f"{root}/") and not _is_foreign(f.filename)]
    return [f"{_place(root, frame)} in {frame.name}: {frame.line}" for frame in own][-limit:]


def _is_foreign(filename: str) -> bool:
    return filename.startswith(f"{_OWN_CODE}/") or "/site-packages/" in filename


def _place(root: Path, frame: traceback.FrameSummary) -> str:
    return f"{frame.filename.removeprefix(f'{root}/')}:{frame.lineno}"


def _unknown_pipeline(name: str, known: list[str]) -> ConfigError:
    return ConfigError(
        "FM-CONFIG-008",
        f"there is no pipeline {name}",
        allowed=choices(known, name),
        state="nothing was read or written",
        next="name one of them, or none for all",
    )


def _not_in_batch(name: str, batch: PlannedBatch) -> ControlError:
    return ControlError(
        "FM-CONTROL-005",
        f"pipeline {name} is not part of batch {batch.batch_id}",
        found=f"the batch was planned for {', '.join(batch.required) or 'no pipeline'}",
        state="nothing was read or written; a plan keeps the registry of its moment",
        next=f"floodmark status {batch.batch_id}",
    )


def _two_names(first: str, second: str, table_id: str) -> ConfigError:
    return ConfigError(
        "FM-PLAN-003",
        "one table has two names",
        found=f"{first} and {second} are both table {table_id}",
        allowed="one name for a table within a scope",
    )
