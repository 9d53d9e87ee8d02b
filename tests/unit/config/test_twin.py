"""The same project from files and from Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import floodmark as fm
from floodmark.config import load_project
from floodmark.errors import ConfigErrors

YAML = """\
project: shop
jobs: 3
connections:
  erp: {type: postgresql, host: "${env:FM_TWIN_HOST:-db}", database: shop, password: "${env:FM_PW}"}
  lake: {type: lake, root: lake}
pipelines:
  - pipeline: daily
    timeout: 2h
    nodes:
      load:
        read:
          connection: erp
          format: postgresql
          options: {query: "SELECT * FROM t WHERE u > @last_load_timestamp"}
        transform:
          - limit: {rows: 3}
          - sql: SELECT 1
          - python: {function: "a.b:c", params: {x: 1}}
        write: {connection: lake, path: "raw/${env:FM_TWIN_HOST:-db}", mode: append}
  - {pipeline: own, upstreams: [lake/a, {name: lake/b, baseline: 3}], function: "jobs:f"}
"""
CONNECTIONS: dict[str, Any] = {
    "erp": {
        "type": "postgres",
        "host": "${env:FM_TWIN_HOST:-db}",
        "database": "shop",
        "password": "${env:FM_PW}",
    },
    "lake": {"type": "lake", "root": "lake"},
}


def pipelines() -> list[fm.Pipeline]:
    load = fm.Node(
        "load",
        read={"connection": "erp", "format": "postgres", "query": "SELECT * FROM t WHERE u > :window_start"},
        transform=[
            {"limit": {"rows": 3}},
            {"sql": "SELECT 1"},
            {"python": {"function": "a.b:c", "params": {"x": 1}}},
        ],
        write={"connection": "lake", "path": "raw/${env:FM_TWIN_HOST:-db}", "mode": "append"},
    )  # fmt: skip
    own = fm.Pipeline(
        "own", upstreams=["lake/a", {"name": "lake/b", "baseline": 3}], function="jobs:f"
    )
    return [fm.Pipeline("daily", timeout="2h", nodes=[load]), own]


def test_python_and_files_give_the_same_settings_and_hashes(tmp_path: Path) -> None:
    from floodmark.config.project.python_api import built

    (tmp_path / "floodmark.yaml").write_text(YAML)
    written = load_project(tmp_path / "floodmark.yaml").settings

    twin = built(tmp_path, "shop", pipelines(), jobs=3, connections=CONNECTIONS).settings

    assert twin.model_dump() == written.model_dump()
    assert [p.definition for p in twin.pipelines] == [p.definition for p in written.pipelines]


def test_a_hash_follows_what_a_pipeline_does_and_not_what_is_said_about_it() -> None:
    node: dict[str, Any] = {"read": {"path": "x"}, "write": {"path": "y", "mode": "append"}}
    plain = fm.Pipeline("p", nodes=[fm.Node("n", **node)])

    told = fm.Pipeline("p", description="words", tags=["t"], nodes=[fm.Node("n", **node)])
    other = fm.Pipeline("p", nodes=[fm.Node("n", **{**node, "read": {"path": "z"}})])

    assert told.definition == plain.definition
    assert other.definition != plain.definition


def test_mistakes_in_python_are_the_same_typed_errors() -> None:
    with pytest.raises(ConfigErrors) as caught:
        fm.Node("a b", raed={}, write={"mode": "apend"})

    codes = sorted(error.code for error in caught.value.errors)
    assert codes == ["FM-CONFIG-003", "FM-CONFIG-004", "FM-CONFIG-004"]
    assert "nearest: read" in str(caught.value)
    assert "nearest: append" in str(caught.value)


def test_rules_hold_for_projects_built_in_python(tmp_path: Path) -> None:
    from floodmark.config.project.python_api import built

    with pytest.raises(fm.FloodmarkError) as caught:
        built(tmp_path, "shop", pipelines())

    assert "there is no connection erp" in str(caught.value)


def test_importing_floodmark_loads_neither_pydantic_nor_yaml() -> None:
    code = (
        "import sys, floodmark; "
        "sys.exit(sum(name in sys.modules for name in ('pydantic', 'yaml', 'pyspark')))"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_help_loads_neither_pydantic_nor_yaml() -> None:
    code = (
        "import sys; from floodmark.cli.main import main; main(['--help']); "
        "sys.exit(sum(name in sys.modules for name in ('pydantic', 'yaml', 'pyspark')))"
    )

    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True)

    assert done.returncode == 0
