"""A store with a long life: 10,000 batches of 10 upstreams."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

import floodmark as fm
from bench.harness import Figure, interleaved, median, spread, step
from bench.tables import append_small, small_tables
from floodmark.control.delta import DeltaEventLog
from floodmark.control.events import Advanced, Body, Leased, Planned, Succeeded
from floodmark.control.fold import fold
from floodmark.control.journal import number_events
from floodmark.control.projections import Projector
from floodmark.control.upkeep import compact
from floodmark.deltalog import Storage
from floodmark.model.state import Holder, State
from floodmark.model.window import Window

BATCHES = 10_000
CHUNK = 1_000
"""Batches per journal commit while filling."""


def measure(folder: Path) -> list[Figure]:
    """Load the long store cold; plan on it and on an empty one, interleaved."""
    paths = small_tables(folder / "upstreams", 10)
    control = str(folder / "long")
    with step(f"filling a store with {BATCHES} batches"):
        coordinator = fm.Coordinator(control, actor="bench")
        coordinator.register("p", paths)
        _fill(coordinator)
    loads = interleaved(5, load=lambda: fm.Coordinator(control, actor="bench").state())["load"]
    with step("planning on it and on an empty store"):
        plans = _plan_on_both(paths, folder)
    ratio = median(plans["long"]) / median(plans["empty"])
    return [
        Figure(
            "state of 10,000 batches, loaded", median(loads) * 1000, "ms", 300, note=spread(loads)
        ),
        Figure(
            "planning on 10,000 batches / on an empty store",
            ratio,
            "times",
            1.3,
            note=f"{median(plans['long']) * 1000:.0f} ms against {median(plans['empty']) * 1000:.0f} ms",
        ),
    ]


def _plan_on_both(paths: list[str], folder: Path) -> dict[str, list[float]]:
    stores = {"long": fm.Coordinator(str(folder / "long"), actor="bench")}
    stores["empty"] = fm.Coordinator(str(folder / "empty"), actor="bench")
    stores["empty"].register("q", paths, scope="fresh")
    stores["long"].register("q", paths, scope="fresh")
    times: dict[str, list[float]] = {"long": [], "empty": []}
    for turn in range(12):
        for path in paths:
            append_small(path)
        for name, coordinator in stores.items():
            taken = interleaved_once(coordinator)
            if turn > 1:
                times[name].append(taken)
    return times


def interleaved_once(coordinator: fm.Coordinator) -> float:
    """The time of one create_batch; the batch is finished afterwards, outside the clock."""
    from time import perf_counter

    started = perf_counter()
    batch = coordinator.create_batch(pipelines=["q"], scope="fresh")
    taken = perf_counter() - started
    coordinator.record_run("q", str(batch.batch_id), status="SUCCESS")
    coordinator.finalize_batch(str(batch.batch_id))
    return taken


def _fill(coordinator: fm.Coordinator) -> None:
    """Bulk events through the fold, published and compacted as the product does it."""
    storage = Storage()
    log = DeltaEventLog(coordinator.control, storage)
    projector = Projector(coordinator.control, storage)
    state = coordinator.state()
    version = 0
    for _ in range(BATCHES // CHUNK):
        bodies: list[Body] = []
        for _ in range(CHUNK):
            version += 1
            bodies += _one_batch(state, version)
        at = datetime.now(UTC)
        tail = log.read(None)
        before = fold(tail.events)
        events = number_events(before, bodies, uuid.uuid4().hex, "bench", at)
        state = before
        for event in events:
            state = fold([event], state)
            projector.observe(event, state)
        log.append(events, tail.position)
        projector.refresh(state)
        assert compact(log, projector)


def _one_batch(state: State, number: int) -> list[Body]:
    pipeline = state.pipelines["p"]
    batch_id = f"batch_{datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=number):%Y%m%dT%H%M%S%fZ}_{number:08x}"
    windows = tuple(
        Window(
            upstream=upstream,
            method="feed" if number > 1 else "snapshot",
            after_version=number - 2,
            through_version=number - 1,
            reason="bulk",
            table_id=f"id-{upstream}",
            feed_enabled=True,
            schema_fingerprint="f",
            latest_version=number - 1,
        )
        for upstream in pipeline.upstreams
    )
    ends = {window.upstream: window.through_version for window in windows}
    holder = Holder("bench", "", 0, "")
    return [
        Planned(batch_id, number, "default", windows, {"p": pipeline.upstreams}),
        Leased(batch_id, "p", number, f"run_{number}", holder, 60.0),
        Succeeded(batch_id, "p", number, 1, 1),
        Advanced(batch_id, ends),
    ]
