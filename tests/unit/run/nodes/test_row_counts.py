"""Rows that are read are counted before anything is made of them, and compared with the log."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.support.crash import armed
from tests.support.node_projects import open_project, table_rows

from floodmark.errors import FloodmarkError
from floodmark.failpoints import FailpointReached
from floodmark.project import Project
from floodmark.project.outcomes import RunSummary

MakeProject = Callable[[], Project]
FEED: dict[str, str | None] = {"delta.enableChangeDataFeed": "true"}
PROJECT = """\
project: shop
pipelines:
  - pipeline: orders
    nodes:
      - name: copy
        read: {path: ./orders}
        write: {path: ./copy, WRITE}
"""
WRITES = ["mode: append, changes: log", "merge: {keys: [id]}"]


def orders(root: Path, *ids: int) -> None:
    rows = pa.table({"id": pa.array(ids, pa.int64())})
    write_deltalake(str(root / "orders"), rows, mode="append", configuration=FEED)


def ids(root: Path) -> list[int]:
    return [row[0] for row in table_rows(root / "copy", "id")]


def rewritten(
    root: Path,
    version: int,
    change: Callable[[str, dict[str, Any]], None],
    table: str = "orders",
) -> None:
    """A commit of the upstream, with other words in it."""
    file = root / table / "_delta_log" / f"{version:020d}.json"
    actions = [json.loads(line) for line in file.read_text().splitlines()]
    for action in actions:
        for name, body in action.items():
            change(name, body)
    file.write_text("".join(json.dumps(action) + "\n" for action in actions))


def other_count(name: str, body: dict[str, Any]) -> None:
    """Statistics that promise rows which the file does not have."""
    if name == "add":
        body["stats"] = json.dumps({**json.loads(body["stats"]), "numRecords": 23})


def other_metric(name: str, body: dict[str, Any]) -> None:
    """A commit that deleted other rows than it says: only its feed is contradicted."""
    if name == "commitInfo":
        body["operationMetrics"]["num_deleted_rows"] = 5


def error_of(summary: RunSummary) -> FloodmarkError:
    (error,) = (outcome.error for outcome in summary.outcomes if outcome.error)
    assert isinstance(error, FloodmarkError)
    return error


def batch_of(summary: RunSummary) -> str:
    return str(summary.batches[0].batch.batch_id)


@pytest.fixture(params=WRITES)
def make_project(request: pytest.FixtureRequest, tmp_path: Path) -> MakeProject:
    """One batch is processed: rows 1 and 2."""
    text = PROJECT.replace("WRITE", request.param)
    orders(tmp_path, 1, 2)
    assert open_project(tmp_path, text).run().exit_code == 0
    return lambda: open_project(tmp_path, text)


def test_other_rows_than_planned_stop_the_run_before_its_commit(
    make_project: MakeProject, tmp_path: Path
) -> None:
    orders(tmp_path, 3, 4)
    rewritten(tmp_path, 1, other_count)

    summary = make_project().run()

    error = error_of(summary)
    assert error.code == "FM-SOURCE-064"
    assert error.found == "2 rows are read, the log says 23"
    assert f"floodmark retry {batch_of(summary)} --on-lost-range accept" in str(error.next)
    assert ids(tmp_path) == [1, 2]
    assert DeltaTable(tmp_path / "copy").version() == 0
    # A retry counts again: it stays FAILED, and the watermark where it is, until that is decided.
    assert error_of(make_project().retry(batch_of(summary))).code == "FM-SOURCE-064"
    assert (
        make_project().coordinator.look.state().marks["orders", str(tmp_path / "orders")].version
        == 0
    )


def test_the_operator_takes_the_rows_as_they_are_read(
    make_project: MakeProject, tmp_path: Path
) -> None:
    orders(tmp_path, 3, 4)
    rewritten(tmp_path, 1, other_count)
    batch_id = batch_of(make_project().run())

    summary = make_project().retry(batch_id, on_lost_range="accept")

    assert summary.exit_code == 0
    assert ids(tmp_path) == [1, 2, 3, 4]
    assert [outcome.rows_read for outcome in summary.outcomes] == [2]
    coordinator = make_project().coordinator
    window = coordinator.status(batch_id)[0].shown_window(str(tmp_path / "orders"))
    assert "2 rows are read, the log says 23: accepted as they are read" in window.reason
    assert [finding.text for finding in coordinator.verify() if not finding.ok] == []
    orders(tmp_path, 5)
    assert make_project().run().exit_code == 0
    assert ids(tmp_path) == [1, 2, 3, 4, 5]


def test_the_whole_table_is_the_other_way_where_only_the_feed_is_contradicted(
    make_project: MakeProject, tmp_path: Path
) -> None:
    orders(tmp_path, 3)
    DeltaTable(tmp_path / "orders").delete("id = 2")
    rewritten(tmp_path, 2, other_metric)
    summary = make_project().run()
    assert error_of(summary).code == "FM-SOURCE-064"

    accepted = make_project().retry(batch_of(summary), on_lost_range="accept")

    assert accepted.exit_code == 0
    assert 3 in ids(tmp_path)


def test_a_first_run_is_counted_as_well(tmp_path: Path) -> None:
    orders(tmp_path, 1, 2)
    rewritten(tmp_path, 0, other_count)
    text = PROJECT.replace("WRITE", "mode: overwrite")

    summary = open_project(tmp_path, text).run()

    assert error_of(summary).code == "FM-SOURCE-064"
    assert not (tmp_path / "copy").exists()
    assert open_project(tmp_path).retry(batch_of(summary), on_lost_range="accept").exit_code == 0
    assert ids(tmp_path) == [1, 2]


def test_a_table_that_is_joined_whole_is_counted(tmp_path: Path) -> None:
    text = """\
