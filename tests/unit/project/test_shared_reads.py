"""Pipelines that read one upstream: each is planned by what it says itself, or both are refused."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.support.outsides import ON_ARROW

import floodmark as fm
from floodmark.errors import FloodmarkError
from floodmark.model.cursor_marks import ValueMark
from floodmark.model.delta import TableFacts
from floodmark.model.plan import TimeFacts
from floodmark.project import Project
from floodmark.sources import LookSpec

HEAD = """\
project: shop
connections:
  lake: {type: lake, root: lake}
  inbox: {type: files, root: inbox}
  erp: {type: postgres, host: db, database: shop, user: etl, password: "${env:ERP_PASSWORD}"}
  api: {type: http, base_url: "https://api.example.org"}
pipelines:
"""
PIPELINE = """\
  - pipeline: {name}
    scope: {scope}
    nodes:
      - name: {name}
        read: {{{read}}}
        write: {{connection: lake, path: {name}, merge: {{keys: [id], missing: keep}}}}
"""
LOOKING_UP = """\
  - pipeline: looking
    nodes:
      - {{name: dim, read: {{{read}, lookup: true}}}}
      - name: looking
        read: {{connection: inbox, format: csv, path: "facts/*.csv", schema: "id LONG"}}
        transform: [{{join: {{with: dim, on: [id], how: left}}}}]
        write: {{connection: lake, path: looking, mode: append}}
"""
CURSOR = "connection: erp, table: orders, incremental: {cursor: at, keys: [id]MORE}"
FILES = 'connection: inbox, format: csv, path: "dim/", schema: "id LONG"'
ANSWER = 'connection: api, path: rates, schema: "id LONG"'


def two(root: Path, first: str, second: str, scopes: tuple[str, str] = ("a", "b")) -> Project:
    reads = zip(("one", "two"), scopes, (first, second), strict=True)
    said = [PIPELINE.format(name=name, scope=scope, read=read) for name, scope, read in reads]
    return checked(root, "".join(said))


def checked(root: Path, pipelines: str) -> Project:
    for folder in ("dim", "facts"):
        (root / "inbox" / folder).mkdir(parents=True, exist_ok=True)
        (root / "inbox" / folder / "a.csv").write_text("id\n1\n")
    (root / "floodmark.yaml").write_text(HEAD + pipelines)
    return Project.check(root)


@pytest.mark.parametrize(
    "more",
    [
        ", settle: 1 hour",
        ", time_zone: Europe/Berlin",
        ", on_null_cursor: skip",
        ", type: timestamp",
    ],
)
def test_pipelines_of_one_scope_plan_a_table_of_a_database_alike(tmp_path: Path, more: str) -> None:
    reads = CURSOR.replace("MORE", ""), CURSOR.replace("MORE", more)

    with pytest.raises(FloodmarkError) as caught:
        two(tmp_path, *reads, scopes=("night", "night"))

    found = getattr(caught.value, "errors", [caught.value])
    assert {error.code for error in found} == {"FM-CONFIG-016"}
    assert "of scope night read sql://erp/orders in different ways" in found[0].title
    two(tmp_path, *reads)
    overlap = CURSOR.replace("MORE", ", overlap: 1 hour")
    two(tmp_path, reads[0], overlap, scopes=("night", "night"))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (ANSWER, f"{ANSWER}, records: items".replace("path: rates", "path: /rates")),
        (FILES, FILES.replace("dim/", "dim").replace("LONG", "STRING")),
    ],
    ids=["web API", "files"],
)
def test_another_spelling_of_a_path_hides_no_other_way_to_read_it(
    tmp_path: Path, first: str, second: str
) -> None:
    with pytest.raises(FloodmarkError) as caught:
        two(tmp_path, first, second)

    assert caught.value.code == "FM-CONFIG-016"


@pytest.mark.parametrize("read", [FILES, FILES.replace("dim/", "dim"), ANSWER])
def test_one_pipeline_looks_up_what_another_one_loads(tmp_path: Path, read: str) -> None:
    loading = PIPELINE.format(name="one", scope="one", read=read)
    checked(tmp_path, LOOKING_UP.format(read=read) + loading)


def test_a_folder_may_end_in_a_slash(tmp_path: Path) -> None:
    project = checked(tmp_path, PIPELINE.format(name="one", scope="one", read=FILES))

    ((window,),) = [batch.windows for batch in project.plan()]

    assert window.has_news
    assert window.upstream == "files://inbox/dim"


class NewestValue:
    """A reader of a database that has one answer."""

    def __init__(self, newest: int) -> None:
        self.newest = newest

    def facts(self) -> TableFacts:
        at = datetime(2026, 1, 1, tzinfo=UTC)
        return TableFacts(ORDERS, ORDERS, -1, at, 0, False, "", "")

    def look(self, window: Any, spec: LookSpec) -> TimeFacts:
        return TimeFacts("int", ValueMark("int", self.newest))

    def examine(self, spec: LookSpec) -> None:
        """Whatever a first run asks, it has an answer."""


ORDERS = "sql://erp/orders"


@pytest.mark.parametrize("order", [("prompt", "settled"), ("settled", "prompt")])
def test_a_plan_asks_the_reader_of_its_own_pipeline(tmp_path: Path, order: tuple[str, str]) -> None:
    newest = {"prompt": 9, "settled": 5}
    c = fm.Coordinator(str(tmp_path / "control"), actor="tester", outside=ON_ARROW)
    c.store.readers = {(name, ORDERS): NewestValue(newest[name]) for name in order}
    upstream = fm.Upstream(ORDERS, time_column="id", format="sql")
    ends = {}
    for name in order:
        c.register(name, [upstream], scope=name)
        (window,) = c.create_batch(scope=name).windows
        ends[name] = window.through_mark
    lags = {lag.scope: lag.latest_mark for lag in c.lag()}

    assert ends == {name: ValueMark("int", value) for name, value in newest.items()}
    assert lags == {name: end.encoded() for name, end in ends.items() if end}
