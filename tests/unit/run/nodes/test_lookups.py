"""Tables that nodes only look things up in: frozen with the batch, whole in it, never its reason."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.support import crash
from tests.support.node_projects import open_project
from tests.support.node_projects import table_rows as rows

from floodmark import failpoints
from floodmark.errors import FloodmarkError
from floodmark.model.results import Batch
from floodmark.model.window import Settlement
from floodmark.project import Project
from floodmark.project.outcomes import RunSummary

MakeProject = Callable[[str], Project]
FEED: dict[str, str | None] = {"delta.enableChangeDataFeed": "true"}

SHOP = """\
project: shop
pipelines:
  - pipeline: orders
    nodes:
      - {name: countries, read: {path: ./countries, lookup: true}, transform: [{select: [code, name]}]}
      - name: customers
        read: {path: ./customers, lookup: true}
        transform: [join: {with: countries, on: {country: code}, how: left}]
      - name: facts
        read: {path: ./orders}
        transform: [{join: {with: customers, on: [customer], how: %s}}, {select: [id, name]}]
        write: {path: ./facts, %s}
"""
APPEND, MERGE = "mode: append", "merge: {keys: [id], missing: keep}"


@pytest.fixture
def make_project(tmp_path: Path) -> MakeProject:
    return lambda text: open_project(tmp_path, text)


def put(path: Path, mode: str = "append", **columns: list[int] | list[str]) -> None:
    data = pa.table(columns)
    write_deltalake(str(path), data, mode=mode, configuration=FEED)  # type: ignore[call-overload]


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Two customers, two countries without a change feed, and an order."""
    countries = pa.table({"code": [1, 2], "name": ["CH", "DE"]})
    write_deltalake(str(tmp_path / "countries"), countries)
    put(tmp_path / "customers", customer=[7, 8], country=[1, 2])
    put(tmp_path / "orders", id=[1], customer=[7])
    return tmp_path


def run(project: Project) -> RunSummary:
    return raised(project.run())


def raised(summary: RunSummary) -> RunSummary:
    for error in [*(o.error for o in summary.outcomes if o.error), *summary.refused]:
        raise error
    return summary


def rename(lake: Path, *names: str) -> None:
    put(lake / "countries", "overwrite", code=[1, 2], name=list(names))


@pytest.mark.parametrize("write", [APPEND, MERGE])
@pytest.mark.parametrize("how", ["left", "inner"])
def test_a_lookup_is_whole_in_every_batch_and_news_of_it_write_and_start_nothing(
    lake: Path, make_project: MakeProject, how: str, write: str
) -> None:
    project = make_project(SHOP % (how, write))
    run(project)
    put(lake / "orders", id=[2], customer=[8])
    run(project)
    assert rows(lake / "facts") == [(1, "CH"), (2, "DE")]

    rename(lake, "Swiss", "German")

    assert run(project).batches == []
    put(lake / "orders", id=[3], customer=[7])
    run(project)
    assert rows(lake / "facts") == [(1, "CH"), (2, "DE"), (3, "Swiss")]
    assert [lag.upstream for lag in project.coordinator.lag()] == [str(lake / "orders")]
    assert [finding.text for finding in project.verify() if not finding.ok] == []


def test_a_plan_shows_the_version_and_the_table_of_each_lookup(
    lake: Path, make_project: MakeProject
) -> None:
    rename(lake, "Swiss", "German")
    empty = pa.schema([("customer", pa.int64()), ("country", pa.int64())]).empty_table()
    shutil.rmtree(lake / "customers")
    write_deltalake(str(lake / "customers"), empty)

    (batch,) = make_project(SHOP % ("left", APPEND)).freeze()

    frozen = {Path(w.upstream).name: w for w in batch.lookups}
    assert {name: w.through for name, w in frozen.items()} == {
        "countries": 1,
        "customers": 0,
    }
    table_id = str(DeltaTable(str(lake / "countries")).metadata().id)
    assert frozen["countries"].table_id == table_id
    assert frozen["countries"].warning is None
    assert frozen["customers"].warning is not None
    assert [w.upstream for w in batch.windows] == [str(lake / "orders")]


@pytest.mark.parametrize("point", ["run.after_read", "sink.after_commit"])
def test_every_attempt_of_a_batch_sees_the_version_of_its_plan(
    lake: Path, make_project: MakeProject, point: str
) -> None:
    project = make_project(SHOP % ("left", APPEND))
    with crash.armed(point), pytest.raises(failpoints.FailpointReached):
        project.run()
    rename(lake, "Swiss", "German")

    run(open_project(lake))

    assert rows(lake / "facts") == [(1, "CH")]


