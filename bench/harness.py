"""Measuring: interleaved rounds, medians, targets, one table and one JSON file."""

from __future__ import annotations

import json
import os
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Figure:
    """One measured number and what it is held against."""

    name: str
    value: float
    unit: str
    target: float | None = None
    better: Literal["lower", "higher"] = "lower"
    note: str = ""

    @property
    def is_met(self) -> bool | None:
        if self.target is None:
            return None
        return self.value <= self.target if self.better == "lower" else self.value >= self.target


def seconds(action: Callable[[], object]) -> float:
    """How long one call takes."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def own_peak_mb() -> float:
    """The most memory that this process has held."""
    if sys.platform == "linux":  # ru_maxrss would be that of the parent, if it is larger
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2


def interleaved(rounds: int, **actions: Callable[[], object]) -> dict[str, list[float]]:
    """Each action once per round, so that drift of the machine hits all of them alike.

    The first round warms up and is not counted.
    """
    times: dict[str, list[float]] = {name: [] for name in actions}
    for turn in range(rounds + 1):
        for name, action in actions.items():
            taken = seconds(action)
            if turn:
                times[name].append(taken)
    return times


def median(values: list[float]) -> float:
    return statistics.median(values)


def spread(values: list[float]) -> str:
    """The runs behind a median, for the note."""
    return f"{min(values):.3g}-{max(values):.3g} in {len(values)} runs"


@contextmanager
def step(text: str) -> Iterator[None]:
    """Say what is being measured, on stderr."""
    print(f"  {text} ...", file=sys.stderr, flush=True)
    started = time.perf_counter()
    yield
    print(f"  {text}: {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)


def show(figures: list[Figure]) -> None:
    """The table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="floodmark bench")
    for column in ("figure", "measured", "target", "", "note"):
        table.add_column(column, justify="right" if column in ("measured", "target") else "left")
    marks = {True: "ok", False: "MISSED", None: ""}
    for figure in figures:
        bound = (
            ""
            if figure.target is None
            else f"{'<=' if figure.better == 'lower' else '>='} {figure.target:g}"
        )
        value = f"{figure.value:,.4g} {figure.unit}"
        table.add_row(figure.name, value, bound, marks[figure.is_met], figure.note)
    Console(width=150 if not sys.stdout.isatty() else None).print(table)


def save(figures: list[Figure]) -> Path:
    """Everything as JSON, with what is needed to compare it with another run."""
    RESULTS.mkdir(exist_ok=True)
    now = datetime.now(UTC)
    path = RESULTS / f"{now:%Y%m%dT%H%M%SZ}.json"
    document = {
        "schema_version": 1,
        "at": now.isoformat(),
        "machine": {
            "cores": os.cpu_count(),
            "load": os.getloadavg()[0],
            "python": platform.python_version(),
            "system": platform.platform(),
        },
        "figures": [{**asdict(figure), "is_met": figure.is_met} for figure in figures],
    }
    path.write_text(json.dumps(document, indent=2) + "\n")
    return path
