"""What `doctor` says to type really mends what it found: its commands are run here."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from floodmark.project import Project
from floodmark.testing.crash import ArrowEngine

from .conftest import add_version

Command = Callable[..., Any]

PROJECT = """\
project: shop
pipelines:
  - pipeline: copy
    upstreams: [lake/orders]
    function: jobs:process
"""
JOBS = """\
def process(inputs, run):
    frame = inputs["lake/orders"]
    run.write(frame, "lake/copy", mode="merge", keys=["id"], missing="keep")
"""


@pytest.fixture
def copied(project: Path, floodmark: Command, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three versions of the orders, merged into lake/copy on delta-rs."""

    def ensure_session(project: Project, _: Any) -> None:
        project.coordinator._engine = ArrowEngine()

    monkeypatch.setattr(Project, "ensure_session", ensure_session)
    (project / "floodmark.yaml").write_text(PROJECT)
    (project / "jobs.py").write_text(JOBS)
    for number in range(3):
        add_version(project / "lake/orders", number)
    assert floodmark("run").code == 0
    return project


def advice(floodmark: Command, name: str) -> str:
    """The `next` of the one finding of that name."""
    findings = floodmark("doctor", "--json").document["findings"]
    (found,) = [f["next"] for f in findings if f["name"].endswith(name) and not f["ok"]]
    return str(found)


def follow(floodmark: Command, commands: str) -> None:
    for command in commands.split(" && "):
        program, *arguments = command.split()
        assert program == "floodmark"
        answer = floodmark(*arguments)
        assert answer.code == 0, (command, answer.out, answer.err)


def ids(path: Path) -> list[int]:
    table = QueryBuilder().register("t", DeltaTable(path)).execute("SELECT id FROM t").read_all()
    return sorted(pa.table(table)["id"].to_pylist())


def is_healthy(floodmark: Command, name: str) -> bool:
    findings = floodmark("doctor", "--json").document["findings"]
    return all(f["ok"] for f in findings if f["name"].endswith(name))


def test_a_target_that_was_dropped_while_nothing_is_new(copied: Path, floodmark: Command) -> None:
    shutil.rmtree(copied / "lake/copy")

    follow(floodmark, advice(floodmark, "lake/copy"))

    assert ids(copied / "lake/copy") == [0, 1, 2]
    assert is_healthy(floodmark, "lake/copy")
    assert floodmark("verify").code == 0


def test_a_target_that_another_table_has_replaced(copied: Path, floodmark: Command) -> None:
    shutil.rmtree(copied / "lake/copy")
    add_version(copied / "lake/copy", 77)

    follow(floodmark, advice(floodmark, "lake/copy"))

    assert ids(copied / "lake/copy") == [0, 1, 2]
    assert is_healthy(floodmark, "lake/copy")


def test_a_target_that_was_dropped_under_an_open_batch(copied: Path, floodmark: Command) -> None:
    add_version(copied / "lake/orders", 3)
    floodmark("plan", "--freeze")
    shutil.rmtree(copied / "lake/copy")

    follow(floodmark, advice(floodmark, "lake/copy"))

    assert ids(copied / "lake/copy") == [0, 1, 2, 3]
    assert is_healthy(floodmark, "lake/copy")


def clean_log(path: Path, before: int) -> None:
    DeltaTable(path).create_checkpoint()
    for version in range(before):
        (path / "_delta_log" / f"{version:020}.json").unlink()


def test_a_log_that_was_cleaned_before_its_versions_were_planned(
    copied: Path, floodmark: Command
) -> None:
    for number in range(3, 6):
        add_version(copied / "lake/orders", number)
    clean_log(copied / "lake/orders", 5)
    assert floodmark("run").code == 4

    follow(floodmark, advice(floodmark, "lake/orders"))

    assert ids(copied / "lake/copy") == [0, 1, 2, 3, 4, 5]
    assert is_healthy(floodmark, "lake/orders")
    assert floodmark("lag", "--fail-above", "0").code == 0


def test_a_log_that_was_cleaned_under_an_open_batch(copied: Path, floodmark: Command) -> None:
    for number in range(3, 6):
        add_version(copied / "lake/orders", number)
    floodmark("plan", "--freeze")
    clean_log(copied / "lake/orders", 5)

    follow(floodmark, advice(floodmark, "lake/orders"))

    assert ids(copied / "lake/copy") == [0, 1, 2, 3, 4, 5]
    assert is_healthy(floodmark, "lake/orders")