def test_a_replay_looks_up_what_its_batch_has_and_a_backfill_what_is_there_now(
    lake: Path, make_project: MakeProject
) -> None:
    project = make_project(SHOP % ("left", MERGE))
    first = run(project).batches[0].batch
    rename(lake, "Swiss", "German")
    coordinator = project.coordinator

    replay = coordinator.replay(str(first.batch_id), allow_stale=True)
    assert [window.through for window in replay.lookups] == [0, 0]
    raised(project.retry(str(replay.batch_id)))
    assert rows(lake / "facts") == [(1, "CH")]

    backfill = coordinator.backfill(
        str(lake / "orders"), start=0, end=0, pipelines=["orders"], scope="orders", allow_stale=True
    )
    assert sorted(window.through for window in backfill.lookups) == [0, 1]
    raised(project.retry(str(backfill.batch_id)))
    assert rows(lake / "facts") == [(1, "Swiss")]


WITHOUT_VERSIONS = """\
project: shop
connections:
  erp: {type: mysql, host: db, database: shop, user: etl, password: "${env:ERP_PASSWORD}"}
pipelines:
  - pipeline: orders
    nodes:
      - {name: countries, read: {path: "files/*.csv", format: csv, schema: "code LONG", lookup: true}}
      - {name: rates, read: {connection: erp, table: rates, lookup: true}}
      - name: facts
        read: {path: ./orders}
        transform: [join: {with: countries, on: {customer: code}, how: left}]
        write: {path: ./facts, merge: {keys: [id]}}
"""


def test_a_replay_takes_the_files_of_its_batch_and_says_of_a_database_that_it_is_read_as_it_is(
    lake: Path, make_project: MakeProject, caplog: pytest.LogCaptureFixture
) -> None:
    (lake / "files").mkdir()
    (lake / "files/a.csv").write_text("code\n1\n")
    project = make_project(WITHOUT_VERSIONS)
    (batch,) = project.freeze()
    coordinator, batch_id = project.coordinator, str(batch.batch_id)
    coordinator.record_run("orders", batch_id, status="SUCCESS")
    coordinator.finalize_batch(batch_id)
    (lake / "files/b.csv").write_text("code\n2\n")

    replay = coordinator.replay(batch_id, allow_stale=True)

    def marks(batch: Batch) -> dict[str, object]:
        return {window.upstream: window.through_mark for window in batch.lookups}

    assert marks(replay) == marks(batch)
    assert marks(replay)["files://./files/*.csv"] is not None
    (said,) = (each.getMessage() for each in caplog.records if each.levelname == "WARNING")
    assert said == f"batch {batch_id} has not frozen sql://erp/rates: looked up as it is now"


def lose(lake: Path) -> None:
    """A newer version of the countries, and no file of the older one."""
    rename(lake, "Swiss", "German")
    DeltaTable(str(lake / "countries")).vacuum(0, dry_run=False, enforce_retention_duration=False)


def failing(lake: Path, make_project: MakeProject) -> tuple[Project, str]:
    """A batch whose second write is still to be made when its lookup is lost."""
    more = "      - {name: more, depends_on: [facts], write: {path: ./more, mode: append}}\n"
    project = make_project(SHOP % ("left", APPEND) + more)
    with crash.armed("run.after_done"), pytest.raises(failpoints.FailpointReached):
        project.run()
    lose(lake)
    (outcome,) = open_project(lake).run().outcomes
    assert outcome.error is not None
    assert outcome.error.code == "FM-SOURCE-054"
    return open_project(lake), outcome.batch_id


def settle(project: Project, batch_id: str, choice: Settlement) -> FloodmarkError | None:
    (outcome,) = project.retry(batch_id, on_lost_range=choice).outcomes
    return outcome.error


def test_a_frozen_version_that_is_gone_is_told_and_only_a_newer_one_takes_its_place(
    lake: Path, make_project: MakeProject
) -> None:
    project, batch_id = failing(lake, make_project)

    refused = settle(project, batch_id, "accept")
    assert refused is not None
    assert refused.code == "FM-SOURCE-055"

    assert settle(project, batch_id, "snapshot") is None
    assert rows(lake / "more") == rows(lake / "facts") == [(1, "CH")]
    (batch,) = project.coordinator.status(batch_id)
    amended = batch.amended["orders"][str(lake / "countries")]
    assert amended.through > 0
    assert "already written with version 0: facts" in amended.reason


