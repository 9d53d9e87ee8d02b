"""The YAML of the seed documents, and that it means the same as today's spelling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from floodmark.config import load_project
from floodmark.config.project.nodes import NodeSettings
from floodmark.errors import ConfigError

PROJECT = """\
project: seeds
connections:
  sql_server: {type: sql_server, host: db, database: shop, user: etl, password: "${env:FM_PW}"}
  azure_sql: {type: azure_sql, host: db, database: shop, user: etl, password: "${env:FM_PW}"}
  adls: {type: lake, root: lake}
  local: {type: files, root: .}
"""
QUERY = """\
          SELECT * FROM dbo.orders
          WHERE updated_at > (SELECT COALESCE(MAX(updated_at), '1900-01-01') FROM raw.orders)
"""
SEED_003 = f"""\
pipeline: daily_orders
nodes:
  - name: load_orders
    read:
      connection: sql_server
      format: sql_server
      table: dbo.orders
      options:
        query: |
{QUERY}
    write:
      connection: adls
      format: delta
      path: raw/orders
      mode: append
      register_table: raw.orders
      first_run_query: SELECT * FROM dbo.orders
      options:
        cluster_by: order_date
        optimize_write: true
"""
SEED_002 = """\
pipeline: mapped
nodes:
  load_orders:
    read:
      connection: azure_sql
      format: sql_server
      query: |
        SELECT * FROM orders
        WHERE created_at > @last_run_timestamp
    write:
      connection: adls
      format: delta
      path: bronze/orders
      mode: append
      first_run_query: SELECT * FROM orders  # Full load on day 1
      options:
        cluster_by: [order_date]
"""
CSV = """\
pipeline: csv_load
nodes:
  - name: load_csv
    read: {connection: local, format: csv, path: data/orders.csv}
    write: {connection: local, format: parquet, path: data/processed/orders, mode: append}
"""


def nodes(root: Path, text: str) -> list[NodeSettings]:
    (root / "pipelines").mkdir(exist_ok=True)
    (root / "floodmark.yaml").write_text(PROJECT)
    (root / "pipelines/seed.yaml").write_text(text)
    return load_project(root / "floodmark.yaml").settings.pipelines[0].nodes


def node(root: Path, **keys: Any) -> NodeSettings:
    import yaml

    return nodes(root, yaml.safe_dump({"pipeline": "p", "nodes": [{"name": "n", **keys}]}))[0]


def test_the_yaml_of_seed_003_loads(tmp_path: Path) -> None:
    (found,) = nodes(tmp_path, SEED_003)

    assert found.read is not None
    assert found.read.format == "sqlserver"
    assert found.read.query is not None
    assert "MAX(updated_at)" in found.read.query
    assert found.read.options == {}
    assert found.write is not None
    assert found.write.first_run_query == "SELECT * FROM dbo.orders"
    assert found.write.options.cluster_by == ["order_date"]


def test_the_yaml_of_seed_002_loads_with_nodes_as_a_mapping(tmp_path: Path) -> None:
    (found,) = nodes(tmp_path, SEED_002)

    assert found.name == "load_orders"
    assert found.read is not None
    assert found.read.query == "SELECT * FROM orders\nWHERE created_at > :window_start\n"


def test_a_csv_load_loads(tmp_path: Path) -> None:
    (found,) = nodes(tmp_path, CSV)

    assert found.write is not None
    assert (found.write.format, found.write.mode) == ("parquet", "append")


def test_query_in_options_means_query(tmp_path: Path) -> None:
    old = node(
        tmp_path, read={"connection": "azure_sql", "options": {"query": "S", "fetchsize": 5}}
    )
    new = node(
        tmp_path, read={"connection": "azure_sql", "query": "S", "options": {"fetchsize": 5}}
    )

    assert old == new


def test_a_query_said_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        node(tmp_path, read={"connection": "azure_sql", "query": "S", "options": {"query": "T"}})

    assert caught.value.code == "FM-CONFIG-005"


def test_the_merge_transformer_means_a_write_by_merge(tmp_path: Path) -> None:
    read = {"connection": "azure_sql", "table": "t"}
    params = {
        "target": "silver/orders", "keys": ["id"], "strategy": "upsert", "zorder_by": ["id"],
        "audit_cols": {"created_col": "c", "updated_col": "u"},
    }  # fmt: skip
    merge = {"keys": ["id"], "strategy": "upsert", "audit": {"created_at": "c", "updated_at": "u"}}
    write = {
        "path": "silver/orders",
        "mode": "merge",
        "merge": merge,
        "options": {"zorder_by": "id"},
    }

    old = node(tmp_path, read=read, transformer="merge", params=params)

    assert old == node(tmp_path, read=read, write=write)


def test_the_merge_transformer_keeps_the_write_that_is_there(tmp_path: Path) -> None:
    read = {"connection": "azure_sql", "table": "t"}
    there = {"connection": "adls", "path": "silver/orders", "mode": "append"}

    found = node(
        tmp_path,
        read=read,
        transformer="merge",
        params={"target": "raw.x", "keys": "id"},
        write=there,
    )

    assert found.write is not None
    assert (found.write.connection, found.write.path, found.write.table) == (
        "adls",
        "silver/orders",
        None,
    )
    assert found.write.mode == "merge"


def test_another_transformer_means_a_last_step(tmp_path: Path) -> None:
    read = {"connection": "azure_sql", "table": "t"}
    steps = [{"sql": "SELECT 1"}]

    old = node(
        tmp_path, read=read, transform=steps, transformer="deduplicate", params={"keys": ["id"]}
    )

    assert old == node(tmp_path, read=read, transform=[*steps, {"deduplicate": {"keys": ["id"]}}])


def test_mistakes_in_older_spellings_have_their_place(tmp_path: Path) -> None:
    text = SEED_002.replace("mode: append", "mode: apend") + "  other:\n    transformer: merge\n"

    with pytest.raises(ConfigError) as caught:
        nodes(tmp_path, text)

    assert f"{tmp_path}/pipelines/seed.yaml:14:13" in str(caught.value)
    assert "node load_orders" in str(caught.value)
    assert 'key "keys" is missing' in str(caught.value)
