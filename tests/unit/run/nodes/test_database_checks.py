"""What `validate` finds in nodes that read databases, and what `plan` makes of them without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from floodmark.config.project.cursors import implied_cursor
from floodmark.errors import FloodmarkError
from floodmark.project import Project

PROJECT = """\
project: shop
connections:
  lake: {type: lake, root: lake}
  erp: {type: DIALECT, host: db, database: shop, user: etl, password: "${env:ERP_PASSWORD}"}
pipelines:
  - pipeline: orders
    nodes:
      - name: load
        read:
          connection: erp
          READ
        write:
          connection: lake
          path: raw/orders
          mode: append
          WRITE
"""
GOOD = "table: public.orders\n          incremental: {cursor: at, overlap: 1h, keys: [id]}"
WINDOWED = (
    "query: SELECT * FROM orders WHERE at > :window_start\n          incremental: {cursor: at}"
)
FIRST = "first_run_query: SELECT * FROM orders"
OWN = "query: SELECT * FROM orders WHERE at > (SELECT MAX(at) FROM raw.orders)"


def check(root: Path, read: str, write: str = "", dialect: str = "postgres") -> Project:
    text = PROJECT.replace("READ", read).replace("WRITE", write).replace("DIALECT", dialect)
    (root / "floodmark.yaml").write_text(text)
    return Project.check(root)


@pytest.mark.parametrize("dialect", ["postgres", "sql_server", "mysql", "oracle", "snowflake"])
@pytest.mark.parametrize(
    ("read", "write"),
    [
        (GOOD, ""),
        (WINDOWED, "first_run_query: SELECT * FROM orders"),
        (WINDOWED.replace("cursor: at", "cursor: at, baseline: 2026-01-01"), ""),
        (OWN, "register_table: raw.orders\n          first_run_query: SELECT * FROM orders"),
    ],
)
def test_reads_of_databases_are_accepted_without_a_database(
    tmp_path: Path, dialect: str, read: str, write: str
) -> None:
    project = check(tmp_path, read, write, dialect)

    assert {error.code for error in project.file.warnings} <= {"FM-CONFIG-017"}


@pytest.mark.parametrize(
    ("read", "write", "key"),
    [
        (WINDOWED, "", "read.query"),
        (WINDOWED.replace(":window_start", ":window_stat"), FIRST, "read.query"),
        (WINDOWED.replace("SELECT *", "DELETE; SELECT *"), FIRST, "read.query"),
        (GOOD.replace("public.orders", "public..orders"), "", "read.table"),
        (GOOD.replace("cursor: at", "cursor: o.at"), "", "read.incremental.cursor"),
        (GOOD.replace("keys: [id]", "time_zone: Berlin"), "", "read.incremental.time_zone"),
        (GOOD.replace("keys", "type: date, baseline: soon, keys"), "", "read.incremental.baseline"),
        (
            GOOD.replace("keys", "baseline: 2026-01-01, keys"),
            "first_run_query: SELECT * FROM orders",
            "read.incremental.baseline",
        ),
        (GOOD, "first_run_query: SELECT * FROM orders WHERE at > :window_start", "first_run_query"),
        (GOOD, 'first_run_query: "UPDATE orders SET id = 1"', "write.first_run_query"),
        (
            OWN.replace("MAX(at)", "at, id"),
            "register_table: raw.orders\n          first_run_query: SELECT 1",
            "read.query",
        ),
    ],
)
def test_a_mistake_in_a_read_is_found_at_its_key(
    tmp_path: Path, read: str, write: str, key: str
) -> None:
    with pytest.raises(FloodmarkError) as caught:
        check(tmp_path, read, write)

    assert caught.value.code in ("FM-CONFIG-004", "FM-CONFIG-015", "FM-SOURCE-030")
    assert key in (caught.value.where or "")
    assert "floodmark.yaml:" in (caught.value.where or "")


def test_times_without_overlap_and_keys_in_append_mode_are_warned_of(tmp_path: Path) -> None:
    first = "first_run_query: SELECT * FROM orders"
    said = check(tmp_path, "table: orders\n          incremental: {cursor: updated_at}")
    implied = check(tmp_path, WINDOWED.partition("\n")[0], first)
    counted = check(tmp_path, "table: orders\n          incremental: {cursor: id}")

    assert [error.code for error in said.file.warnings] == ["FM-CONFIG-017"]
    assert [error.code for error in implied.file.warnings] == ["FM-CONFIG-017"]
    assert not counted.file.warnings


def test_a_query_by_a_cursor_that_nothing_names_is_not_run(tmp_path: Path) -> None:
    query = "query: SELECT * FROM orders WHERE a > :window_start OR b > :window_start"
    for refused in (lambda: check(tmp_path, query, FIRST), lambda: Project.load(tmp_path).plan()):
        with pytest.raises(FloodmarkError) as caught:
            refused()
        assert caught.value.code == "FM-CONFIG-016"


def test_without_a_cursor_all_rows_are_read_and_an_append_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FloodmarkError) as caught:
        check(tmp_path, "table: orders")
    assert caught.value.code == "FM-CONFIG-015"
    file = tmp_path / "floodmark.yaml"
    file.write_text(file.read_text().replace("append", "overwrite").replace("postgres", "mysql"))

    ((window,),) = [batch.windows for batch in Project.check(tmp_path).plan()]

    assert (window.is_whole, window.deferred) == (True, False)
    assert "no cursor is said" in window.reason


def test_queries_of_one_scope_need_names_of_their_own(tmp_path: Path) -> None:
    check(tmp_path, WINDOWED, FIRST)
    file = tmp_path / "floodmark.yaml"
    head, one = file.read_text().split("  - pipeline: orders\n")
    two = "".join(f"  - pipeline: {name}\n    scope: night\n{one}" for name in ("a", "b"))
    file.write_text(head + two.replace("path: raw/orders", "path: raw/b", 2))

    with pytest.raises(FloodmarkError) as caught:
        Project.load(tmp_path).plan()

    assert caught.value.code == "FM-CONFIG-016"
    assert "b of the same scope has a query of that name" in str(caught.value.allowed)


def test_a_database_that_only_spark_can_ask_is_planned_with_a_deferred_end(tmp_path: Path) -> None:
    project = check(tmp_path, GOOD, dialect="mysql")
    (batch,) = project.plan()
    (window,) = batch.windows

    assert (window.kind, window.deferred, window.end_mark) == ("cursor", True, None)
    assert window.upstream == "sql://erp/public.orders"
    assert "freezes the end" in window.reason


@pytest.mark.parametrize(
    ("query", "own", "cursor"),
    [
        ("SELECT * FROM t WHERE t.at >= :window_start AND x > 1", (), "at"),
        ('SELECT * FROM t WHERE "At" > :window_start', (), '"At"'),
        ("SELECT * FROM t WHERE at > (SELECT MAX(at) FROM Raw.T)", ("raw.t",), "at"),
        ("SELECT * FROM t WHERE at > (SELECT MAX(at) FROM other)", ("raw.t",), None),
        ("SELECT * FROM t WHERE a > :window_start OR b > :window_start", (), None),
        ("SELECT * FROM t", (), None),
    ],
)
def test_the_cursor_is_the_column_that_is_compared_with_the_start(
    query: str, own: tuple[str, ...], cursor: str | None
) -> None:
    assert implied_cursor(query, own) == cursor
