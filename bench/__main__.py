"""`python3 go.py bench [commands projects state crowd planning runs change nodes counts streams flow
odibi extremes]`.

One table, one JSON file. All parts are measured unless some are named, but `odibi`, which installs
a peer, and `extremes`, which needs gigabytes of disk.
"""

from __future__ import annotations

import signal
import sys
import tempfile
from pathlib import Path

from bench import (
    commands,
    crowd,
    extremes,
    incremental,
    peer,
    planning,
    projects,
    row_counts,
    runs,
    state,
    streams_flow,
    streams_load,
)
from bench.harness import Figure, save, show

USUAL = (
    "commands",
    "projects",
    "state",
    "crowd",
    "planning",
    "runs",
    "change",
    "nodes",
    "counts",
    "streams",
    "flow",
)
PARTS = (*USUAL, "odibi", "extremes")


def main(wanted: list[str]) -> int:
    unknown = [name for name in wanted if name not in PARTS]
    if unknown:
        print(f"unknown part {unknown[0]}; there are: {', '.join(PARTS)}", file=sys.stderr)
        return 2
    figures: list[Figure] = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as folder:
        try:
            measure(wanted or list(USUAL), Path(folder), figures)
        finally:  # what was measured is shown, also where time or patience ran out
            show(figures)
            print(f"written to {save(figures)}")
    return 1 if any(figure.is_met is False for figure in figures) else 0


def measure(wanted: list[str], folder: Path, figures: list[Figure]) -> None:
    """The parts that need no Spark first: nothing else runs on the machine then."""
    if "commands" in wanted:
        figures += commands.measure(folder / "commands")
    if "projects" in wanted:
        figures += projects.measure(folder / "projects")
    if "state" in wanted:
        figures += state.measure(folder / "state")
    if "crowd" in wanted:
        figures += crowd.measure(folder / "crowd")
    if "extremes" in wanted:
        figures += extremes.measure(folder / "extremes")
    if {"planning", "runs", "change", "nodes", "counts", "streams", "flow", "odibi"} & set(wanted):
        measure_on_spark(wanted, folder, figures)


def measure_on_spark(wanted: list[str], folder: Path, figures: list[Figure]) -> None:
    import floodmark as fm

    spark = fm.local_session({"spark.sql.warehouse.dir": str(folder / "warehouse")})
    try:
        if "planning" in wanted:
            figures += planning.measure(spark, folder / "planning")
        if "runs" in wanted:
            figures += runs.bookkeeping(spark, folder / "bookkeeping")
            figures += runs.whole_run(spark, folder / "whole")
        if "change" in wanted:
            figures += runs.change_cost(spark, folder / "change")
        if "nodes" in wanted:
            figures += incremental.incremental_job(spark, folder / "incremental")
            figures += incremental.merge_job(spark, folder / "merge")
        if "counts" in wanted:
            figures += row_counts.measure(spark, folder / "counts")
        if "streams" in wanted:
            figures += streams_load.measure(spark, folder / "streams")
        if "flow" in wanted:
            figures += streams_flow.measure(spark, folder / "flow")
        if "odibi" in wanted:
            ours = incremental.our_rounds(spark, folder / "beside_odibi")
            figures += peer.compared(folder / "odibi", ours)
    finally:
        spark.stop()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
