"""What a node means is worked out once: kind, upstream, target and names."""

from __future__ import annotations

from pathlib import Path

import pytest

from floodmark.config import load_project
from floodmark.config.project.resolved import ResolvedNode, ResolvedPipeline

PROJECT = """\
project: shop
connections:
  lake: {{type: lake, root: /data/lake}}
  inbox: {{type: files, root: s3://inbox/}}
  erp: {{type: postgres, host: db, database: erp, user: me, password: "${{env:PW}}"}}
  api: {{type: http, base_url: "https://api.example.com"}}
  crm: {{type: plugin, name: crm}}
pipelines:
  - pipeline: daily
    scope: days
    nodes:
      - {{name: n, {node}}}
"""
WRITE = "write: {connection: lake, path: out, mode: append}"
READ = "read: {connection: lake, path: in}"


def only_node(folder: Path, node: str) -> ResolvedNode:
    (folder / "floodmark.yaml").write_text(PROJECT.format(node=node))
    ((pipeline),) = load_project(folder / "floodmark.yaml").pipelines
    return pipeline.nodes[0]


@pytest.mark.parametrize(
    ("read", "kind", "upstream", "names"),
    [
        ("{path: a/b}", "delta", "a/b", ("a/b",)),
        ("{path: b}", "delta", "./b", ("b",)),
        ("{table: silver.orders}", "delta", "silver.orders", ("silver.orders",)),
        ("{connection: lake, path: a//b/}", "delta", "/data/lake/a/b", ("/data/lake/a/b",)),
        (
            "{connection: inbox, path: '*.csv', format: csv}",
            "files",
            "files://inbox/*.csv",
            ("s3://inbox/*.csv",),
        ),
        (
            "{connection: erp, table: public.t, incremental: {cursor: at}}",
            "database",
            "sql://erp/public.t",
            ("erp:public.t",),
        ),
        (
            "{connection: erp, query: SELECT * FROM t WHERE at > :window_start}",
            "database",
            "sql://erp/days.n",
            (),
        ),
        ("{connection: api, path: /items}", "source", "source://api/items", ()),
        (
            "{connection: crm, table: t, schema: id LONG, incremental: {cursor: id}}",
            "source",
            "source://crm/t",
            ("crm:t",),
        ),
    ],
)
def test_what_a_node_reads(
    tmp_path: Path, read: str, kind: str, upstream: str, names: tuple[str, ...]
) -> None:
    node = only_node(tmp_path, f"read: {read}, {WRITE}")

    assert (node.kind, node.reads) == (kind, names)
    assert node.upstream is not None
    assert node.upstream.name == upstream
    assert node.is_reading


@pytest.mark.parametrize(
    ("write", "kind", "target", "names"),
    [
        ("{path: out, mode: append}", "delta", "./out", ("out",)),
        (
            "{connection: lake, path: out, mode: append, register_table: gold.t}",
            "delta",
            "/data/lake/out",
            ("/data/lake/out", "gold.t"),
        ),
        (
            "{connection: inbox, path: out, format: csv, mode: append}",
            "files",
            "s3://inbox/out",
            ("s3://inbox/out",),
        ),
        ("{connection: erp, table: t, mode: append}", "postgres", "erp:t", ("erp:t",)),
        ("{connection: crm, table: t, mode: append}", "plugin", "crm:t", ("crm:t",)),
    ],
)
def test_what_a_node_writes(
    tmp_path: Path, write: str, kind: str, target: str, names: tuple[str, ...]
) -> None:
    node = only_node(tmp_path, f"{READ}, write: {write}")

    assert node.write is not None
    assert (node.write.kind, node.write.target, node.writes) == (kind, target, names)
    assert node.spec is not None
    assert (node.spec.target, node.spec.name) == (target, "n")
    assert node.write.is_at_least_once == (kind in ("files", "plugin"))


def test_a_project_in_use_has_the_reads_of_its_nodes_as_upstreams(tmp_path: Path) -> None:
    only_node(tmp_path, f"{READ}, {WRITE}")
    file = load_project(tmp_path / "floodmark.yaml")

    in_use = file.with_upstreams()

    assert file.settings.pipelines[0].upstreams == []
    assert in_use.settings.pipelines[0].upstreams == ["/data/lake/in"]
    assert in_use.pipelines[0].settings is in_use.settings.pipelines[0]
    assert nodes_of(in_use.pipelines) == nodes_of(file.pipelines)  # resolved once, then shared


def nodes_of(pipelines: tuple[ResolvedPipeline, ...]) -> list[int]:
    return [id(node) for pipeline in pipelines for node in pipeline.nodes]
