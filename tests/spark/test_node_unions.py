"""Nodes that unite several upstreams: deletes of each are merged, and the order is never a guess."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.support.node_projects import table_rows

from floodmark.errors import FloodmarkError
from floodmark.project import Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.as_users]

PROJECT = """\
project: shop
lease_ttl: 1s
connections: {lake: {type: lake, root: lake}}
pipelines:
  - pipeline: orders
    nodes:
      - {name: shop, read: {connection: lake, path: shop}}
      - {name: web, read: {connection: lake, path: web}}
      - name: all
        depends_on: [shop, web]
        transform: [{union: {with: [web]}}]
        write: {connection: lake, path: all, merge: {keys: [id]}}
"""


def put(root: Path, table: str, *rows: tuple[int, str, int]) -> None:
    listed = [dict(zip(("id", "v", "n"), row, strict=True)) for row in rows]
    write_deltalake(
        str(root / "lake" / table), pa.Table.from_pylist(listed), mode="append",
        configuration={"delta.enableChangeDataFeed": "true"},
    )  # fmt: skip


def run(root: Path, spark: SparkSession, *, again: bool = False) -> list[tuple[Any, ...]]:
    project = Project.load(root, session=lambda: spark)
    summary = project.retry(newest(project)) if again else project.run()
    for error in [o.error for o in summary.outcomes if o.error]:
        raise error
    return table_rows(root / "lake/all", "id, v")


def newest(project: Project) -> str:
    return list(project.coordinator.look.state().batches)[-1]


def test_a_union_merges_the_deletes_of_each_and_refuses_to_guess_an_order(
    tmp_path: Path, spark: SparkSession
) -> None:
    (tmp_path / "floodmark.yaml").write_text(PROJECT)
    put(tmp_path, "shop", (1, "a", 1), (2, "b", 1))
    put(tmp_path, "web", (3, "c", 1), (4, "d", 1))
    first = run(tmp_path, spark)
    DeltaTable(str(tmp_path / "lake/web")).delete("id = 3")
    DeltaTable(str(tmp_path / "lake/shop")).update({"v": "'a2'"}, predicate="id = 1")
    second = run(tmp_path, spark)

    put(tmp_path, "shop", (9, "late", 1))
    put(tmp_path, "web", (9, "new", 2))
    with pytest.raises(FloodmarkError) as caught:
        run(tmp_path, spark)
    ordered = PROJECT.replace("{keys: [id]}", "{keys: [id], sequence_by: n}")
    (tmp_path / "floodmark.yaml").write_text(ordered)
    third = run(tmp_path, spark, again=True)

    assert first == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
    assert second == [(1, "a2"), (2, "b"), (4, "d")]
    assert caught.value.code == "FM-SINK-036"
    assert "write.merge.sequence_by" in str(caught.value)
    assert third == [*second, (9, "new")]


KEPT = """\
project: shop
lease_ttl: 1s
connections: {lake: {type: lake, root: lake}}
pipelines:
  - pipeline: orders
    nodes:
      - {name: shop, read: {connection: lake, path: shop}}
      - {name: web, read: {connection: lake, path: web, lookup: true}}
      - name: all
        depends_on: [shop, web]
        transform: [{sql: "SQL"}]
        write: {connection: lake, path: all, mode: append}
"""
ON = "JOIN input USING (id)"


@pytest.mark.parametrize(
    ("sql", "is_refused"),
    [
        (f"SELECT web.id, web.v FROM web LEFT {ON}", True),
        (f"FROM web |> LEFT {ON} |> SELECT web.id, web.v", True),
        ("SELECT id, v FROM web EXCEPT SELECT id, v FROM input", True),
        (f"SELECT web.id, web.v FROM web {ON}", False),
        ("SELECT id, v FROM web WHERE id IN (SELECT id FROM input)", False),
    ],
)
def test_sql_that_keeps_the_rows_of_a_table_that_is_read_whole_is_not_appended_twice(
    tmp_path: Path, spark: SparkSession, sql: str, *, is_refused: bool
) -> None:
    (tmp_path / "floodmark.yaml").write_text(KEPT.replace("SQL", sql))
    put(tmp_path, "web", (1, "a", 0), (2, "b", 0))
    put(tmp_path, "shop", (1, "a", 0))
    first = run(tmp_path, spark)
    put(tmp_path, "shop", (2, "b", 0))

    if is_refused:
        with pytest.raises(FloodmarkError, match="FM-SINK-002"):
            run(tmp_path, spark)
        assert table_rows(tmp_path / "lake/all", "id, v") == first
    else:
        assert run(tmp_path, spark) == [(1, "a"), (2, "b")]