project: shop
pipelines:
  - pipeline: orders
    nodes:
      - {name: dim, read: {path: ./customers, method: snapshot}}
      - name: facts
        read: {path: ./orders}
        transform: [join: {with: dim, on: id, how: left}]
        write: {path: ./copy, mode: append}
"""
    orders(tmp_path, 1, 2)
    customers(tmp_path, 1)
    rewritten(tmp_path, 0, other_count, "customers")

    summary = open_project(tmp_path, text).run()

    assert error_of(summary).code == "FM-SOURCE-064"
    assert "customers" in str(error_of(summary).where)
    assert not (tmp_path / "copy").exists()


# What is read beside the news: the log is asked when it is read ----------------------------------

BESIDE = """\
project: shop
pipelines:
  - pipeline: orders
    nodes:
      - {name: dim, read: {path: ./customers, DIM}}
      - name: facts
        depends_on: [orders, dim]
        transform: [join: {with: dim, on: id, how: left, columns: [country]}]
        write: {path: ./copy, merge: {keys: [id]}}
      - {name: orders, read: {path: ./orders}}
"""
LATER = """\
      - {name: later, depends_on: [orders], write: {path: ./later, mode: append, changes: log}}
"""


def customers(root: Path, *ids: int) -> None:
    rows = pa.table({"id": pa.array(ids, pa.int64()), "country": ["x"] * len(ids)})
    write_deltalake(str(root / "customers"), rows, mode="append", configuration=FEED)


def marked(project: Project, root: Path) -> int:
    return project.coordinator.look.state().marks["orders", str(root / "orders")].version


@pytest.mark.parametrize("dim", ["lookup: true", "method: snapshot"], ids=["lookup", "no_news"])
def test_a_table_beside_the_news_is_counted_before_the_commit(tmp_path: Path, dim: str) -> None:
    text = BESIDE.replace("DIM", dim)
    orders(tmp_path, 1, 2)
    customers(tmp_path, 1)
    assert open_project(tmp_path, text).run().exit_code == 0
    orders(tmp_path, 3)
    rewritten(tmp_path, 0, other_count, "customers")

    summary = open_project(tmp_path, text).run()

    error = error_of(summary)
    assert (error.code, error.found) == ("FM-SOURCE-064", "1 rows are read, the log says 23")
    assert "customers" in str(error.where)
    assert (ids(tmp_path), marked(open_project(tmp_path, text), tmp_path)) == ([1, 2], 0)
    assert error_of(open_project(tmp_path, text).retry(batch_of(summary))).code == "FM-SOURCE-064"
    with armed("sink.after_commit"), pytest.raises(FailpointReached):
        open_project(tmp_path, text).retry(batch_of(summary), on_lost_range="accept")
    # It is journaled, so a retry needs no second word.
    assert open_project(tmp_path, text).retry(batch_of(summary)).exit_code == 0
    project = open_project(tmp_path, text)
    assert (ids(tmp_path), marked(project, tmp_path)) == ([1, 2, 3], 1)
    assert [finding.text for finding in project.coordinator.verify() if not finding.ok] == []
    orders(tmp_path, 4)  # another batch, another decision
    assert error_of(project.run()).code == "FM-SOURCE-064"


def test_what_a_node_loads_that_was_added_later_is_counted(tmp_path: Path) -> None:
    text = BESIDE.replace("DIM", "lookup: true")
    orders(tmp_path, 1, 2)
    customers(tmp_path, 1)
    assert open_project(tmp_path, text).run().exit_code == 0
    orders(tmp_path, 3)
    rewritten(tmp_path, 0, other_count)

    summary = open_project(tmp_path, text + LATER).run()

    assert error_of(summary).found == "3 rows are read, the log says 24"
    assert not (tmp_path / "later").exists()
    retried = open_project(tmp_path, text + LATER).retry(batch_of(summary), on_lost_range="accept")
    assert retried.exit_code == 0
    assert [row[0] for row in table_rows(tmp_path / "later", "id")] == [1, 2, 3]
    project = open_project(tmp_path)
    assert marked(project, tmp_path) == 1
    assert [finding.text for finding in project.coordinator.verify() if not finding.ok] == []


def test_what_a_rebuild_reads_is_counted(make_project: MakeProject, tmp_path: Path) -> None:
    orders(tmp_path, 3)
    rewritten(tmp_path, 0, other_count)
    shutil.rmtree(tmp_path / "copy")
    batch_id = batch_of(make_project().run())

    error = error_of(make_project().retry(batch_id, on_lost_target="rebuild"))

    assert (error.code, error.found) == ("FM-SOURCE-064", "3 rows are read, the log says 24")
    assert not (tmp_path / "copy").exists()
    retried = make_project().retry(batch_id, on_lost_target="rebuild", on_lost_range="accept")
    assert retried.exit_code == 0, [outcome.error for outcome in retried.outcomes]
    assert ids(tmp_path) == [1, 2, 3]
