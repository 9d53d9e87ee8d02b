"""The library tells what it does, without any set-up, and leaves logging to whoever set it up."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import floodmark
from floodmark.observe import stage

if TYPE_CHECKING:
    import pytest

SCRIPT = """
import logging, sys
from floodmark.observe import configure_logging, stage
if "root" in sys.argv:
    logging.basicConfig(level=logging.INFO, format="host: %(message)s")
if "command" in sys.argv:
    configure_logging()
stage("planned", "batch b1 planned", batch="b1", windows=2, nothing=None)
if "later" in sys.argv:
    logging.basicConfig(level=logging.INFO, format="host: %(message)s")
stage("held", "orders is held", upstream="orders")
assert not logging.getLogger().handlers or "root" in sys.argv or len(sys.argv) > 1
"""


def told(*how: str, **environment: str) -> list[str]:
    source = str(Path(floodmark.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *how],
        env={**os.environ, "PYTHONPATH": source, **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout == ""
    return done.stderr.splitlines()


def test_without_any_set_up_stages_are_lines_of_text() -> None:
    assert told() == ["floodmark: batch b1 planned", "floodmark: orders is held"]


def test_as_json_each_event_has_its_fields() -> None:
    first, second = map(json.loads, told(FLOODMARK_LOG="json"))
    assert (first["stage"], first["batch"], first["windows"]) == ("planned", "b1", 2)
    assert "nothing" not in first
    assert (second["stage"], second["upstream"]) == ("held", "orders")


def test_it_can_be_switched_off() -> None:
    assert told(FLOODMARK_LOG="off") == []


def test_logging_that_is_set_up_is_used_and_nothing_is_said_twice() -> None:
    assert told("root") == ["host: batch b1 planned", "host: orders is held"]
    assert told("later") == ["floodmark: batch b1 planned", "host: orders is held"]


def test_a_command_tells_its_stages_on_the_screen_and_not_in_the_log() -> None:
    assert told("command") == []


def test_fields_are_in_the_record(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="floodmark.stages"):
        stage("wrote", "10 rows", rows=10)
    (record,) = caplog.records
    assert record.floodmark == {"stage": "wrote", "rows": 10}  # type: ignore[attr-defined]
