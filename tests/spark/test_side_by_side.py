"""Pipelines side by side on one Spark session, and a timeout that ends Spark's work too."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from floodmark.project import Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FUNCTIONS = """\
def merge(inputs, run):
    (rows,) = inputs.values()
    run.write(rows, f"lake/gold/{run.pipeline}", mode="merge", keys=["id"])


def endless(inputs, run):
    run.spark.range(0, 10**13, 1, 1).selectExpr("max(id % 7)").collect()
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    rows = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]})
    settings = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(str(tmp_path / "lake/orders"), rows, configuration=settings)
    (tmp_path / "side_by_side_jobs.py").write_text(FUNCTIONS)
    yield tmp_path
    sys.modules.pop("side_by_side_jobs", None)


def project_of(shop: Path, spark: SparkSession, *pipelines: str) -> Project:
    lines = ["project: shop", "pipelines:", *(f"  - {{{each}}}" for each in pipelines)]
    (shop / "floodmark.yaml").write_text("\n".join(lines) + "\n")
    return Project.load(shop, session=lambda: spark)


def pipeline(name: str, function: str, more: str = "") -> str:
    return f"pipeline: {name}, upstreams: [lake/orders], function: 'side_by_side_jobs:{function}'{more}"


def test_pipelines_merge_side_by_side_exactly_once(shop: Path, spark: SparkSession) -> None:
    names = ["m0", "m1"]
    project = project_of(shop, spark, *(pipeline(name, "merge") for name in names))
    project.run()
    more = pa.table({"id": [3, 4], "name": ["c", "d"]})
    write_deltalake(str(shop / "lake/orders"), more, mode="append")

    summary = project.run()

    assert [(o.name, o.status) for o in summary.outcomes] == [(n, "SUCCESS") for n in names]
    for name in names:
        assert spark.read.format("delta").load(str(shop / f"lake/gold/{name}")).count() == 4
    assert all(finding.ok for finding in project.verify())


def test_a_timeout_cancels_the_spark_jobs_of_the_run(shop: Path, spark: SparkSession) -> None:
    project = project_of(shop, spark, pipeline("slow", "endless", ", timeout: 3s"))

    summary = project.run()

    (outcome,) = summary.outcomes
    assert outcome.error is not None
    assert outcome.error.code == "FM-RUN-007"
    tracker: Any = spark.sparkContext.statusTracker()
    deadline = time.monotonic() + 30
    while tracker.getActiveJobsIds() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert tracker.getActiveJobsIds() == []
