"""A pipeline of nodes reads what is new, and each node reads what its parent committed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.support import crash
from tests.support.node_projects import open_project
from tests.support.node_projects import table_rows as rows

from floodmark import failpoints
from floodmark.errors import ConfigError
from floodmark.project import Project

FEED: dict[str, str | None] = {"delta.enableChangeDataFeed": "true"}
MakeProject = Callable[[str], Project]

SHOP = """\
project: shop
connections: {lake: {type: lake, root: lake}}
pipelines:
  - pipeline: orders
    nodes:
      - name: log
        depends_on: [raw]
        write: {connection: lake, path: silver/log, mode: append, changes: log}
      - name: raw
        read: {connection: lake, path: orders}
        write: {connection: lake, path: raw/orders, merge: {keys: [id]}}
      - name: silver
        depends_on: [raw]
        write: {connection: lake, path: silver/orders, merge: {keys: [id]}}
"""


@pytest.fixture
def make_project(tmp_path: Path) -> MakeProject:
    return lambda text: open_project(tmp_path, text)


def append(path: Path, *added: tuple[int, int]) -> None:
    crash.append_rows(path.parent, path.name, added)


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    path = tmp_path / "lake/orders"
    append(path, (1, 10), (2, 20), (3, 30))
    return path


def change(orders: Path) -> None:
    DeltaTable(str(orders)).update({"amount": "21"}, predicate="id = 2")
    DeltaTable(str(orders)).delete("id = 3")
    append(orders, (4, 40))


def test_the_second_run_hands_only_the_change_from_node_to_node(
    tmp_path: Path, orders: Path, make_project: MakeProject
) -> None:
    project = make_project(SHOP)
    project.run()
    change(orders)

    summary = project.run()

    assert summary.exit_code == 0
    assert rows(tmp_path / "lake/silver/orders") == [(1, 10), (2, 21), (4, 40)]
    assert rows(tmp_path / "lake/silver/log", "change_version, change_type, id") == [
        (0, "insert", 1),
        (0, "insert", 2),
        (0, "insert", 3),
        (1, "delete", 3),
        (1, "insert", 4),
        (1, "update_postimage", 2),
        (1, "update_preimage", 2),
    ]
    assert project.run().batches == []


@pytest.mark.parametrize("point", ["sink.after_commit", "run.before_done", "sink.between_sinks"])
def test_a_retry_hands_on_what_the_parent_committed_before_the_crash(
    tmp_path: Path, orders: Path, make_project: MakeProject, point: str
) -> None:
    project = make_project(SHOP)
    project.run()
    change(orders)
    with crash.armed(point), pytest.raises(failpoints.FailpointReached):
        project.run()
    append(orders, (9, 90))  # what comes later is not part of the batch that is finished first

    summary = open_project(tmp_path).run()

    assert summary.exit_code == 0
    assert rows(tmp_path / "lake/silver/orders") == [(1, 10), (2, 21), (4, 40), (9, 90)]
    log = rows(tmp_path / "lake/silver/log", "change_version, change_type, id")
    assert len(log) == len(set(log)) == 8
    assert "raw" in (summary.outcomes[0].already_applied or "").split(", ")


MOVING = """\
project: shop
connections: {lake: {type: lake, root: lake}}
pipelines:
  - pipeline: events
    nodes:
      - name: recent
        read: {connection: lake, path: events, incremental: {cursor: at, type: timestamp}}
      - {name: one, depends_on: [recent], write: {connection: lake, path: one, mode: append}}
      - {name: two, depends_on: [recent], write: {connection: lake, path: two, mode: append}}