def test_a_lookup_that_came_after_the_plan_is_frozen_once_that_is_asked_for(
    lake: Path, make_project: MakeProject
) -> None:
    plain = SHOP % ("left", APPEND)
    project = make_project(
        plain.replace(
            "name: countries, read: {path: ./countries", "name: countries, read: {path: ./nothing"
        )
    )
    put(lake / "nothing", code=[1], name=["?"])
    (batch,) = project.freeze()

    (outcome,) = make_project(plain).run().outcomes

    assert outcome.error is not None
    assert outcome.error.code == "FM-RUN-010"
    assert settle(open_project(lake), str(batch.batch_id), "snapshot") is None
    assert rows(lake / "facts") == [(1, "CH")]


def test_a_table_that_is_not_there_yet_is_refused_by_the_plan(
    lake: Path, make_project: MakeProject
) -> None:
    shutil.rmtree(lake / "countries")

    summary = make_project(SHOP % ("inner", APPEND)).run()

    assert [error.code for error in summary.refused] == ["FM-PLAN-032"]
    assert str(lake / "countries") in summary.refused[0].title


WRITER = """\
  - pipeline: dims
    nodes: [{name: countries, read: {path: ./raw}, write: {path: ./countries, merge: {keys: [code]}}}]
"""


def test_the_writer_of_a_lookup_runs_first_and_if_it_fails_its_readers_wait(
    lake: Path, make_project: MakeProject
) -> None:
    shutil.rmtree(lake / "countries")
    put(lake / "raw", code=[1, 2], name=["CH", "DE"])
    project = make_project(SHOP % ("inner", APPEND) + WRITER)
    assert {plan.scope: plan.after for plan in project.plan()}["orders"] == ("dims",)

    run(project)

    assert rows(lake / "facts") == [(1, "CH")]
    put(lake / "raw", "overwrite", code=[1], name=["Swiss"])
    put(lake / "orders", id=[2], customer=[7])
    (lake / "countries").rename(lake / "gone")
    summary = project.run()
    assert summary.exit_code != 0
    assert [waiting.pipeline for waiting in summary.waiting] == ["orders"]
    assert rows(lake / "facts") == [(1, "CH")]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("read: {path: ./orders}", "read: {path: ./orders, lookup: true}"), "FM-CONFIG-030"),
        (("path: ./countries, lookup", "path: ./facts, lookup"), "FM-CONFIG-031"),
        (("lookup: true}, transform", "lookup: true, baseline: 5}, transform"), "FM-CONFIG-032"),
        (("lookup: true}, transform", "lookup: true, method: feed}, transform"), "FM-CONFIG-032"),
        (("lookup: true}, transform", "lookup: true, incremental: {cursor: at}}, transform"), "FM-CONFIG-032"),
        (("      - name: facts", "      - {name: x, read: {node: facts, lookup: true}}\n      - name: facts"), "FM-CONFIG-033"),
        (("read: {path: ./orders}", "read: {path: ./customers}"), "FM-CONFIG-034"),
        (("{select: [code, name]}]}", "{select: [code, name]}], write: {path: ./x, mode: append}}"), "FM-CONFIG-035"),
    ],
)  # fmt: skip
def test_what_does_not_go_with_a_lookup_is_refused_before_anything_runs(
    lake: Path, make_project: MakeProject, change: tuple[str, str], code: str
) -> None:
    text = SHOP % ("left", APPEND)
    assert change[0] in text

    with pytest.raises(FloodmarkError) as caught:
        make_project(text.replace(*change, 1)).run()

    assert caught.value.code == code, caught.value
    assert "floodmark.yaml:" in str(caught.value.where)
    assert lake.exists()


def test_a_union_with_a_lookup_is_not_appended_twice(lake: Path, make_project: MakeProject) -> None:
    text = SHOP % ("left", APPEND)
    union = "{select: [id]}, {union: {with: [more]}}"
    text = text.replace("{select: [id, name]}", union)
    text += "      - {name: more, read: {path: ./more, lookup: true}}\n"
    put(lake / "more", id=[100])
    project = make_project(text)
    run(project)
    put(lake / "orders", id=[2], customer=[7])

    (outcome,) = project.run().outcomes

    assert outcome.error is not None
    assert outcome.error.code == "FM-SINK-002"
    assert rows(lake / "facts") == [(1,), (100,)]


