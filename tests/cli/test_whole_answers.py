"""Answers that tell everything at once, and errors that name the way out."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from floodmark.cli import work
from floodmark.cli.call import Call, Opening
from floodmark.control.journal.memory import MemoryEventLog
from floodmark.coordinator import Outside
from floodmark.deltalog import write_problem

Command = Callable[..., Any]
MakeCall = Callable[..., Call]


def without_orders(shop: Path) -> None:
    text = (shop / "floodmark.yaml").read_text()
    (shop / "floodmark.yaml").write_text(text.replace("lake/orders", "lake/nope"))


# Plan -------------------------------------------------------------------------------------------


def test_a_scope_that_cannot_be_planned_hides_no_other(shop: Path, floodmark: Command) -> None:
    without_orders(shop)

    answer = floodmark("plan", "--json")

    assert answer.code == 4
    assert [plan["scope"] for plan in answer.document["plans"]] == ["solo"]
    (refused,) = answer.document["refused"]
    assert (refused["scope"], refused["code"]) == ("nightly", "FM-PLAN-001")


def test_the_screen_shows_the_good_scopes_and_the_error_of_the_bad_one(
    shop: Path, floodmark: Command
) -> None:
    without_orders(shop)

    answer = floodmark("plan")

    assert "scope nightly: cannot be planned" in answer.out
    assert "scope solo: would run solo" in answer.out
    assert answer.err.startswith("FM-PLAN-001")


def test_freezing_freezes_the_good_scopes(shop: Path, floodmark: Command) -> None:
    without_orders(shop)

    answer = floodmark("plan", "--freeze", "--json")

    assert answer.code == 4
    assert answer.document["plans"][0]["batch_id"] is not None


# Selectors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "scopes"),
    [
        (["daily", "solo"], ["nightly", "solo"]),
        (["--exclude", "solo"], ["nightly"]),
        (["solo", "--exclude", "solo"], []),
        (["solo,daily"], []),
        (["solo,solo"], ["solo"]),
        (["state:failed"], []),
    ],
)
def test_selectors_choose_pipelines(
    arguments: list[str], scopes: list[str], shop: Path, floodmark: Command
) -> None:
    document = floodmark("plan", *arguments, "--json").document

    found = [document] if "scope" in document else document["plans"]
    assert [plan["scope"] for plan in found] == scopes


def test_state_failed_means_what_failed_in_an_open_batch(
    shop: Path, floodmark: Command, arrow_call: MakeCall, capsys: pytest.CaptureFixture[str]
) -> None:
    work.run(arrow_call())
    capsys.readouterr()

    code = work.run(arrow_call(), ["state:failed"])

    document = json.loads(capsys.readouterr().out)
    assert code == 1
    assert [pipeline["name"] for pipeline in document["pipelines"]] == ["report"]


@pytest.mark.parametrize("selector", ["@daily", "1+daily", "tag:", "+", ""])
def test_selectors_of_another_grammar_are_refused_clearly(
    selector: str, shop: Path, floodmark: Command
) -> None:
    answer = floodmark("run", selector, "--json")

    assert (answer.code, answer.document["error"]["code"]) == (2, "FM-CONFIG-007")
    assert "state:failed" in answer.document["error"]["allowed"]


def test_a_selection_without_pipelines_is_not_called_up_to_date(
    shop: Path, floodmark: Command
) -> None:
    ran, planned = floodmark("run", "state:failed"), floodmark("plan", "state:failed")

    assert (ran.code, ran.out) == (0, "no pipeline is selected: nothing to run\n")
    assert (planned.code, planned.out) == (0, "no pipeline is selected: nothing to plan\n")


def test_an_unknown_name_to_exclude_is_an_error(shop: Path, floodmark: Command) -> None:
    answer = floodmark("plan", "--exclude", "dayly", "--json")

    assert answer.document["error"]["code"] == "FM-CONFIG-008"


# Validate ---------------------------------------------------------------------------------------


def test_validate_tells_of_functions_and_upstreams_beside_broken_entries(
    shop: Path, floodmark: Command
) -> None:
    (shop / "floodmark.yaml").write_text(
        "project: 7\nnope: 1\npipelines:\n"
        "  - {pipeline: a, upstreams: [lake/orders], function: f}\n"
        "  - {pipeline: b, upstreams: [lake/gone], function: 'jobs:process'}\n"
        "  - {pipeline: c, upstreams: [lake/orders], function: 'jobs:absent', timeout: soon}\n"
        "  - {pipeline: d, upstreams: [lake/orders], function: 'jobs:absent'}\n"
    )

    answer = floodmark("validate", "--json")

    errors = answer.document["error"]["errors"]
    found = [(error["code"], error["where"].split(":")[1]) for error in errors]
    assert answer.code == 2
    assert found == [
        ("FM-CONFIG-004", "1"),
        ("FM-CONFIG-003", "2"),
        ("FM-CONFIG-004", "4"),
        ("FM-PLAN-001", "5"),
        ("FM-CONFIG-006", "6"),
        ("FM-CONFIG-004", "6"),
        ("FM-CONFIG-006", "7"),
    ]


def test_validate_goes_on_after_a_key_that_is_there_twice(shop: Path, floodmark: Command) -> None:
    (shop / "floodmark.yaml").write_text(
        "project: shop\nproject: shop\npipelines:\n"
        "  - {pipeline: a, upstreams: [lake/gone], function: 'jobs:process'}\n"
    )

    errors = floodmark("validate", "--json").document["error"]["errors"]

    assert [error["code"] for error in errors] == ["FM-CONFIG-005", "FM-PLAN-001"]


def test_a_value_with_a_tag_is_one_error(shop: Path, floodmark: Command) -> None:
    text = (shop / "floodmark.yaml").read_text().replace("project: shop", "project: !!int shop")
    (shop / "floodmark.yaml").write_text(text)

    error = floodmark("validate", "--json").document["error"]

    assert "errors" not in error
    assert error["title"] == "a value cannot be read as int"


# Copied and moved projects ----------------------------------------------------------------------


@pytest.fixture(params=["copied", "moved"])
def elsewhere(
    request: pytest.FixtureRequest,
    shop: Path,
    floodmark: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    floodmark("plan", "--freeze")
    there = shop.parent / "there"
    if request.param == "copied":
        shutil.copytree(shop, there)
    else:
        shop.rename(there)
        shop.mkdir()
    monkeypatch.chdir(there)
    return there


@pytest.mark.parametrize("verb", ["plan", "plan --freeze", "run"])
def test_a_project_that_was_copied_or_moved_is_refused(
    verb: str, elsewhere: Path, floodmark: Command
) -> None:
    answer = floodmark(*verb.split(), "--json")

    error = answer.document["error"]
    assert (answer.code, error["code"]) == (4, "FM-CONTROL-016")
    assert str(elsewhere.parent / "shop") in error["next"]


def test_validate_and_verify_tell_of_it_too(elsewhere: Path, floodmark: Command) -> None:
    validated, verified = floodmark("validate", "--json"), floodmark("verify", "--json")

    assert validated.document["error"]["code"] == "FM-CONTROL-016"
    assert str(elsewhere.parent / "shop") in validated.document["error"]["next"]
    assert verified.code == 1
    assert verified.document["findings"][0]["name"] == "place"


def test_a_moved_project_works_again_through_a_link(
    shop: Path, floodmark: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    floodmark("plan", "--freeze")
    there = shop.parent / "there"
    shop.rename(there)
    os.symlink(there, shop)

    assert floodmark("plan", "--project", str(shop)).code == 0


def test_another_list_of_upstreams_is_no_move(shop: Path, floodmark: Command) -> None:
    floodmark("plan", "--freeze", "solo")
    text = (shop / "floodmark.yaml").read_text()
    replaced = text.replace("upstreams: [lake/customers]", "upstreams: [lake/orders]")
    (shop / "floodmark.yaml").write_text(replaced)

    assert floodmark("validate").code == 0


# Pipelines that left the file ---------------------------------------------------------------------


def test_a_pipeline_that_left_the_file_is_named_with_the_command(
    shop: Path, floodmark: Command, arrow_call: MakeCall, capsys: pytest.CaptureFixture[str]
) -> None:
    floodmark("plan", "--freeze", "daily")
    text = (shop / "floodmark.yaml").read_text()
    start, end = text.index("  - pipeline: report"), text.index("  - pipeline: solo")
    (shop / "floodmark.yaml").write_text(text[:start] + text[end:])

    planned, document = floodmark("plan", "daily"), floodmark("plan", "daily", "--json").document
    code = work.run(arrow_call(as_json=False), ["daily"])

    assert "report is not in floodmark.yaml" in planned.out
    assert "floodmark remove report" in planned.out
    assert document["strays"] == ["report"]
    assert code == 0
    assert "floodmark remove report" in capsys.readouterr().out


# Words ------------------------------------------------------------------------------------------


def test_people_read_again_and_machines_read_retryable(shop: Path, floodmark: Command) -> None:
    text = floodmark("plan", "dayly").err
    error = floodmark("plan", "dayly", "--json").document["error"]

    assert "  again    retrying will not help until you change something" in text
    assert "  retry " not in text
    assert error["retryable"] is False
    assert "again" not in error


class BrokenLog(MemoryEventLog):
    """A log with a defect."""

    def exists(self) -> bool:
        raise AttributeError("a defect")


def test_a_defect_names_our_own_last_line(
    shop: Path, capsys: pytest.CaptureFixture[str], arrow_call: MakeCall
) -> None:
    outside = Outside(log=BrokenLog())
    call = arrow_call(opening=Opening(outside=outside))

    code = call.run(lambda: work.plan(call))

    error = json.loads(capsys.readouterr().out)["error"]
    assert (code, error["code"]) == (3, "FM-CLI-001")
    assert error["where"].startswith("floodmark/coordinator/store.py:")


def test_a_defect_in_a_library_names_the_line_that_called_it(
    shop: Path, capsys: pytest.CaptureFixture[str], arrow_call: MakeCall
) -> None:
    call = arrow_call()

    def show() -> int:
        call.show({"x": object()}, lambda _: None)
        return 0

    code = call.run(show)

    error = json.loads(capsys.readouterr().out)["error"]
    assert (code, error["found"][:9]) == (3, "TypeError")
    assert error["where"].startswith("floodmark/cli/call.py:")


@pytest.mark.parametrize("verb", ["status", "lag", "history"])
def test_verbs_that_look_and_verbs_that_check_say_the_same_where_there_is_no_store(
    verb: str, shop: Path, floodmark: Command
) -> None:
    looked, checked = floodmark(verb), floodmark("verify", "--json").document["error"]

    assert looked.code == 0
    assert looked.out == f"{checked['title']}: {checked['where']}\nnext: {checked['next']}\n"
    assert floodmark(verb, "--json").document["note"] == checked["title"]


def test_a_threshold_that_cannot_be_looked_at_is_not_kept(shop: Path, floodmark: Command) -> None:
    answer = floodmark("lag", "--fail-above", "10", "--json")

    assert (answer.code, answer.document["error"]["code"]) == (4, "FM-CONTROL-001")


# Folders that cannot be written -----------------------------------------------------------------


def bound_by_permissions() -> list[str]:
    """What to put before a command so that permissions hold for it, also where tests are root."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("root may write everywhere, and setpriv is not there")
    return ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]


