"""What the commands show of upstreams of files; none of them needs Java."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from floodmark.cli import screens
from floodmark.cli.call import Call
from floodmark.cli.main import main
from floodmark.cli.screen import Screen
from floodmark.model.results import Gap
from floodmark.templates import create


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    create("minimal", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_files_are_planned_recorded_and_shown_without_java(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate"]) == 0
    assert main(["plan"]) == 0
    assert "no versions: 1 new files, 1 in all" in capsys.readouterr().out
    assert main(["plan", "--freeze", "--json"]) == 0
    batch = json.loads(capsys.readouterr().out)["batch_id"]
    assert main(["record", "orders", batch, "--status", "SUCCESS"]) == 0
    assert main(["finalize", batch]) == 0
    for verb in (["status"], ["lag"], ["history"], ["doctor"], ["verify"], ["state", "show"]):
        assert main(verb) == 0, verb
    shown = capsys.readouterr().out
    assert "1 files" in shown
    assert main(["plan"]) == 0
    assert "everything is up to date" in capsys.readouterr().out


def test_a_misspelled_place_is_told_where_it_stands(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = project / "floodmark.yaml"
    file.write_text(file.read_text().replace("orders/*.csv", "order/*.csv"))
    assert main(["plan"]) != 0
    assert "FM-PLAN-001" in capsys.readouterr().err


def test_two_readings_of_one_path_are_refused(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = project / "floodmark.yaml"
    pipelines = file.read_text().partition("pipelines:\n")[2]
    other = pipelines.replace("pipeline: orders", "pipeline: texts").replace("LONG", "STRING")
    file.write_text(file.read_text() + other.replace("path: orders\n", "path: texts\n"))
    for verb in ("plan", "run"):
        assert main([verb]) == 2
        assert "the same settings in every node that reads orders/*.csv" in capsys.readouterr().err


@pytest.mark.parametrize("upstream", ["files://./orders/*.csv", "sql://erp/orders"])
def test_what_was_given_up_of_files_and_databases_comes_back_with_a_full_refresh(
    project: Path, upstream: str
) -> None:
    mark = '{"type":"int","value":"3"}'
    lost = Gap("orders", upstream, -1, -1, "the loss was accepted", ("orders",), None, mark)
    shown = io.StringIO()

    screens.gaps(Screen(shown), Call(str(project), as_json=False, is_verbose=False), [lost])

    assert "- to 3" in shown.getvalue()
    assert "next: floodmark run --full-refresh orders" in shown.getvalue()
    assert "backfill" not in shown.getvalue()
