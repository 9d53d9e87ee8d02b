"""How long commands take from the prompt, and that they start no Java."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from bench.harness import Figure, interleaved, median, spread, step
from bench.tables import small_tables

PROJECT = """\
project: bench
pipelines:
  - pipeline: p
    upstreams: [{upstreams}]
    function: jobs:process
"""

_NO_SPARK = """
import sys
from floodmark.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
for heavy in ("pyspark", "pandas"):
    assert heavy not in sys.modules, f"{heavy} was imported"
"""


def measure(folder: Path) -> list[Figure]:
    """`--help`, and `plan` and `status` on 10 upstreams, as fresh processes."""
    project = _project(folder)
    with step("commands as fresh processes"):
        times = interleaved(
            5,
            help=lambda: call(project, "--help"),
            plan=lambda: call(project, "plan"),
            status=lambda: call(project, "status"),
            python=lambda: subprocess.run([sys.executable, "-c", "pass"], check=True),
        )
    for verb in ("--help", "plan", "status", "lag"):
        command = [sys.executable, "-c", _NO_SPARK, verb]
        environment = {**os.environ, "JAVA_HOME": "/nonexistent", "PATH": "/nonexistent"}
        subprocess.run(command, cwd=project, env=environment, check=True, capture_output=True)
    bare = f"a bare interpreter takes {median(times['python']):.2f} s"
    return [
        Figure("floodmark --help", median(times["help"]), "s", 0.3, note=bare),
        Figure(
            "floodmark plan, 10 upstreams",
            median(times["plan"]),
            "s",
            1.0,
            note=spread(times["plan"]),
        ),
        Figure(
            "floodmark status, 10 upstreams",
            median(times["status"]),
            "s",
            1.0,
            note=spread(times["status"]),
        ),
    ]


def _project(folder: Path) -> Path:
    import floodmark as fm

    project = folder / "project"
    upstreams = small_tables(project / "lake", 10)
    text = PROJECT.format(upstreams=", ".join(upstreams))
    (project / "floodmark.yaml").write_text(text)
    (project / "jobs.py").write_text("def process(inputs, run):\n    return None\n")
    coordinator = fm.Coordinator(str(project / "lake" / "_control"), actor="bench")
    coordinator.register("p", upstreams, scope="p")
    batch = coordinator.create_batch(pipelines=["p"], scope="p")
    coordinator.record_run("p", str(batch.batch_id), status="SUCCESS")
    coordinator.finalize_batch(str(batch.batch_id))
    return project


def call(project: Path, verb: str) -> None:
    """A command of floodmark as a fresh process."""
    command = [str(Path(sys.executable).with_name("floodmark")), verb]
    # Compiled once and kept, as an installed package is; the warm-up round compiles.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(command, cwd=project, env=environment, check=True, capture_output=True)
