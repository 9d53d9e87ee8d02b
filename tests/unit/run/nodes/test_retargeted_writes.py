"""A node that is given another target: no row is lost or doubled, and the error tells both names."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support import crash
from tests.support.node_projects import open_project
from tests.support.node_projects import table_rows as rows

from floodmark import failpoints
from floodmark.errors import FloodmarkError
from floodmark.project import Project

PROJECT = """\
project: shop
lease_ttl: 1s
connections: {lake: {type: lake, root: lake}}
pipelines:
  - pipeline: p
    nodes:
      - name: a
        read: {connection: lake, path: source}
        write: {connection: lake, path: TARGET, WRITE}
"""
WRITES = ["mode: append", "merge: {keys: [id]}", "merge: {keys: [id], missing: keep}"]


def add(root: Path, *ids: int, table: str = "source") -> None:
    crash.append_rows(root, f"lake/{table}", [(each, each) for each in ids])


def ids(root: Path, target: str) -> list[int]:
    return [row[0] for row in rows(root / "lake" / target, "id")]


def to(root: Path, target: str, write: str = WRITES[0]) -> Project:
    return open_project(root, PROJECT.replace("TARGET", target).replace("WRITE", write))


def retargeted(root: Path, write: str = WRITES[0]) -> Project:
    """One batch in the old target, news upstream, and the new name."""
    add(root, 1, 2)
    assert to(root, "old", write).run().exit_code == 0
    add(root, 3)
    return to(root, "new", write)


def error_of(project: Project) -> FloodmarkError:
    (outcome,) = project.run().outcomes
    assert outcome.error is not None
    return outcome.error


@pytest.mark.parametrize("write", WRITES)
def test_another_target_is_refused_by_both_names_and_rebuilt(tmp_path: Path, write: str) -> None:
    project = retargeted(tmp_path, write)

    error = error_of(project)

    assert error.code == "FM-SINK-007"
    assert "has another target than before" in error.title
    assert str(tmp_path / "lake/new") in str(error.where)
    assert str(tmp_path / "lake/old") in str(error.allowed)
    assert error.found == "nothing there"
    assert "put the table back" not in str(error.next)
    (batch,) = project.coordinator.status()[:1]
    summary = project.retry(batch.batch_id, on_lost_target="rebuild")
    assert summary.exit_code == 0
    assert [outcome.already_applied for outcome in summary.outcomes] == [None]
    assert (ids(tmp_path, "old"), ids(tmp_path, "new")) == ([1, 2], [1, 2, 3])
    goes_on(tmp_path, write)


def test_the_old_name_again_goes_on_where_it_was(tmp_path: Path) -> None:
    error_of(retargeted(tmp_path))

    assert to(tmp_path, "old").run().exit_code == 0

    assert ids(tmp_path, "old") == [1, 2, 3]


def test_an_accepted_target_begins_with_the_batch(tmp_path: Path) -> None:
    project = retargeted(tmp_path)
    error_of(project)

    (batch,) = project.coordinator.status()[:1]
    assert project.retry(batch.batch_id, on_lost_target="accept").exit_code == 0

    assert (ids(tmp_path, "old"), ids(tmp_path, "new")) == ([1, 2], [3])


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("point", [None, "sink.before_commit", "sink.after_commit"])
def test_a_full_refresh_fills_another_target(tmp_path: Path, write: str, point: str | None) -> None:
    project = retargeted(tmp_path, write)
    if point is not None:
        with crash.armed(point), pytest.raises(failpoints.FailpointReached):
            project.run(full_refresh=True)

    summary = open_project(tmp_path).run(full_refresh=True)

    assert summary.exit_code == 0, summary.outcomes
    assert (ids(tmp_path, "old"), ids(tmp_path, "new")) == ([1, 2], [1, 2, 3])
    goes_on(tmp_path, write)


def test_a_full_refresh_keeps_what_others_hold_in_the_target_of_a_merge(tmp_path: Path) -> None:
    project = retargeted(tmp_path, WRITES[2])
    add(tmp_path, 9, table="new")

    assert project.run(full_refresh=True).exit_code == 0

    assert ids(tmp_path, "new") == [1, 2, 3, 9]


def test_a_table_in_the_place_of_another_target_is_named(tmp_path: Path) -> None:
    project = retargeted(tmp_path)
    add(tmp_path, 9, table="new")

    error = error_of(project)

    assert "table id" in str(error.found)
    assert "replaces what the new target holds" in str(error.next)
    assert ids(tmp_path, "new") == [9]


def test_a_table_that_moved_goes_on_under_its_new_name(tmp_path: Path) -> None:
    project = retargeted(tmp_path)
    (tmp_path / "lake/old").rename(tmp_path / "lake/new")

    assert project.run().exit_code == 0

    assert ids(tmp_path, "new") == [1, 2, 3]


def goes_on(root: Path, write: str) -> None:
    """The next batch adds its rows, and the store agrees with the targets."""
    add(root, 4)
    project = to(root, "new", write)
    assert project.run().exit_code == 0
    assert ids(root, "new") == [1, 2, 3, 4]
    assert [finding.text for finding in project.verify() if not finding.ok] == []
