"""Runners that die, stand still or wake up late: one takes over, nothing is written twice."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.support import crash
from tests.support.outsides import Alone

from floodmark.coordinator import Outside
from floodmark.model.state import Holder
from floodmark.model.write import WriteMode

FENCED_EXIT = HELD_EXIT = 4
ELSEWHERE = Holder("another-host", "another-boot", 1, "1")

STOPS = [
    ("append", "run.after_lease"),
    ("append", "sink.between_sinks"),
    ("append", "run.before_done"),
    *(
        (mode, point)
        for mode in crash.MODES
        for point in ("run.after_read", "sink.before_commit", "sink.before_commit:5")
    ),
    ("merge", "sink.after_commit"),
]
"""`:5` is in the second batch; before that the stopped run wants to create its target."""


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    assert crash.run(crash.build_lake, tmp_path, log=tmp_path / "log") == 0
    return tmp_path


def tell(root: Path, mode: WriteMode, ttl: float, environment: Mapping[str, str]) -> Any:
    return crash.start(tell_story, root, mode, ttl, log=root / "log", environment=environment)


def tell_story(root: Path, mode: WriteMode, ttl: float) -> None:
    crash.Story(root, mode, ttl).tell()


def run_elsewhere(root: Path, ttl: float) -> None:
    """A run on what looks like another machine, until it is killed."""
    story = crash.Story(root, "append", ttl)
    coordinator = story.coordinator(Outside(process=Alone(ELSEWHERE)))
    story.register(coordinator)
    batch = coordinator.create_batch()

    def never_ends(inputs: object, run: object) -> None:
        (root / "running").touch()
        time.sleep(600)

    assert batch.batch_id
    coordinator.run_pipeline("copy", batch.batch_id, never_ends)


def wait_for(condition: Any, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_stopped(process: ForkServerProcess) -> bool:
    assert crash.exit_code(process) is None
    return psutil.Process(process.pid).status() == psutil.STATUS_STOPPED


def test_a_runner_killed_on_this_host_is_replaced_without_waiting_for_its_ttl(
    lake: Path, undisturbed: dict[str, Any]
) -> None:
    environment = {"FLOODMARK_FAILPOINT": "run.after_read"}
    assert crash.ended(tell(lake, "append", 600.0, environment)) == -signal.SIGKILL
    assert crash.ended(tell(lake, "append", 600.0, {})) == 0
    assert crash.result(crash.end_state, str(lake), log=lake / "log") == undisturbed["append"]


def test_a_runner_elsewhere_keeps_its_lease_while_it_beats_and_loses_it_a_ttl_later(
    lake: Path, undisturbed: dict[str, Any]
) -> None:
    ttl = 1.5
    elsewhere = crash.start(run_elsewhere, lake, ttl, log=lake / "elsewhere.log")
    wait_for((lake / "running").exists)
    assert crash.ended(tell(lake, "append", ttl, {})) == HELD_EXIT
    assert "FM-CONTROL-006" in (lake / "log").read_text()
    elsewhere.kill()
    crash.ended(elsewhere)
    before = time.monotonic()
    assert crash.ended(tell(lake, "append", ttl, {})) == 0
    assert time.monotonic() - before >= ttl
    assert crash.result(crash.end_state, str(lake), log=lake / "log") == undisturbed["append"]


@pytest.mark.parametrize(("mode", "point"), STOPS)
def test_a_runner_that_wakes_up_after_another_took_over_ends_fenced_and_writes_nothing(
    mode: WriteMode, point: str, lake: Path, undisturbed: dict[str, Any]
) -> None:
    environment = {"FLOODMARK_FAILPOINT": point, "FLOODMARK_FAILPOINT_ACTION": "stop"}
    sleeper = tell(lake, mode, 0.5, environment)
    wait_for(lambda: is_stopped(sleeper))
    assert sleeper.pid is not None
    assert crash.ended(tell(lake, mode, 0.5, {})) == 0, (lake / "log").read_text()
    os.kill(sleeper.pid, signal.SIGCONT)
    assert crash.ended(sleeper) == FENCED_EXIT, (lake / "log").read_text()
    assert "FM-CONTROL-007" in (lake / "log").read_text()
    assert crash.result(crash.end_state, str(lake), log=lake / "log") == undisturbed[mode]


def test_a_runner_that_wakes_up_before_anybody_took_over_goes_on(
    lake: Path, undisturbed: dict[str, Any]
) -> None:
    environment = {"FLOODMARK_FAILPOINT": "run.after_read", "FLOODMARK_FAILPOINT_ACTION": "stop"}
    sleeper = tell(lake, "append", 0.3, environment)
    wait_for(lambda: is_stopped(sleeper))
    assert sleeper.pid is not None
    time.sleep(0.5)
    os.kill(sleeper.pid, signal.SIGCONT)
    assert crash.ended(sleeper) == 0, (lake / "log").read_text()
    assert crash.result(crash.end_state, str(lake), log=lake / "log") == undisturbed["append"]
