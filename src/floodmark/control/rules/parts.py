"""Small pieces that the rules share."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from floodmark.model.state import PlannedBatch, Run, State


def with_batch(state: State, batch: PlannedBatch) -> State:
    one = {batch.batch_id}
    open_ids = state.open_ids | one if batch.is_open else state.open_ids - one
    return replace(state, batches={**state.batches, batch.batch_id: batch}, open_ids=open_ids)


def with_run(state: State, run: Run) -> State:
    batch = state.batches[run.batch_id]
    return with_batch(state, replace(batch, runs={**batch.runs, run.pipeline: run}))


def strictly_after(before: Run | None, at: datetime) -> datetime:
    # Published order is by this instant, so it must grow even if a clock was set back.
    return max(at, before.changed_at + timedelta(microseconds=1)) if before else at


def is_paused(state: State, pipeline: str) -> bool:
    return pipeline in state.pipelines and state.pipelines[pipeline].is_paused


def always(state: State, body: Any) -> str | None:
    return None
