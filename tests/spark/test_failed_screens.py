"""What a screen shows of runs that Spark ends: words of floodmark, nothing of Java or of pyspark."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

PROJECT = """\
project: bad
spark: {spark.driver.memory: 1g}
connections:
  inbox: {type: files, root: data}
  lake: {type: lake, root: lake}
pipelines:
  - pipeline: casts
    nodes:
      - name: a
        read: {connection: inbox, path: "*.csv", format: csv, schema: "id INT, day STRING"}
        transform: [{sql: "SELECT id, CAST(day AS DATE) AS day FROM input"}]
        write: {connection: lake, path: a, mode: append}
  - pipeline: functions
    nodes:
      - name: b
        read: {connection: inbox, path: "*.csv", format: csv, schema: "id INT, day STRING"}
        transform: [{python: "steps:divided"}]
        write: {connection: lake, path: b, mode: append}
  - pipeline: names
    nodes:
      - name: c
        read: {connection: inbox, path: "*.csv", format: csv, schema: "id INT, day STRING"}
        transform: [{python: "steps:unknown"}]
        write: {connection: lake, path: c, mode: append}
"""
STEPS = """\
from pyspark.sql.functions import udf

def divided(frame, _):
    return frame.select(udf(lambda number: number // 0, "int")("id").alias("id"))

def unknown(frame, _):
    frame.createOrReplaceTempView("rows_of_c")
    return frame.sparkSession.sql("SELECT day AS nope, noper FROM rows_of_c")
"""
FOREIGN = re.compile(
    r"^\s*at |\bat (org|java|scala|io)\.|Py4J|QueryContextLogger|^\{\"|JVM stacktrace|SubqueryAlias"
    r"|\d\d:\d\d:\d\d (ERROR|WARN)",
    re.MULTILINE,
)


def test_failed_casts_functions_and_names_are_told_in_our_words_alone(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.csv").write_text("id,day\n1,2026-01-01\n2,xx\n")
    (tmp_path / "floodmark.yaml").write_text(PROJECT)
    (tmp_path / "steps.py").write_text(STEPS)

    ran = subprocess.run(
        [sys.executable, "-m", "floodmark", "run"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )

    screen = ran.stdout + ran.stderr
    assert ran.returncode == 1, screen
    for told in ("CAST_INVALID_INPUT", "ZeroDivisionError", "UNRESOLVED_COLUMN"):
        assert told in screen, screen
    assert not FOREIGN.search(screen), screen
    assert max(map(len, screen.splitlines())) < 1_000, screen