def in_a_process(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [*bound_by_permissions(), sys.executable, "-m", "floodmark", *arguments]
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, check=False, timeout=120
    )


def test_only_our_own_error_is_seen_where_a_table_cannot_be_written(
    shop: Path, floodmark: Command
) -> None:
    batch = floodmark("plan", "--freeze", "solo", "--json").document["batch_id"]
    folders = [path for path in (shop / "lake/_control").iterdir() if path.name[0] != "_"]
    for folder in folders:
        folder.chmod(0o555)

    ran = in_a_process("record", "solo", batch, "--status", "RUNNING", cwd=shop)

    for folder in folders:
        folder.chmod(0o755)
    assert ran.returncode == 0
    assert "panicked" not in ran.stderr
    (line,) = ran.stderr.splitlines()
    assert line.startswith("floodmark: warning: FM-CONTROL-015")


def test_a_store_that_cannot_be_created_says_so(shop: Path) -> None:
    (shop / "lake").chmod(0o555)

    ran = in_a_process("plan", "--freeze", "solo", cwd=shop)

    (shop / "lake").chmod(0o755)
    assert ran.returncode == 4
    assert ran.stderr.startswith("FM-CONTROL-002  the control store cannot be written")
    assert "panicked" not in ran.stderr


def test_a_file_in_the_place_of_a_folder_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    assert isinstance(write_problem(str(tmp_path / "file/table")), NotADirectoryError)
    assert write_problem(str(tmp_path / "new/table")) is None
