"""The graph of nodes, the chains of pipelines, and selectors over them."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.config import load_project
from floodmark.config.project.graph import Graph, graph_of
from floodmark.config.project.resolved import parents_of
from floodmark.errors import ConfigError, ConfigErrors
from floodmark.project.selection import Choice, Selection, chosen_from

NAMES = "abcdef"


def project(root: Path, nodes: str) -> Path:
    path = root / "floodmark.yaml"
    path.write_text(
        "project: p\nconnections: {lake: {type: lake, root: lake}}\n"
        f"pipelines:\n  - pipeline: one\n    nodes:\n{nodes}"
    )
    return path


def node(name: str, more: str = "") -> str:
    read = "read: {connection: lake, path: x}"
    return f"      - {{name: {name}, {more or read}}}\n"


def errors_of(path: Path) -> list[ConfigError]:
    with pytest.raises(ConfigError) as caught:
        load_project(path)
    error = caught.value
    return list(error.errors) if isinstance(error, ConfigErrors) else [error]


def test_dependencies_are_said_read_or_joined(tmp_path: Path) -> None:
    text = (
        node("d", "read: {connection: lake, path: x}, transform: [{join: {with: a, on: id}}]")
        + node("c", "read: {node: b}")
        + node("b", "depends_on: a")
        + node("a")
        + node("e", "read: {connection: lake, path: x}, transform: [{union: {with: [c, raw.t]}}]")
    )

    graph = graph_of(load_project(project(tmp_path, text)).settings.pipelines[0].nodes)

    assert graph.parents == {"d": ("a",), "c": ("b",), "b": ("a",), "a": (), "e": ("c",)}
    assert graph.levels() == [["a"], ["d", "b"], ["c"], ["e"]]
    assert graph.children("a") == ["d", "b"]


def test_a_circle_is_named_with_its_place(tmp_path: Path) -> None:
    text = (
        node("a", "depends_on: [c]") + node("b", "depends_on: [a]") + node("c", "depends_on: [b]")
    )

    (error,) = errors_of(project(tmp_path, text))

    assert error.code == "FM-CONFIG-014"
    assert "a -> c -> b -> a" in error.title
    assert "floodmark.yaml:6:32" in (error.where or "")


def test_every_circle_and_every_missing_node_is_reported(tmp_path: Path) -> None:
    text = (
        node("a", "depends_on: [b]") + node("b", "depends_on: [a]")
        + node("c", "depends_on: [d]") + node("d", "depends_on: [c, nobody]")
        + node("e", "depends_on: [e]")
    )  # fmt: skip

    codes = [error.code for error in errors_of(project(tmp_path, text))]

    assert sorted(codes) == ["FM-CONFIG-013", *["FM-CONFIG-014"] * 3]


@given(st.dictionaries(st.sampled_from(NAMES), st.sets(st.sampled_from(NAMES))))
def test_an_order_or_a_circle_for_every_graph(edges: dict[str, set[str]]) -> None:
    known = {name: tuple(sorted(parents & set(edges))) for name, parents in edges.items()}
    graph = Graph(known)

    order, circles = graph.order(), graph.cycles()

    assert all(order.index(p) < order.index(name) for name in order for p in known[name])
    assert (set(order) == set(known)) == (circles == [])
    for circle in circles:
        assert circle[0] == circle[-1]
        assert all(b in known[a] for a, b in itertools.pairwise(circle))


def test_pipelines_are_chained_through_the_tables_they_write(tmp_path: Path) -> None:
    path = project(
        tmp_path,
        node("a", "read: {connection: lake, path: x}, write: {connection: lake, path: raw/a,"
             " mode: append, register_table: raw.a}")
        + "  - {pipeline: two, upstreams: [./lake/raw/a/], function: 'j:f'}\n"
        "  - {pipeline: three, upstreams: [lake/b], lookups: [raw.a], function: 'j:f', tags: [x]}\n"
        "  - {pipeline: four, upstreams: [lake/b], function: 'j:f', tags: [x, y]}\n",
    )  # fmt: skip

    pipelines = load_project(path).pipelines

    assert parents_of(pipelines) == {"one": [], "two": ["one"], "three": ["one"], "four": []}
    assert Selection(["one+"]).names(chosen_from(pipelines), ()) == ["one", "two", "three"]
    assert Selection(["+two"]).names(chosen_from(pipelines), ()) == ["one", "two"]


CHOICE = Choice(
    ["orders", "customers", "report", "audit"],
    {"orders": ["raw"], "customers": ["raw", "daily"], "report": ["daily"]},
    {"report": ["orders", "customers"], "audit": ["report"]},
)


@pytest.mark.parametrize(
    ("selectors", "exclude", "names"),
    [
        ([], [], "orders customers report audit"),
        (["report", "orders"], [], "report orders"),
        (["report orders"], [], "report orders"),
        (["tag:raw"], [], "orders customers"),
        (["tag:raw,tag:daily"], [], "customers"),
        (["tag:raw", "tag:daily"], [], "orders customers report"),
        (["*r*"], [], "orders customers report"),
        (["?????"], [], "audit"),
        (["+report"], [], "orders customers report"),
        (["orders+"], [], "orders report audit"),
        (["+audit,tag:daily"], [], "customers report"),
        (["+report+"], [], "orders customers report audit"),
        (["state:failed"], [], "audit"),
        (["state:failed+"], [], "audit"),
        (["+state:failed"], ["tag:raw"], "report audit"),
        ([], ["orders+", "tag:raw"], ""),
    ],
)
def test_selectors(selectors: list[str], exclude: list[str], names: str) -> None:
    found = Selection(selectors, exclude).names(CHOICE, {"audit"})

    assert sorted(found) == sorted(names.split())


@pytest.mark.parametrize(
    ("selector", "code"),
    [
        ("order", "FM-CONFIG-008"), ("tag:raww", "FM-CONFIG-008"), ("x*", "FM-CONFIG-008"),
        ("a+b", "FM-CONFIG-007"), ("++a", "FM-CONFIG-007"), ("path:x", "FM-CONFIG-007"),
        ("tag:", "FM-CONFIG-007"), ("", "FM-CONFIG-007"), ("orders,", "FM-CONFIG-007"),
        ("2+orders", "FM-CONFIG-007"), ("@orders", "FM-CONFIG-007"),
    ],
)  # fmt: skip
def test_other_selectors_are_refused(selector: str, code: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Selection([selector]).names(CHOICE, ())

    assert caught.value.code == code


@pytest.mark.parametrize(
    ("incremental", "mode", "is_warned"),
    [
        ("{cursor: updated_at}", "append", True),
        ("{cursor: updated_at, overlap: 0s}", "append", True),
        ("{cursor: x, type: date}", "append", True),
        ("{cursor: updated_at, overlap: 0.5h}", "append", False),
        ("{cursor: updated_at, keys: [id]}", "append", False),
        ("{cursor: updated_at}", "overwrite", False),
        ("{cursor: order_id}", "append", False),
        ("{cursor: updated_at, type: integer}", "append", False),
    ],
)
def test_late_rows_are_warned_of(
    tmp_path: Path, incremental: str, mode: str, is_warned: bool
) -> None:
    read = f"read: {{connection: lake, path: x, incremental: {incremental}}}"
    text = node("a", f"{read}, write: {{connection: lake, path: y, mode: {mode}}}")

    warnings = load_project(project(tmp_path, text)).warnings

    assert [w.code for w in warnings] == (["FM-CONFIG-017"] if is_warned else [])
    assert all("floodmark.yaml:6:" in (w.where or "") for w in warnings)
