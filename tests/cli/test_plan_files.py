"""plan --out and run --plan: somebody looks at a plan, and exactly that is run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from floodmark.cli import work
from floodmark.cli.call import Call

Command = Callable[..., Any]
MakeCall = Callable[..., Call]


def run_plan(call: Call, path: str = "plan.json", **options: Any) -> int:
    return call.run(lambda: work.run(call, plan=Path(path), **options))


def refusal(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)["error"]
    return found


def test_plan_out_freezes_and_writes_what_it_shows(shop: Path, floodmark: Command) -> None:
    shown = floodmark("plan", "--out", "plan.json", "solo", "--json").document

    written = json.loads((shop / "plan.json").read_text())
    assert written["kind"] == "floodmark plan"
    assert [plan["batch_id"] for plan in written["plans"]] == [shown["batch_id"]]
    assert written["plans"][0]["windows"] == shown["windows"]
    assert shown["batch_id"] is not None
    assert [path.name for path in shop.iterdir() if path.name.endswith(".tmp")] == []


def test_run_of_a_plan_runs_exactly_its_batch(
    shop: Path, floodmark: Command, arrow_call: MakeCall, capsys: pytest.CaptureFixture[str]
) -> None:
    batch = floodmark("plan", "--out", "plan.json", "solo", "--json").document["batch_id"]

    code = run_plan(arrow_call())

    document = json.loads(capsys.readouterr().out)
    assert code == 0
    assert [each["batch_id"] for each in document["batches"]] == [batch]
    assert [each["name"] for each in document["pipelines"]] == ["solo"]
    assert len(floodmark("status", "--json").document["batches"]) == 1


def test_a_plan_that_was_run_is_refused(
    shop: Path, floodmark: Command, arrow_call: MakeCall, capsys: pytest.CaptureFixture[str]
) -> None:
    floodmark("plan", "--out", "plan.json", "solo")
    run_plan(arrow_call())
    capsys.readouterr()

    code = run_plan(arrow_call())

    error = refusal(capsys)
    assert (code, error["code"]) == (4, "FM-PLAN-012")
    assert "COMPLETED" in error["found"]


def test_a_plan_of_another_store_is_refused(
    shop: Path, floodmark: Command, arrow_call: MakeCall, capsys: pytest.CaptureFixture[str]
) -> None:
    floodmark("plan", "--out", "plan.json", "solo")
    shutil.rmtree(shop / "lake/_control")
    floodmark("plan", "--freeze", "solo")

    code = run_plan(arrow_call())

    assert (code, refusal(capsys)["code"]) == (4, "FM-PLAN-012")


def test_a_plan_whose_batch_is_gone_is_refused(
    shop: Path, floodmark: Command, arrow_call: MakeCall, capsys: pytest.CaptureFixture[str]
) -> None:
    floodmark("plan", "--out", "plan.json", "solo")
    plan = json.loads((shop / "plan.json").read_text())
    plan["plans"][0]["batch_id"] = "batch_20200101T000000000000Z_00000000"
    (shop / "plan.json").write_text(json.dumps(plan))

    code = run_plan(arrow_call())

    error = refusal(capsys)
    assert (code, error["code"]) == (4, "FM-PLAN-012")
    assert "gone" in error["title"]


def test_a_cancelled_plan_is_refused(
    shop: Path, floodmark: Command, arrow_call: MakeCall, capsys: pytest.CaptureFixture[str]
) -> None:
    batch = floodmark("plan", "--out", "plan.json", "solo", "--json").document["batch_id"]
    floodmark("cancel", batch)

    code = run_plan(arrow_call())

    assert (code, refusal(capsys)["code"]) == (4, "FM-PLAN-012")


def test_a_plan_without_news_has_nothing_to_run(
    shop: Path, floodmark: Command, arrow_call: MakeCall, capsys: pytest.CaptureFixture[str]
) -> None:
    work.run(arrow_call(), ["solo"])
    floodmark("plan", "--out", "plan.json", "solo")

    code = run_plan(arrow_call())

    assert code == 0
    assert json.loads(capsys.readouterr().out)["batches"] == []


@pytest.mark.parametrize("content", [None, "", "[]", "{}", '{"kind": "x"}', '{"kind": 1', b"\xff"])
def test_a_file_that_is_no_plan_is_refused(
    content: str | bytes | None,
    shop: Path,
    arrow_call: MakeCall,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if content is not None:
        data = content if isinstance(content, bytes) else content.encode()
        (shop / "plan.json").write_bytes(data)

    code = run_plan(arrow_call())

    assert (code, refusal(capsys)["code"]) == (2, "FM-CONFIG-009")
    assert not (shop / "lake/_control").exists()


@pytest.mark.parametrize("place", ["nowhere/plan.json", "lake"])
def test_a_plan_that_could_not_be_written_is_not_frozen(
    place: str, shop: Path, floodmark: Command
) -> None:
    answer = floodmark("plan", "--out", place, "--json")

    assert (answer.code, answer.document["error"]["code"]) == (2, "FM-CONFIG-009")
    assert not (shop / "lake/_control").exists()


def test_a_plan_file_goes_with_no_selection(
    shop: Path, floodmark: Command, arrow_call: MakeCall, capsys: pytest.CaptureFixture[str]
) -> None:
    floodmark("plan", "--out", "plan.json", "solo")

    code = run_plan(arrow_call(), pipelines=["solo"])

    assert (code, refusal(capsys)["code"]) == (2, "FM-CONFIG-007")
