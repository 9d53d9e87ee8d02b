"""What a screen shows of runs that Spark ends: words of floodmark, nothing of Java or of pyspark."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

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
  - pipeline: checks
    nodes:
      - name: d
        read: {connection: inbox, path: "*.csv", format: csv, schema: "id INT, day STRING"}
        write: {connection: lake, path: checked, merge: {keys: [id], missing: keep}}
  - pipeline: appended
    nodes:
      - name: e
        read: {connection: inbox, path: "*.csv", format: csv, schema: "id INT, day STRING"}
        write: {connection: lake, path: checked, mode: append}
  - pipeline: nulls
    nodes:
      - name: f
        read: {connection: inbox, path: "*.csv", format: csv, schema: "id INT, day STRING"}
        transform: [{sql: "SELECT id, CAST(NULL AS STRING) AS day FROM input"}]
        write: {connection: lake, path: required, merge: {keys: [id], missing: keep}}
  - pipeline: tasks
    nodes:
      - name: g
        read: {connection: inbox, path: "*.csv", format: csv, schema: "id INT, day STRING"}
        transform: [{python: "steps:raised"}]
        write: {connection: lake, path: g, merge: {keys: [id], missing: keep}}
"""
STEPS = """\
from pyspark.sql.functions import udf

def divided(frame, _):
    return frame.select(udf(lambda number: number // 0, "int")("id").alias("id"))

def raised(frame, _):
    return frame.selectExpr("id", "IF(day = 'xx', raise_error('CANARY'), day) AS day")

def unknown(frame, _):
    frame.createOrReplaceTempView("rows_of_c")
    return frame.sparkSession.sql("SELECT day AS nope, noper FROM rows_of_c")
"""
FOREIGN = re.compile(
    r"^\s*at |\bat (org|java|scala|io)\.|Py4J|QueryContextLogger|^\{\"|JVM stacktrace|SubqueryAlias"
    r"|\d\d:\d\d:\d\d (ERROR|WARN)",
    re.MULTILINE,
)


def test_failed_casts_functions_names_constraints_and_tasks_are_told_in_our_words_alone(
    tmp_path: Path,
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.csv").write_text("id,day\n1,2026-01-01\n2,xx\n")
    (tmp_path / "floodmark.yaml").write_text(PROJECT)
    (tmp_path / "steps.py").write_text(STEPS)
    checked = str(tmp_path / "lake" / "checked")
    write_deltalake(checked, pa.table({"id": pa.array([0], pa.int32()), "day": ["fine"]}))
    DeltaTable(checked).alter.add_constraint({"is_fine": "day = 'fine'"})
    columns = [pa.field("id", pa.int32()), pa.field("day", pa.string(), nullable=False)]
    DeltaTable.create(str(tmp_path / "lake" / "required"), pa.schema(columns))

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
    for told in ("CAST_INVALID_INPUT", "ZeroDivisionError", "UNRESOLVED_COLUMN", "CANARY"):
        assert told in screen, screen
    assert screen.count("FM-RUN-005") + screen.count("FM-SINK") >= 5, screen
    assert not FOREIGN.search(screen), screen
    assert max(map(len, screen.splitlines())) < 1_000, screen
