"""upkeep, state and gaps on the command line."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from floodmark.cli import work
from floodmark.cli.call import Call

from .conftest import add_version

Command = Callable[..., Any]
Golden = Callable[[str, str], None]


@pytest.fixture
def ran(shop: Path, arrow_call: Callable[..., Call], capsys: pytest.CaptureFixture[str]) -> Path:
    """`daily` and `solo` have run; `report` failed and holds lake/orders in nightly."""
    assert work.run(arrow_call()) == 1
    capsys.readouterr()
    return shop


def test_upkeep_says_what_it_did(ran: Path, floodmark: Command, golden: Golden) -> None:
    first = floodmark("upkeep", "--retain", "30d")
    again = floodmark("upkeep", "--json").document

    assert first.code == 0
    # Pipelines run side by side: how many files they leave differs.
    golden("upkeep", re.sub(r"checkpoints \d+", "checkpoints <files>", first.out))
    assert (again["folded_events"], again["joined"]) == (0, {})
    assert floodmark("verify").code == 0


def test_old_rows_are_moved_where_a_policy_says_so(ran: Path, floodmark: Command) -> None:
    before = floodmark("verify", "--json").document
    refused = floodmark("upkeep", "--keep-rows", "often")
    kept = floodmark("upkeep", "--keep-rows", "400d", "--json").document

    answer = floodmark("upkeep", "--keep-rows", "0s")

    assert (refused.code, kept["archived"]) == (2, {})
    assert "--keep-rows" in refused.err
    assert "archive        rows moved: " in answer.out
    assert (ran / "lake/_control/archive/history").is_dir()
    assert floodmark("verify", "--json").document == before


def test_metrics_tell_when_upkeep_was_last_done(ran: Path, floodmark: Command) -> None:
    def upkept_at() -> float:
        samples = floodmark("metrics", "--json").document["metrics"]
        (found,) = [s for s in samples if s["name"] == "floodmark_last_upkeep_timestamp_seconds"]
        return float(found["value"])

    before = upkept_at()
    floodmark("upkeep")

    assert before == 0.0
    assert abs(time.time() - upkept_at()) < 600


def test_a_threshold_that_is_none_says_both_kinds(ran: Path, floodmark: Command) -> None:
    error = floodmark("lag", "--fail-above", "often", "--json").document["error"]

    assert error["allowed"].startswith("versions, like 5; or a time: a number with a unit")


@pytest.mark.parametrize("retain", ["30m", "0s", "often"])
def test_a_short_or_odd_retention_is_refused(ran: Path, floodmark: Command, retain: str) -> None:
    answer = floodmark("upkeep", "--retain", retain)

    assert answer.code == 2
    assert "FM-CONFIG-007" in answer.err
    assert floodmark("upkeep", "--retain", "0s", "--allow-short-retain").code == 0


def test_a_store_is_exported_and_imported(ran: Path, floodmark: Command, golden: Golden) -> None:
    before = floodmark("state", "show", "--json").document
    golden("state_export", floodmark("state", "export", "store.jsonl").out)
    refused = floodmark("state", "import", "store.jsonl")
    shutil.rmtree(ran / "lake/_control")

    answer = floodmark("state", "import", "store.jsonl")

    assert refused.code == 4
    assert "FM-CONTROL-021" in refused.err
    assert answer.code == 0
    golden("state_import", answer.out)
    assert floodmark("state", "show", "--json").document == before


def test_a_lost_store_is_restored_from_its_targets(
    ran: Path, floodmark: Command, golden: Golden
) -> None:
    before = floodmark("state", "show", "--json").document
    targets = ["lake/gold/daily", "lake/gold/solo"]
    refused = floodmark("state", "rebuild", "--from-targets", *targets)
    shutil.rmtree(ran / "lake/_control")

    answer = floodmark("state", "rebuild", "--from-targets", *targets)

    assert refused.code == 4
    assert answer.code == 0
    golden("state_rebuild_from_targets", answer.out)
    after = floodmark("state", "show", "--json").document
    assert after["control_id"] == before["control_id"]
    assert [m["upstream"] for m in after["watermarks"] if m["scope"] == "solo"]


def test_from_targets_needs_targets(ran: Path, floodmark: Command) -> None:
    assert floodmark("state", "rebuild", "--from-targets").code == 2
    assert floodmark("state", "rebuild", "lake/gold/daily").code == 2


def test_a_reset_asks_moves_the_mark_and_leaves_a_gap_to_be_seen(
    ran: Path, floodmark: Command, golden: Golden
) -> None:
    for number in (7, 8):
        add_version(ran / "lake/customers", number, feed=False)
    reset = ["state", "reset", "--scope", "solo", "--upstream", "lake/customers"]

    asked = floodmark(*reset, "--to-version", "3")
    clean = floodmark("gaps")
    done = floodmark(*reset, "--to-version", "3", "--yes")
    found = floodmark("gaps")

    assert (asked.code, clean.code, done.code, found.code) == (2, 0, 0, 1)
    assert "versions 2-3 will never be processed" in asked.err
    golden("gaps_none", clean.out)
    golden("state_reset", done.out)
    assert floodmark("gaps", "--json").document["gaps"][0]["end"] == 3
    assert "floodmark backfill lake/customers solo --start 2 --end 3" in found.out
    assert floodmark("verify").code == 0


def test_a_reset_is_refused_while_a_batch_holds_the_upstream(ran: Path, floodmark: Command) -> None:
    answer = floodmark("state", "reset", "--scope", "nightly", "--upstream", "lake/orders", "--yes")

    assert answer.code == 4
    assert "FM-CONTROL-023" in answer.err


@pytest.mark.parametrize(
    ("threshold", "code"), [("1", 1), ("2", 0), ("1000d", 0), ("0s", 1), ("-1", 2), ("soon", 2)]
)
def test_a_lag_above_the_threshold_fails(
    ran: Path, floodmark: Command, threshold: str, code: int
) -> None:
    assert floodmark("lag", f"--fail-above={threshold}").code == code


def test_stuck_batches_and_failures_are_named(
    ran: Path, floodmark: Command, golden: Golden
) -> None:
    for verb in ("status", "lag"):
        calm = floodmark(verb, "--json").document
        stuck = floodmark(verb, "--json", "--stuck-after", "0s").document
        assert calm["stuck"] == []
        assert [each["pipelines"] for each in stuck["stuck"]] == [["report"]]
        assert stuck["failures_in_a_row"] == {"report": 1}

    assert "stuck" not in floodmark("status").out
    golden("lag_stuck", floodmark("lag", "--stuck-after", "0s").out)
