"""The verbs that only look; none of them needs Spark or Java."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from floodmark.cli import documents, screens
from floodmark.cli.call import Call
from floodmark.cli.verb import at_least, verb
from floodmark.errors import ControlError

if TYPE_CHECKING:
    from floodmark.model.results import Finding

T = TypeVar("T")

CHECK_FAILED = 1


def attach(app: typer.Typer) -> None:
    """Add the verbs to the command line."""
    verb(app, "status")(status)
    verb(app, "lag")(lag)
    verb(app, "history")(history)
    verb(app, "verify")(verify)
    verb(app, "doctor")(doctor)
    verb(app, "validate")(validate)


def status(
    call: Call,
    batch: Annotated[
        str | None, typer.Argument(metavar="BATCH", help="One batch, in full.")
    ] = None,
) -> int:
    """Show open batches, what holds them, and finished ones."""
    coordinator = call.project.coordinator
    if batch is not None:
        batches = coordinator.status(batch)
    else:
        batches = _or_empty(coordinator.status) or ()
    call.show(documents.status(batches), lambda screen: screens.status(screen, call, batches))
    return 0


def lag(
    call: Call,
    fail_above: Annotated[
        int | None,
        typer.Option(
            "--fail-above",
            metavar="N",
            help="Exit with 1 if an upstream is more than N versions behind, or unknown.",
        ),
    ] = None,
) -> int:
    """Show how far each upstream is behind, and what holds it."""
    at_least(0, "--fail-above", fail_above)
    lags = _or_empty(call.project.coordinator.lag) or ()
    call.show(documents.lag(lags), lambda screen: screens.lag(screen, call, lags))
    behind = [each.versions_behind for each in lags]
    is_late = fail_above is not None and any(n is None or n > fail_above for n in behind)
    return CHECK_FAILED if is_late else 0


def history(
    call: Call,
    limit: Annotated[int, typer.Option("--limit", metavar="N", help="The newest N events.")] = 50,
) -> int:
    """Show what happened, oldest first."""
    at_least(1, "--limit", limit)
    coordinator = call.project.coordinator
    events = _or_empty(lambda: coordinator.history(limit)) or []
    call.show(documents.history(events), lambda screen: screens.history(screen, events))
    return 0


def verify(call: Call) -> int:
    """Check the guarantees on journal, sinks and tables."""
    return _show_findings(call, call.project.coordinator.verify())


def doctor(call: Call) -> int:
    """Look for what will hurt: the machine, the store, the upstreams."""
    project = call.project
    return _show_findings(call, project.coordinator.doctor(project.upstreams()))


def validate(call: Call) -> int:
    """Check floodmark.yaml, its functions and its upstreams."""
    project = call.project
    project.validate()
    names = list(project.pipelines)
    document = {"ok": True, "project": project.settings.project, "pipelines": names}
    call.show(document, lambda screen: screens.validated(screen, project))
    return 0


def _show_findings(call: Call, found: Sequence[Finding]) -> int:
    call.show(documents.findings(found), lambda screen: screens.findings(screen, call, found))
    return 0 if all(finding.ok for finding in found) else CHECK_FAILED


def _or_empty(look: Callable[[], T]) -> T | None:
    """The answer, or None where there is no store yet; an outage is still an error."""
    try:
        return look()
    except ControlError as error:
        if error.code != "FM-CONTROL-001":
            raise
        return None
