"""What `doctor` says to type really mends what it found: its commands are run here."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from tests.cli.conftest import ON_DELTA_RS

from floodmark.cli.call import Opening

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
def opening() -> Opening:
    """Commands of these tests run on delta-rs."""
    return ON_DELTA_RS


@pytest.fixture
def copied(project: Path, floodmark: Command) -> Path:
    """Three versions of the orders, merged into lake/copy on delta-rs."""
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


def test_outside_of_a_project_the_machine_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, floodmark: Command
) -> None:
    monkeypatch.chdir(tmp_path)

    found = floodmark("doctor", "--json")
    named = floodmark("--project", str(tmp_path), "doctor", "--json")

    names = [each["name"] for each in found.document["findings"]]
    assert names == ["pyspark", "java", "jars", "project"]
    shown = floodmark("doctor")
    assert shown.code == found.code
    assert "none here: only the machine was looked at" in " ".join(shown.out.split())
    assert named.document["error"]["code"] == "FM-CONFIG-001"


@pytest.mark.parametrize("how", ["garbage", "gone", "log"])
@pytest.mark.parametrize("table", ["watermarks", "committed_watermarks", "history"])
def test_a_damaged_published_table_is_seen_and_mended(
    copied: Path, floodmark: Command, table: str, how: str
) -> None:
    folder = next(copied.rglob(f"_control/{table}"))
    for file in (
        (folder / "_delta_log").glob("*.json") if how == "log" else folder.rglob("*.parquet")
    ):
        if how == "gone":
            file.unlink()
        else:
            file.write_bytes(b"{")

    verified = floodmark("verify", "--json")
    told = [f for f in verified.document["findings"] if not f["ok"]]
    assert [f["name"] for f in told] == ["tables"]
    command = advice(floodmark, table)
    if how != "log":  # a log that is gone is mended by taking the folder away first
        follow(floodmark, command)
        assert floodmark("verify").code == 0


def test_a_damaged_journal_ends_in_a_way_out_and_not_in_doctor_again(
    copied: Path, floodmark: Command
) -> None:
    for file in next(copied.rglob("_control/_journal")).rglob("*.json"):
        file.write_bytes(b"{")

    refused = floodmark("status", "--json").document["error"]
    assert (refused["code"], refused["next"]) == ("FM-CONTROL-002", "floodmark doctor")

    assert "floodmark state rebuild --from-targets" in advice(floodmark, "control store")


def test_tables_that_lag_behind_a_killed_command_are_no_problem(
    copied: Path, floodmark: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as killed:
        killed.setattr(
            "floodmark.control.published.projections.Projector.refresh", lambda *_, **__: None
        )
        add_version(copied / "lake/orders", 7)
        assert floodmark("run").code == 0

    found = {f["name"]: f for f in floodmark("verify", "--json").document["findings"]}

    assert found["tables"]["ok"]
    assert "events ago; the next run brings them up to date" in found["tables"]["text"]
    assert all(f["ok"] for f in found.values())
    add_version(copied / "lake/orders", 8)
    assert floodmark("run").code == 0
    assert "events ago" not in floodmark("verify").out


def test_two_names_of_one_table_name_who_reads_each(copied: Path, floodmark: Command) -> None:
    (copied / "lake/alias").symlink_to(copied / "lake/orders")
    entry = "  - {{pipeline: {0}, scope: s, upstreams: [lake/{1}], function: jobs:process}}\n"
    pipelines = entry.format("first", "orders") + entry.format("second", "alias")
    (copied / "floodmark.yaml").write_text(f"project: shop\npipelines:\n{pipelines}")

    error = floodmark("plan", "--json").document["error"]

    assert error["code"] == "FM-PLAN-003"
    assert "lake/orders (read by first)" in error["found"]
    assert "lake/alias (read by second)" in error["found"]
