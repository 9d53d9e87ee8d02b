"""A frozen plan with a newcomer: running it, or one pipeline of it, brings the newcomer level."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from tests.support.outsides import ON_ARROW

from floodmark.project import Project

PIPELINE = """\
  - pipeline: {name}
    scope: shop
    upstreams: [lake/orders]
    function: copies:copy
"""
COPY = """\
def copy(inputs, run):
    run.write(inputs["lake/orders"], f"lake/{run.pipeline}", mode="append", changes="log")
"""


def opened(folder: Path, *names: str) -> Project:
    pipelines = "".join(PIPELINE.format(name=name) for name in names)
    (folder / "floodmark.yaml").write_text(f"project: shop\npipelines:\n{pipelines}")
    return Project.load(folder, session=lambda: None, outside=ON_ARROW)


def grow(folder: Path, number: int) -> None:
    path = str(folder / "lake/orders")
    rows = pa.table({"id": pa.array([number], pa.int64())})
    feed: dict[str, str | None] = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(path, rows, mode="append", configuration=feed)


def ids(folder: Path, name: str) -> list[int]:
    table = DeltaTable(str(folder / "lake" / name))
    rows = QueryBuilder().register("t", table).execute("SELECT id FROM t").read_all()
    return sorted(rows["id"].to_pylist())


@pytest.fixture
def planned(project: Path, floodmark: Callable[..., object]) -> Project:
    """Two batches done by `old`; then `late` joins, and a plan with its seed is frozen."""
    (project / "copies.py").write_text(COPY)
    for number in (1, 2):
        grow(project, number)
        opened(project, "old").run()
    grow(project, 3)
    late = opened(project, "old", "late")
    floodmark("plan", "--out", "plan.json")
    return late


def test_a_plan_file_is_run_with_its_seeds(planned: Project) -> None:
    summary = planned.run_plan("plan.json")

    assert summary.exit_code == 0
    assert [outcome.batch.kind for outcome in summary.batches] == ["seed", "forward"]
    assert ids(planned.root, "late") == ids(planned.root, "old") == [1, 2, 3]
    assert [finding.text for finding in planned.verify() if not finding.ok] == []


def test_one_pipeline_of_a_batch_is_run_with_its_seed_and_again_changes_nothing(
    planned: Project,
) -> None:
    batch_id = json.loads(Path("plan.json").read_text())["plans"][0]["batch_id"]

    first = planned.retry(batch_id, "late")
    again = planned.retry(batch_id, "late")

    assert [outcome.name for outcome in first.outcomes] == ["late", "late"]
    assert again.outcomes == []
    assert ids(planned.root, "late") == [1, 2, 3]
    assert not (planned.root / "lake/old/_delta_log" / f"{2:020}.json").exists()
