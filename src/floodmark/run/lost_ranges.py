"""Lost ranges: what the operator decided, journaled before anything is read."""

from __future__ import annotations

from dataclasses import replace

from floodmark.control.events import Amended
from floodmark.model import Settlement, Window
from floodmark.run.edges import Edges
from floodmark.run.engine import Engine
from floodmark.run.leases import Lease


def settle_lost_ranges(
    lease: Lease, engine: Engine, choice: Settlement, edges: Edges | None = None
) -> None:
    """Amend the windows of a run that are lost, or have other rows, than planned; the others stay.

    Looks for every data file of the windows. What an earlier attempt amended and can be read so is
    not touched. Each amendment is one journaled event of this run and holds for its pipeline only.
    """
    state = lease.ensure_held()
    batch, pipeline = state.batches[lease.run.batch_id], lease.run.pipeline
    source = engine.source()
    misread = {u: n for sink in lease.run.sinks.values() for u, n in sink.misread.items()}
    for upstream in batch.upstreams_of(pipeline):
        window = batch.window_for(pipeline, upstream)
        is_cut_off = edges is not None and _lost_edge(window, pipeline, edges)
        if is_cut_off and choice == "accept":
            amended: Window | None = _strictly_after(window)
        else:
            amended = source.resolved(window, choice)
        if upstream in misread and choice == "accept":
            amended = (amended or window).taken_as_read(misread[upstream])
        elif amended is not None and window.as_read:
            amended = replace(amended, as_read=True)
        if amended is not None and amended != window:
            _record(lease, amended)


def _lost_edge(window: Window, pipeline: str, edges: Edges) -> bool:
    """Whether nobody knows which rows near the mark of a database were applied."""
    is_open = window.meets_again and window.method != "lost"
    return is_open and not edges.has(pipeline, window.upstream, window.after)


def _strictly_after(window: Window) -> Window:
    reason = f"{window.reason}; strictly after the mark: late rows were given up"
    return replace(window, method="lost", reason=reason)


def _record(lease: Lease, window: Window) -> None:
    run = lease.run
    lease.record(lambda _: Amended(run.batch_id, run.pipeline, run.epoch, window))
