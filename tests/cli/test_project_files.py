"""config, schema, graph, --env: what a project says, and where."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., Any]
SECRET = "hunter2-very-secret"

PROJECT = """\
project: shop
connections:
  erp: {type: postgres, host: db, database: shop, user: etl, password: "${env:FM_ERP_PASSWORD}"}
  lake: {type: lake, root: lake}
pipelines:
  - {pipeline: report, upstreams: [lake/raw/orders], function: "jobs:report"}
"""
DAILY = """\
pipeline: daily
tags: [nightly]
nodes:
  - name: load
    read: {connection: erp, table: orders, incremental: {cursor: updated_at}}
    write: {connection: lake, path: raw/orders, mode: append}
  - name: tidy
    depends_on: load
    transform: [{python: "jobs:tidy"}]
    write: {connection: lake, path: silver/orders, mode: merge, merge: {keys: id}}
"""


@pytest.fixture
def nodes(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (project / "pipelines").mkdir()
    (project / "env").mkdir()
    (project / "floodmark.yaml").write_text(PROJECT)
    (project / "pipelines/daily.yaml").write_text(DAILY)
    (project / "env/prod.yaml").write_text("connections: {erp: {host: prod-db}}\n")
    (project / "jobs.py").write_text("def report(i, r): ...\ndef tidy(f): ...\n")
    monkeypatch.setenv("FM_ERP_PASSWORD", SECRET)
    return project


def test_config_shows_every_value_with_its_origin(
    nodes: Path, floodmark: Command, golden: Callable[[str, str], None]
) -> None:
    answer = floodmark("config", "--env", "prod")

    assert answer.code == 0
    golden("config", answer.out)


def test_config_is_one_document_for_machines(nodes: Path, floodmark: Command) -> None:
    document = floodmark("config", "--env", "prod", "--json").document

    values = {each["key"]: each for each in document["values"]}
    assert document["files"] == ["floodmark.yaml", "pipelines/daily.yaml", "env/prod.yaml"]
    assert values["connections.erp.host"] == {
        "key": "connections.erp.host",
        "value": "prod-db",
        "origin": "env/prod.yaml:1:27",
    }
    assert values["connections.erp.password"]["value"] == "***"
    assert values["connections.erp.password"]["reference"] == "${env:FM_ERP_PASSWORD}"
    assert document["merged"]["pipelines"][1]["nodes"][0]["name"] == "load"


@pytest.mark.parametrize("verb", ["config", "graph", "validate", "plan", "run", "status", "doctor"])
def test_no_verb_shows_a_secret(nodes: Path, floodmark: Command, verb: str) -> None:
    for options in ((), ("--json",), ("--verbose",)):
        answer = floodmark(verb, *options)
        assert SECRET not in answer.out + answer.err


def test_no_error_shows_a_secret_that_was_written_down(nodes: Path, floodmark: Command) -> None:
    (nodes / "floodmark.yaml").write_text(PROJECT.replace("${env:FM_ERP_PASSWORD}", SECRET))

    for verb in ("config", "validate", "plan"):
        for options in ((), ("--json",), ("--verbose",)):
            answer = floodmark(verb, *options)
            assert answer.code == 2
            assert "FM-CONFIG-011" in answer.out + answer.err
            assert SECRET not in answer.out + answer.err


def test_graph_shows_pipelines_and_nodes_in_their_order(
    nodes: Path, floodmark: Command, golden: Callable[[str, str], None]
) -> None:
    golden("graph", floodmark("graph").out)

    found = floodmark("graph", "--json").document["pipelines"]
    assert [(p["name"], p["after"]) for p in found] == [("report", ["daily"]), ("daily", [])]
    assert [(n["name"], n["step"], n["after"]) for n in found[1]["nodes"]] == [
        ("load", 1, []),
        ("tidy", 2, ["load"]),
    ]


def test_validate_warns_of_late_rows_and_succeeds(nodes: Path, floodmark: Command) -> None:
    answer = floodmark("validate", "--json")

    assert answer.code == 0
    codes = [warning["code"] for warning in answer.document["warnings"]]
    assert "FM-CONFIG-017" in codes


def test_validate_looks_for_the_functions_of_steps(nodes: Path, floodmark: Command) -> None:
    text = DAILY.replace("jobs:tidy", "jobs:tidi")
    (nodes / "pipelines/daily.yaml").write_text(text)

    error = floodmark("validate", "--json").document["error"]

    assert error["code"] == "FM-CONFIG-006"
    assert error["where"].startswith("pipelines/daily.yaml:9:26")


def test_an_unknown_environment_is_refused_by_every_verb(nodes: Path, floodmark: Command) -> None:
    for verb in ("config", "validate", "plan", "run", "status"):
        answer = floodmark(verb, "--env", "prd", "--json")
        assert answer.code == 2
        assert answer.document["error"]["code"] == "FM-CONFIG-010"


def test_the_environment_can_be_named_before_the_verb(nodes: Path, floodmark: Command) -> None:
    assert "prod-db" in floodmark("--env", "prod", "config").out
    assert "prod-db" not in floodmark("config").out


def test_schema_is_printed_or_written_with_the_line_for_editors(
    project: Path, floodmark: Command
) -> None:
    printed = json.loads(floodmark("schema").out)
    answer = floodmark("schema", "--out", "floodmark.schema.json", "--for", "project")

    assert json.loads((project / "floodmark.schema.json").read_text()) == printed
    assert "# yaml-language-server: $schema=floodmark.schema.json" in answer.out
    assert floodmark("schema", "--for", "pipeline").code == 0


def test_a_schema_that_cannot_be_written_is_a_typed_error(
    project: Path, floodmark: Command
) -> None:
    answer = floodmark("schema", "--out", "nowhere/x.json", "--json")

    assert (answer.code, answer.document["error"]["code"]) == (2, "FM-CONFIG-007")


@pytest.mark.parametrize("words", [["config"], ["config", "--json"], ["schema"], ["validate"]])
def test_a_reader_that_has_seen_enough_is_no_failure(shop: Path, words: list[str]) -> None:
    command = [sys.executable, "-m", "floodmark", *words]
    with subprocess.Popen(
        command, cwd=shop, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        said = process.stderr.read()

    assert (process.returncode, said) == (0, b"")
