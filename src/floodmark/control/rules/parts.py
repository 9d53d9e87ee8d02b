"""Small pieces that the rules share."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from floodmark.model import AnyMark, PlannedBatch, Run, State, Window
from floodmark.model.copying import replace


def with_batch(state: State, batch: PlannedBatch, **more: Any) -> State:
    """The state with a batch as it is now; `more` are other fields that change with it."""
    one = {batch.batch_id}
    open_ids = state.open_ids | one if batch.is_open else state.open_ids - one
    batches = {**state.batches, batch.batch_id: batch}
    return replace(state, batches=batches, open_ids=open_ids, **more)


def with_run(state: State, run: Run, **more: Any) -> State:
    """The state with a run as it is now; `more` are other fields that change with it."""
    batch = state.batches[run.batch_id]
    return with_batch(state, replace(batch, runs={**batch.runs, run.pipeline: run}), **more)


def with_progress(
    state: State, reached: Mapping[tuple[str, str], int], marks: Mapping[str, AnyMark | None]
) -> State:
    """The state with (pipeline, upstream) at these versions; `marks` by upstream says what they
    stand for where those are counted windows.
    """
    kept = {key: mark for key, mark in state.seeded_marks.items() if key not in reached}
    found = {key: marks.get(key[1]) for key in reached}
    return replace(
        state,
        seeded_through={**state.seeded_through, **reached},
        seeded_marks={**kept, **{key: mark for key, mark in found.items() if mark is not None}},
    )


def located(state: State, window: Window) -> Window:
    """The window with the place of its table."""
    place = state.places.get(window.upstream)
    return window if window.location == place else replace(window, location=place)


def strictly_after(before: Run | None, at: datetime) -> datetime:
    # Published order is by this instant, so it must grow even if a clock was set back.
    return max(at, before.changed_at + timedelta(microseconds=1)) if before else at


def is_paused(state: State, pipeline: str) -> bool:
    return pipeline in state.pipelines and state.pipelines[pipeline].is_paused


def always(state: State, body: Any) -> str | None:
    return None
