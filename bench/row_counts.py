"""What it costs to compare the rows that are read with those that were planned."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

from bench.harness import Figure, median, seconds, step
from bench.tables import append_change, big_table
from floodmark.model.window import VersionWindow
from floodmark.project import Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUNDS = 5
ROWS = 1_000_000
AT_MOST = 1.03
PROJECT = """\
project: bench
pipelines:
  - pipeline: copy
    nodes:
      - name: copy
        read: {READ}
        write: {path: ./copy, WRITE}
"""
KINDS = {
    "feed": ("path: ./orders", "mode: append, changes: log"),
    "whole table": ("path: ./orders, method: snapshot", "mode: overwrite"),
}


def measure(spark: SparkSession, folder: Path) -> list[Figure]:
    """Runs over 1 million rows with the comparison and without it, in turns."""
    figures = []
    for kind, (read, write) in KINDS.items():
        with step(f"runs that count their rows, and that do not: {kind}"):
            root = folder / kind.replace(" ", "_")
            root.mkdir(parents=True)
            text = PROJECT.replace("READ", read).replace("WRITE", write)
            (root / "floodmark.yaml").write_text(text)
            figures.append(_compared(kind, _batch_of(spark, root, kind)))
    return figures


def _batch_of(spark: SparkSession, root: Path, kind: str) -> Callable[[], float]:
    """One more run of the project over a change of the table."""
    orders = str(root / "orders")
    big_table(spark, orders, 10 if kind == "feed" else ROWS)

    def run() -> float:
        append_change(spark, orders, ROWS, ROWS if kind == "feed" else 10)
        project = Project.load(root, session=lambda: spark)
        return seconds(lambda: _succeeds(project))

    run()
    return run


def _succeeds(project: Project) -> None:
    if project.run().exit_code != 0:
        raise RuntimeError("a run of the benchmark failed")


def _compared(kind: str, run: Callable[[], float]) -> Figure:
    with_counts: list[float] = []
    without: list[float] = []
    for turn in range(ROUNDS + 1):
        pair = run(), _without(run)
        if turn:
            with_counts.append(pair[0])
            without.append(pair[1])
    note = f"{median(with_counts):.2f} s against {median(without):.2f} s"
    ratio = median(with_counts) / median(without)
    return Figure(f"{kind} of 1M rows: counted / not counted", ratio, "times", AT_MOST, note=note)


def _without(run: Callable[[], float]) -> float:
    with mock.patch.object(VersionWindow, "is_counted", new=False):
        return run()
