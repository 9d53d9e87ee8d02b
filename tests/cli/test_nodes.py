"""The command line over a project of nodes: the verbs are those of every pipeline."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import ON_DELTA_RS
from tests.support import crash
from tests.support.node_projects import open_project

from floodmark.cli import work
from floodmark.cli.call import Call

Command = Callable[..., Any]

SHOP = """\
project: shop
connections: {lake: {type: lake, root: lake}}
pipelines:
  - pipeline: report
    nodes:
      - name: report
        read: {connection: lake, path: raw/orders}
        write: {connection: lake, path: gold/orders, merge: {keys: [id]}}
  - pipeline: orders
    nodes:
      - name: raw
        read: {connection: lake, path: orders}
        write: {connection: lake, path: raw/orders, merge: {keys: [id]}}
"""


@pytest.fixture
def lake(project: Path) -> Path:
    (project / "floodmark.yaml").write_text(SHOP)
    crash.append_rows(project, "lake/orders", [(1, 10), (2, 20)])
    return project


def run(root: Path) -> int:
    call = Call(None, as_json=True, is_verbose=False)
    call.project = open_project(root)
    return work.run(call)


def test_a_project_of_nodes_is_validated_planned_run_and_looked_at(
    lake: Path, floodmark: Command
) -> None:
    assert floodmark("validate").code == 0
    screen = floodmark("plan").out
    assert "would run report" in screen
    assert "after orders: what is read here is known once orders has run" in screen
    plans = {plan["scope"]: plan for plan in floodmark("plan", "--json").document["plans"]}
    assert (plans["report"]["after"], plans["report"]["windows"]) == (["orders"], [])

    assert run(lake) == 0

    assert "everything is up to date" in floodmark("plan").out
    batches = floodmark("status", "--json").document["batches"]
    assert {each["status"] for each in batches} == {"COMPLETED"}
    lag = floodmark("lag", "--json").document["upstreams"]
    assert [each["versions_behind"] for each in lag] == [0, 0]
    crash.append_rows(lake, "lake/orders", [(3, 30)])
    assert run(lake) == 0
    assert floodmark("verify").code == 0


def test_validate_plan_and_run_refuse_what_is_not_run(lake: Path, floodmark: Command) -> None:
    text = SHOP.replace("path: orders}", "path: orders, query: SELECT 1}")
    (lake / "floodmark.yaml").write_text(text)

    for verb in ("validate", "plan", "run"):
        refused = floodmark(verb, "--json")

        assert refused.code == 2
        assert refused.document["error"]["code"] == "FM-CONFIG-016"


def test_validate_names_a_step_that_cannot_be_read_by_its_place(
    lake: Path, floodmark: Command
) -> None:
    steps = "transform: [{sql: SELECT 1}, {cast_columns: {colums: {id: int}}}]"
    text = SHOP.replace("path: orders}", f"path: orders}}\n        {steps}")
    (lake / "floodmark.yaml").write_text(text)

    found = floodmark("validate", "--json")

    assert found.code == 2
    error = found.document["error"]
    assert error["code"] == "FM-TRANSFORM-002"
    assert "floodmark.yaml:13:" in error["where"]
    assert "transform[1]" in error["where"]


def test_validate_and_plan_say_that_files_are_written_at_least_once(
    lake: Path, floodmark: Command
) -> None:
    text = SHOP.replace(
        "path: gold/orders, merge: {keys: [id]}", "format: csv, path: out, mode: append"
    )
    (lake / "floodmark.yaml").write_text(text.replace("path: raw/orders}", "path: orders}"))

    checked = floodmark("validate", "--json").document

    assert [warning["code"] for warning in checked["warnings"]] == ["FM-CONFIG-018"]
    assert "node report writes files: at least once" in floodmark("plan").out


TIED = """\
project: shop
connections: {lake: {type: lake, root: lake}}
pipelines:
  - pipeline: orders
    nodes:
      - name: raw
        read: {connection: lake, path: orders}
        columns: {amount: {sensitive: SENSITIVE}}
        write: {connection: lake, path: raw/orders, merge: {keys: [id]}}
"""


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([(7, 1), (7, 2), (8, 1)], 'key {"id": 7} had several rows'),
        ([(7, 1), (7, 2), (8, 1), (8, 2)], '2 keys, {"id": 7} among them, had several rows'),
    ],
)
@pytest.mark.parametrize("is_sensitive", [False, True])
def test_keys_that_are_there_twice_are_counted_and_named(
    project: Path,
    capsys: pytest.CaptureFixture[str],
    rows: list[tuple[int, int]],
    said: str,
    is_sensitive: bool,
) -> None:
    text = TIED.replace("SENSITIVE", str(is_sensitive).lower())
    (project / "floodmark.yaml").write_text(text)
    crash.append_rows(project, "lake/orders", rows)
    call = Call(None, as_json=False, is_verbose=False, opening=ON_DELTA_RS)

    assert work.run(call) == 0

    shown = " ".join(capsys.readouterr().out.split())
    assert "that nothing puts in order; one of each was kept" in shown
    assert (said in shown) is not is_sensitive
    assert is_sensitive is ('"id"' not in shown)
