"""The main screens and errors, word by word, on real tables and without Spark."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from floodmark.cli import work
from floodmark.cli.call import Call

if TYPE_CHECKING:
    import pytest

Command = Callable[..., Any]
Golden = Callable[[str, str], None]


def open_batch(floodmark: Command, scope: str) -> str:
    batches = floodmark("status", "--json").document["batches"]
    return str(next(b["batch_id"] for b in batches if b["scope"] == scope))


def test_plan(shop: Path, floodmark: Command, golden: Golden) -> None:
    before = sorted(shop.rglob("*"))

    answer = floodmark("plan")

    assert answer.code == 0
    assert answer.err == ""
    golden("plan", answer.out)
    assert sorted(shop.rglob("*")) == before


def test_plan_freeze_then_plan_shows_the_open_batch(
    shop: Path, floodmark: Command, golden: Golden
) -> None:
    golden("plan_freeze", floodmark("plan", "--freeze").out)
    golden("plan_open", floodmark("plan", "solo").out)


def test_status_before_the_first_batch(shop: Path, floodmark: Command, golden: Golden) -> None:
    golden("status_empty", floodmark("status").out)
    golden("lag_empty", floodmark("lag").out)
    golden("history_empty", floodmark("history").out)


def test_status_of_open_and_finished_batches(
    shop: Path, floodmark: Command, golden: Golden
) -> None:
    floodmark("plan", "--freeze")
    batch = open_batch(floodmark, "nightly")
    floodmark("record", "daily", batch, "--status", "SUCCESS", "--rows-read", "6")
    floodmark("record", "report", batch, "--status", "FAILED", "--error", "no disk\x1b[31m left")
    solo = open_batch(floodmark, "solo")
    golden("record", floodmark("record", "solo", solo, "--status", "SUCCESS").out)

    golden("finalize", floodmark("finalize").out)

    golden("status", floodmark("status").out)
    golden("status_batch", floodmark("status", solo).out)
    golden("lag", floodmark("lag").out)
    golden("history", floodmark("history", "--limit", "6").out)
    golden("state_show", floodmark("state", "show").out)
    golden("finalize_none", floodmark("finalize", solo).out)


def test_a_run_says_what_failed_what_advanced_and_what_is_held(
    shop: Path, arrow_call: Callable[..., Call], golden: Golden, capsys: pytest.CaptureFixture[str]
) -> None:
    code = work.run(arrow_call(as_json=False), jobs=1)

    captured = capsys.readouterr()
    assert code == 1
    golden("run", captured.out)
    golden("run_stderr", captured.err)


def test_verify_says_what_it_has_checked(
    shop: Path, arrow_call: Callable[..., Call], floodmark: Command, golden: Golden
) -> None:
    work.run(arrow_call(as_json=False), jobs=1)

    golden("verify", floodmark("verify").out)


def test_a_second_run_retries_what_failed_and_then_has_nothing_to_do(
    shop: Path, arrow_call: Callable[..., Call], golden: Golden, capsys: pytest.CaptureFixture[str]
) -> None:
    call = arrow_call(as_json=False)
    work.run(call)
    report: Any = call.project.definitions.functions(["report"])["report"]
    report.__globals__["share"] = lambda part, whole: {"share": part}
    capsys.readouterr()

    codes = [work.run(call), work.run(call)]

    assert codes == [0, 0]
    golden("run_again", capsys.readouterr().out)


def test_validate(shop: Path, floodmark: Command, golden: Golden) -> None:
    golden("validate", floodmark("validate").out)


def test_errors_read_as_promised(shop: Path, floodmark: Command, golden: Golden) -> None:
    floodmark("plan", "--freeze")
    shown = [
        floodmark("plan", "dayly"),
        floodmark("retry", "batch_1"),
        floodmark("retry", "batch_1", "--on-lost-range", "snapshot"),
        floodmark("record", "daily", "batch_1", "--status", "SUCCESS", "--metric", "x"),
        floodmark("plan", "--max-versions", "0"),
        floodmark("plan", "--nope"),
        floodmark("frob"),
        floodmark("jars", "list", "nope"),
    ]

    assert [answer.code for answer in shown] == [2] * 8
    assert [answer.out for answer in shown] == [""] * len(shown)
    golden("errors", "\n".join(answer.err for answer in shown))


def test_validate_names_everything_that_the_file_points_to_and_is_not_there(
    shop: Path, floodmark: Command, golden: Golden
) -> None:
    (shop / "plain").mkdir()
    (shop / "failing.py").write_text("import json\n\nx = json.loads('{')\n")
    os.symlink(shop / "lake/orders", shop / "lake/alias")
    (shop / "floodmark.yaml").write_text(
        "project: shop\npipelines:\n"
        "  - {pipeline: a, upstreams: [lake/nope, plain/], function: 'absent:process'}\n"
        "  - {pipeline: b, upstreams: [lake/orders, lake/alias], function: 'jobs:proces'}\n"
        "  - {pipeline: c, upstreams: [orders], function: 'failing:f'}\n"
        "  - {pipeline: d, upstreams: [lake/orders], function: 'jobs:__name__'}\n"
    )

    answer = floodmark("validate")

    assert answer.code == 2
    golden("validate_errors", answer.err)
    shutil.rmtree(shop / "__pycache__", ignore_errors=True)
    assert sorted(os.listdir(shop)) == ["failing.py", "floodmark.yaml", "jobs.py", "lake", "plain"]


def test_the_help_lists_every_verb(floodmark: Command, golden: Golden) -> None:
    golden("help", floodmark("--help").out)
