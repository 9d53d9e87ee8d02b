"""Lost targets: what the operator decided, journaled, and the passes that carry it out.

A pipeline's function is called with the windows of its batch (an ordinary pass) or with those of a
first run (a rebuilding pass). A write that belongs into the other kind ends the pass. Writes that
are done are found by their receipts, so each pass adds at least one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import count

from floodmark.errors import SinkError
from floodmark.model import DEFAULT_OPTIONS, PlannedBatch, SinkDone, State, UpstreamOptions, Window
from floodmark.next_steps import command, then_retry

MAX_PASSES = 20
"""More than this many changes of the pass mean a function that writes by chance."""


class OtherPass(Exception):
    """The write that was begun belongs into a pass of the other kind; nothing was written."""


def generation(sinks: Mapping[str, SinkDone], app_id: Callable[[int], str]) -> int:
    """The newest generation of a write: every settled loss may begin a new one."""
    return next(g for g in count() if app_id(g + 1) not in sinks)


def first_run_windows(
    planned: Iterable[Window], options: Mapping[str, UpstreamOptions]
) -> tuple[Window, ...]:
    """The windows that a first run would have, with the same ends.

    Whole tables as snapshots; for an upstream with a baseline, all that follows it.
    """
    return tuple(
        window.as_first_run(options.get(window.upstream, DEFAULT_OPTIONS)) for window in planned
    )


def awaits_rebuild(known: SinkDone | None) -> bool:
    """Whether the next write has to replace all that the target holds."""
    return known is not None and known.settled == "rebuild"


def refuse_rebuild_again(batch: PlannedBatch, target: str) -> None:
    """Raise FM-SINK-018 for a backfill or replay: its versions end before those of the target."""
    if batch.is_ordered:
        return
    raise SinkError(
        "FM-SINK-018",
        f"a {batch.kind} cannot rebuild a lost target",
        where=target,
        found=f"batch {batch.batch_id}, which ends where an earlier batch ended",
        allowed="a rebuild in the next batch that the pipeline gets in its turn",
        state="nothing was written; the target and the watermark are unchanged",
        next=command("retry", batch.batch_id, "--on-lost-target", "accept")
        + "; or "
        + command("cancel", batch.batch_id),
    )


def refuse_partial_rebuild(state: State, batch: PlannedBatch, pipeline: str, target: str) -> None:
    """Raise FM-SINK-018 if the pipeline has processed an upstream that the batch does not read.

    Its rows would be missing afterwards, and the store would still count them as processed.
    """
    known = {upstream for name, upstream in state.seeded_through if name == pipeline}
    left_out = sorted(known - set(batch.upstreams_of(pipeline)))
    if not left_out:
        return
    raise SinkError(
        "FM-SINK-018",
        "a rebuild in this batch would leave out what the pipeline has processed before",
        where=target,
        found=f"batch {batch.batch_id} does not read {', '.join(left_out)}",
        allowed="a batch that reads every upstream the pipeline has processed",
        state="nothing was written; the target and the watermark are unchanged",
        next=command("retry", batch.batch_id, "--on-lost-target", "accept")
        + "; then "
        + command("refresh", pipeline)
        + ", which loads everything anew",
    )


def too_many_passes(pipeline: str, batch_id: str) -> SinkError:
    return SinkError(
        "FM-SINK-018",
        f"pipeline {pipeline} does not come to an end of rebuilding its targets",
        where=f"batch {batch_id}",
        found=f"its function was called {MAX_PASSES} times, and wrote other targets each time",
        allowed="a function that makes the same writes whenever it is called",
        state="the writes that are done stand and are not repeated; nothing advances",
        next="let the function make all its writes, " + then_retry(batch_id),
    )
