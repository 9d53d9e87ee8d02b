"""A pipeline of dependent nodes, killed at every point, ends as if nothing had happened."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
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


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[tuple[str, int], Future[Any]]]:
    """Every case that was asked for, two at a time."""
    wanted: list[tuple[Any, Any]] = [
        (item.callspec.params["point"], item.callspec.params["nth"])
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.originalname == test_killed_nodes_leave_nothing_to_mend.__name__
    ]
    folder = tmp_path_factory.mktemp("killed-nodes")
    with ThreadPoolExecutor(2) as pool:
        yield {
            (point, nth): pool.submit(play, folder / f"{point}-{nth}", f"{point}:{nth}")
            for point, nth in wanted
        }
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize(("point", "nth"), CASES)
def test_killed_nodes_leave_nothing_to_mend(
    point: str,
    nth: int,
    outcomes: dict[tuple[str, int], Future[Any]],
    undisturbed: dict[str, Any],
) -> None:
    code, state, log = outcomes[point, nth].result()

    assert code == KILLED, f"{point} is not reached {nth} times\n{log}"
    assert state == undisturbed
