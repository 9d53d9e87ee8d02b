"""Screens and errors say what is the case, and what to type next."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from floodmark.cli import operate, work
from floodmark.cli.call import Call

from .conftest import Answer, add_version

MakeCall = Callable[..., Call]
Command = Callable[..., Answer]

COPYING = """\
project: shop
pipelines:
  - {pipeline: copy, upstreams: [lake/orders], function: 'jobs:copy'}
"""
COPY = """\
def copy(inputs, run):
    (rows,) = inputs.values()
    run.write(rows, "lake/gold/copy", mode="merge", keys=["id"], missing="keep")
"""


@pytest.fixture
def copying(shop: Path) -> Path:
    (shop / "floodmark.yaml").write_text(COPYING)
    (shop / "jobs.py").write_text(COPY)
    return shop


@pytest.fixture
def answer(capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """Calls a verb in this process."""

    def ask(call: Call, verb: Callable[..., int], *arguments: Any, **options: Any) -> Answer:
        capsys.readouterr()
        code = call.run(lambda: verb(call, *arguments, **options))
        captured = capsys.readouterr()
        return Answer(code, captured.out, captured.err)

    return ask


def test_lag_of_a_recreated_table_is_not_counted_in_versions(
    copying: Path, floodmark: Command, arrow_call: MakeCall, answer: Command
) -> None:
    add_version(copying / "lake/orders", 5)
    answer(arrow_call(), work.run)
    shutil.rmtree(copying / "lake/orders")
    add_version(copying / "lake/orders", 1)

    (lag,) = floodmark("lag", "--json").document["upstreams"]

    assert (lag["latest"], lag["committed"], lag["versions_behind"]) == (0, 2, None)
    assert "the table was recreated" in lag["reason"]
    assert "the table was recreated" in " ".join(floodmark("lag").out.split())
    assert floodmark("lag", "--fail-above", "100").code == 1


def test_a_fresh_backfill_is_planned_not_finished(
    copying: Path, arrow_call: MakeCall, answer: Command
) -> None:
    answer(arrow_call(), work.run)

    said = answer(
        arrow_call(as_json=False), operate.backfill, "lake/orders", ["copy"], start=0, end=1
    )

    assert "planned batch_" in said.err + said.out
    assert "finishing the open batch" not in said.err + said.out


def test_status_shows_the_method_a_range_was_amended_to(
    copying: Path, floodmark: Command, arrow_call: MakeCall, answer: Command
) -> None:
    answer(arrow_call(), work.run)
    add_version(copying / "lake/orders", 7)
    batch_id = floodmark("plan", "--freeze", "--json").document["batch_id"]
    before = floodmark("status", batch_id, "--json").document
    newest = copying / "lake/orders/_delta_log/00000000000000000002.json"
    for line in newest.read_text().splitlines():
        if "add" in (action := json.loads(line)):
            (copying / "lake/orders" / action["add"]["path"]).unlink()

    answer(arrow_call(), work.retry, batch_id, on_lost_range=work.OnLostRange.ACCEPT)

    after = floodmark("status", batch_id, "--json").document
    assert methods(before) == ["feed"]
    assert methods(after) == ["lost"]
    assert "lost" in floodmark("status", batch_id).out


def methods(document: Any) -> list[str]:
    return [window["method"] for batch in document["batches"] for window in batch["windows"]]


def test_a_backfill_over_a_hole_in_the_log_says_what_can_be_done(
    copying: Path, arrow_call: MakeCall, answer: Command
) -> None:
    answer(arrow_call(), work.run)
    (copying / "lake/orders/_delta_log/00000000000000000000.json").unlink()

    said = answer(arrow_call(), operate.backfill, "lake/orders", ["copy"], start=0, end=1)

    error = said.document["error"]
    assert error["code"] == "FM-SOURCE-002"
    assert "floodmark refresh PIPELINE" in error["next"]


def test_a_moved_project_goes_on_once_its_old_folder_is_gone(
    copying: Path,
    floodmark: Command,
    arrow_call: MakeCall,
    answer: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer(arrow_call(), work.run)
    there = copying.parent / "there"
    copying.rename(there)
    monkeypatch.chdir(there)
    copying.mkdir()
    refused = floodmark("plan", "--json").document["error"]
    copying.rmdir()

    assert refused["code"] == "FM-CONTROL-016"
    assert floodmark("plan", "--json").document["status"] == "NOOP"
    add_version(there / "lake/orders", 9)
    (window,) = floodmark("plan", "--json").document["windows"]
    assert (window["start"], window["method"]) == (2, "feed")


@pytest.mark.parametrize("runs_there", [True, False])
def test_verify_and_doctor_find_the_targets_of_a_moved_project(
    copying: Path,
    floodmark: Command,
    arrow_call: MakeCall,
    answer: Command,
    monkeypatch: pytest.MonkeyPatch,
    *,
    runs_there: bool,
) -> None:
    answer(arrow_call(), work.run)
    there = copying.parent / "there"
    copying.rename(there)
    monkeypatch.chdir(there)
    if runs_there:
        add_version(there / "lake/orders", 9)
        call = arrow_call(folder=there)
        ran = answer(call, work.run)
        assert ran.code == 0, ran.out

    verified, examined = floodmark("verify", "--json"), floodmark("doctor", "--json")

    assert (verified.code, str(copying) in verified.out) == (0, False)
    targets = [f["name"] for f in examined.document["findings"] if "/lake/gold/copy" in f["name"]]
    assert targets
    assert all(name.startswith(str(there)) for name in targets)
