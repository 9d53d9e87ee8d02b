"""The real commands with the real Spark: what they print is floodmark's, whatever goes wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROJECT = """\
project: shop
jobs: {jobs}
connections: {{inbox: {{type: files, root: inbox}}, lake: {{type: lake, root: lake}}}}
pipelines:
"""
PIPELINE = """\
  - pipeline: {name}
    nodes:
      - name: {name}
        read: {{connection: inbox, format: csv, path: "*.csv", schema: "id STRING, v STRING"}}
        transform: [{{sql: "{sql}"}}]
        write: {{connection: lake, path: {name}, mode: append}}
"""
FAILURES = {
    "cast": "SELECT CAST(v AS INT) AS v FROM input",
    "column": "SELECT nothing_of_that_name FROM input",
    "division": "SELECT CAST(id AS INT) / 0 AS v FROM input",
    "udf": "SELECT raise_error('no') AS v FROM input",
}
ENDLESS = (
    "SELECT count(*) AS n FROM input CROSS JOIN range(100000000) a CROSS JOIN range(1000000) b"
    " WHERE a.id * b.id % 7 = 1"
)
FOREIGN = (
    *("Traceback (most recent call last)", "reentrant", "Py4J", "py4j", "\tat ", "  at org.apache"),
    *('{"ts"', "SQLQueryContext", "stacktrace", "Caused by:", "ERROR "),
)


def project(folder: Path, steps: dict[str, str], jobs: int) -> None:
    (folder / "inbox").mkdir()
    (folder / "inbox/a.csv").write_text("id,v\n1,one\n")
    text = PROJECT.format(jobs=jobs)
    text += "".join(PIPELINE.format(name=name, sql=sql) for name, sql in steps.items())
    (folder / "floodmark.yaml").write_text(text)


def command(folder: Path, *words: str) -> subprocess.Popen[str]:
    # A test run in the background of a shell ignores Ctrl-C, and its children would as well.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [sys.executable, "-m", "floodmark", *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    signal.signal(signal.SIGINT, before)
    return process


def foreign_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if any(word in line for word in FOREIGN)]


@pytest.mark.spark
def test_failures_of_spark_are_told_once_and_in_words_of_floodmark(tmp_path: Path) -> None:
    project(tmp_path, FAILURES, jobs=1)

    text, _ = command(tmp_path, "run").communicate(timeout=300)

    assert foreign_lines(text) == []
    assert text.count("CAST_INVALID_INPUT") + text.count("cannot be cast") >= 1
    assert text.count("nothing_of_that_name") == 1
    assert max(len(line) for line in text.splitlines()) < 1_500


@pytest.mark.spark
@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_prints_what_stays_and_nothing_else(tmp_path: Path, jobs: int) -> None:
    project(tmp_path, {"endless": ENDLESS, "other": ENDLESS}, jobs)
    process = command(tmp_path, "run")
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line)
        if line.startswith("running"):
            break
    time.sleep(8)  # the query is under way: nothing on the screen tells when

    os.killpg(process.pid, signal.SIGINT)
    rest, _ = process.communicate(timeout=120)

    text = "".join(seen) + rest
    assert process.returncode == 130
    assert foreign_lines(text) == []
    assert "FM-CLI-002  interrupted" in text
    assert "floodmark retry" in text
