"""The demo is the first thing anybody runs: it must end well and say so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

TOLD = [
    "change feed",
    "order_report    SUCCESS",
    "payment_ledger  FAILED",
    "held      lake/payments: not marked as processed yet: payment_ledger failed",
    "the bank does not answer",
    "Killed",
    "yes  every order is in the report once, as it is now",
    "yes  no payment is in the ledger twice",
    "yes  no payment is missing from the ledger",
    "11 checks, 0 problems",
]


def played(*arguments: str) -> str:
    """What the demo said to the end, which has to be a good one; it chooses its own JVM."""
    done = subprocess.run(
        [sys.executable, "-m", "floodmark", "demo", *arguments],
        env={name: value for name, value in os.environ.items() if name != "SPARK_SUBMIT_OPTS"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_demo_fails_recovers_and_ends_with_every_row_once(tmp_path: Path) -> None:
    told = played(str(tmp_path / "shop"))

    assert [line for line in TOLD if line not in told] == []


TOLD_OF_A_STREAM = [
    "events: the stream is fine",
    "batch 2: 2,497 of 2,500 records written, 3 dead letters",
    "Killed",
    "two batches are there",
    "goes on after batch 2",
    "yes  received = written + dead-lettered + dropped = sent = 15,003",
    "yes  every event is in the table once",
    "yes  every record that is no event is a dead letter once, with its bytes",
    "yes  what came too late was dropped and counted",
    "yes  each batch begins where the one before it ended",
]


@pytest.mark.kafka
@pytest.mark.postgres
def test_the_demo_of_a_stream_is_killed_and_ends_with_every_record_once(tmp_path: Path) -> None:
    told = played("--stream", str(tmp_path / "events"))

    assert [line for line in TOLD_OF_A_STREAM if line not in told] == []


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
