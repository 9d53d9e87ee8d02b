"""Lost ranges: what the operator decided, journaled before anything is read."""

from __future__ import annotations

from floodmark.control.events import Amended
from floodmark.model.window import Settlement, Window
from floodmark.run.engine import Engine
from floodmark.run.leases import Lease


def settle_lost_ranges(lease: Lease, engine: Engine, choice: Settlement) -> None:
    """Amend the windows of a run that are lost as they were planned; the others stay.

    Looks for every data file of the windows. What an earlier attempt amended and can be read so is
    not touched. Each amendment is one journaled event of this run and holds for its pipeline only.
    """
    state = lease.ensure_held()
    batch, pipeline = state.batches[lease.run.batch_id], lease.run.pipeline
    source = engine.source()
    for upstream in batch.upstreams_of(pipeline):
        amended = source.settled(batch.window_for(pipeline, upstream), choice)
        if amended is not None:
            _record(lease, amended)


def _record(lease: Lease, window: Window) -> None:
    run = lease.run
    lease.record(lambda _: Amended(run.batch_id, run.pipeline, run.epoch, window))
