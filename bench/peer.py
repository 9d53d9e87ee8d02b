"""The incremental job done by odibi, a peer, in an environment of its own: only on request.

`python3 go.py bench odibi` installs it from the package index beside the benchmarks' results; its
versions would not go together with ours.
"""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path

from bench.harness import Figure, median, spread, step

ODIBI = "odibi==3.15.1"
HOME = Path(__file__).parent / "results" / "odibi"
TIMES_FASTER = 5.0
JOB = Path(__file__).with_name("odibi_job.py")


def compared(folder: Path, ours: list[float]) -> list[Figure]:
    """How many times longer odibi takes for what took `ours` seconds."""
    name = "incremental job: odibi / ours"
    try:
        times = _measured(folder)
    except subprocess.CalledProcessError as error:
        last = (error.stderr or error.stdout or "").strip().splitlines()[-1:]
        return [Figure(name, float("nan"), "times", note=f"not measured: {''.join(last)[:120]}")]
    ratio = median(times) / median(ours)
    note = f"{median(times):.1f} s against {median(ours):.2f} s; {spread(times)}"
    return [Figure(name, ratio, "times", TIMES_FASTER, "higher", note)]


def _measured(folder: Path) -> list[float]:
    from floodmark.engines.spark import default_conf

    python = HOME / "bin" / "python"
    if not python.exists():
        with step(f"{ODIBI} in an environment of its own"):
            venv.create(HOME, with_pip=True, clear=True)
            _call([str(python), "-m", "pip", "install", "-q", ODIBI, *_same_spark()])
    with step("the incremental job by odibi"):
        folder.mkdir(parents=True)
        said = _call([str(python), str(JOB), str(folder), json.dumps(default_conf())])
    times: list[float] = json.loads(said.splitlines()[-1])
    return times


def _same_spark() -> list[str]:
    """Spark and Delta as we run them: the comparison is of the rest."""
    from importlib.metadata import version

    return [f"{name}=={version(name)}" for name in ("pyspark", "delta-spark")] + ["setuptools"]


def _call(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stderr[-2000:], file=sys.stderr)
        done.check_returncode()
    return done.stdout
