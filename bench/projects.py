"""How long a large project takes to load and to validate: 200 pipelines, 2,000 nodes."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

from bench.harness import Figure, interleaved, median, spread, step
from bench.tables import small_tables

PIPELINES, NODES = 200, 10
TARGET_SECONDS = 2.0

PROJECT = """\
project: bench
connections:
  lake: {type: lake, root: lake}
"""
FIRST = """\
  - name: n0
    read: {connection: lake, format: delta, path: t0000}
"""
NEXT = """\
  - name: n%d
    depends_on: [n%d]
"""
BODY = """\
    transform:
      - cast_columns: {columns: {v: string}}
      - sql: SELECT *, length(v) AS size FROM input
    columns: {v: {sensitive: true}}
    expect: [{not_null: id}, {check: "id >= 0", action: fail}]
    write:
      connection: lake
      format: delta
      path: out/p%03d/n%d
      mode: merge
      merge: {keys: [id], strategy: upsert}
      options: {cluster_by: id, optimize_write: true}
"""


def measure(folder: Path) -> list[Figure]:
    """`validate` as a fresh process, and the loading of the files alone inside one."""
    write_project(folder)
    with step(f"validate of {PIPELINES} pipelines and {PIPELINES * NODES:,} nodes"):
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        times = interleaved(5, validate=lambda: _validate(folder), load=lambda: _load(folder))
        after = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    processor = f"{(after - before) / 6:.2f} s of processor time each"
    return [
        Figure(
            f"floodmark validate, {PIPELINES * NODES:,} nodes",
            median(times["validate"]),
            "s",
            TARGET_SECONDS,
            note=f"{spread(times['validate'])}; {processor}",
        ),
        Figure(
            f"loading {PIPELINES * NODES:,} nodes",
            median(times["load"]),
            "s",
            note=spread(times["load"]),
        ),
    ]


def write_project(folder: Path) -> None:
    small_tables(folder / "lake", 1)
    (folder / "pipelines").mkdir()
    (folder / "floodmark.yaml").write_text(PROJECT)
    for number in range(PIPELINES):
        nodes = [FIRST + BODY % (number, 0)]
        nodes += [NEXT % (i, i - 1) + BODY % (number, i) for i in range(1, NODES)]
        text = f"pipeline: p{number:03d}\nnodes:\n{''.join(nodes)}"
        (folder / f"pipelines/p{number:03d}.yaml").write_text(text)


def _validate(folder: Path) -> None:
    command = [str(Path(sys.executable).with_name("floodmark")), "validate"]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)


def _load(folder: Path) -> None:
    from floodmark.config import load_file

    load_file(folder / "floodmark.yaml")
