"""Two pipelines that merge into one target set rows aside in one table: each replaces its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from tests.support.node_projects import table_rows

from floodmark.project import Project, RunSummary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PIPELINE = """\
  - pipeline: {name}
    nodes:
      - name: n
        read: {{connection: lake, path: {name}}}
        expect: [{{check: id > 0, action: quarantine}}]
        write: {{connection: lake, path: {target}, merge: {{keys: [id], missing: keep}}}}
"""
HEAD = "project: shop\njobs: 1\nconnections: {lake: {type: lake, root: lake}}\npipelines:\n"


def run(root: Path, spark: SparkSession, *pipelines: str, **options: Any) -> RunSummary:
    summary = Project.load(root, session=lambda: spark).run(*pipelines, **options)
    for outcome in summary.outcomes:
        assert outcome.error is None, outcome.error
    return summary


def aside(root: Path, target: str) -> list[int]:
    return [row[0] for row in table_rows(root / "lake" / f"{target}_quarantine", "id")]


def test_a_full_refresh_keeps_the_rows_that_another_pipeline_has_set_aside(
    tmp_path: Path, spark: SparkSession
) -> None:
    targets = {"a": "out", "b": "out", "c": "alone"}
    for number, name in enumerate(targets, 1):
        rows = pa.table({"id": pa.array([number, -number], pa.int64())})
        write_deltalake(str(tmp_path / "lake" / name), rows)
    made = "".join(PIPELINE.format(name=name, target=target) for name, target in targets.items())
    (tmp_path / "floodmark.yaml").write_text(HEAD + made)
    run(tmp_path, spark)

    run(tmp_path, spark, "a", "c", full_refresh=True)

    # Two writes share a table: what each has set aside stays, with its batch beside it.
    assert aside(tmp_path, "out") == [-2, -1, -1]
    assert aside(tmp_path, "alone") == [-3]
