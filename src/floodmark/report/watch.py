"""What does not move: batches that are open for long, runs whose process is gone, failures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime

from floodmark.model import Holder, PlannedBatch, Run, State, Stuck
from floodmark.next_steps import command

STUCK_AFTER_SECONDS = 24 * 3_600.0
"""A batch that is open for longer is worth a look."""


def stuck_batches(
    state: State, now: datetime, is_gone: Callable[[Holder], bool], after_seconds: float
) -> tuple[Stuck, ...]:
    """Open batches that will not move by themselves, oldest first."""
    return tuple(
        found
        for batch in state.open_batches()
        for found in (*_abandoned(batch, is_gone), *_overdue(batch, now, after_seconds))
    )


def failures_in_a_row(state: State) -> dict[str, int]:
    """How often each pipeline failed since it last succeeded; those that did not are left out.

    A success ends a pipeline's part in a batch, so the attempts of its open batch are in a row.
    """
    found: dict[str, int] = {}
    for batch in state.open_batches():
        for run in batch.runs.values():
            count = failed_attempts(run)
            if count:
                found[run.pipeline] = found.get(run.pipeline, 0) + count
    return found


def failed_attempts(run: Run) -> int:
    """The attempts of a run that came to nothing, the newest one included if it has failed."""
    return 0 if run.status == "SUCCESS" else run.retries + (run.status == "FAILED")


def _abandoned(batch: PlannedBatch, is_gone: Callable[[Holder], bool]) -> Iterator[Stuck]:
    for run in batch.runs.values():
        if run.status == "RUNNING" and not run.is_external and is_gone(run.holder):
            yield Stuck(
                batch_id=batch.batch_id,
                scope=batch.scope,
                pipelines=(run.pipeline,),
                text=f"{run.pipeline} stands as RUNNING, but its process {run.holder.pid} on this "
                "host is gone",
                next=command("retry", batch.batch_id),
            )


def _overdue(batch: PlannedBatch, now: datetime, after_seconds: float) -> Iterator[Stuck]:
    age = (now - batch.planned_at).total_seconds()
    if age <= after_seconds:
        return
    waiting = tuple(batch.unfinished_pipelines())
    what = f"waiting for {', '.join(waiting)}" if waiting else "every pipeline is done"
    yield Stuck(
        batch_id=batch.batch_id,
        scope=batch.scope,
        pipelines=waiting,
        text=f"open for {_age(age)}: {what}",
        next=command("retry" if waiting else "finalize", batch.batch_id),
    )


def _age(seconds: float) -> str:
    hours = int(seconds // 3_600)
    if hours >= 48:
        return f"{hours // 24} days"
    return f"{hours} hours" if hours else f"{int(seconds // 60)} minutes"
