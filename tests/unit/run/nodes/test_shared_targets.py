"""Several nodes fill one target: each row is there once, and nothing takes away those of others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.support import crash
from tests.support.node_projects import open_project
from tests.support.node_projects import table_rows as rows

from floodmark import failpoints
from floodmark.errors import ConfigError
from floodmark.project import Project

HEAD = """\
project: shop
lease_ttl: 1s
jobs: 1
connections: {lake: {type: lake, root: lake}}
pipelines:
"""
APPEND = "mode: append"
KEEP = "merge: {keys: [id], missing: keep}"


def filled_by(*pipelines: str, write: str = APPEND, target: str = "out") -> str:
    """Each pipeline writes the rows of a table of its own, named like it, into one target."""
    return HEAD + "".join(one_of(name, target, write) for name in pipelines)


def one_of(name: str, target: str, write: str = APPEND, more: str = "") -> str:
    return (
        f"  - pipeline: {name}\n    nodes:\n      - name: n\n"
        f"        read: {{connection: lake, path: source_{name[0]}}}\n{more}"
        f"        write: {{connection: lake, path: {target}, {write}}}\n"
    )


def add(root: Path, pipeline: str, *ids: int) -> None:
    crash.append_rows(root, f"lake/source_{pipeline}", [(each, each) for each in ids])


def ids(root: Path, target: str = "out") -> list[int]:
    return [row[0] for row in rows(root / "lake" / target, "id")]


def problems(project: Project) -> list[str]:
    return [finding.text for finding in project.verify() if not finding.ok]


@pytest.mark.parametrize("point", [None, "sink.before_commit:2", "sink.after_commit:2"])
def test_each_pipeline_that_appends_to_one_target_adds_its_rows_once(
    tmp_path: Path, point: str | None
) -> None:
    add(tmp_path, "a", 1)
    add(tmp_path, "b", 2)
    project = open_project(tmp_path, filled_by("a", "b"))
    if point is not None:
        with crash.armed(point), pytest.raises(failpoints.FailpointReached):
            project.run()

    first = open_project(tmp_path).run()

    assert first.exit_code == 0, first.outcomes
    assert ids(tmp_path) == [1, 2]
    add(tmp_path, "a", 3)
    add(tmp_path, "b", 4)
    again = open_project(tmp_path)
    assert again.run().exit_code == 0
    assert ids(tmp_path) == [1, 2, 3, 4]
    assert problems(again) == []


def test_a_pipeline_that_comes_later_adds_its_rows_to_those_of_others(tmp_path: Path) -> None:
    add(tmp_path, "a", 1)
    open_project(tmp_path, filled_by("a")).run()
    add(tmp_path, "b", 2)

    summary = open_project(tmp_path, filled_by("a", "b")).run()

    assert summary.exit_code == 0, summary.outcomes
    assert ids(tmp_path) == [1, 2]


def test_a_pipeline_under_another_name_does_not_append_its_rows_again(tmp_path: Path) -> None:
    add(tmp_path, "a", 1)
    add(tmp_path, "b", 2)
    open_project(tmp_path, filled_by("a", "b")).run()

    (outcome,) = open_project(tmp_path, filled_by("a2", "b")).run("a2").outcomes

    assert outcome.error is not None
    assert outcome.error.code == "FM-SINK-002"
    assert ids(tmp_path) == [1, 2]


def test_a_refreshed_append_to_a_shared_target_is_advised_what_keeps_the_rows_of_others(
    tmp_path: Path,
) -> None:
    add(tmp_path, "a", 1)
    add(tmp_path, "b", 2)
    project = open_project(tmp_path, filled_by("a", "b"))
    project.run()
    project.coordinator.admin.refresh("a")

    (outcome,) = project.run("a").outcomes

    error = outcome.error
    assert error is not None
    assert error.code == "FM-SINK-002"
    assert "overwrite" not in str(error.allowed)
    assert "--full-refresh" not in str(error.next)
    merged = HEAD + one_of("a", "out", KEEP) + one_of("b", "out")
    finished = open_project(tmp_path, merged).run("a")
    assert finished.exit_code == 0, finished.outcomes
    assert ids(tmp_path) == [1, 2]


@pytest.mark.parametrize(
    ("chosen", "others"),
    [((), ["--exclude", "a", "--exclude", "b"]), (("a",), []), (("a", "c"), ["c"])],
)
def test_a_full_refresh_names_the_pipelines_that_can_be_loaded_anew(
    tmp_path: Path, chosen: Sequence[str], others: list[str]
) -> None:
    for name in "abc":
        add(tmp_path, name, 1)
    text = filled_by("a", "b") + one_of("c", "other")
    project = open_project(tmp_path, text)
    project.run()

    with pytest.raises(ConfigError) as caught:
        project.run(*chosen, full_refresh=True)

    assert caught.value.rule == "target_of_several_nodes"
    advice = [["floodmark", "run", "--full-refresh", *others]] if others else []
    assert [list(each) for each in caught.value.commands] == advice
    assert ids(tmp_path) == [1, 1]


QUARANTINE = "        expect: [{check: id > 0, action: quarantine}]\n"


@pytest.mark.parametrize("target", ["out_quarantine", "./out_quarantine"])
def test_a_node_does_not_write_the_quarantine_of_another(tmp_path: Path, target: str) -> None:
    text = HEAD + one_of("a", "out", KEEP, QUARANTINE) + one_of("b", target, KEEP)

    with pytest.raises(ConfigError) as caught:
        open_project(tmp_path, text)

    assert caught.value.code == "FM-CONFIG-015"
    assert "b.n writes the quarantine of a.n" in caught.value.title


def test_a_table_with_the_name_of_a_quarantine_that_nobody_fills_is_a_target(
    tmp_path: Path,
) -> None:
    text = HEAD + one_of("a", "out", KEEP) + one_of("b", "out_quarantine", KEEP)

    open_project(tmp_path, text)
