"""A node that is read whole is whole for joins and unions in every batch, with news or without."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.support.node_projects import open_project
from tests.support.node_projects import table_rows as rows

from floodmark.project import Project
from floodmark.project.outcomes import RunSummary

MakeProject = Callable[[str], Project]
FEED: dict[str, str | None] = {"delta.enableChangeDataFeed": "true"}


@pytest.fixture
def make_project(tmp_path: Path) -> MakeProject:
    return lambda text: open_project(tmp_path, text)


def orders(root: Path, *added: tuple[int, int]) -> None:
    ids, customers = zip(*added, strict=True)
    data = pa.table({"id": pa.array(ids, pa.int64()), "customer": pa.array(customers, pa.int64())})
    write_deltalake(str(root / "orders"), data, mode="append", configuration=FEED)


def customers(root: Path, *given: tuple[int, str], mode: str = "append") -> None:
    ids, names = zip(*given, strict=True)
    data = pa.table(
        {
            "customer": pa.array(ids, pa.int64()),
            "country": pa.array(names, pa.string()),
            "more": pa.array([0] * len(ids), pa.int64()),
        }
    )
    write_deltalake(str(root / "customers"), data, mode=mode, configuration=FEED)  # type: ignore[call-overload]


def run(project: Project) -> None:
    raise_errors(project.run())


def raise_errors(summary: RunSummary) -> None:
    for error in [outcome.error for outcome in summary.outcomes if outcome.error]:
        raise error


def project_of(how: str, *dimension: str, write: str = "mode: append") -> str:
    lines = "\n".join(f"      - {node}" for node in dimension)
    return f"""\
project: shop
pipelines:
  - pipeline: orders
    nodes:
{lines}
      - name: facts
        read: {{path: ./orders}}
        transform: [join: {{with: dim, on: customer, how: {how}}}]
        write: {{path: ./facts, {write}}}
"""


READ = "read: {path: ./customers, method: snapshot}"
NARROW = "transform: [select: [customer, country]]"
WITH_CHANGES = "[customer, country, _change_type, _commit_version]"
MERGED = "write: {path: ./dim, merge: {keys: [customer]}}"
MISSING_DELETED = "{keys: [customer], missing: delete}"
WRITTEN = {
    "plain": [f"{{name: dim, {READ}}}"],
    "with a step": [f"{{name: dim, {READ}, {NARROW}}}"],
    "below a node": [f"{{name: all, {READ}}}", f"{{name: dim, depends_on: [all], {NARROW}}}"],
    "only handed on": [
        f"{{name: all, {READ}, {NARROW}}}",
        "{name: dim, depends_on: [all]}",
    ],
    "overwritten": [f"{{name: dim, {READ}, {NARROW}, write: {{path: ./dim, mode: overwrite}}}}"],
    "merged": [
        f"{{name: dim, {READ}, {NARROW}, write: {{path: ./dim, merge: {MISSING_DELETED}}}}}"
    ],
    "merged from changes": [
        f"{{name: dim, read: {{path: ./customers}}, transform: [select: {WITH_CHANGES}], {MERGED}}}",
    ],
    "below a written node": [
        f"{{name: all, {READ}, write: {{path: ./all, merge: {{keys: [customer], missing: keep}}}}}}",
        f"{{name: dim, depends_on: [all], {NARROW}}}",
    ],
}


@pytest.mark.parametrize("how", ["left", "inner"])
@pytest.mark.parametrize("dimension", WRITTEN.values(), ids=WRITTEN)
def test_facts_are_joined_with_all_of_a_dimension_that_has_no_news(
    tmp_path: Path, make_project: MakeProject, dimension: Sequence[str], how: str
) -> None:
    orders(tmp_path, (1, 7), (2, 8))
    customers(tmp_path, (7, "CH"), (8, "DE"))
    project = make_project(project_of(how, *dimension))
    run(project)
    orders(tmp_path, (3, 7))

    run(project)

    expected = [(1, "CH"), (2, "DE"), (3, "CH")]
    assert rows(tmp_path / "facts", "id, country") == expected


@pytest.mark.parametrize("how", ["left", "inner"])
@pytest.mark.parametrize("dimension", WRITTEN.values(), ids=WRITTEN)
def test_facts_are_appended_after_a_join_with_a_dimension_that_has_news(
    tmp_path: Path, make_project: MakeProject, dimension: Sequence[str], how: str
) -> None:
    orders(tmp_path, (1, 7))
    customers(tmp_path, (7, "CH"), (8, "DE"))
    project = make_project(project_of(how, *dimension))
    run(project)
    orders(tmp_path, (2, 8), (3, 9))
    customers(tmp_path, (9, "FR"))

    run(project)

    assert rows(tmp_path / "facts", "id, country") == [(1, "CH"), (2, "DE"), (3, "FR")]
    assert DeltaTable(str(tmp_path / "customers")).version() == 1


def test_what_nobody_changed_is_not_replaced_by_nothing(
    tmp_path: Path, make_project: MakeProject
) -> None:
    orders(tmp_path, (1, 7))
    customers(tmp_path, (7, "CH"), (8, "DE"))
    nodes = [f"{{name: dim, {READ}, write: {{path: ./dim, mode: overwrite}}}}"]
    nodes += ["{name: other, read: {path: ./more}, write: {path: ./other, mode: overwrite}}"]
    write_deltalake(str(tmp_path / "more"), pa.table({"id": [1]}), configuration=FEED)
    project = make_project(project_of("left", *nodes))
    run(project)
    orders(tmp_path, (2, 8))

    run(project)

    assert rows(tmp_path / "dim", "customer") == [(7,), (8,)]
    assert rows(tmp_path / "other") == [(1,)]


def test_an_accepted_loss_does_not_make_facts_a_table_that_is_read_whole(
    tmp_path: Path, make_project: MakeProject
) -> None:
    orders(tmp_path, (1, 7))
    customers(tmp_path, (7, "CH"), (8, "DE"))
    project = make_project(project_of("left", f"{{name: dim, {READ}, {NARROW}}}"))
    run(project)
    orders(tmp_path, (2, 8))
    (batch,) = project.freeze()
    for file in (tmp_path / "orders").rglob("*.parquet"):
        file.unlink()

    raise_errors(project.retry(str(batch.batch_id), on_lost_range="accept"))

    assert rows(tmp_path / "facts", "id, country") == [(1, "CH")]
    orders(tmp_path, (3, 7))
    run(project)
    assert rows(tmp_path / "facts", "id, country") == [(1, "CH"), (3, "CH")]


UNION = """\
project: shop
pipelines:
  - pipeline: all
    nodes:
      - {name: two, read: {path: ./two, method: snapshot}, transform: [select: [id]]}
      - name: facts
        read: {path: ./one}
        transform: [{select: [id]}, {union: {with: [two]}}]
        write: {path: ./facts, %s}
