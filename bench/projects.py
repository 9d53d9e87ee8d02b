"""How long a large project takes to load and to validate: 200 pipelines, 2,000 nodes."""

from __future__ import annotations

from pathlib import Path

from bench.commands import call
from bench.harness import Figure, interleaved, median, spread, step
from bench.tables import small_tables

PIPELINES, NODES = 200, 10
TARGET_SECONDS = 2.0
PLAN_SECONDS = 3.0

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
    """`validate` and `plan` as fresh processes, and the loading of the files alone inside one."""
    write_project(folder)
    with step(f"validate of {PIPELINES} pipelines and {PIPELINES * NODES:,} nodes"):
        times = interleaved(
            5,
            validate=lambda: call(folder, "validate"),
            plan=lambda: call(folder, "plan"),
            load=lambda: _load(folder),
        )
    return [
        Figure(
            f"floodmark validate, {PIPELINES * NODES:,} nodes",
            median(times["validate"]),
            "s",
            TARGET_SECONDS,
            note=spread(times["validate"]),
        ),
        Figure(
            f"floodmark plan, {PIPELINES * NODES:,} nodes",
            median(times["plan"]),
            "s",
            PLAN_SECONDS,
            note=spread(times["plan"]),
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


def _load(folder: Path) -> None:
    from floodmark.config import load_project

    load_project(folder / "floodmark.yaml")
