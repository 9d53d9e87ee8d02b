"""SNAPSHOT, REBUILD: a whole state as one event."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from floodmark.control.events.bodies import (
    Event,
    Rebuilt,
    Snapshot,
)
from floodmark.model import PlannedBatch, State


def snapshot_of(state: State, keep_windows: int, inside: Collection[str] | None = None) -> Snapshot:
    """The state as one event; finished batches beyond the newest `keep_windows` windows, and those
    that are not `inside` a policy for rows, are left to the history table, once nobody runs them.
    """
    return Snapshot(
        control_id=state.control_id,
        batch_seq=state.batch_seq,
        pipelines=tuple(state.pipelines.values()),
        marks=tuple(state.marks.values()),
        batches=tuple(_kept_batches(state, keep_windows, inside)),
        epochs=state.epochs,
        seeded_through=tuple((p, u, v) for (p, u), v in state.seeded_through.items()),
        sinks=state.sinks,
        names=tuple(state.names.values()),
        places=state.places,
        seeded_marks=tuple((p, u, mark) for (p, u), mark in state.seeded_marks.items()),
    )


def _kept_batches(
    state: State, keep_windows: int, inside: Collection[str] | None
) -> list[PlannedBatch]:
    kept, room = [], keep_windows
    for batch in sorted(state.batches.values(), key=lambda b: b.seq, reverse=True):
        room -= len(batch.windows)
        is_inside = inside is None or batch.batch_id in inside
        # A runner that was left behind may still journal: whoever reads the snapshot must know its
        # run, as those do who have read the events before.
        is_running = any(run.status == "RUNNING" for run in batch.runs.values())
        if (room >= 0 and is_inside) or batch.is_open or is_running:
            kept.append(batch)
    return kept[::-1]


def restored(state: State, event: Event) -> State:
    body: Snapshot = event.body  # type: ignore[assignment]
    return State(
        control_id=body.control_id,
        batch_seq=body.batch_seq,
        pipelines={p.name: p for p in body.pipelines},
        marks={(m.scope, m.upstream): m for m in body.marks},
        batches={b.batch_id: b for b in body.batches},
        open_windows={
            (b.scope, u): b.batch_id
            for b in body.batches
            if b.kind == "forward"
            for u in b.pending_upstreams()
        },
        open_ids=frozenset(b.batch_id for b in body.batches if b.is_open),
        epochs=body.epochs,
        seeded_through={(p, u): v for p, u, v in body.seeded_through},
        sinks=body.sinks,
        names={table.name: table for table in body.names},
        places=body.places,
        seeded_marks={(p, u): mark for p, u, mark in body.seeded_marks},
    )


def check_rebuilt(state: State, body: Rebuilt) -> str | None:
    return "the store exists already" if state.control_id else None


def rebuilt(state: State, event: Event) -> State:
    body: Rebuilt = event.body  # type: ignore[assignment]
    return restored(state, replace(event, body=body.state))
