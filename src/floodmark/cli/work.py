"""The verbs that change something, and `plan`, which shows what they would do."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from floodmark.cli import documents, screens
from floodmark.cli.call import Call
from floodmark.cli.progress import Progress
from floodmark.cli.verb import at_least, verb
from floodmark.errors import ConfigError
from floodmark.next_steps import command

if TYPE_CHECKING:
    from floodmark.project import RunSummary, ScopePlan

log = logging.getLogger("floodmark")

WORK_TO_DO = 5

Pipelines = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="PIPELINE", help="Which pipelines, or state:failed; all if none is named."
    ),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option("--exclude", metavar="PIPELINE", help="Not these; may be repeated."),
]
Jobs = Annotated[
    int | None,
    typer.Option("--jobs", metavar="N", help="At most N pipelines side by side."),
]
MaxVersions = Annotated[
    int | None,
    typer.Option("--max-versions", metavar="N", help="At most N versions per upstream."),
]
BatchId = Annotated[str, typer.Argument(metavar="BATCH", help="The id of a batch.")]


class RecordedStatus(StrEnum):
    """What can be recorded about a run that happens elsewhere."""

    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"


class OnLostRange(StrEnum):
    """Ways forward where an upstream no longer has a planned range."""

    SNAPSHOT = "snapshot"
    ACCEPT = "accept"


class OnLostTarget(StrEnum):
    """Ways forward where a target has lost rows that were written to it."""

    REBUILD = "rebuild"
    ACCEPT = "accept"


LostTarget = Annotated[
    OnLostTarget | None,
    typer.Option("--on-lost-target", help="The way forward where a target lost rows."),
]
LostRange = Annotated[
    OnLostRange | None,
    typer.Option("--on-lost-range", help="The way forward where an upstream lost versions."),
]


def attach(app: typer.Typer) -> None:
    """Add the verbs to the command line."""
    verb(app, "plan", is_beside=True)(plan)
    verb(app, "run", is_beside=True)(run)
    verb(app, "retry", is_beside=True)(retry)
    verb(app, "record")(record)
    verb(app, "finalize")(finalize)
    verb(app, "cancel")(cancel)


def plan(
    call: Call,
    pipelines: Pipelines = None,
    *,
    freeze: Annotated[
        bool, typer.Option("--freeze", help="Register the pipelines and freeze the batch.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Freeze, and write the plan for run --plan."),
    ] = None,
    exclude: Exclude = None,
    max_versions: MaxVersions = None,
    on_lost_range: LostRange = None,
    detailed_exitcode: Annotated[
        bool, typer.Option("--detailed-exitcode", help="Exit with 5 when there is work.")
    ] = False,
) -> int:
    """Show what a run would read, and why. Writes nothing without --freeze or --out.

    A scope that cannot be planned is shown with its error, the others are planned all the same.
    JSON: the keys of the plan if the pipelines are of one scope, else one plan per scope in
    `plans`, and the errors in `refused`.
    """
    if out is not None:
        from floodmark.project import planfile

        planfile.check_place(out)
    with Progress(call) as progress:
        plans = call.project.plan_scopes(
            pipelines or (),
            exclude=exclude or (),
            max_versions=at_least(1, "--max-versions", max_versions),
            on_lost_range=on_lost_range.value if on_lost_range else None,
            freeze=freeze or out is not None,
            watcher=progress,
        )
    _refuse_alone(plans)
    tell_sensitive(call)
    if out is not None:
        planfile.write_plan_file(out, documents.plan_file(call.project.coordinator, plans))
    call.show(documents.plans(plans), lambda screen: screens.plans(screen, call, plans, out))
    codes = [plan.error.exit_code for plan in plans if plan.error]
    has_work = any(plan.batch is not None and plan.batch.status != "NOOP" for plan in plans)
    return next(iter(codes), WORK_TO_DO if detailed_exitcode and has_work else 0)


def tell_sensitive(call: Call) -> None:
    """Say once which values of sensitive columns can still be seen; JSON stays as it is."""
    from floodmark.config.checks import SENSITIVE

    for warning in call.project.file.warnings:
        if warning.code == SENSITIVE:
            log.warning("%s; %s", warning.title, warning.found)


def _refuse_alone(plans: Sequence[ScopePlan]) -> None:
    """The error of the only scope that was asked for is the answer."""
    if len(plans) == 1 and plans[0].error:
        raise plans[0].error


def run(
    call: Call,
    pipelines: Pipelines = None,
    *,
    plan: Annotated[
        Path | None,
        typer.Option("--plan", metavar="FILE", help="Exactly the batches of a plan --out file."),
    ] = None,
    exclude: Exclude = None,
    max_versions: MaxVersions = None,
    on_lost_range: LostRange = None,
    on_lost_target: LostTarget = None,
    force_first_run: Annotated[
        bool,
        typer.Option("--force-first-run", help="Load by first_run_query again, and overwrite."),
    ] = False,
    full_refresh: Annotated[
        bool, typer.Option("--full-refresh", help="Load everything again, of these pipelines.")
    ] = False,
    jobs: Jobs = None,
) -> int:
    """Plan, run and finalize until everything new is done.

    A batch that was left open is finished first. A pipeline that fails holds its upstreams, the
    others go on. To repeat the command is the retry. Spark is started only when there is something
    to run.
    """
    at_least(1, "--jobs", jobs)
    at_least(1, "--max-versions", max_versions)
    is_anew = force_first_run or full_refresh
    if plan is not None and (pipelines or exclude or max_versions or is_anew):
        raise _plan_says_it_all()
    tell_sensitive(call)
    with Progress(call) as progress:
        if plan is not None:
            summary = call.project.run_plan(plan, jobs=jobs, watcher=progress)
        else:
            summary = call.project.run(
                *(pipelines or ()),
                exclude=exclude or (),
                max_versions=max_versions,
                on_lost_range=on_lost_range.value if on_lost_range else None,
                on_lost_target=on_lost_target.value if on_lost_target else None,
                force_first_run=force_first_run,
                full_refresh=full_refresh,
                jobs=jobs,
                watcher=progress,
            )
    return finish(call, summary)


def _plan_says_it_all() -> ConfigError:
    return ConfigError(
        "FM-CONFIG-007",
        "--plan goes with no pipeline and no other choice of what is read",
        rule="plan_file_alone",
        allowed="the plan file alone: it names its batches, and a batch its ranges",
        state="nothing was read or written",
        next=command("run", "--plan", "FILE"),
    )


def retry(
    call: Call,
    batch: BatchId,
    pipelines: Pipelines = None,
    *,
    on_lost_range: LostRange = None,
    on_lost_target: LostTarget = None,
    full_refresh: Annotated[
        bool, typer.Option("--full-refresh", help="Load everything again, through this batch.")
    ] = False,
    jobs: Jobs = None,
) -> int:
    """Run the unfinished pipelines of a batch, then finalize it.

    With --on-lost-range a range that an upstream no longer has is read as the whole table at the
    planned end (snapshot), or what is left of it (accept); that is journaled. With --on-lost-target
    a target that was dropped, restored or emptied is made again from its inputs as they were for
    this batch (rebuild), or taken as it is (accept); that is journaled too. With --full-refresh the
    pipelines load everything through the end of this batch, and replace what their targets hold:
    the way on where rows do not fit the types of a target any more.
    """
    at_least(1, "--jobs", jobs)
    with Progress(call) as progress:
        summary = call.project.retry(
            batch,
            *(pipelines or ()),
            jobs=jobs,
            on_lost_range=on_lost_range.value if on_lost_range else None,
            on_lost_target=on_lost_target.value if on_lost_target else None,
            full_refresh=full_refresh,
            watcher=progress,
        )
    return finish(call, summary)


def finish(call: Call, summary: RunSummary) -> int:
    """Show what a run did; its exit code."""
    call.show(documents.run(summary), lambda screen: screens.run(screen, call, summary))
    return summary.exit_code


def record(
    call: Call,
    pipeline: Annotated[str, typer.Argument(metavar="PIPELINE")],
    batch: BatchId,
    *,
    status: Annotated[RecordedStatus, typer.Option("--status", help="What became of the run.")],
    rows_read: Annotated[int | None, typer.Option("--rows-read")] = None,
    rows_written: Annotated[int | None, typer.Option("--rows-written")] = None,
    metric: Annotated[
        list[str] | None, typer.Option("--metric", metavar="KEY=VALUE", help="May be repeated.")
    ] = None,
    error: Annotated[str | None, typer.Option("--error", help="Why it failed.")] = None,
) -> int:
    """Record a run that happened elsewhere (dbt, a notebook). SUCCESS is final."""
    result = call.project.coordinator.record_run(
        pipeline,
        batch,
        status=status.value,
        rows_read=at_least(0, "--rows-read", rows_read),
        rows_written=at_least(0, "--rows-written", rows_written),
        metrics=metrics_of(metric or ()),
        error=error,
    )
    call.show(documents.recorded(result), lambda screen: screens.recorded(screen, result))
    return 0


def metrics_of(words: Sequence[str]) -> dict[str, str]:
    """`key=value` words as a mapping; raises FM-CONFIG-007."""
    for word in words:
        if not word.partition("=")[0] or "=" not in word:
            raise ConfigError(
                "FM-CONFIG-007",
                f'--metric "{word}" has no key or no value',
                rule="metric_of_record",
                allowed="--metric key=value",
                state="nothing was recorded",
                next=command("record", "--help"),
            )
    return {word.partition("=")[0]: word.partition("=")[2] for word in words}


def finalize(
    call: Call,
    batch: Annotated[
        str | None, typer.Argument(metavar="BATCH", help="A batch; every open one if omitted.")
    ] = None,
) -> int:
    """Advance every upstream that is ready; say what is held and why."""
    coordinator = call.project.coordinator
    ids = [batch] if batch else [b.batch_id for b in coordinator.current_plan() if b.batch_id]
    with coordinator.store.coalesce():
        outcomes = [coordinator.finalize(batch_id) for batch_id in ids]
    call.show(
        documents.finalized(outcomes), lambda screen: screens.finalized(screen, call, outcomes)
    )
    return 0


def cancel(call: Call, batch: BatchId) -> int:
    """Give up a batch that no runner has taken.

    Its ranges will be planned again.
    """
    call.project.coordinator.cancel(batch)
    document = {"batch_id": batch, "status": "CANCELLED"}
    call.show(document, lambda screen: screen.line(f"{batch} is cancelled; next: floodmark plan"))
    return 0