"""


def add_events(path: Path, *ids: int) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    at = pa.array([start + timedelta(hours=i) for i in ids], pa.timestamp("us", "UTC"))
    table = pa.table({"id": pa.array(ids, pa.int64()), "at": at})
    write_deltalake(str(path), table, mode="append", configuration=FEED)


def test_a_source_that_moves_is_read_once_for_every_reader_and_every_attempt(
    tmp_path: Path, make_project: MakeProject
) -> None:
    events = tmp_path / "lake/events"
    add_events(events, 1, 2, 3)
    project = make_project(MOVING)
    with crash.armed("run.after_done"), pytest.raises(failpoints.FailpointReached):
        project.run()
    DeltaTable(str(events)).delete("id = 2")

    again = open_project(tmp_path)
    again.run()

    assert rows(tmp_path / "lake/one", "id") == [(1,), (2,), (3,)]
    assert rows(tmp_path / "lake/two", "id") == rows(tmp_path / "lake/one", "id")
    assert not list((tmp_path / "lake/_control/landing").iterdir())


def test_what_landed_and_was_never_read_binds_nobody(
    tmp_path: Path, make_project: MakeProject
) -> None:
    events = tmp_path / "lake/events"
    add_events(events, 1, 2, 3)
    project = make_project(MOVING)
    with crash.armed("landing.after_write"), pytest.raises(failpoints.FailpointReached):
        project.run()
    DeltaTable(str(events)).delete("id = 2")

    open_project(tmp_path).run()

    assert rows(tmp_path / "lake/one", "id") == rows(tmp_path / "lake/two", "id") == [(1,), (3,)]


@pytest.mark.parametrize("has_news", [True, False])
def test_what_a_crash_left_in_the_landing_goes_with_the_next_run(
    tmp_path: Path, make_project: MakeProject, *, has_news: bool
) -> None:
    add_events(tmp_path / "lake/events", 1, 2)
    project = make_project(MOVING)
    with crash.armed("landing.before_remove"), pytest.raises(failpoints.FailpointReached):
        project.run()
    assert list((tmp_path / "lake/_control/landing").iterdir())
    if has_news:
        add_events(tmp_path / "lake/events", 3)

    open_project(tmp_path).run()

    assert not list((tmp_path / "lake/_control/landing").iterdir())
    assert len(rows(tmp_path / "lake/two", "id")) == 2 + has_news


def test_a_lost_target_is_rebuilt_from_the_whole_of_its_parent(
    tmp_path: Path, orders: Path, make_project: MakeProject
) -> None:
    project = make_project(SHOP)
    project.run()
    change(orders)
    (tmp_path / "lake/silver/orders").rename(tmp_path / "gone")
    refused = project.run()
    (batch,) = project.coordinator.status()[:1]

    project.retry(batch.batch_id, on_lost_target="rebuild")

    assert refused.outcomes[0].error is not None
    assert refused.outcomes[0].error.code == "FM-SINK-007"
    assert rows(tmp_path / "lake/silver/orders") == [(1, 10), (2, 21), (4, 40)]


LATER = """\
      - {name: mid, depends_on: [raw]}
      - {name: gold, depends_on: [mid], write: {connection: lake, path: gold, merge: {keys: [id]}}}
      - name: plain
        read: {connection: lake, path: orders}
        write: {connection: lake, path: plain, merge: {keys: [id]}}
"""


@pytest.mark.parametrize("point", [None, "sink.before_commit:4", "run.after_done:4"])
def test_a_node_that_is_added_later_gets_what_came_before(
    tmp_path: Path, orders: Path, make_project: MakeProject, point: str | None
) -> None:
    make_project(SHOP).run()
    change(orders)
    project = make_project(SHOP + LATER)
    if point is not None:
        with crash.armed(point), pytest.raises(failpoints.FailpointReached):
            project.run()
    project.run()
    everything = [(1, 10), (2, 21), (4, 40)]
    assert rows(tmp_path / "lake/gold") == rows(tmp_path / "lake/plain") == everything
    DeltaTable(str(orders)).delete("id = 1")

    open_project(tmp_path).run()

    assert rows(tmp_path / "lake/gold") == rows(tmp_path / "lake/plain") == everything[1:]
    assert len(rows(tmp_path / "lake/silver/log")) == 8


def test_a_parent_without_a_change_feed_is_refused_before_it_is_written(
    tmp_path: Path, orders: Path, make_project: MakeProject
) -> None:
    empty = pa.schema([("id", pa.int64()), ("amount", pa.int64())]).empty_table()
    write_deltalake(str(tmp_path / "lake/raw/orders"), empty)

    summary = make_project(SHOP).run()

    error = summary.outcomes[0].error
    assert error is not None
    assert (error.code, error.exit_code) == ("FM-RUN-008", 1)
    assert "floodmark.yaml:9:9" in (error.where or "")
    assert "SET TBLPROPERTIES (delta.enableChangeDataFeed = true)" in (error.next or "")
    assert DeltaTable(str(tmp_path / "lake/raw/orders")).version() == 0
    assert orders.exists()


EVOLVING = """\
project: shop
pipelines:
  - pipeline: orders
    nodes:
      - name: raw
        read: {path: ./orders}
        write: {path: ./raw, merge: {keys: [id]}, on_schema_change: add_columns}
      - name: copy
        depends_on: [raw]
        write: {path: ./copy, mode: append, changes: latest, keys: [id], on_schema_change: fail}
"""


def test_new_columns_are_added_to_a_target_that_allows_them_and_refused_by_another(
    tmp_path: Path, make_project: MakeProject
) -> None:
    append(tmp_path / "orders", (1, 10))
    project = make_project(EVOLVING)
    project.run()
    wide = pa.table({"id": [2], "amount": [20], "city": ["Bern"]})
    write_deltalake(str(tmp_path / "orders"), wide, mode="append", schema_mode="merge")

    summary = project.run()

    assert rows(tmp_path / "raw", "id, city") == [(1, None), (2, "Bern")]
    error = summary.outcomes[-1].error
    assert error is not None
    assert (error.code, error.found) == ("FM-SINK-011", "new columns, not in the target: city")
    assert rows(tmp_path / "copy", "id") == [(1,)]


CHAIN = """\
project: shop
connections: {lake: {type: lake, root: lake}}
pipelines:
  - pipeline: second
    nodes:
      - name: report
        read: {connection: lake, path: raw/orders}
        write: {connection: lake, path: gold/report, merge: {keys: [id]}}
  - pipeline: first
    nodes:
      - name: raw
        read: {connection: lake, path: orders}
        write: {connection: lake, path: raw/orders, merge: {keys: [id]}}
