"""A pipeline of dependent nodes, killed at every point, ends as if nothing had happened."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.support import crash, node_projects
from tests.support.streams import until

from floodmark import failpoints

KILLED = -signal.SIGKILL
ONCE = ("plan.after_discover", "journal.after_commit", "project.between_tables")
"""Points that nodes do not change: once is enough here."""
TWICE = (
    "run.after_lease",
    "run.after_read",
    "sink.before_commit",
    "sink.after_commit",
    "sink.between_sinks",
    "run.before_done",
    "run.after_done",
    "run.after_success",
    "finalize.after_commit",
)
CASES = [
    *((point, 1) for point in ONCE),
    *((point, n) for point in TWICE for n in (1, 3)),
    *((point, n) for point in failpoints.NODE_POINTS for n in (1, 2)),
]


def play(root: Path, failpoint: str | None) -> tuple[int, dict[str, Any], str]:
    """Two batches of two pipelines with a kill, then the normal command again."""
    root.mkdir()
    log = root / "log"
    armed = {"FLOODMARK_FAILPOINT": failpoint} if failpoint else {}
    assert crash.run(node_projects.build_story, str(root), log=log) == 0, log.read_text()
    code = crash.run(node_projects.tell_story, str(root), log=log, environment=armed)
    if failpoint:
        assert crash.run(node_projects.tell_story, str(root), log=log) == 0, log.read_text()
    return code, crash.result(node_projects.story_end, str(root), log=log), log.read_text()


RUNNERS = 3


def test_first_runs_of_one_node_at_once_write_every_row_once(
    tmp_path: Path, undisturbed: dict[str, Any]
) -> None:
    """Nothing is there yet: each of them would make the store, the targets and their columns."""
    root, log = tmp_path / "story", tmp_path / "log"
    root.mkdir()
    assert crash.run(node_projects.build_story, str(root), log=log) == 0, log.read_text()

    runners = [crash.start(node_projects.tell_story, str(root), log=log) for _ in range(RUNNERS)]
    codes = [crash.ended(runner) for runner in runners]
    assert crash.run(node_projects.tell_story, str(root), log=log) == 0, log.read_text()

    assert set(codes) <= {0, 4}, log.read_text()  # done, or somebody else is at it
    assert crash.result(node_projects.story_end, str(root), log=log) == undisturbed


@pytest.mark.parametrize(
    "point", ["plan.after_discover", "run.after_read", "sink.before_commit", "landing.after_write"]
)
def test_a_first_run_that_sleeps_while_another_one_makes_the_target_writes_nothing_twice(
    point: str, tmp_path: Path, undisturbed: dict[str, Any]
) -> None:
    root, log = tmp_path / "story", tmp_path / "log"
    root.mkdir()
    assert crash.run(node_projects.build_story, str(root), log=log) == 0, log.read_text()
    asleep = {"FLOODMARK_FAILPOINT": point, "FLOODMARK_FAILPOINT_ACTION": "stop"}

    first = crash.start(node_projects.tell_story, str(root), log=log, environment=asleep)
    until(lambda: state_of(first.pid) == "T", SECONDS)
    until(lambda: crash.run(node_projects.tell_story, str(root), log=log) == 0, SECONDS)
    os.kill(first.pid or 0, signal.SIGCONT)
    code = crash.ended(first)

    assert code in {0, 4}, log.read_text()  # nothing was left to do, or fenced
    assert crash.result(node_projects.story_end, str(root), log=log) == undisturbed


SECONDS = 60


def state_of(pid: int | None) -> str:
    """As the system names it: T for one that is stopped."""
    asked = ["ps", "-o", "stat=", "-p", str(pid)]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout[:1]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    code, state, log = play(tmp_path_factory.mktemp("nodes") / "undisturbed", None)
    assert code == 0, log
    assert state["problems"] == []
    assert state["rows"]["lake/silver/orders"]
    return state


@pytest.mark.parametrize(("point", "nth"), CASES)
def test_killed_nodes_leave_nothing_to_mend(
    point: str,
    nth: int,
    tmp_path: Path,
    undisturbed: dict[str, Any],
) -> None:
    code, state, log = play(tmp_path / "story", f"{point}:{nth}")

    assert code == KILLED, f"{point} is not reached {nth} times\n{log}"
    assert state == undisturbed
