"""`validate` says everything that is wrong at once, and each thing once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import add_version

Command = Callable[..., Any]

BROKEN = """\
project: shop
pipelines:
  - pipeline: daily
    upstreams: [lake/nowhere]
    function: jobs:nothing
    timeout: often
    tag: [a]
  - pipeline: other
    upstrems: [lake/orders]
    function: jobs:nobody
"""


@pytest.fixture
def errors(project: Path, floodmark: Command) -> list[tuple[str, str]]:
    (project / "floodmark.yaml").write_text(BROKEN)
    (project / "jobs.py").write_text("def process(inputs, run):\n    pass\n")
    answer = floodmark("validate", "--json")
    assert answer.code == 2
    return [(e["code"], e["title"]) for e in answer.document["error"]["errors"]]


def test_a_wrong_option_does_not_hide_a_wrong_function_and_upstream(
    errors: list[tuple[str, str]],
) -> None:
    titles = " / ".join(title for _, title in errors)

    for part in ("not a duration", 'unknown key "tag"', "lake/nowhere", "nothing", "nobody"):
        assert part in titles


def test_a_misspelled_key_is_one_error(errors: list[tuple[str, str]]) -> None:
    about = [title for _, title in errors if "upstrems" in title or '"upstreams"' in title]

    assert about == ['unknown key "upstrems"']
    assert len(errors) == 6


def test_a_misspelled_key_that_is_required_is_one_error(project: Path, floodmark: Command) -> None:
    (project / "floodmark.yaml").write_text(
        "projct: shop\n" + BROKEN.partition("\n")[2].partition("    timeout")[0]
    )

    found = floodmark("validate", "--json").document["error"]["errors"]

    titles = [error["title"] for error in found if "proj" in error["title"]]
    assert titles == ['unknown key "projct"']


NODES = """\
project: shop
connections: {lake: {type: lake, root: lake}}
pipelines:
  - pipeline: daily
    nodes:
      - name: load
        read: {connection: lake, path: orders, baseline: [soon]}
        transform:
          - {}
          - python: steps:absent
          - cast_colums: {columns: {id: long}}
        write: {connection: lak, path: copy, mode: apend}
      - name: again
        depends_on: [load, nobody]
        write: {connection: lake, path: again, mode: merge}
      - name: other
        read: {connection: lake, path: gone}
        colums: {}
        write: {connection: lake, path: other, mode: append, merge: {keys: [id]}}
  - pipeline: second
    upstreams: [lake/nowhere]
    function: steps
"""


def node_errors(project: Path, floodmark: Command, text: str) -> list[tuple[int, str]]:
    """The line and the title of each error."""
    (project / "floodmark.yaml").write_text(text)
    (project / "steps.py").write_text("def present(frame):\n    return frame\n")
    answer = floodmark("validate", "--json")
    assert answer.code == 2
    error = answer.document["error"]
    found = error.get("errors", [error])
    return [(int(e["where"].split(":")[1]), e["title"]) for e in found]


def test_errors_of_nodes_hide_no_other_of_their_pipeline(project: Path, floodmark: Command) -> None:
    found = node_errors(project, floodmark, NODES)

    expected = [
        (7, "baseline"),
        (9, "not a step"),
        (10, "absent"),
        (11, "unknown transform cast_colums"),
        (12, "there is no connection lak"),
        (12, "apend"),
        (14, "there is no node nobody"),
        (15, "a merge needs its keys"),
        (18, 'unknown key "colums"'),
        (19, '"merge" goes only with mode merge'),
        (22, "not a function"),
    ]
    assert [line for line, _ in found] == [line for line, _ in expected]
    for (_, title), (_, part) in zip(found, expected, strict=True):
        assert part in title


def test_tables_that_are_not_there_are_told_beside_errors_of_nodes(
    project: Path, floodmark: Command
) -> None:
    text = NODES.replace("connection: lak,", "connection: lake,").replace("apend", "append")

    titles = [title for _, title in node_errors(project, floodmark, text)]

    assert len([title for title in titles if "lake/gone" in title or "lake/nowhere" in title]) == 2


SOUND = """\
project: shop
connections: {lake: {type: lake, root: lake}}
pipelines:
  - pipeline: daily
    nodes:
      - name: load
        read: {connection: lake, path: orders}
        write: {connection: lake, path: copy, mode: append}
      - name: merged
        depends_on: [load]
        write: {connection: lake, path: merged, mode: merge, merge: {keys: [id]}}
  - pipeline: second
    nodes:
      - name: again
        read: {connection: lake, path: copy}
        write: {connection: lake, path: again, mode: append}
"""


@pytest.mark.parametrize(
    ("sound", "broken"),
    [
        ("path: orders}", "path: 7}"),
        ("connection: lake, path: orders", "connection: [lake], path: orders"),
        ("connection: lake, path: orders", "connection: lak, path: orders"),
        ("path: copy, mode: append", "path: [copy], mode: append"),
        ("path: copy, mode: append", "path: copy, mode: apend"),
        ("depends_on: [load]", "depends_on: 7"),
        ("merge: {keys: [id]}", "merge: {key: [id]}"),
        ("- name: load", "- name: [load]"),
        ("type: lake,", "type: lak,"),
    ],
)
def test_one_mistake_in_a_node_is_one_error(
    sound: str, broken: str, project: Path, floodmark: Command
) -> None:
    add_version(project / "lake/orders", 1)
    assert sound in SOUND

    found = node_errors(project, floodmark, SOUND.replace(sound, broken, 1))

    assert len(found) == 1, found
