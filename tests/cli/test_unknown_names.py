"""A name that does not exist gives one exit code and the nearest match, whatever the verb."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from floodmark.cli import work
from floodmark.cli.call import Call

Command = Callable[..., Any]
USAGE = 2

PIPELINES = [
    "plan soli",
    "run soli",
    "run --exclude soli",
    "pause soli",
    "resume soli",
    "refresh soli",
    "rename soli other",
    "remove soli",
    "retry BATCH soli",
    "replay BATCH soli",
    "record soli BATCH --status SUCCESS",
    "backfill lake/customers soli --start 0 --end 0",
]
BATCHES = [
    "status WRONG",
    "retry WRONG",
    "replay WRONG",
    "cancel WRONG",
    "finalize WRONG",
    "record solo WRONG --status SUCCESS",
]
UPSTREAMS = [
    "backfill lake/customer --start 0 --end 0",
    "state reset --scope solo --upstream lake/customer --yes",
    "state reset --scope solo --upstream lake/customer --to-version 0 --yes",
    "state reset --scope solo --upstream lake/customer --to 2026-01-01 --yes",
]


@pytest.fixture
def batch(shop: Path, arrow_call: Callable[..., Call], capsys: pytest.CaptureFixture[str]) -> str:
    """The batch that `solo` has finished."""
    call = arrow_call()
    assert work.run(call, ["solo"]) == 0
    capsys.readouterr()
    return str(call.project.coordinator.status()[0].batch_id)


@pytest.mark.parametrize("command", PIPELINES)
def test_an_unknown_pipeline(batch: str, floodmark: Command, command: str) -> None:
    expect(floodmark(*command.replace("BATCH", batch).split(), "--json"), "solo")


@pytest.mark.parametrize("command", BATCHES)
def test_an_unknown_batch(batch: str, floodmark: Command, command: str) -> None:
    expect(floodmark(*command.replace("WRONG", f"{batch[:-1]}x").split(), "--json"), batch)


@pytest.mark.parametrize("command", UPSTREAMS)
def test_an_unknown_upstream(batch: str, floodmark: Command, command: str) -> None:
    expect(floodmark(*command.split(), "--json"), "lake/customers")


def test_an_unknown_scope(batch: str, floodmark: Command) -> None:
    command = "state reset --scope soli --upstream lake/customers --yes"

    expect(floodmark(*command.split(), "--json"), "solo")


def expect(answer: Any, nearest: str) -> None:
    error = answer.document["error"]
    assert answer.code == USAGE, error
    found = str(error["allowed"]).rpartition("nearest: ")[2]
    assert found.endswith(nearest), error
    assert error["state"].startswith("nothing was ")
