"""The incremental job done by odibi, a peer, in an environment of its own: only on request.

`python3 go.py bench odibi` installs it from the package index beside the benchmarks' results; its
versions would not go together with ours. It waits in a process of its own for its turns, so that
both do their rounds one after the other on the same machine.
"""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.harness import Figure, median, spread, step

ODIBI = "odibi==3.15.1"
HOME = Path(__file__).parent / "results" / "odibi"
INSTALLED = HOME / f"installed-{ODIBI}"
TIMES_FASTER = 5.0
JOB = Path(__file__).with_name("odibi_job.py")
ANSWER = "BENCH "
"""How a line of the job begins that is meant for us; odibi writes others."""
ROUNDS = 3


class NotMeasured(Exception):
    """odibi could not be installed, or did not do the job."""


def compared(folder: Path, ours: Callable[[], float]) -> list[Figure]:
    """How many times longer odibi takes; `ours` does one warm round and tells its seconds."""
    name = "incremental job: odibi / ours"
    times: dict[str, list[float]] = {"odibi": [], "ours": []}
    try:
        _install()
        with step("the incremental job by odibi and by ours in turn"), _odibi(folder) as theirs:
            for _ in range(ROUNDS):
                times["ours"].append(ours())
                times["odibi"].append(theirs())
    except NotMeasured as error:
        return [Figure(name, float("nan"), "times", note=f"not measured: {error}"[:120])]
    slow, quick = median(times["odibi"]), median(times["ours"])
    note = f"{slow:.1f} s against {quick:.2f} s; {spread(times['odibi'])}"
    return [Figure(name, slow / quick, "times", TIMES_FASTER, "higher", note)]


def _install() -> None:
    if INSTALLED.exists():
        return
    with step(f"{ODIBI} in an environment of its own"):
        try:
            venv.create(HOME, with_pip=True, clear=True)
        except subprocess.CalledProcessError as error:
            raise NotMeasured(f"no environment could be made: {error}") from error
        pip = [str(HOME / "bin" / "python"), "-m", "pip", "install", "-q", ODIBI, *_same_spark()]
        done = subprocess.run(pip, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NotMeasured(_last_line(done.stderr))
        INSTALLED.touch()


def _same_spark() -> list[str]:
    """Spark and Delta as we run them: the comparison is of the rest."""
    from importlib.metadata import version

    return [f"{name}=={version(name)}" for name in ("pyspark", "delta-spark")] + ["setuptools"]


@contextmanager
def _odibi(folder: Path) -> Iterator[Callable[[], float]]:
    """odibi in a process of its own, warm; what is given does one round and tells its seconds."""
    from floodmark.engines.spark import default_conf

    folder.mkdir(parents=True)
    command = [str(HOME / "bin" / "python"), str(JOB), str(folder), json.dumps(default_conf())]
    with (
        (folder / "stderr").open("w+") as said,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True
        ) as process,
    ):

        def answer() -> float:
            for line in process.stdout or ():
                if line.startswith(ANSWER):
                    return float(line.removeprefix(ANSWER))
            said.seek(0)
            text = said.read()
            print(text[-2000:], file=sys.stderr)
            raise NotMeasured(_last_line(text))

        def do_round() -> float:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
            return answer()

        answer()  # It is warm.
        try:
            yield do_round
        finally:
            if process.stdin is not None:
                process.stdin.close()
        if process.wait():
            answer()


def _last_line(text: str) -> str:
    return "".join(text.strip().splitlines()[-1:])
