"""What a runner tells other commands of its machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from floodmark.streaming.running.notes import RunnerNotes
from floodmark.streaming.stopping import runner_here


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_the_state_of_a_breaker_is_known_by_the_number_of_its_process() -> None:
    notes = RunnerNotes("orders", "public")

    notes.breaker("open")

    assert notes.breaker_of(os.getpid()) == "open"
    assert notes.breaker_of(os.getpid() + 1) is None
    assert RunnerNotes("orders", "other").breaker_of(os.getpid()) is None


def test_a_note_that_cannot_be_written_or_read_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "floodmark").write_text("a file where a folder is wanted")
    notes = RunnerNotes("orders", "public")

    notes.breaker("open")

    assert notes.breaker_of(os.getpid()) is None


@pytest.mark.parametrize(
    "holder",
    [None, "somebody", "elsewhere, process 1", f"here, process {os.getpid()} (reset)"],
    ids=["nobody", "no process", "elsewhere", "no runner"],
)
def test_who_is_no_runner_of_this_machine_is_none(holder: str | None) -> None:
    assert runner_here(holder) is None
