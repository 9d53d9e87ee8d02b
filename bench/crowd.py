"""Fifty runners on one store: how long a control operation takes when many want the journal."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from bench.harness import Figure, step
from bench.tables import small_tables

RUNNERS = 50
ROUNDS = 3
WORK_SECONDS = 12.0
"""What a run spends on its data, between its control operations."""

_RUNNER = """
import json, random, sys, time
import floodmark as fm
from bench.tables import append_small
control, upstream, name, start, rounds, work = sys.argv[1:]
c = fm.Coordinator(control, actor=name)
times = []
def timed(operation, *arguments, **options):
    begin = time.perf_counter()
    found = operation(*arguments, **options)
    times.append(time.perf_counter() - begin)
    return found
def one_round(pause):
    batch = timed(c.create_batch, [upstream], scope=name)
    timed(c.record_run, name, batch.batch_id, status="RUNNING")
    time.sleep(pause)
    timed(c.record_run, name, batch.batch_id, status="SUCCESS")
    assert timed(c.finalize_batch, batch.batch_id) == (upstream,), "nothing advanced"
    append_small(upstream)
one_round(0)  # warms up
times.clear()
time.sleep(max(0.0, float(start) - time.time()) + random.uniform(0, float(work)))
for _ in range(int(rounds)):
    one_round(random.uniform(0.5, 1.5) * float(work))
print(json.dumps(times))
"""


def measure(folder: Path) -> list[Figure]:
    """Each runner is a process with a scope of its own; they share the journal and two cores."""
    import floodmark as fm

    with step(f"making {RUNNERS} tables and a store"):
        upstreams = small_tables(folder / "upstreams", RUNNERS)
        control = str(folder / "control")
        coordinator = fm.Coordinator(control, actor="bench")
        for number, upstream in enumerate(upstreams):
            coordinator.register(f"runner{number}", [upstream], scope=f"runner{number}")
    with step(f"{RUNNERS} runners, {ROUNDS} rounds each"):
        times = sorted(_crowd(control, upstreams))
    at_99 = times[int(len(times) * 0.99)]
    note = f"{len(times)} operations, median {times[len(times) // 2]:.2f} s, all runners finished"
    return [
        Figure(
            f"{RUNNERS} runners, control operation at the 99th percentile", at_99, "s", 2, note=note
        )
    ]


def _crowd(control: str, upstreams: list[str]) -> list[float]:
    start = time.time() + 90  # fifty interpreters have to start and warm up first
    timing = [str(start), str(ROUNDS), str(WORK_SECONDS)]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _RUNNER, control, upstream, f"runner{number}", *timing],
            stdout=subprocess.PIPE,
            text=True,
        )
        for number, upstream in enumerate(upstreams)
    ]
    times: list[float] = []
    for process in processes:
        printed, _ = process.communicate(timeout=900)
        assert process.returncode == 0, "a runner failed"
        times += json.loads(printed)
    return times
