"""The verbs that only look; none of them needs Spark or Java."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from floodmark.cli import documents, screens
from floodmark.cli.call import Call
from floodmark.cli.progress import Progress
from floodmark.cli.screen import Screen
from floodmark.cli.verb import at_least, seconds, verb
from floodmark.errors import ControlError
from floodmark.model.names import NOT_RESOLVED

if TYPE_CHECKING:
    from floodmark.model import Finding, Lag

CHECK_FAILED = 1

StuckAfter = Annotated[
    str,
    typer.Option(
        "--stuck-after", metavar="TIME", help="A batch that is open for longer is named as stuck."
    ),
]


def attach(app: typer.Typer) -> None:
    """Add the verbs to the command line."""
    verb(app, "status")(status)
    verb(app, "lag")(lag)
    verb(app, "history")(history)
    verb(app, "gaps")(gaps)
    verb(app, "verify")(verify)
    verb(app, "doctor")(doctor)
    verb(app, "validate", is_beside=True)(validate)


def status(
    call: Call,
    batch: Annotated[
        str | None, typer.Argument(metavar="BATCH", help="One batch, in full.")
    ] = None,
    stuck_after: StuckAfter = "1d",
) -> int:
    """Show open batches, what holds them, and finished ones."""
    look = call.project.look
    if batch is None and (missing := _missing_store(call)):
        return _show_missing(call, documents.status(()), missing)
    batches = look.status(batch)
    stuck, failures = (
        look.stuck(seconds("--stuck-after", stuck_after)),
        look.failures(),
    )

    def draw(screen: Screen) -> None:
        screens.status(screen, call, batches)
        screens.stuck(screen, stuck, failures)

    call.show({**documents.status(batches), **documents.stuck(stuck, failures)}, draw)
    return 0


def lag(
    call: Call,
    fail_above: Annotated[
        str | None,
        typer.Option(
            "--fail-above",
            metavar="N|TIME",
            help="Exit with 1 if an upstream is further behind (5 versions, 30m), or unknown.",
        ),
    ] = None,
    stuck_after: StuckAfter = "1d",
) -> int:
    """Show how far each upstream is behind, and what holds it."""
    from floodmark.report import is_above

    threshold = _threshold(fail_above)
    if missing := _missing_store(call):
        if fail_above is not None:  # a threshold that nobody can look at is not kept
            raise missing
        return _show_missing(call, documents.lag(()), missing)
    look = call.project.look
    lags = (*_unresolved_lags(call), *look.lag())
    stuck, failures = (
        look.stuck(seconds("--stuck-after", stuck_after)),
        look.failures(),
    )

    def draw(screen: Screen) -> None:
        screens.lag(screen, call, lags)
        screens.stuck(screen, stuck, failures)

    call.show({**documents.lag(lags), **documents.stuck(stuck, failures)}, draw)
    return CHECK_FAILED if any(is_above(each, *threshold) for each in lags) else 0


def _unresolved_lags(call: Call) -> list[Lag]:
    """Catalog names of the project that nobody has resolved: how far they are behind is not known."""
    from floodmark.model import Lag

    project = call.project
    return [
        Lag(scope, name, None, None, None, None, (), NOT_RESOLVED)
        for scope in project.definitions.select()
        for name in project.definitions.unresolved([scope])
    ]


def _threshold(text: str | None) -> tuple[int | None, float | None]:
    """Versions, or seconds; raises FM-CONFIG-007 for neither."""
    if text is None:
        return None, None
    if text.lstrip("-").isdigit():
        return at_least(0, "--fail-above", int(text)), None
    return None, seconds("--fail-above", text, "versions, like 5; or a time: ")


def gaps(call: Call) -> int:
    """Show versions that were never processed; exit 1 if any."""
    if missing := _missing_store(call):
        return _show_missing(call, documents.gaps(()), missing)
    found = call.project.look.gaps()
    call.show(documents.gaps(found), lambda screen: screens.gaps(screen, call, found))
    return CHECK_FAILED if found else 0


def history(
    call: Call,
    limit: Annotated[int, typer.Option("--limit", metavar="N", help="The newest N events.")] = 50,
) -> int:
    """Show what happened, oldest first."""
    at_least(1, "--limit", limit)
    if missing := _missing_store(call):
        return _show_missing(call, documents.history(()), missing)
    events = call.project.look.history(limit)
    call.show(documents.history(events), lambda screen: screens.history(screen, events))
    return 0


def verify(call: Call) -> int:
    """Check the guarantees on journal, sinks and tables."""
    return _show_findings(call, call.project.look.verify())


def doctor(call: Call) -> int:
    """Look for what will hurt: the machine, the store, the upstreams.

    Outside of a project only the machine is looked at.
    """
    from floodmark.engines.environment import examine_machine
    from floodmark.model import good

    if not call.has_project:
        text = "none here: only the machine was looked at; to begin one: floodmark init"
        return _show_findings(call, [*examine_machine(), good("project", text)])
    project = call.project

    def upstreams() -> Iterator[str]:
        yield from project.definitions.upstreams()

    def to_come() -> Iterator[str]:
        for pipeline in project.file.pipelines:
            yield from pipeline.writes()

    found = project.coordinator.admin.doctor(upstreams(), to_come())
    if all(each.ok for each in found if each.name == "control store"):
        found += [good(name, NOT_RESOLVED) for name in project.definitions.unresolved()]
    return _show_findings(call, found)


def validate(
    call: Call,
    connect: Annotated[
        bool, typer.Option("--connect", help="Ask Spark for catalog names that are not resolved.")
    ] = False,
) -> int:
    """Check the project's files, its functions, nodes and upstreams."""
    with Progress(call) as progress:
        project = call.checked_project(connect=connect, watcher=progress)
    names = list(project.pipelines)
    document: dict[str, Any] = {
        "ok": True,
        "project": project.settings.project,
        "pipelines": names,
        "streams": [stream.pipeline_id for stream in project.settings.streams],
        "unresolved": project.definitions.unresolved(),
        "warnings": [warning.as_dict() for warning in project.file.warnings],
    }
    call.show(document, lambda screen: screens.validated(screen, project))
    return 0


def _show_findings(call: Call, found: Sequence[Finding]) -> int:
    call.show(documents.findings(found), lambda screen: screens.findings(screen, call, found))
    return 0 if all(finding.ok for finding in found) else CHECK_FAILED


def _missing_store(call: Call) -> ControlError | None:
    """FM-CONTROL-001 where there is no store yet; an outage is raised."""
    try:
        call.project.look.state()
    except ControlError as error:
        if error.code != "FM-CONTROL-001":
            raise
        return error
    return None


def _show_missing(call: Call, document: dict[str, Any], missing: ControlError) -> int:
    call.show({**document, "note": missing.title}, lambda screen: screens.no_store(screen, missing))
    return 0
