"""Catalog names in floodmark.yaml: shown while they are not resolved, asked for by what works."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Command

NOT_RESOLVED = "not resolved yet: run resolves it through Spark"
FILE = """\
project: shop
pipelines:
  - pipeline: mixed
    upstreams: [lake/orders, sales.orders]
    function: jobs:process
  - pipeline: named
    upstreams: [sales.orders]
    function: jobs:process
  - pipeline: solo
    upstreams: [lake/customers]
    function: jobs:process
"""


@pytest.fixture
def named(shop: Path) -> Path:
    (shop / "floodmark.yaml").write_text(FILE)
    return shop


def test_a_preview_shows_what_it_cannot_look_at_and_plans_the_rest(
    named: Path, floodmark: Command
) -> None:
    answer = floodmark("plan", "--json")
    plans = {plan["scope"]: plan for plan in answer.document["plans"]}

    assert answer.code == 0
    assert floodmark("plan", "--detailed-exitcode").code == 5
    assert answer.document["refused"] == []
    assert plans["mixed"]["unresolved"] == plans["named"]["unresolved"] == ["sales.orders"]
    assert [w["upstream"] for w in plans["mixed"]["windows"]] == [str(named / "lake/orders")]
    assert (plans["named"]["status"], plans["named"]["pipelines"]) == ("PENDING", ["named"])
    assert (plans["named"]["windows"], plans["solo"]["unresolved"]) == ([], [])
    assert "pyspark" not in sys.modules or answer.err == ""
    assert not (named / "lake/_control").exists()


def test_the_screen_of_a_preview_names_it(named: Path, floodmark: Command) -> None:
    answer = floodmark("plan", "named")

    assert answer.code == 0
    assert "would run named" in answer.out
    assert "sales.orders" in answer.out
    assert NOT_RESOLVED in answer.out


def test_verbs_that_look_show_it_and_go_on(named: Path, floodmark: Command) -> None:
    assert floodmark("plan", "solo", "--freeze").code == 0

    validated, lag = floodmark("validate"), floodmark("lag", "--json")

    assert (validated.code, lag.code, floodmark("status").code) == (0, 0, 0)
    assert f"sales.orders: {NOT_RESOLVED}" in validated.out
    reasons = {each["upstream"]: each["reason"] for each in lag.document["upstreams"]}
    assert reasons["sales.orders"] == NOT_RESOLVED
    assert NOT_RESOLVED in floodmark("doctor").out


@pytest.mark.spark
@pytest.mark.slow
def test_a_project_with_a_metastore_of_its_own_reads_and_writes_names_in_every_process(
    project: Path,
) -> None:
    (project / "floodmark.yaml").write_text(METASTORE.format(root=project))
    (project / "jobs.py").write_text(JOBS)
    (project / "prepare.py").write_text(PREPARE)

    # Validated by the process that made the table, in a session of its own: a JVM less.
    checked = _python(project, "prepare.py")
    planned = _python(project, "-m", "floodmark", "plan")
    ran = _python(project, "-m", "floodmark", "run")
    again = _python(project, "-m", "floodmark", "verify")

    assert (planned.returncode, NOT_RESOLVED in planned.stdout) == (0, True)
    assert "the table is there" in checked.stdout, checked.stderr[-2000:]
    assert "FM-PLAN-001" in checked.stderr  # sales.report, which the first run makes
    assert "sales.orders" not in checked.stderr
    assert "starting Spark" in checked.stderr
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert "starting Spark" in ran.stderr
    assert "advanced" in ran.stdout
    assert again.returncode == 0, again.stdout
    assert (project / "warehouse/sales.db/report/_delta_log").is_dir()


def _python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


METASTORE = """\
project: shop
spark:
  spark.sql.catalogImplementation: hive
  spark.sql.warehouse.dir: {root}/warehouse
  spark.hadoop.javax.jdo.option.ConnectionURL: "jdbc:derby:;databaseName={root}/metastore;create=true"
pipelines:
  - pipeline: report
    upstreams: [sales.orders]
    function: jobs:process
  - pipeline: totals
    upstreams: [sales.report]
    function: jobs:totals
"""
JOBS = """\
def process(inputs, run):
    run.write(inputs["sales.orders"], "sales.report", mode="merge", keys=["id"])


def totals(inputs, run):
    assert inputs["sales.report"].count() == 1
    run.write(inputs["sales.report"], "sales.totals", mode="merge", keys=["id"])
"""
PREPARE = """\
import floodmark as fm
from floodmark.cli.main import main

spark = fm.local_session(fm.Project.load(".").settings.spark)
spark.sql("CREATE SCHEMA sales")
spark.sql("CREATE TABLE sales.orders (id INT) USING delta"
          " TBLPROPERTIES (delta.enableChangeDataFeed = true)")
spark.sql("INSERT INTO sales.orders VALUES (1)")
spark.stop()
print("the table is there", flush=True)
main(["validate", "--connect"])
"""