def test_a_plan_advises_a_lookup_by_name_where_a_table_is_only_joined(
    lake: Path, make_project: MakeProject
) -> None:
    text = SHOP % ("left", APPEND)
    by_changes = text.replace("./customers, lookup: true", "./customers")
    whole = text.replace("./customers, lookup: true", "./customers, method: snapshot")

    def told(text: str) -> list[str]:
        (batch,) = make_project(text).plan()
        return [window.warning.text for window in batch.windows if window.warning]

    assert told(text) == []
    (said,) = told(by_changes)
    assert "node customers and only joined, by facts" in said
    assert "none of the rows that came before" in said
    (said,) = told(whole)
    assert "start batches" in said
    written = whole.replace(
        "how: left}]\n", "how: left}]\n        write: {path: ./x, mode: overwrite}\n", 1
    )
    assert told(written) == []
    assert lake.exists()


def test_a_plan_says_that_a_join_sees_only_the_news_of_what_files_or_a_database_hold(
    lake: Path, make_project: MakeProject
) -> None:
    """Only a Delta table can show what all batches have left in it."""
    text = """\
project: shop
pipelines:
  - pipeline: orders
    nodes:
      - {name: customers, read: {path: ./customers}, write: {path: ./dim, WRITE}}
      - name: facts
        read: {path: ./orders}
        transform: [join: {with: customers, on: [customer], how: left}]
        write: {path: ./facts, mode: append}
"""

    def told(write: str, read: str = "path: ./customers") -> list[str]:
        written = text.replace("WRITE", write).replace("path: ./customers", read)
        (batch,) = make_project(written).plan()
        return [window.warning.text for window in batch.windows if window.warning]

    files = "format: parquet, mode: append"
    (said,) = told(files)
    assert "is written to ./dim by node customers and joined by facts" in said
    assert "none of the rows that came before" in said
    assert told(files, "path: ./customers, method: snapshot") == []
    assert told("merge: {keys: [customer]}") == []


def test_everything_again_looks_up_what_is_there_now_and_a_rebuild_what_its_batch_has(
    lake: Path, make_project: MakeProject
) -> None:
    project = make_project(SHOP % ("inner", APPEND))
    run(project)
    rename(lake, "Swiss", "German")
    raised(project.run(full_refresh=True))
    assert rows(lake / "facts") == [(1, "Swiss")]

    (lake / "facts").rename(lake / "gone")
    put(lake / "orders", id=[2], customer=[8])
    (outcome,) = project.run().outcomes
    assert outcome.error is not None
    rename(lake, "?", "?")
    raised(project.retry(outcome.batch_id, on_lost_target="rebuild"))

    assert rows(lake / "facts") == [(1, "Swiss"), (2, "German")]


ADDED = """\
      - name: foreign
        depends_on: [customers, orders]
        transform: [{select: [customer, country]}, {join: {with: orders, on: [customer], how: anti}}]
      - name: orders
        read: {path: ./orders}
      - name: later
        depends_on: [orders, customers, foreign]
        transform:
          - join: {with: customers, on: [customer], how: left}
          - join: {with: foreign, on: {country: country}, how: anti}
          - select: [id, name]
        write: {path: ./later, mode: append}
"""


def test_a_node_that_is_added_later_sees_all_of_a_lookup_that_is_the_input_of_another(
    lake: Path, make_project: MakeProject
) -> None:
    """Customer 8 has no order, so nothing of its country is written."""
    text = SHOP % ("left", APPEND)
    text = text.replace(
        "- name: facts\n        read: {path: ./orders}",
        "- name: facts\n        depends_on: [orders, customers]",
    )
    own, added = ADDED.split("      - name: orders\n")
    read = "      - name: orders\n" + added.partition("      - name: later")[0]
    run(make_project(text + read))
    put(lake / "customers", customer=[9], country=[2])
    put(lake / "orders", id=[2, 3], customer=[7, 9])

    run(make_project(text + own + "      - name: orders\n" + added))

    assert rows(lake / "later") == [(1, "CH"), (2, "CH")]


def test_the_seed_of_a_new_pipeline_looks_up_what_is_there_now(
    lake: Path, make_project: MakeProject
) -> None:
    first = (SHOP % ("left", APPEND)).replace("pipeline: orders", "pipeline: orders\n    scope: s")
    run(make_project(first))
    rename(lake, "Swiss", "German")
    second = first.partition("pipelines:\n")[2].replace("pipeline: orders", "pipeline: late")

    run(make_project(first + second.replace("path: ./facts", "path: ./late")))

    assert rows(lake / "late") == [(1, "Swiss")]
    assert rows(lake / "facts") == [(1, "CH")]
