"""What `validate` knows of nodes before anything runs: schemas, keys, SQL and shared targets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from floodmark.cli.main import main

PROJECT = """\
project: shop
connections: {lake: {type: lake, root: lake}, inbox: {type: files, root: data}}
pipelines:
  - pipeline: orders
    nodes:
      - name: load
        read: {connection: inbox, format: csv, path: "*.csv", schema: "id LONG, day DATE, v STRING"}
        write: {connection: lake, path: orders, merge: {keys: [id], sequence_by: day}}
      - name: other
        depends_on: [load]
        transform:
          - sql: SELECT * FROM input
        write: {connection: lake, path: other, mode: append, changes: log}
"""


@pytest.fixture
def validate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Any:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()

    def check(old: str = "", new: str = "") -> tuple[int, dict[str, Any]]:
        assert old in PROJECT
        (tmp_path / "floodmark.yaml").write_text(PROJECT.replace(old, new))
        code = main(["validate", "--json"])
        return code, json.loads(capsys.readouterr().out)

    return check


def test_a_sound_project_has_neither_errors_nor_warnings(validate: Any) -> None:
    code, said = validate()
    assert (code, said["warnings"]) == (0, [])


@pytest.mark.parametrize(
    ("change", "error", "where", "title"),
    [
        (("id LONG", "id LNG"), "004", "read.schema", 'columns cannot be read: "LNG" after "id"'),
        (("keys: [id]", "keys: [order_id]"), "015", "write.merge.keys[0]", "no column order_id"),
        (("sequence_by: day", "sequence_by: at"), "015", "write.merge.sequence_by", "no column at"),
        (
            (
                "write: {connection: lake, path: orders,",
                "expect: [{not_null: [id, w]}]\n        write: {connection: lake, path: orders,",
            ),
            "015",
            "expect[0].not_null[1]",
            "no column w",
        ),
        (("SELECT *", "SELEC *"), "006", "transform[0]", "begins with SELEC;"),
        (
            ("SELECT * FROM input", "DROP TABLE input"),
            "006",
            "transform[0]",
            "begins with DROP;",
        ),
        (
            ("SELECT * FROM input", "WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a"),
            "006",
            "transform[0]",
            "it changes a table",
        ),
    ],
)
def test_what_could_never_run_is_an_error_at_its_place(
    validate: Any, change: tuple[str, str], error: str, where: str, title: str
) -> None:
    code, said = validate(*change)

    assert code == 2
    assert said["error"]["code"].endswith(error), said
    assert where in said["error"]["where"]
    assert title in said["error"]["title"]


def test_columns_that_steps_make_are_left_to_the_run(validate: Any) -> None:
    step = "transform: [{derive_columns: {columns: {w: upper(v)}}}]"
    write = "write: {connection: lake, path: orders, merge: {keys: [id]"
    code, said = validate(write, f"{step}\n        {write.replace('[id]', '[w]')}")
    assert code == 0, said


def test_sql_that_cannot_be_read_is_a_word_to_the_user_not_an_error(validate: Any) -> None:
    code, said = validate("SELECT * FROM input", "SELECT id v w FROM input")

    assert code == 0
    (warning,) = said["warnings"]
    assert warning["code"] == "FM-CONFIG-028"
    assert "transform[0].sql" in warning["where"]
    assert warning["found"] == "line 1, column 13, near 'w'"


@pytest.mark.parametrize(
    ("write", "why"),
    [
        ("path: orders, mode: append, changes: log}", "appended rows double keys"),
        ("path: ./orders/, mode: overwrite, allow_partial: true}", "takes the other's rows away"),
        ("path: orders, merge: {keys: [v]}}", "by other keys"),
        ("path: orders, merge: {keys: [id]}}", None),
    ],
)
def test_nodes_that_disturb_each_other_in_one_target_are_named(
    validate: Any, write: str, why: str | None
) -> None:
    code, said = validate("path: other, mode: append, changes: log}", write)

    assert code == 0
    assert [each["code"] for each in said["warnings"]] == (["FM-CONFIG-029"] if why else [])
    if why:
        assert why in said["warnings"][0]["title"]
        assert said["warnings"][0]["title"].startswith("orders.other and orders.load both write")


def test_a_misspelled_format_is_one_error(validate: Any) -> None:
    code, said = validate("format: csv", "format: cvs")

    assert code == 2
    assert [each["code"] for each in errors_of(said)] == ["FM-CONFIG-013"]
    assert "csv" in said["error"]["allowed"]


def test_a_module_of_plugins_that_is_not_there_is_one_error_where_it_is_named(
    validate: Any,
) -> None:
    code, said = validate("project: shop", "project: shop\nplugins: [fm_nowhere]")
    assert code == 2
    (error,) = errors_of(said)
    assert error["code"] == "FM-TRANSFORM-013"
    assert ":2:" in error["where"]
    assert "plugins" in error["where"]


def errors_of(said: dict[str, Any]) -> list[dict[str, Any]]:
    return said["error"].get("errors") or [said["error"]]
