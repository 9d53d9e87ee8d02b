"""Stores with a long life: 10,000 batches of 10 upstreams, and of 100."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import floodmark as fm
from bench.harness import Figure, interleaved, median, spread, step
from bench.tables import append_small, small_tables
from floodmark.control.events.bodies import Advanced, Body, Leased, Planned, Succeeded
from floodmark.control.journal.delta import DeltaEventLog
from floodmark.control.journal.journal import number_events
from floodmark.control.published.projections import Projector
from floodmark.control.rules.folding import fold
from floodmark.control.upkeep.upkeep import compact
from floodmark.deltalog import Storage
from floodmark.model.state import Holder, State
from floodmark.model.window import VersionWindow

BATCHES = 10_000
CHUNK = 1_000
"""Batches per journal commit while filling."""
WIDE = 100
LIMIT_MS, LIMIT_MB = 1_000, 500
"""What a command may take on a store with 10,000 batches of 100 upstreams, after upkeep."""

COMMANDS = {
    "plan": "coordinator.preview(pipelines=['q'], scope='fresh')",
    "status": "coordinator.status()",
    "lag": "coordinator.lag()",
}
CHILD = """
import json, sys, time
import floodmark as fm
from bench.harness import own_peak_mb
started = time.perf_counter()
coordinator = fm.Coordinator(sys.argv[1], actor="bench")
{command}
seconds = time.perf_counter() - started
busy = time.process_time()
print(json.dumps([seconds, busy, own_peak_mb()]))
"""


def measure(folder: Path) -> list[Figure]:
    """The long store, then the long and wide one."""
    return [*measure_long(folder / "narrow"), *measure_wide(folder / "wide")]


def measure_wide(folder: Path) -> list[Figure]:
    """Plan, status and lag, each in a process of its own, after an upkeep."""
    paths = small_tables(folder / "upstreams", WIDE)
    control = str(folder / "control")
    with step(f"filling a store with {BATCHES} batches of {WIDE} upstreams"):
        coordinator = fm.Coordinator(control, actor="bench")
        coordinator.register("p", paths)
        _fill(coordinator)
        coordinator.register("q", paths, scope="fresh")
    with step("upkeep"):
        kept = _in_a_process("coordinator.admin.upkeep()", control)
    name = f"on {BATCHES:,} batches x {WIDE} upstreams"
    figures = [Figure(f"upkeep {name}", kept[0], "s", note=f"at most {kept[2]:.0f} MB")]
    for verb, command in COMMANDS.items():
        runs = [_in_a_process(command, control) for _ in range(5)]
        times, busy, peaks = map(list, zip(*runs, strict=True))
        note = f"{spread(times)}; {median(busy):.2g} s of processor time with start-up"
        figures += [
            Figure(f"{verb} {name}", median(times) * 1000, "ms", LIMIT_MS, note=note),
            Figure(f"{verb} {name}, memory", max(peaks), "MB", LIMIT_MB),
        ]
    return figures


def _in_a_process(command: str, control: str) -> tuple[float, float, float]:
    """Seconds of a command on a store that was not open, those of the processor in the whole
    process, and the peak of memory in MB.
    """
    code = CHILD.replace("{command}", command)
    arguments = [sys.executable, "-c", code, control]
    done = subprocess.run(arguments, check=True, capture_output=True, text=True, env=os.environ)
    taken, busy, peak = json.loads(done.stdout)
    return taken, busy, peak


def measure_long(folder: Path) -> list[Figure]:
    """Load the long store cold; plan on it and on an empty one, interleaved."""
    paths = small_tables(folder / "upstreams", 10)
    control = str(folder / "long")
    with step(f"filling a store with {BATCHES} batches"):
        coordinator = fm.Coordinator(control, actor="bench")
        coordinator.register("p", paths)
        _fill(coordinator)
    loads = interleaved(5, load=partial(_state_of, control))["load"]
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


def _state_of(control: str) -> State:
    """The state of a store that is opened anew."""
    return fm.Coordinator(control, actor="bench").look.state()


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
    state = coordinator.look.state()
    version = 0
    for chunk in range(BATCHES // CHUNK):
        bodies: list[Body] = []
        for _ in range(CHUNK):
            version += 1
            bodies += _one_batch(state, version)
        at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=chunk)
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
        VersionWindow(
            upstream=upstream,
            method="feed" if number > 1 else "snapshot",
            after=number - 2,
            through=number - 1,
            reason="bulk",
            table_id=f"id-{upstream}",
            feed_enabled=True,
            schema_fingerprint="f",
            latest_version=number - 1,
        )
        for upstream in pipeline.upstreams
    )
    ends = {window.upstream: window.through for window in windows}
    holder = Holder("bench", "", 0, "")
    return [
        Planned(batch_id, number, "default", windows, {"p": pipeline.upstreams}),
        Leased(batch_id, "p", number, f"run_{number}", holder, 60.0),
        Succeeded(batch_id, "p", number, 1, 1),
        Advanced(batch_id, ends),
    ]
