"""A pipeline of dependent nodes, killed at every point, ends as if nothing had happened."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from floodmark import failpoints
from floodmark.testing import crash, node_projects

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
