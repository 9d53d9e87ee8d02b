"""A project: the pipelines of a floodmark.yaml, planned and run through the coordinator.

What a run does is told in `project.story`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from floodmark.config import (
    LoadedProject,
    PipelineSettings,
    built,
    find_project_file,
    load_project,
    survey_project,
)
from floodmark.config.plugins import Plugins
from floodmark.coordinator import Coordinator, Look, Outside
from floodmark.model import Batch, Finding, OnLostTarget, Settlement
from floodmark.model.arguments import checks_arguments
from floodmark.model.moved import moved_to
from floodmark.plan.rerun import Edge
from floodmark.project.checks import Checks
from floodmark.project.definitions import Definitions
from floodmark.project.outcomes import (
    BatchOutcome,
    NullWatcher,
    PipelineOutcome,
    RunSummary,
    ScopePlan,
    Waiting,
    Watcher,
)
from floodmark.project.planning import ScopePlanning
from floodmark.project.runs import Retry, Runs
from floodmark.project.session import Session

__all__ = [
    "BatchOutcome",
    "PipelineOutcome",
    "Project",
    "RunSummary",
    "ScopePlan",
    "Waiting",
    "Watcher",
]


@moved_to(
    "definitions",
    Definitions,
    "debts",
    "file_writers",
    "functions",
    "members",
    "parents",
    "select",
    "unfinished",
    "unresolved",
    "upstreams",
)
@moved_to("planning", ScopePlanning, "freeze_scope", "preview_scope")
@moved_to("runs", Runs, "run_batches")
@moved_to("session", Session, "connect_names", "ensure_session")
@checks_arguments
class Project:
    """The pipelines of a project file and the coordinator they share.

    `session` gives the Spark session when, and only when, there is something to run. `look` answers
    questions and changes nothing.
    """

    def __init__(
        self,
        file: LoadedProject,
        session: Callable[[], Any] | None = None,
        outside: Outside | None = None,
    ) -> None:
        self.definitions = Definitions(file, outside)
        self.settings, self.root = self.definitions.settings, self.definitions.root
        self.session = Session(self.definitions, session)
        self.planning = ScopePlanning(self.definitions, self.session)
        self.runs = Runs(self.definitions, self.session, self.planning)

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
                project.session.connect_names(
                    project.definitions.select(), watcher or NullWatcher()
                )
            checks = Checks(project.file, project.coordinator, report, connects=connect)
            checks.run()
            # With errors before it planning would only meet them again.
            if not report.found and (names := checks.plannable):
                checks.take_plans(project.plan_scopes(names))
        report.raise_if_any()
        assert project is not None  # noqa: S101  (nothing is missing without an error)
        project.definitions.file = replace(project.file, warnings=tuple(report.warnings))
        return project

    @property
    def file(self) -> LoadedProject:
        """The files of the project, as they were read."""
        return self.definitions.file

    @property
    def coordinator(self) -> Coordinator:
        """The coordinator of the project's control store."""
        return self.definitions.coordinator

    @property
    def pipelines(self) -> dict[str, PipelineSettings]:
        """The pipelines by name."""
        return self.definitions.pipelines

    @property
    def plugins(self) -> Plugins:
        """The formats, sources and sinks of its modules and of installed packages."""
        return self.definitions.plugins

    @property
    def stop(self) -> threading.Event | None:
        """Ends runs once it is set, as an interrupt would that arrives in their thread."""
        return self.runs.stop

    @stop.setter
    def stop(self, event: threading.Event | None) -> None:
        self.runs.stop = event

    @property
    def look(self) -> Look:
        """Questions that only read: no call takes a lease, starts Spark or changes anything."""
        return self.definitions.look

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
        return self.planning.plan_scopes(
            selectors,
            exclude=exclude,
            max_versions=max_versions,
            on_lost_range=on_lost_range,
            freeze=freeze,
            watcher=watcher,
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
        return self.runs.run(
            *pipelines,
            exclude=exclude,
            max_versions=max_versions,
            jobs=jobs,
            timeout=timeout,
            retry=retry,
            on_lost_range=on_lost_range,
            on_lost_target=on_lost_target,
            force_first_run=force_first_run,
            full_refresh=full_refresh,
            watcher=watcher,
        )

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
        """Run the unfinished pipelines of a batch (or the named ones) and finalize it.

        `on_lost_range` is the way forward for ranges that an upstream has lost, `on_lost_target`
        for targets that lost rows; see run_pipeline. With `full_refresh` the pipelines load
        everything through the end of the batch, and replace what their targets hold.
        Pipelines that have succeeded are not called again. Raises FM-CONTROL-004 for an unknown
        batch, FM-CONTROL-005 for a pipeline that is not part of it, and FM-CONTROL-018 if all that
        are left are paused.
        """
        return self.runs.retry(
            batch_id,
            *pipelines,
            jobs=jobs,
            on_lost_range=on_lost_range,
            on_lost_target=on_lost_target,
            full_refresh=full_refresh,
            watcher=watcher,
        )

    def run_plan(
        self, path: str | Path, *, jobs: int | None = None, watcher: Watcher | None = None
    ) -> RunSummary:
        """Run exactly the batches of a plan file, and finalize them.

        Raises FM-CONFIG-009 if the file is no plan, FM-PLAN-012 if a batch of it is gone or
        finished, or if it is of another store; nothing is run then.
        """
        return self.runs.run_plan(path, jobs=jobs, watcher=watcher)

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
        return self.runs.backfill(
            upstream,
            *pipelines,
            start=start,
            end=end,
            allow_duplicates=allow_duplicates,
            allow_stale=allow_stale,
            jobs=jobs,
            watcher=watcher,
        )

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
        return self.runs.replay(
            batch_id,
            *pipelines,
            allow_duplicates=allow_duplicates,
            allow_stale=allow_stale,
            jobs=jobs,
            watcher=watcher,
        )

    # Look -----------------------------------------------------------------------------------------

    def verify(self) -> list[Finding]:
        """The findings of the store, and whether the project is where its store was filled."""
        return self.look.verify()


def _project_file(path: str | Path | None) -> Path:
    return find_project_file(Path(path) if path is not None else None)


def _batches(plans: Sequence[ScopePlan]) -> list[Batch]:
    for plan in plans:
        if plan.error:
            raise plan.error
    return [plan.batch for plan in plans if plan.batch]
