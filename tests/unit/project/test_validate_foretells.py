"""`validate` refuses what `plan` and `run` would refuse, as far as files and local tables tell."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from floodmark.config import load_project
from floodmark.coordinator import Outside
from floodmark.deltalog import Storage
from floodmark.errors import CODES, ConfigErrors, FloodmarkError
from floodmark.project import Project

HEAD = """\
project: shop
connections:
  lake: {type: lake, root: lake}
  inbox: {type: files, root: inbox}
  erp: {type: postgres, host: db, database: shop, user: etl, password: "${env:ERP_PASSWORD}"}
  api: {type: http, base_url: "https://api.example.org"}
pipelines:
"""
RAW = """\
  - pipeline: raw
    nodes:
      - name: raw
        read: {connection: inbox, format: csv, path: "*.csv", schema: "id LONG, v STRING"}
        write: {connection: lake, path: raw, RAW}
"""
MERGED, APPENDED = "merge: {keys: [id]}", "mode: append"
BELOW = """\
  - pipeline: below
    nodes:
      - name: below
        read: {connection: lake, path: raw}
        TRANSFORM
        write: {connection: lake, path: below, WRITE}
"""


def project(raw: str, write: str, transform: str = "", read: str = "") -> str:
    text = HEAD + RAW.replace("RAW", raw) + BELOW.replace("WRITE", write)
    text = text.replace("TRANSFORM", f"transform: [{transform}]" if transform else "tags: [x]")
    return text.replace("path: raw}", f"path: raw{read}}}")


def one_node(read: str, write: str, transform: str = "") -> str:
    steps = f"transform: [{transform}]" if transform else "tags: [x]"
    return (
        HEAD + "  - pipeline: one\n    nodes:\n      - name: one\n"
        f"        read: {{{read}}}\n        {steps}\n"
        f"        write: {{connection: lake, path: one, {write}}}\n"
    )


def two_nodes(first: str, second: str) -> str:
    return (
        HEAD + "  - pipeline: two\n    nodes:\n"
        f"      - {{name: first, {first}}}\n      - {{name: second, {second}}}\n"
    )


FILES = 'connection: inbox, format: csv, path: "*.csv"'
TABLE = "connection: lake, path: orders"
WRITE = "write: {connection: lake, path: out, mode: append}"
OTHER, OUT = TABLE.replace("orders", "other"), TABLE.replace("orders", "out")
SNAPSHOT = f"{TABLE}, method: snapshot"

REFUSED = {
    # FM-CONFIG-016
    "a table read in two ways": (
        "FM-CONFIG-016",
        two_nodes(f"read: {{{TABLE}}}, {WRITE}", f"read: {{{SNAPSHOT}}}"),
        "nodes[1].read",
    ),
    "files read in two ways": (
        "FM-CONFIG-016",
        two_nodes(f"read: {{{FILES}}}, {WRITE}", f"read: {{{FILES}, file_column: f}}"),
        "read.path",
    ),
    # FM-CONFIG-044
    "SQL names a node": (
        "FM-CONFIG-044",
        two_nodes(
            f"read: {{{TABLE}}}",
            f"read: {{{SNAPSHOT.replace('orders', 'other')}}}, {WRITE},"
            ' transform: [{sql: "SELECT i.* FROM input i JOIN First f ON i.id = f.id"}]',
        ),
        "nodes[1].transform[0].sql",
    ),
    # Lookups
    "nothing but a lookup": (
        "FM-CONFIG-030",
        one_node(f"{TABLE}, lookup: true", APPENDED),
        "nodes",
    ),
    "a lookup of an own table": (
        "FM-CONFIG-031",
        two_nodes(f"read: {{{TABLE}}}, {WRITE}", f"read: {{{OUT}, lookup: true}}"),
        "nodes[1].read",
    ),
    "a lookup of an own table, spelled otherwise": (
        "FM-CONFIG-031",
        two_nodes(
            f"read: {{{TABLE}}}, {WRITE}",
            "read: {path: ROOT/lake/out, format: delta, lookup: true}",
        ),
        "nodes[1].read",
    ),
    "a lookup from a version on": (
        "FM-CONFIG-032",
        two_nodes(f"read: {{{TABLE}}}, {WRITE}", f"read: {{{OTHER}, lookup: true, baseline: 1}}"),
        "nodes[1].read.baseline",
    ),
    "a lookup of a node": (
        "FM-CONFIG-033",
        two_nodes(f"read: {{{TABLE}}}, {WRITE}", "read: {node: first, lookup: true}"),
        "nodes[1].read.lookup",
    ),
    "a lookup beside a read": (
        "FM-CONFIG-034",
        two_nodes(f"read: {{{TABLE}}}, {WRITE}", f"read: {{{TABLE}, lookup: true}}"),
        "nodes[1].read",
    ),
    "a lookup that is written": (
        "FM-CONFIG-035",
        two_nodes(f"read: {{{TABLE}}}", f"read: {{{OTHER}, lookup: true}}, {WRITE}"),
        "nodes[1].write",
    ),
    # FM-SINK
    "a merge below a merge, and select": (
        "FM-SINK-001",
        project(MERGED, MERGED, "select: [id, v]"),
        "write.merge",
    ),
    "a merge below a merge, and SQL": (
        "FM-SINK-001",
        project(MERGED, MERGED, '{sql: "SELECT id, upper(v) AS v FROM input"}'),
        "write.merge",
    ),
    "a merge below a merge, and aggregate": (
        "FM-SINK-001",
        project(MERGED, MERGED, "aggregate: {by: [id], columns: {v: max(v)}}"),
        "write.merge",
    ),
    "a merge below a merge, and drop": (
        "FM-SINK-001",
        project(MERGED, MERGED, "drop: {columns: [_change_type]}"),
        "write.merge",
    ),
    "an append below a merge": ("FM-SINK-001", project(MERGED, APPENDED), "write.mode"),
    "a log whose changes are dropped": (
        "FM-SINK-001",
        project(APPENDED, "mode: append, changes: log", "select: [id]"),
        "write.changes",
    ),
    "a merge in one pipeline": (
        "FM-SINK-001",
        two_nodes(
            f"read: {{{FILES}}}, write: {{connection: lake, path: a, {MERGED}}}",
            f"depends_on: [first], {WRITE}",
        ),
        "nodes[1].write.mode",
    ),
    "an overwrite by new files": ("FM-SINK-003", one_node(FILES, "mode: overwrite"), "write.mode"),
    "an overwrite by changes": ("FM-SINK-003", project(APPENDED, "mode: overwrite"), "write.mode"),
    "a merge of a snapshot": ("FM-SINK-004", one_node(SNAPSHOT, MERGED), "write.merge"),
    "a merge of a whole answer": (
        "FM-SINK-004",
        one_node("connection: api, path: rates", MERGED),
        "write.merge",
    ),
    "a merge of a whole table of a database": (
        "FM-SINK-004",
        one_node("connection: erp, table: orders", MERGED),
        "write.merge",
    ),
    "options that contradict": (
        "FM-SINK-005",
        one_node(SNAPSHOT, "merge: {keys: [id], missing: delete, deletes: ignore}"),
        "nodes[0].write",
    ),
    # Places
    "no folder": ("FM-PLAN-001", one_node(FILES.replace("*.csv", "no/*.csv"), APPENDED), "read"),
    "no table": ("FM-PLAN-001", one_node("connection: lake, path: no", APPENDED), "read"),
    "no Delta table": ("FM-PLAN-002", one_node("connection: lake, path: plain", APPENDED), "read"),
    "two options of one scope": (
        "FM-PLAN-022",
        "\n".join(
            [
                HEAD.rstrip(),
                *(
                    f"  - {{pipeline: p{n}, scope: s, nodes: [{{name: a{n}, read: {{{TABLE}{more}}},"
                    f" write: {{connection: lake, path: o{n}, mode: append}}}}]}}"
                    for n, more in enumerate(("", ", on_feed_gap: fail"))
                ),
            ]
        ),
        "pipelines[0]",
    ),
    "a version that is not there": (
        "FM-PLAN-021",
        one_node(f"{TABLE}, baseline: 99", APPENDED),
        "pipelines[0]",
    ),
    # What the files alone tell
    "an unknown key": ("FM-CONFIG-003", one_node(f"{TABLE}, colour: red", APPENDED), "colour"),
    "a wrong value": ("FM-CONFIG-004", one_node(TABLE, "mode: 7"), "mode"),
    "a name twice": (
        "FM-CONFIG-005",
        two_nodes(f"read: {{{TABLE}}}, {WRITE}", f"read: {{{TABLE}}}").replace("second", "first"),
        "name",
    ),
    "no function": (
        "FM-CONFIG-006",
        one_node(TABLE, APPENDED, "{python: nowhere:f}"),
        "transform[0]",
    ),
    "a secret": (
        "FM-CONFIG-011",
        one_node(TABLE, APPENDED).replace("${env:ERP_PASSWORD}", "x"),
        "",
    ),
    "an unknown connection": (
        "FM-CONFIG-013",
        one_node("connection: lakes, path: orders, format: delta", APPENDED),
        "connection",
    ),
    "a circle": (
        "FM-CONFIG-014",
        two_nodes(f"depends_on: [second], {WRITE}", "depends_on: [first]"),
        "depends_on",
    ),
    "settings that exclude each other": (
        "FM-CONFIG-015",
        one_node(TABLE, f"{MERGED}, changes: log"),
        "changes",
    ),
    "an unknown transform": ("FM-CONFIG-013", one_node(TABLE, APPENDED, "selct: [id]"), "selct"),
    "wrong parameters": ("FM-TRANSFORM-002", one_node(TABLE, APPENDED, "select: {}"), "transform"),
    "no query": ("FM-TRANSFORM-006", one_node(TABLE, APPENDED, "{sql: DROP TABLE x}"), "transform"),
    "no module": (
        "FM-TRANSFORM-013",
        one_node(TABLE, APPENDED, "select: [id]").replace(
            "shop\n", "shop\nplugins: [nowhere]\n", 1
        ),
        "plugins",
    ),
}

SOUND = {
    "a merge below a merge": project(MERGED, MERGED),
    "a merge that keeps its changes": project(
        MERGED, MERGED, '{sql: "SELECT id, v, _change_type, _commit_version FROM input"}'
    ),
    "a merge below a merge, by *": project(MERGED, MERGED, '{sql: "SELECT *, 1 AS w FROM input"}'),
    "a merge below appends": project(APPENDED, MERGED, "select: [id, v]"),
    "an append below appends": project(APPENDED, APPENDED, "select: [id, v]"),
    "a log below a merge": project(MERGED, "mode: append, changes: log"),
    "a snapshot that is replaced": project(MERGED, "mode: overwrite", read=", method: snapshot"),
    "a snapshot whose missing rows are kept": one_node(
        SNAPSHOT, "merge: {keys: [id], missing: keep}"
    ),
    "new rows that replace": one_node(FILES, "mode: overwrite, allow_partial: true"),
    "an external table that is replaced": one_node(TABLE, "mode: overwrite"),
    "SQL that names its own CTE like a node": two_nodes(
        f"read: {{{TABLE}}}, {WRITE}",
        f"read: {{{TABLE}}}, transform:"
        ' [{sql: "WITH first AS (SELECT * FROM input) SELECT * FROM first"}]',
    ),
    "SQL that names a table with its schema": two_nodes(
        f"read: {{{TABLE}}}, {WRITE}",
        f'read: {{{TABLE}}}, transform: [{{sql: "SELECT * FROM input, sales.first"}}]',
    ),
    "files that another node writes": HEAD
    + RAW.replace("path: raw, RAW", "path: out, format: parquet, mode: append")
    + BELOW.replace("path: raw}", "path: out/*.parquet, format: parquet}")
    .replace("TRANSFORM", "tags: [x]")
    .replace("WRITE", APPENDED),
}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ERP_PASSWORD", raising=False)
    (tmp_path / "inbox").mkdir()
    (tmp_path / "inbox/a.csv").write_text("id,v\n1,a\n")
    (tmp_path / "lake/plain").mkdir(parents=True)
    (tmp_path / "lake/plain/x.txt").write_text("no table")
    rows, feed = pa.table({"id": [1]}), {"delta.enableChangeDataFeed": "true"}
    for table in ("orders", "other"):
        write_deltalake(str(tmp_path / "lake" / table), rows, configuration=feed)
    return tmp_path


@pytest.mark.parametrize("case", REFUSED)
def test_validate_refuses_what_would_be_refused_later(root: Path, case: str) -> None:
    code, text, key = REFUSED[case]
    (root / "floodmark.yaml").write_text(text.replace("ROOT", str(root)))

    with pytest.raises(FloodmarkError) as caught:
        Project.check(root)

    errors = caught.value.errors if isinstance(caught.value, ConfigErrors) else [caught.value]
    assert [each.code for each in errors] == [code]
    assert key in (errors[0].where or "")


@pytest.mark.parametrize("case", SOUND)
def test_validate_raises_no_false_alarm(root: Path, case: str) -> None:
    (root / "floodmark.yaml").write_text(SOUND[case])

    Project.check(root)


def test_a_project_on_an_object_store_is_validated_without_a_network(root: Path) -> None:
    outside = Outside(storage=Storage(open_root=no_network))
    for scheme in ("s3://nowhere", "abfss://c@nowhere.dfs.core.windows.net", "gs://nowhere"):
        text = project(MERGED, MERGED).replace("root: lake", f'root: "{scheme}/lake"')
        text = text.replace("root: inbox", f'root: "{scheme}/inbox"')
        text = text.replace("shop\n", f'shop\ncontrol: "{scheme}/control"\n', 1)
        (root / "floodmark.yaml").write_text(text)

        Project.check(root, outside=outside)


def no_network(root: str, options: object) -> NoReturn:
    raise AssertionError(f"{root} was opened")


@pytest.mark.parametrize(
    ("new_files", "write", "codes"),
    [
        ("modified", APPENDED, ["FM-CONFIG-045"]),
        ("list", APPENDED, []),
        ("modified", MERGED, []),
        ("modified", "mode: overwrite", []),
    ],
)
def test_changed_files_that_are_appended_again_are_a_warning(
    tmp_path: Path, new_files: str, write: str, codes: list[str]
) -> None:
    read = (
        f'connection: inbox, format: csv, path: "*.csv", schema: "id LONG", new_files: {new_files}'
    )
    (tmp_path / "floodmark.yaml").write_text(one_node(read, write))

    loaded = load_project(tmp_path / "floodmark.yaml")

    assert [warning.code for warning in loaded.warnings] == codes


# Every refusal -------------------------------------------------------------------------------------

OF_THE_MOMENT = {"STREAM", "CLI", "SETUP", "CONTROL", "RUN"}
"""Rooms whose refusals are about the machine, the store and the runner of the moment."""
CANNOT_BE_KNOWN = {
    "about the call, not about the project": [
        *("FM-CONFIG-001", "FM-CONFIG-007", "FM-CONFIG-008", "FM-CONFIG-009", "FM-CONFIG-020"),
        *("FM-PLAN-004", "FM-PLAN-012", "FM-PLAN-014", "FM-PLAN-015"),
        *("FM-SINK-021", "FM-SINK-022", "FM-SINK-018", "FM-SOURCE-010", "FM-SOURCE-055"),
    ],
    "a warning": [
        "FM-CONFIG-041",
        *("FM-CONFIG-017", "FM-CONFIG-018", "FM-CONFIG-024", "FM-CONFIG-028", "FM-CONFIG-029"),
        *("FM-CONFIG-039", "FM-CONFIG-042", "FM-CONFIG-045"),
    ],
    "only a stream": ["FM-CONFIG-022", "FM-CONFIG-023", "FM-CONFIG-025"],
    "only a function, which says at its run what it reads and writes": [
        *("FM-SINK-006", "FM-SINK-033", "FM-SOURCE-035", "FM-TRANSFORM-010", "FM-TRANSFORM-011"),
    ],
    "the rows and columns of the moment": [
        *("FM-SINK-011", "FM-SINK-013", "FM-SINK-030", "FM-SINK-034", "FM-SINK-036"),
        *("FM-TRANSFORM-003", "FM-TRANSFORM-004", "FM-TRANSFORM-005", "FM-TRANSFORM-007"),
        *("FM-TRANSFORM-008", "FM-SOURCE-032", "FM-SOURCE-033", "FM-SOURCE-034", "FM-SOURCE-036"),
        *("FM-SOURCE-042", "FM-SOURCE-045", "FM-SOURCE-057", "FM-SOURCE-058", "FM-SOURCE-059"),
        *("FM-SOURCE-060", "FM-SOURCE-064", "FM-SOURCE-065", "FM-SOURCE-066"),
    ],
    "what a target holds, which the graph does not tell": [
        *("FM-SINK-042", "FM-SINK-043", "FM-SINK-044", "FM-SINK-045", "FM-SINK-047"),
        *("FM-SINK-002", "FM-SINK-007", "FM-SINK-008", "FM-SINK-009", "FM-SINK-010"),
        *("FM-SINK-012", "FM-SINK-014", "FM-SINK-015", "FM-SINK-016", "FM-SINK-017"),
        *("FM-SINK-019", "FM-SINK-023", "FM-SINK-024", "FM-SINK-025", "FM-SINK-031"),
        *("FM-SINK-032", "FM-SINK-035"),
    ],
    "the Spark session of the run": ["FM-SINK-046", "FM-SINK-048", "FM-SOURCE-063"],
    "what happens to upstreams between the plan and the read": [
        *("FM-SOURCE-001", "FM-SOURCE-002", "FM-SOURCE-003", "FM-SOURCE-004", "FM-SOURCE-005"),
        *("FM-SOURCE-006", "FM-SOURCE-007", "FM-SOURCE-011", "FM-SOURCE-037", "FM-SOURCE-041"),
        *("FM-SOURCE-053", "FM-SOURCE-054", "FM-PLAN-008"),
    ],
    "a database, web API or catalog has to be asked: validate --connect": [
        *("FM-SOURCE-031", "FM-SOURCE-050", "FM-SOURCE-051", "FM-SOURCE-052"),
        *("FM-PLAN-030", "FM-PLAN-031", "FM-CONFIG-012"),
    ],
}
TOLD_ELSEWHERE = {
    "by the plan that validate makes, tested with the plan": [
        *("FM-PLAN-005", "FM-PLAN-006", "FM-PLAN-007", "FM-PLAN-009", "FM-PLAN-010"),
        *("FM-PLAN-020", "FM-PLAN-023", "FM-PLAN-024", "FM-PLAN-025", "FM-PLAN-032"),
        *("FM-SOURCE-008", "FM-SOURCE-009", "FM-SOURCE-040"),
    ],
    "by validate, in tests/cli and tests/unit/config": [
        *("FM-CONFIG-002", "FM-CONFIG-010", "FM-CONFIG-021", "FM-PLAN-003"),
        *("FM-TRANSFORM-001", "FM-TRANSFORM-009", "FM-TRANSFORM-012", "FM-SOURCE-030"),
    ],
}


def test_every_refusal_is_told_by_validate_or_has_a_reason_why_not() -> None:
    of_batches = {code for code in CODES if code.split("-")[1] not in OF_THE_MOMENT}
    told = {code for code, _, _ in REFUSED.values()}
    listed = [
        code for group in (CANNOT_BE_KNOWN, TOLD_ELSEWHERE) for c in group.values() for code in c
    ]

    assert len(listed) == len(set(listed))
    assert not told & set(listed)
    assert of_batches - told - set(listed) == set(), "say above whether validate tells it"
