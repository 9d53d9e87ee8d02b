"""Deferred ends: the first run of a batch freezes them, before anything is read."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial

from floodmark import failpoints
from floodmark.control.events import Body, Frozen
from floodmark.model import DEFAULT_OPTIONS, Run, State, Window, with_end
from floodmark.sources import LookSpec, Source

Record = Callable[[Callable[[State], Body | None]], State]
"""Journals what it is given, decided on the newest state; nothing if that says None."""


def freeze_ends(
    state: State, run: Run, source: Source, now: Callable[[], datetime], record: Record
) -> None:
    """Fix the ends that the plan of a run's batch left open, once and for all its pipelines.

    An end that another run has frozen meanwhile is adopted: only one of them is ever journaled.
    """
    batch = state.batches[run.batch_id]
    for upstream in batch.upstreams_of(run.pipeline):
        if batch.windows[upstream].deferred:
            window = _frozen(state, run.pipeline, batch.windows[upstream], source, now())
            failpoints.reached("freeze.before_commit")
            record(partial(_freeze, run, window))
            failpoints.reached("freeze.after_commit")


def _frozen(state: State, pipeline: str, window: Window, source: Source, now: datetime) -> Window:
    known = state.pipelines.get(pipeline)
    options = known.options_of(window.upstream) if known else DEFAULT_OPTIONS
    facts = source.look(window, LookSpec(now, options.settle_seconds))
    assert facts is not None  # noqa: S101  (a run has what it takes to look)
    return with_end(window, facts, options)


def _freeze(run: Run, window: Window, state: State) -> Frozen | None:
    planned = state.batches[run.batch_id].windows[window.upstream]
    return Frozen(run.batch_id, run.pipeline, run.epoch, window) if planned.deferred else None
