"""The verbs of operators: take pipelines out and in again, process a range once more."""

from __future__ import annotations

from typing import Annotated

import typer

from floodmark.cli.call import Call
from floodmark.cli.progress import Progress
from floodmark.cli.verb import at_least, verb
from floodmark.cli.work import BatchId, Jobs, Pipelines, finish
from floodmark.errors import ConfigError
from floodmark.next_steps import command

Pipeline = Annotated[str, typer.Argument(metavar="PIPELINE")]
AllowDuplicates = Annotated[
    bool, typer.Option("--allow-duplicates", help="Rows may be appended a second time.")
]
AllowStale = Annotated[
    bool, typer.Option("--allow-stale", help="Older rows may replace newer ones.")
]


def attach(app: typer.Typer) -> None:
    """Add the verbs to the command line."""
    verb(app, "backfill", is_beside=True)(backfill)
    verb(app, "replay", is_beside=True)(replay)
    verb(app, "pause")(pause)
    verb(app, "resume")(resume)
    verb(app, "refresh")(refresh)
    verb(app, "rename")(rename)
    verb(app, "remove")(remove)


def backfill(
    call: Call,
    upstream: Annotated[str, typer.Argument(metavar="UPSTREAM", help="As in floodmark.yaml.")],
    pipelines: Pipelines = None,
    *,
    start: Annotated[
        int | None, typer.Option("--start", metavar="N", help="The first version.")
    ] = None,
    end: Annotated[int | None, typer.Option("--end", metavar="N", help="The last version.")] = None,
    first: Annotated[
        str | None,
        typer.Option("--from", metavar="VALUE", help="Without versions: the first value or day."),
    ] = None,
    last: Annotated[
        str | None, typer.Option("--to", metavar="VALUE", help="The last one; a day to its end.")
    ] = None,
    allow_duplicates: AllowDuplicates = False,
    allow_stale: AllowStale = False,
    jobs: Jobs = None,
) -> int:
    """Process a range of an upstream once more; watermarks stay.

    Without PIPELINE for every pipeline that reads it. JSON as `run`.
    """
    at_least(0, "--start", start)
    at_least(0, "--end", end)
    at_least(1, "--jobs", jobs)
    begin, through = _edges(upstream, start, end, first, last)
    with Progress(call) as progress:
        summary = call.project.backfill(
            upstream,
            *(pipelines or ()),
            start=begin,
            end=through,
            allow_duplicates=allow_duplicates,
            allow_stale=allow_stale,
            jobs=jobs,
            watcher=progress,
        )
    return finish(call, summary)


def _edges(
    upstream: str, start: int | None, end: int | None, first: str | None, last: str | None
) -> tuple[int | str, int | str]:
    """Versions or values, both ends of one kind; raises FM-CONFIG-007."""
    if start is not None and end is not None and first is None and last is None:
        return start, end
    if first is not None and last is not None and start is None and end is None:
        return first, last
    said = {"--start": start, "--end": end, "--from": first, "--to": last}
    raise ConfigError(
        "FM-CONFIG-007",
        "a range has two ends of one kind",
        rule="ends_of_range",
        found=" ".join(f"{name} {value}" for name, value in said.items() if value is not None)
        or "none",
        allowed="--start N --end N, or for an upstream without versions --from VALUE --to VALUE",
        state="nothing was planned",
        next=command("backfill", upstream, "--start", "0", "--end", "1")
        + "; or --from 2026-01-01 --to 2026-01-31",
    )


def replay(
    call: Call,
    batch: BatchId,
    pipelines: Pipelines = None,
    *,
    allow_duplicates: AllowDuplicates = False,
    allow_stale: AllowStale = False,
    jobs: Jobs = None,
) -> int:
    """Process the ranges of a completed batch once more.

    Without PIPELINE for every pipeline of the batch. JSON as `run`.
    """
    at_least(1, "--jobs", jobs)
    with Progress(call) as progress:
        summary = call.project.replay(
            batch,
            *(pipelines or ()),
            allow_duplicates=allow_duplicates,
            allow_stale=allow_stale,
            jobs=jobs,
            watcher=progress,
        )
    return finish(call, summary)


def pause(call: Call, pipeline: Pipeline) -> int:
    """Take a pipeline out for a while: nothing waits for it."""
    _ = call.project.look.state()  # looks first: operating must not create a store
    call.project.coordinator.pause(pipeline)
    return _done(call, pipeline, "PAUSED", command("resume", pipeline))


def resume(call: Call, pipeline: Pipeline) -> int:
    """Let a paused pipeline take part again; the next run catches it up."""
    _ = call.project.look.state()
    call.project.coordinator.resume(pipeline)
    return _done(call, pipeline, "ACTIVE", command("run", pipeline))


def refresh(call: Call, pipeline: Pipeline) -> int:
    """Let one pipeline load everything again with its next batch."""
    _ = call.project.look.state()
    call.project.coordinator.admin.refresh(pipeline)
    return _done(call, pipeline, "REFRESH", command("run", pipeline))


def rename(
    call: Call, pipeline: Pipeline, new_name: Annotated[str, typer.Argument(metavar="NEW_NAME")]
) -> int:
    """Give a pipeline another name; it goes on where it stands."""
    _ = call.project.look.state()
    call.project.coordinator.admin.rename(pipeline, new_name)
    is_known = new_name in call.project.pipelines
    scope = call.project.look.state().pipelines[new_name].scope
    file = f"in floodmark.yaml name it {new_name} too, with scope: {scope}"
    after = command("run", new_name) if is_known else file
    return _done(call, new_name, "RENAMED", after)


def remove(call: Call, pipeline: Pipeline) -> int:
    """Remove a pipeline for good: nothing waits for it any more."""
    if pipeline in call.project.pipelines:
        raise ConfigError(
            "FM-CONFIG-007",
            f"pipeline {pipeline} is still in floodmark.yaml",
            rule="pipeline_in_project",
            found="the next run would register it again, and load everything into its targets",
            state="nothing was changed",
            next="take it out of floodmark.yaml, then: "
            + command("remove", pipeline)
            + "; or for a while: "
            + command("pause", pipeline),
        )
    call.project.look.refuse_unknown(pipeline)
    call.project.coordinator.unregister(pipeline)
    return _done(call, pipeline, "REMOVED", command("run"))


def _done(call: Call, pipeline: str, status: str, after: str) -> int:
    document = {"pipeline": pipeline, "status": status}
    text = f"{pipeline} is {status.lower() if status != 'REFRESH' else 'to load everything again'}"
    call.show(document, lambda screen: screen.line(f"{text}; next: {after}"))
    return 0
