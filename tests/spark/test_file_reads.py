"""Nodes that read files: every file once, as it was planned, and nothing silently."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.node_projects import table_rows
from tests.support.outsides import ALONE

from floodmark.errors import FloodmarkError
from floodmark.project import Project, RunSummary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PROJECT = """\
project: shop
lease_ttl: 1s
connections:
  inbox: {type: files, root: in}
  lake: {type: lake, root: lake}
pipelines:
  - pipeline: load
    nodes:
      - name: rows
        read: {connection: inbox, READ}
        write: {connection: lake, format: delta, path: rows, mode: append}
"""


class Inbox:
    """A project over a folder of files."""

    def __init__(self, root: Path, spark: SparkSession) -> None:
        self.root, self.spark = root, spark
        (root / "in").mkdir()

    def write(self, read: str) -> None:
        (self.root / "floodmark.yaml").write_text(PROJECT.replace("READ", read))

    def put(self, name: str, text: str, at: int | None = None) -> None:
        path = self.root / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if at is not None:
            os.utime(path, (at, at))

    @property
    def project(self) -> Project:
        return Project.load(self.root, session=lambda: self.spark, outside=ALONE)

    def run(self) -> RunSummary:
        summary = self.project.run()
        for error in [*(o.error for o in summary.outcomes if o.error), *summary.refused]:
            raise error
        return summary

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        return table_rows(self.root / "lake/rows", ", ".join(columns) or "*")


@pytest.fixture
def inbox(tmp_path: Path, spark: SparkSession) -> Inbox:
    return Inbox(tmp_path, spark)


def test_a_second_run_reads_the_new_files_alone_however_they_are_named(inbox: Inbox) -> None:
    inbox.write('format: csv, path: "**/*.csv", schema: "id LONG, v STRING"')
    inbox.put("a.csv", "id,v\n1,one\n2,two\n", at=2_000_000_000)
    inbox.run()
    # An older time, a name that sorts before, and characters that globs are made of.
    inbox.put("0 [new]{x}/b*c.csv", "id,v\n3,three\n", at=1_000_000_000)
    (plan,) = inbox.project.plan()
    assert [w.reason for w in plan.windows] == ["1 new file (2 seen in total)"]
    assert plan.windows[0].bytes == len("id,v\n3,three\n")
    inbox.run()
    assert inbox.rows() == [(1, "one"), (2, "two"), (3, "three")]
    assert not any(w.has_news for batch in inbox.project.plan() for w in batch.windows)


def test_a_file_that_changed_after_it_was_planned_is_refused(inbox: Inbox) -> None:
    inbox.write('format: text, path: "*.txt"')
    inbox.put("a.txt", "one\n")
    inbox.project.freeze()
    inbox.put("a.txt", "another\n", at=1_900_000_000)
    with pytest.raises(FloodmarkError) as caught:
        inbox.run()
    assert caught.value.code == "FM-SOURCE-041"
    assert not (inbox.root / "lake/rows").exists()


def test_a_changed_file_is_read_again_where_that_is_said(inbox: Inbox) -> None:
    inbox.write('format: text, path: "*.txt", new_files: modified')
    inbox.put("a.txt", "one\n", at=1_800_000_000)
    inbox.put("b.txt", "two\n", at=1_800_000_000)
    inbox.run()
    inbox.put("a.txt", "one more\n", at=1_800_000_001)
    inbox.run()
    assert inbox.rows("value") == [("one",), ("one more",), ("two",)]


def test_columns_in_another_order_are_an_error_that_a_corrected_file_mends(inbox: Inbox) -> None:
    inbox.write('format: csv, path: "*.csv", schema: "id LONG, v STRING"')
    inbox.put("a.csv", "v,id\none,1\n", at=1_800_000_000)
    inbox.put("b.csv", "id,v\n2,two\n", at=1_800_000_000)
    with pytest.raises(FloodmarkError) as caught:
        inbox.run()
    assert caught.value.code == "FM-SOURCE-057"
    assert caught.value.found == "another order or a name twice: v, id"
    inbox.put("a.csv", "id,v\n1,one\n", at=1_800_000_001)
    with pytest.raises(FloodmarkError) as caught:
        inbox.run()
    assert caught.value.code == "FM-SOURCE-041"
    (batch,) = inbox.project.coordinator.look.state().batches
    inbox.project.retry(batch, on_lost_range="snapshot")
    assert inbox.rows() == [(1, "one"), (2, "two")]
    assert not any(w.has_news for batch in inbox.project.plan() for w in batch.windows)


def test_a_file_that_does_not_fit_is_an_error_and_can_be_left_out(inbox: Inbox) -> None:
    inbox.write('format: csv, path: "*.csv", schema: "id LONG, v STRING"')
    inbox.put("a.csv", "id,v\nfirst,one\n")
    inbox.put("b.csv", "id,v\n2,two\n")
    with pytest.raises(FloodmarkError) as caught:
        inbox.run()
    assert caught.value.code == "FM-SOURCE-059"
    assert not list((inbox.root / "lake/rows/_delta_log").glob("*.json"))
    (inbox.root / "in/a.csv").unlink()
    (batch,) = inbox.project.coordinator.look.state().batches
    inbox.project.retry(batch, on_lost_range="accept")
    assert inbox.rows() == [(2, "two")]


def test_a_column_that_disappears_from_the_files_is_told_and_nothing_is_written(
    inbox: Inbox,
) -> None:
    inbox.write('format: json, path: "*.json"')
    inbox.put("a.json", '{"id": 1, "v": "one"}\n')
    inbox.run()
    inbox.put("b.json", '{"id": 2}\n')
    with pytest.raises(FloodmarkError) as caught:
        inbox.run()
    assert (caught.value.code, caught.value.retryable) == ("FM-SINK-011", False)
    assert caught.value.next
    assert inbox.rows() == [(1, "one")]


@pytest.mark.parametrize("schema", ["", ', schema: "id LONG, v STRING, gate STRING"'])
def test_files_of_mixed_headers_are_read_by_name_where_new_columns_may_come(
    inbox: Inbox, schema: str
) -> None:
    inbox.write(f'format: csv, path: "**/*.csv"{schema}, file_column: file')
    text = (inbox.root / "floodmark.yaml").read_text()
    text = text.replace("mode: append", "mode: append, on_schema_change: add_columns")
    (inbox.root / "floodmark.yaml").write_text(text)
    inbox.put("a.csv", "id,v\n1,one\n")
    inbox.put("b.csv", 'gate,"id",v\r\nB4,2,"t,wo"\r\n')
    inbox.put("c.csv", "\ufeffv,id\nthree,3\n")
    inbox.run()
    inbox.put("d.csv", "id,v\n4,four\n")

    inbox.run()

    rows = [(int(i), v, gate) for i, v, gate in inbox.rows("id", "v", "gate")]
    assert rows == [(1, "one", None), (2, "t,wo", "B4"), (3, "three", None), (4, "four", None)]
    assert all(file.endswith(".csv") for (file,) in inbox.rows("file"))


def test_files_of_mixed_headers_are_an_error_where_columns_are_fixed(inbox: Inbox) -> None:
    inbox.write('format: csv, path: "*.csv"')
    inbox.put("a.csv", "id,v\n1,one\n")
    inbox.put("b.csv", "id,v,gate\n2,two,B4\n")
    with pytest.raises(FloodmarkError):
        inbox.run()
    assert not list((inbox.root / "lake/rows/_delta_log").glob("*.json"))


def test_folders_named_after_a_column_are_that_column(inbox: Inbox) -> None:
    inbox.write('format: csv, path: "days", options: {sep: ";"}')
    inbox.put("days/day=2026-01-01/a.csv", "id;v\n1;one\n")
    inbox.run()
    inbox.put("days/day=2026-01-02/a.csv", "id;v\n2;two\n")
    inbox.run()
    assert [(i, str(d)) for i, d in inbox.rows("id", "day")] == [
        ("1", "2026-01-01"),
        ("2", "2026-01-02"),
    ]


def test_a_place_that_is_not_there_is_an_error(inbox: Inbox) -> None:
    inbox.write('format: parquet, path: "nowhere/*.parquet"')
    with pytest.raises(FloodmarkError) as caught:
        inbox.run()
    assert caught.value.code == "FM-PLAN-001"
