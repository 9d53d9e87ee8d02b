"""The demo is the first thing anybody runs: it must end well and say so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

TOLD = [
    "change feed",
    "order_report    SUCCESS",
    "payment_ledger  FAILED",
    "held      lake/payments: waiting for payment_ledger",
    "the bank does not answer",
    "Killed",
    "yes  every order is in the report once, as it is now",
    "yes  no payment is in the ledger twice",
    "yes  no payment is missing from the ledger",
    "10 checks, 0 problems",
]


def test_the_demo_fails_recovers_and_ends_with_every_row_once(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "floodmark", "demo", str(tmp_path / "shop")],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    told = done.stdout + done.stderr
    assert [line for line in TOLD if line not in told] == []


def test_the_demo_leaves_a_folder_of_the_user_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")

    done = subprocess.run(
        [sys.executable, "-m", "floodmark", "demo", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 2
    assert "is not empty" in done.stderr
    assert (tmp_path / "mine.txt").read_text() == "precious"
