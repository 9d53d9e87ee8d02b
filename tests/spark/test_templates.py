"""The templates of `floodmark init`, from the first run to the second, as their README says."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.node_projects import table_rows

from floodmark.errors import ConfigError
from floodmark.project import Project
from floodmark.templates import TEMPLATES, create

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def run(folder: Path, spark: SparkSession) -> list[str]:
    """The pipelines that ran, after all of them succeeded."""
    project = Project.load(folder, session=lambda: spark)
    summary = project.run()
    assert not summary.refused, summary.refused
    assert {outcome.status for outcome in summary.outcomes} <= {"SUCCESS"}, summary
    return sorted(outcome.name for outcome in summary.outcomes)


def rows(path: Path, *columns: str) -> list[tuple[Any, ...]]:
    return table_rows(path, ", ".join(columns))


def test_minimal_merges_the_second_file_into_the_first(tmp_path: Path, spark: SparkSession) -> None:
    create("minimal", tmp_path)
    assert run(tmp_path, spark) == ["orders"]
    shutil.copy(tmp_path / "data/tomorrow/2026-01-02.csv", tmp_path / "data/orders")
    assert run(tmp_path, spark) == ["orders"]
    assert run(tmp_path, spark) == []
    found = rows(tmp_path / "lake/orders", "order_id", "customer")
    assert found == [(1, "anna"), (2, "ben"), (3, "cleo"), (4, "dora")]
    amounts = rows(tmp_path / "lake/orders", "order_id", "amount")
    assert str(dict(amounts)[2]) == "25.00"


def test_medallion_goes_from_files_to_a_report(tmp_path: Path, spark: SparkSession) -> None:
    create("medallion", tmp_path)
    assert run(tmp_path, spark) == ["bronze", "gold", "silver"]
    report = tmp_path / "lake/gold/revenue_by_country"
    first = [(c, n, str(r)) for c, n, r in rows(report, "country", "orders", "revenue")]
    assert first == [("AT", 2, "40.00"), ("BE", 1, "20.00")]
    assert rows(tmp_path / "lake/silver/orders_quarantine", "order_id") == [(4,)]
    shutil.copy(tmp_path / "data/tomorrow/2026-01-02.csv", tmp_path / "data/orders")
    assert run(tmp_path, spark) == ["bronze", "gold", "silver"]
    second = [(c, n, str(r)) for c, n, r in rows(report, "country", "orders", "revenue")]
    assert second == [("AT", 3, "80.00"), ("BE", 1, "25.00")]


def test_coordinator_runs_functions_over_a_sample(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    create("coordinator", tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for turn in (1, 2):
        subprocess.run([sys.executable, "sample.py"], cwd=tmp_path, check=True)
        assert run(tmp_path, spark) == ["archive", "revenue"], turn
    for module in [name for name in sys.modules if name.split(".")[0] == "jobs"]:
        sys.modules.pop(module)
    found = rows(tmp_path / "lake/revenue", "order_id", "name", "amount")
    assert found == [(1, "anna", 11.0), (2, "ben", 20.0), (3, "anna", 30.0), (4, "ben", 5.0)]
    assert len(rows(tmp_path / "lake/archive", "order_id")) == 5


def test_cloud_is_valid_without_a_cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create("cloud", tmp_path)
    monkeypatch.setenv("LAKE_ROOT", "s3://bucket/lake")
    monkeypatch.setenv("INBOX_ROOT", "s3://bucket/inbox")
    project = Project.load(tmp_path, env="prod")
    assert list(project.pipelines) == ["bronze", "gold", "silver"]


@pytest.mark.parametrize("template", TEMPLATES)
def test_every_yaml_of_a_template_names_its_schema(template: str, tmp_path: Path) -> None:
    create(template, tmp_path)
    for path in (tmp_path / "floodmark.yaml", *tmp_path.glob("pipelines/*.yaml")):
        first = path.read_text().splitlines()[0]
        named = first.removeprefix("# yaml-language-server: $schema=")
        assert (path.parent / named).is_file(), first


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(ConfigError):
        create("minimal", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_an_unknown_template_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        create("minmal", tmp_path)
    assert "nearest: minimal" in (caught.value.allowed or "")
