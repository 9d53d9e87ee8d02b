"""Killed by SIGKILL at every point of the protocol, the normal commands reach the same end."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.support import crash

import floodmark as fm
from floodmark import failpoints
from floodmark.errors import ControlError
from floodmark.model.write import WriteMode

KILLED = -signal.SIGKILL
PASSES = (1, 2)
EXTRA_RUNS = 2

IS_FULL = os.environ.get("FLOODMARK_TEST_SIZE") == "full"
BLIND = ("plan.", "journal.", "finalize.", "project.", "compact.")
"""Points in code that knows nothing of how a pipeline writes."""


def modes_of(point: str, nth: int) -> tuple[WriteMode, ...]:
    """Every point is passed first in every mode; a later pass of a blind one is the same in each
    of them, so that they share the modes among them.
    """
    if nth == 1 or IS_FULL or not point.startswith(BLIND):
        return crash.MODES
    return (crash.MODES[failpoints.POINTS.index(point) % len(crash.MODES)],)


CASES = [(p, mode, n) for p in failpoints.POINTS for n in PASSES for mode in modes_of(p, n)]


class Outcome(NamedTuple):
    """How the killed run ended, how many runs more it took, and where that led."""

    code: int
    runs: int
    state: dict[str, Any]
    log: str


def play(root: Path, mode: WriteMode, failpoint: str) -> Outcome:
    """Run the story with a failpoint, then as often as it needs without."""
    log = root / "log"
    assert crash.run(crash.build_lake, root, log=log) == 0, log.read_text()
    armed = {"FLOODMARK_FAILPOINT": failpoint}
    code = crash.run(crash.tell, str(root), mode, log=log, environment=armed)
    runs, again = 0, code
    while again != 0 and runs < EXTRA_RUNS:
        again = crash.run(crash.tell, str(root), mode, log=log)
        runs += 1
    assert again == 0, log.read_text()
    return Outcome(code, runs, crash.result(crash.end_state, str(root), log=log), log.read_text())


@pytest.mark.parametrize(("point", "mode", "nth"), CASES)
def test_a_killed_process_leaves_nothing_to_mend(
    point: str,
    mode: WriteMode,
    nth: int,
    tmp_path: Path,
    undisturbed: dict[str, dict[str, Any]],
) -> None:
    outcome = play(tmp_path, mode, f"{point}:{nth}")
    assert outcome.code == KILLED, f"{point} is not reached {nth} times\n{outcome.log}"
    assert outcome.runs == 1
    assert outcome.state == undisturbed[mode]
    assert not outcome.state["problems"]
    assert not outcome.state["history"]


LATER = failpoints.POINTS if IS_FULL else ("sink.after_commit",)
"""All of them are about 300 more kills."""


@pytest.mark.slow
@pytest.mark.parametrize("mode", crash.MODES if IS_FULL else ("merge",))
@pytest.mark.parametrize("point", LATER)
def test_a_kill_at_every_later_pass_leaves_nothing_to_mend(
    point: str,
    mode: WriteMode,
    tmp_path: Path,
    undisturbed: dict[str, dict[str, Any]],
) -> None:
    nth, code = max(PASSES), KILLED
    while code == KILLED:
        nth += 1
        root = tmp_path / str(nth)
        root.mkdir()
        code, _, state, _ = play(root, mode, f"{point}:{nth}")
        assert state == undisturbed[mode]
    assert code == 0


def test_two_processes_killed_one_after_the_other_leave_nothing_to_mend(
    tmp_path: Path, undisturbed: dict[str, dict[str, Any]]
) -> None:
    log = tmp_path / "log"
    crash.run(crash.build_lake, tmp_path, log=log)
    for point in failpoints.POINTS:
        environment = {"FLOODMARK_FAILPOINT": point}
        code = crash.run(crash.tell, str(tmp_path), "append", log=log, environment=environment)
        assert code in (KILLED, 0), log.read_text()
        # Work that waits for the next run is no problem.
        assert crash.result(problems, str(tmp_path), log=log) == [], point
    assert crash.run(crash.tell, str(tmp_path), "append", log=log) == 0
    assert crash.result(crash.end_state, str(tmp_path), log=log) == undisturbed["append"]


def problems(root: str) -> list[str]:
    """What `verify` says between a kill and the next run."""
    coordinator = fm.Coordinator(f"{root}/control", base=root)
    try:
        return [finding.text for finding in coordinator.verify() if not finding.ok]
    except ControlError as error:
        return [] if error.code == "FM-CONTROL-001" else [str(error)]


@pytest.mark.parametrize(
    ("point", "mode"),
    [
        (point, mode)
        for point in (
            "journal.after_commit:5",
            "run.after_lease",
            "sink.after_commit",
            "project.before:4",
        )
        for mode in modes_of(point.partition(":")[0], 2)
    ],
)
def test_an_exception_anywhere_leaves_nothing_to_mend_in_the_same_process(
    point: str, mode: WriteMode, tmp_path: Path, undisturbed: dict[str, dict[str, Any]]
) -> None:
    log = tmp_path / "log"
    crash.run(crash.build_lake, tmp_path, log=log)
    assert crash.run(tell_twice, str(tmp_path), mode, point, log=log) == 0, log.read_text()
    assert crash.result(crash.end_state, str(tmp_path), log=log) == undisturbed[mode]


def tell_twice(root: str, mode: WriteMode, point: str) -> None:
    """The story, interrupted by an exception, and again with the same coordinator."""
    story = crash.Story(Path(root), mode, lease_ttl=0.2)
    coordinator = story.coordinator()
    with crash.armed(point), pytest.raises(failpoints.FailpointReached):
        story.tell(coordinator)
    story.tell(coordinator)