"""


def numbers(path: Path, *ids: int) -> None:
    data = pa.table({"id": pa.array(ids, pa.int64())})
    write_deltalake(str(path), data, mode="append", configuration=FEED)


def test_a_table_that_a_union_reads_whole_is_merged_again_and_never_appended_twice(
    tmp_path: Path, make_project: MakeProject
) -> None:
    numbers(tmp_path / "one", 1)
    numbers(tmp_path / "two", 10, 11)
    project = make_project(UNION % "merge: {keys: [id], missing: keep}")
    run(project)
    numbers(tmp_path / "one", 2)
    run(project)
    assert rows(tmp_path / "facts") == [(1,), (2,), (10,), (11,)]

    numbers(tmp_path / "one", 3)
    (outcome,) = make_project(UNION % "mode: append").run().outcomes

    assert outcome.error is not None
    assert outcome.error.code == "FM-SINK-002"
    assert "two" in str(outcome.error.found)


FIRST = """\
project: shop
pipelines:
  - pipeline: p
    nodes:
      - {name: orders, read: {path: ./orders}}
      - name: dim
        read: {path: ./customers, method: snapshot}
        transform: [{select: [customer, country]}, {join: {with: orders, on: [customer]}}]
        write: {path: ./facts, %s}
"""


def test_a_dimension_that_is_the_input_of_a_join_is_whole_too(
    tmp_path: Path, make_project: MakeProject
) -> None:
    orders(tmp_path, (1, 7))
    customers(tmp_path, (7, "CH"), (8, "DE"))
    project = make_project(FIRST % "merge: {keys: [id], missing: keep}")
    run(project)
    orders(tmp_path, (2, 8))

    run(project)

    assert rows(tmp_path / "facts", "id, country") == [(1, "CH"), (2, "DE")]


JOINED = """\
  - pipeline: %s
    scope: shop
    nodes:
      - {name: dim, read: {path: ./customers, method: snapshot}, transform: [select: [customer, country]]}
      - name: facts
        read: {path: ./orders}
        transform: [join: {with: dim, on: [customer], how: inner}]
        write: {path: ./%s, mode: append}
"""
ORDERS_ONLY = """\
project: shop
pipelines:
  - pipeline: copy
    scope: shop
    nodes: [{name: copy, read: {path: ./orders}, write: {path: ./copy, mode: append}}]
"""


def test_a_seed_meets_a_dimension_that_nobody_of_its_scope_has_read_yet(
    tmp_path: Path, make_project: MakeProject
) -> None:
    orders(tmp_path, (1, 7))
    customers(tmp_path, (7, "CH"))
    run(make_project(ORDERS_ONLY))
    project = make_project(ORDERS_ONLY + JOINED % ("joined", "joined"))

    run(project)
    run(project)

    assert rows(tmp_path / "joined", "id, country") == [(1, "CH")]


def test_a_lost_target_is_rebuilt_with_all_of_a_dimension_without_news(
    tmp_path: Path, make_project: MakeProject
) -> None:
    orders(tmp_path, (1, 7))
    customers(tmp_path, (7, "CH"), (8, "DE"))
    project = make_project(project_of("inner", f"{{name: dim, {READ}, {NARROW}}}"))
    run(project)
    (tmp_path / "facts").rename(tmp_path / "gone")
    orders(tmp_path, (2, 8))
    (outcome,) = project.run().outcomes
    assert outcome.error is not None
    (batch,) = project.coordinator.status()[:1]

    project.retry(batch.batch_id, on_lost_target="rebuild")

    assert rows(tmp_path / "facts", "id, country") == [(1, "CH"), (2, "DE")]


def test_a_backfill_meets_all_of_a_dimension(tmp_path: Path, make_project: MakeProject) -> None:
    orders(tmp_path, (1, 7))
    customers(tmp_path, (7, "CH"), (8, "DE"))
    nodes = [f"{{name: dim, {READ}, {NARROW}, write: {{path: ./dim, mode: overwrite}}}}"]
    write = "merge: {keys: [id], missing: keep}"
    project = make_project(project_of("left", *nodes, write=write))
    run(project)
    orders(tmp_path, (2, 8))
    run(project)

    batch = project.coordinator.backfill(
        str(tmp_path / "orders"),
        start=0,
        end=1,
        pipelines=["orders"],
        scope="orders",
        allow_duplicates=True,
        allow_stale=True,
    )
    raise_errors(project.retry(str(batch.batch_id)))

    assert rows(tmp_path / "facts", "id, country") == [(1, "CH"), (2, "DE")]
    assert rows(tmp_path / "dim", "customer") == [(7,), (8,)]
