"""Advancing watermarks: one commit for every upstream of a batch that is ready."""

from __future__ import annotations

from floodmark import failpoints
from floodmark.control import ControlStore
from floodmark.control.events import Advanced, Body
from floodmark.model import Finalized, Held, PlannedBatch, State


def ready(batch: PlannedBatch) -> dict[str, int]:
    """The upstreams of a batch that may advance, with the version they advance to.

    Ready means: every pipeline of the plan's copy of the registry that reads it has succeeded.
    """
    return {
        upstream: batch.windows[upstream].through
        for upstream in batch.pending_upstreams()
        if batch.held_because(upstream) is None
    }


def held(batch: PlannedBatch) -> tuple[Held, ...]:
    """The upstreams of a batch that may not advance, and why."""
    reasons = {upstream: batch.held_because(upstream) for upstream in batch.pending_upstreams()}
    return tuple(
        Held(upstream, reason, tuple(batch.waiting_for(upstream)))
        for upstream, reason in reasons.items()
        if reason
    )


def advance_watermarks(store: ControlStore, batch_id: str) -> Finalized:
    """Advance what is ready; calling it again advances nothing and says so.

    A batch that the store no longer knows is finished: compaction only lets go of those.
    """
    advanced: dict[str, int] = {}

    def decide(state: State) -> list[Body]:
        batch = state.batches.get(batch_id)
        advanced.clear()
        advanced.update(ready(batch) if batch else {})
        failpoints.reached("finalize.before_commit")
        return [Advanced(batch_id, dict(advanced))] if advanced else []

    state = store.commit(decide)
    failpoints.reached("finalize.after_commit")
    batch = state.batches.get(batch_id)
    # After a lost answer the journal may hold an earlier attempt of this call: it has the word.
    moved = tuple(u for u in advanced if batch is None or u in batch.advanced)
    return Finalized(batch_id, moved, held(batch) if batch else ())
