"""What the commands show of upstreams of files; none of them needs Java."""

from __future__ import annotations

import io
import json
import os
import time
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
    assert "1 new file (1 seen in total)" in capsys.readouterr().out
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


def _process(capsys: pytest.CaptureFixture[str]) -> None:
    """One batch, as if its pipeline had run."""
    capsys.readouterr()
    assert main(["plan", "--freeze", "--json"]) == 0
    batch = json.loads(capsys.readouterr().out)["batch_id"]
    assert main(["record", "orders", batch, "--status", "SUCCESS"]) == 0
    assert main(["finalize", batch]) == 0
    capsys.readouterr()


def test_looking_leaves_nothing_behind(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(project.rglob("*"))
    assert main(["plan"]) == 0
    assert "a preview: nothing was written" in capsys.readouterr().out
    for verb in ("lag", "doctor", "validate"):
        assert main([verb]) == 0
    assert sorted(project.rglob("*")) == before

    _process(capsys)
    (project / "data/orders/late.csv").write_text(
        (project / "data/orders/2026-01-01.csv").read_text()
    )
    lists = sorted((project / "lake/_control/files").rglob("*"))
    for verb in ("plan", "lag", "doctor"):
        assert main([verb]) == 0
    assert sorted((project / "lake/_control/files").rglob("*")) == lists


def test_a_file_whose_name_is_no_utf_8_is_named_and_others_go_on_without_it(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = os.fsencode(project / "data/orders/x") + b"caf\xe9.csv"
    with os.fdopen(os.open(odd, os.O_CREAT | os.O_WRONLY), "wb") as file:
        file.write((project / "data/orders/2026-01-01.csv").read_bytes())

    for verb in (["plan"], ["plan", "--freeze"], ["validate"], ["run"]):
        assert main(verb) in (2, 4), verb
        shown = capsys.readouterr().err
        assert "FM-SOURCE-059  the name of a file is not UTF-8" in shown
        assert "xcaf\\udce9.csv" in shown
    os.unlink(odd)
    assert main(["plan"]) == 0


@pytest.mark.parametrize(
    ("threshold", "code"), [("0", 1), ("1", 1), ("2", 0), ("1h", 1), ("3h", 0)]
)
def test_files_that_wait_are_counted_by_number_and_by_age(
    project: Path, capsys: pytest.CaptureFixture[str], threshold: str, code: int
) -> None:
    _process(capsys)
    assert main(["lag", "--fail-above", "0"]) == 0
    text = (project / "data/orders/2026-01-01.csv").read_text()
    for number, hours in ((2, 1.5), (3, 2.5)):
        file = project / f"data/orders/{number}.csv"
        file.write_text(text)
        os.utime(file, (then := time.time() - hours * 3_600, then))

    assert main(["plan", "--freeze"]) == 0  # files that a batch holds wait as well
    assert main(["lag", "--fail-above", threshold]) == code
    assert main(["lag", "--json"]) == 0
    shown = capsys.readouterr().out
    assert '"versions_behind": 2' in shown or '"files_behind": 2' in shown, shown


def test_a_file_that_grew_after_it_was_read_is_told_by_plan_run_lag_and_doctor(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _process(capsys)
    file = project / "data/orders/2026-01-01.csv"
    before = file.stat().st_size
    file.write_text(file.read_text() + "9,nobody,1.00,2026-01-09T00:00:00Z\n")
    said = f"orders/2026-01-01.csv was changed after it was read: from {before} to {file.stat().st_size} bytes"

    for verb, code in (("plan", 0), ("run", 0), ("lag", 0), ("doctor", 1)):
        assert main([verb]) == code
        shown = " ".join(capsys.readouterr().out.split())
        assert said in shown, verb
        assert verb == "lag" or "floodmark run --full-refresh orders" in shown, verb
    assert main(["plan", "--json"]) == 0
    (window,) = json.loads(capsys.readouterr().out)["windows"]
    assert window["status"] == "NOOP"
    assert said in window["warning"]["text"]
    assert main(["run", "--json"]) == 0
    assert said in json.loads(capsys.readouterr().out)["warnings"][0]["text"]


def test_a_changed_file_is_told_beside_new_ones_and_not_read_again(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _process(capsys)
    file = project / "data/orders/2026-01-01.csv"
    text = file.read_text()
    file.write_text(text.swapcase())
    os.utime(file, (1, 1))
    (project / "data/orders/2.csv").write_text(text)

    assert main(["plan"]) == 0
    shown = " ".join(capsys.readouterr().out.split())

    assert "1 new file (2 seen in total)" in shown
    assert (
        f"orders/2026-01-01.csv was written again after it was read, with {len(text)} bytes as before"
        in shown
    )
    _process(capsys)
    assert main(["plan"]) == 0
    assert "written again after it was read" in " ".join(capsys.readouterr().out.split())


def test_files_that_are_read_again_when_they_change_need_no_warning(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = project / "floodmark.yaml"
    path = "path: orders/*.csv\n"
    settings.write_text(
        settings.read_text().replace(path, f"{path}          new_files: modified\n")
    )
    _process(capsys)
    file = project / "data/orders/2026-01-01.csv"
    file.write_text(file.read_text() + "9,nobody,1.00,2026-01-09T00:00:00Z\n")

    assert main(["plan"]) == 0

    shown = " ".join(capsys.readouterr().out.split())
    assert "0 new files, 1 changed (1 seen in total)" in shown
    assert "warning" not in shown


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