"""


@pytest.mark.usefixtures("orders")
def test_pipelines_chained_through_a_table_run_one_after_the_other(
    tmp_path: Path, make_project: MakeProject
) -> None:
    project = make_project(CHAIN)
    before = {batch.scope: batch for batch in project.plan()}

    summary = project.run()

    assert before["second"].after == ("first",)
    assert before["second"].status == "PENDING"
    assert summary.exit_code == 0
    assert rows(tmp_path / "lake/gold/report") == [(1, 10), (2, 20), (3, 30)]
    assert {batch.scope: batch.after for batch in project.plan()} == {"second": (), "first": ()}


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (("path: orders}", "path: orders, query: SELECT 1}"), "read.query"),
        (("merge: {keys: [id]}}\n      - name: silver", "mode: append, options: {writer: {a: b}}}\n      - name: silver"), "write.options.writer"),
        (("path: orders}", "path: ../secrets}"), "read.path"),
        (("path: orders}", "path: orders, params: {a: 1}}"), "read.params"),
    ],
)  # fmt: skip
def test_what_is_not_run_is_refused_by_its_key_and_place(
    make_project: MakeProject, change: tuple[str, str], key: str
) -> None:
    project = make_project(SHOP.replace(*change))

    with pytest.raises(ConfigError) as caught:
        project.run()

    assert caught.value.code == "FM-CONFIG-016"
    assert key in (caught.value.where or "")
    assert "floodmark.yaml:" in (caught.value.where or "")


# Everything again ---------------------------------------------------------------------------------

APPENDS = """\
project: shop
lease_ttl: 1s
connections: {lake: {type: lake, root: lake}}
pipelines:
  - pipeline: orders
    nodes:
      - name: raw
        read: {connection: lake, path: orders}
        write: {connection: lake, path: raw, mode: append, changes: latest, keys: [id]}
      - name: log
        depends_on: [raw]
        write: {connection: lake, path: log, mode: append}
"""


def test_a_full_refresh_replaces_what_appends_have_left(
    tmp_path: Path, orders: Path, make_project: MakeProject
) -> None:
    project = make_project(APPENDS)
    project.run()
    change(orders)
    project.run()
    appended = len(rows(tmp_path / "lake/raw"))

    summary = project.run(full_refresh=True)

    assert summary.exit_code == 0, summary.outcomes
    assert appended == 5
    for target in ("raw", "log"):
        assert rows(tmp_path / "lake" / target) == [(1, 10), (2, 21), (4, 40)]
    append(orders, (5, 50))
    project.run()
    assert len(rows(tmp_path / "lake/log")) == 4
    assert [finding.text for finding in project.verify() if not finding.ok] == []


def test_a_refresh_that_nobody_called_full_is_refused_and_then_finished_by_one(
    tmp_path: Path, orders: Path, make_project: MakeProject
) -> None:
    project = make_project(APPENDS)
    project.run()
    project.coordinator.admin.refresh("orders")

    (refused,) = project.run().outcomes

    assert refused.error is not None
    assert refused.error.code == "FM-SINK-002"
    assert "floodmark run --full-refresh" in str(refused.error.next)
    assert open_project(tmp_path).run(full_refresh=True).exit_code == 0
    assert rows(tmp_path / "lake/log") == [(1, 10), (2, 20), (3, 30)]


@pytest.mark.parametrize(
    "point", ["sink.before_commit", "sink.after_commit", "sink.after_commit:2"]
)
def test_a_full_refresh_that_died_is_finished_by_the_same_command(
    tmp_path: Path, orders: Path, make_project: MakeProject, point: str
) -> None:
    project = make_project(APPENDS)
    project.run()
    change(orders)
    project.run()
    with crash.armed(point), pytest.raises(failpoints.FailpointReached):
        project.run(full_refresh=True)

    summary = open_project(tmp_path).run(full_refresh=True)

    assert summary.exit_code == 0, summary.outcomes
    for target in ("raw", "log"):
        assert rows(tmp_path / "lake" / target) == [(1, 10), (2, 21), (4, 40)]


def test_a_target_that_several_nodes_fill_is_not_replaced_by_one_of_them(
    tmp_path: Path, orders: Path, make_project: MakeProject
) -> None:
    other = APPENDS.partition("pipelines:\n")[2].replace("pipeline: orders", "pipeline: more")
    project = make_project(APPENDS + other.replace("path: log", "path: other"))
    project.run()
    before = rows(tmp_path / "lake/raw")

    with pytest.raises(ConfigError) as caught:
        project.run("orders", full_refresh=True)

    assert caught.value.code == "FM-CONFIG-007"
    assert "several nodes write" in caught.value.title
    assert rows(tmp_path / "lake/raw") == before
