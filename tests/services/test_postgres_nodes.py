"""Nodes that write to PostgreSQL: from floodmark.yaml to rows and receipts on a real server."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.contract.postgres_places import PgLake, PgPlace
from tests.support import crash
from tests.support.node_projects import open_project, table_rows

from floodmark import failpoints
from floodmark.engines.postgres_server import PostgresServer
from floodmark.errors import FloodmarkError
from floodmark.project import Project
from floodmark.run.context import Run

pytestmark = pytest.mark.postgres

SECRET = "SHOP_PASSWORD"
NODES = """\
pipelines:
  - pipeline: orders
    nodes:
      - name: erp_orders
        read: {connection: lake, path: orders}
        write: {connection: erp, format: postgres, table: @orders, merge: {keys: [id]}}
      - name: lake_log
        depends_on: [erp_orders]
        write: {connection: lake, path: log, mode: append, changes: log}
      - name: erp_log
        depends_on: [erp_orders]
        write: {connection: erp, table: @log, mode: append, changes: log}
"""


@pytest.fixture
def lake(postgres: PostgresServer, pg_schema: str) -> PgLake:
    return PgLake(postgres.dsn, pg_schema)


@pytest.fixture(autouse=True)
def password(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(SECRET, postgres.password)
    return postgres.password


def project_text(server: PostgresServer, lake: PgLake, nodes: str = NODES) -> str:
    """The project with `@name` for tables of the test's schema."""
    places = {name: str(lake / name).partition(":")[2] for name in ("orders", "log", "copy")}
    for name, table in places.items():
        nodes = nodes.replace(f"@{name}", json.dumps(table))
    erp = {
        "type": "postgres",
        "host": server.host,
        "port": server.port,
        "database": server.database,
        "user": server.user,
        "password": f"${{env:{SECRET}}}",
    }
    head = "project: shop\nlease_ttl: 2s\njobs: 1\n"
    connections = f"connections:\n  lake: {{type: lake, root: lake}}\n  erp: {json.dumps(erp)}\n"
    return head + connections + nodes


def amounts(place: PgPlace) -> list[tuple[int, int]]:
    return sorted((row["id"], row["amount"]) for row in place.rows())


def tell(root: str) -> None:
    """Two batches, the second with updates and deletes; what is done already is skipped."""
    for step in (crash.grow_lake, None):
        summary = open_project(Path(root)).run()
        for error in [outcome.error for outcome in summary.outcomes if outcome.error]:
            raise error
        if step:
            step(Path(root))


def story_end(root: Path, lake: PgLake) -> dict[str, Any]:
    columns = ("id", "amount", "change_type", "change_version")
    return {
        "orders": amounts(lake / "orders"),
        "log": sorted(tuple(row[c] for c in columns) for row in (lake / "log").rows()),
        "lake_log": table_rows(root / "lake/log", ", ".join(columns)),
        "receipts": [
            [(app_id.split("/", 2)[2], seq) for each in place.history() for app_id, seq in each.items()]
            for place in (lake / "orders", lake / "log")
        ],
        "problems": [f.text for f in open_project(root).coordinator.verify() if not f.ok],
    }  # fmt: skip


@pytest.mark.parametrize(
    "point",
    [
        None,
        "sink.before_commit",
        "sink.before_commit:6",
        "sink.after_commit",
        "sink.after_commit:4",
        "postgres.after_copy:2",
        "postgres.after_lock:3",
        "run.before_done:4",
        "run.after_done:1",
        "run.after_done:4",
    ],
)
def test_delta_to_postgres_killed_anywhere_ends_as_if_nothing_had_happened(
    postgres: PostgresServer, lake: PgLake, tmp_path: Path, password: str, point: str | None
) -> None:
    (tmp_path / "floodmark.yaml").write_text(project_text(postgres, lake))
    crash.build_lake(tmp_path)
    log, known = tmp_path / "log", {SECRET: password}

    if point is not None:
        armed = {**known, "FLOODMARK_FAILPOINT": point}
        code = crash.run(tell, str(tmp_path), log=log, environment=armed)
        assert code == -signal.SIGKILL, log.read_text()
    assert crash.run(tell, str(tmp_path), log=log, environment=known) == 0, log.read_text()

    end = story_end(tmp_path, lake)
    assert end["orders"] == [(1, 11), (2, 21), (3, 30), (5, 50), (6, 60), (7, 70), (8, 80), (9, 90)]
    assert end["log"] == end["lake_log"]
    assert len(end["log"]) == 7 + 4 + 1 + 2
    assert end["receipts"] == [
        [("orders/erp_orders/0", 1), ("orders/erp_orders/0", 2)],
        [("orders/erp_log/0", 1), ("orders/erp_log/0", 2)],
    ]
    assert end["problems"] == []
    assert password not in log.read_text()


def test_first_runs_of_one_node_at_once_make_its_table_and_write_every_row_once(
    postgres: PostgresServer, lake: PgLake, tmp_path: Path, password: str
) -> None:
    (tmp_path / "floodmark.yaml").write_text(project_text(postgres, lake))
    crash.build_lake(tmp_path)
    log, known = tmp_path / "log", {SECRET: password}
    places = (tell_once, str(tmp_path))

    runners = [crash.start(*places, log=log, environment=known) for _ in range(3)]
    codes = [crash.ended(runner) for runner in runners]
    assert crash.run(tell, str(tmp_path), log=log, environment=known) == 0, log.read_text()

    end = story_end(tmp_path, lake)
    assert set(codes) <= {0, 4}, log.read_text()  # done, or somebody else is at it
    assert end["orders"] == [(1, 11), (2, 21), (3, 30), (5, 50), (6, 60), (7, 70), (8, 80), (9, 90)]
    assert end["log"] == end["lake_log"]
    assert [seq for receipts in end["receipts"] for _, seq in receipts] == [1, 2, 1, 2]
    assert end["problems"] == []


def tell_once(root: str) -> None:
    """The first batch; a refusal goes up."""
    for error in [o.error for o in open_project(Path(root)).run().outcomes if o.error]:
        raise error


@pytest.fixture
def project(postgres: PostgresServer, lake: PgLake, tmp_path: Path) -> Project:
    crash.build_lake(tmp_path)
    return open_project(tmp_path, project_text(postgres, lake))


def error_of(project: Project) -> FloodmarkError:
    error = project.run().outcomes[0].error
    assert error is not None
    return error


def test_no_password_is_journaled_or_shown(project: Project, password: str) -> None:
    project.run()

    control = Path(project.coordinator.control)
    stored = b"".join(path.read_bytes() for path in control.rglob("*") if path.is_file())
    assert b"erp" in stored
    assert password.encode() not in stored
    assert password not in repr(project.settings) + repr(project.coordinator.store.databases)


def test_a_wrong_password_is_told_without_showing_it(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SECRET, "not-the-one")

    error = error_of(project)

    assert (error.code, error.retryable) == ("FM-SINK-032", False)
    assert "not-the-one" not in str(error)


def test_a_dropped_table_is_refused_then_rebuilt(
    project: Project, lake: PgLake, tmp_path: Path
) -> None:
    project.run()
    place = lake / "orders"
    place.query(f"DROP TABLE {place.table}")
    crash.grow_lake(tmp_path)

    refused = error_of(project)
    batch_id = project.coordinator.status()[0].batch_id
    summary = project.retry(batch_id, on_lost_target="rebuild")

    assert refused.code == "FM-SINK-007"
    assert summary.exit_code == 0
    assert [row[0] for row in amounts(place)] == [1, 2, 3, 5, 6, 7, 8, 9]
    assert len(table_rows(tmp_path / "lake/log")) == 7 + 4 + 1 + 2


def test_a_backfill_into_an_emptied_table_is_refused_until_that_is_accepted(
    postgres: PostgresServer, lake: PgLake, tmp_path: Path
) -> None:
    crash.build_lake(tmp_path)
    one_node = NODES.partition("      - name: lake_log")[0]
    project = open_project(tmp_path, project_text(postgres, lake, one_node))
    project.run()
    (lake / "orders").empty()

    backfill = project.backfill("lake/orders", start=1, end=1, allow_stale=True)
    refused = backfill.outcomes[0].error
    again = project.retry(str(backfill.batches[0].batch.batch_id), on_lost_target="accept")

    assert refused is not None
    assert refused.code == "FM-SINK-016"
    assert again.exit_code == 0
    assert amounts(lake / "orders") == [(7, 70)]


def test_verify_and_doctor_look_at_the_receipts_of_the_database(
    project: Project, lake: PgLake
) -> None:
    project.run()
    place = lake / "orders"
    target = str(place).replace("shop:", "erp:")
    assert all(finding.ok for finding in project.verify())
    assert [f.ok for f in project.coordinator.admin.doctor() if f.name == target] == [True]

    place.query(f"DELETE FROM {place.receipts} WHERE app_id LIKE '%erp_orders%'")

    problems = [finding.text for finding in project.verify() if not finding.ok]
    assert any(f"{target} does not hold" in text for text in problems)
    place.query(f"DROP TABLE {place.table}")
    assert any("could not be looked at" in f.text for f in project.verify() if not f.ok)
    assert [f.ok for f in project.coordinator.admin.doctor() if f.name == target] == [False]


def test_a_lost_store_is_rebuilt_from_targets_of_both_kinds(
    project: Project, lake: PgLake, tmp_path: Path
) -> None:
    project.run()
    (tmp_path / "lake/_control").rename(tmp_path / "lost")
    targets = [str(lake / name).replace("shop:", "erp:") for name in ("orders", "log")]
    known = {"orders": ("orders", ["lake/orders"])}

    again = open_project(tmp_path)
    again.coordinator.admin.rebuild_from_targets([*targets, "./lake/log"], known)
    crash.grow_lake(tmp_path)
    summary = again.run()

    assert summary.exit_code == 0
    assert [row[0] for row in amounts(lake / "orders")] == [1, 2, 3, 5, 6, 7, 8, 9]
    assert len((lake / "log").rows()) == 7 + 4 + 1 + 2


def test_a_node_that_is_added_below_a_database_gets_what_came_before(
    postgres: PostgresServer, lake: PgLake, tmp_path: Path
) -> None:
    crash.build_lake(tmp_path)
    alone = NODES[: NODES.index("      - name: lake_log")]
    open_project(tmp_path, project_text(postgres, lake, alone)).run()
    crash.grow_lake(tmp_path)
    added = """\
      - {name: copy, depends_on: [erp_orders], write: {connection: erp, table: @copy, merge: {keys: [id]}}}
"""
    project = open_project(tmp_path, project_text(postgres, lake, alone + added))
    with crash.armed("run.after_done:1"), pytest.raises(failpoints.FailpointReached):
        project.run()

    summary = open_project(tmp_path).run()

    assert summary.exit_code == 0, summary.outcomes
    assert amounts(lake / "copy") == amounts(lake / "orders")
    assert len(amounts(lake / "copy")) == 8


def test_a_lost_target_below_a_database_is_rebuilt_from_the_whole(
    project: Project, lake: PgLake, tmp_path: Path
) -> None:
    project.run()
    crash.grow_lake(tmp_path)
    (tmp_path / "lake/log").rename(tmp_path / "gone")
    assert error_of(project).code == "FM-SINK-007"

    batch_id = project.coordinator.status()[0].batch_id
    summary = project.retry(batch_id, on_lost_target="rebuild")

    assert summary.exit_code == 0, summary.outcomes
    assert table_rows(tmp_path / "lake/log", "id") == [(n,) for n in (1, 2, 3, 5, 6, 7, 8, 9)]
    assert len((lake / "log").rows()) == 7 + 4 + 1 + 2


def test_a_function_writes_to_a_database_by_name(
    project: Project, lake: PgLake, tmp_path: Path
) -> None:
    coordinator = project.coordinator
    coordinator.register("copy", ["./lake/orders"])
    batch_id = coordinator.create_batch(pipelines=["copy"]).batch_id or ""
    target = str(lake / "copy").replace("shop:", "erp:")

    def write_to(name: str) -> Any:
        def write(inputs: Mapping[str, Any], run: Run) -> None:
            run.write(inputs["./lake/orders"], name, mode="append")

        return write

    with pytest.raises(FloodmarkError) as caught:
        coordinator.run_pipeline("copy", batch_id, write_to("epr:copy"))
    assert (caught.value.code, caught.value.allowed) == ("FM-SINK-033", "erp")
    result = coordinator.run_pipeline("copy", batch_id, write_to(target))

    assert (result.status, result.rows_written) == ("SUCCESS", 7)
    assert len(amounts(lake / "copy")) == 7


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (("format: postgres, table: @orders", "table: a.b.c"), "write.table"),
        (("table: @log,", "table: @log, options: {optimize_write: true},"), "write.options.optimize_write"),
    ],
)  # fmt: skip
def test_what_a_database_cannot_do_is_refused_by_its_key(
    postgres: PostgresServer, lake: PgLake, tmp_path: Path, change: tuple[str, str], key: str
) -> None:
    crash.build_lake(tmp_path)
    project = open_project(tmp_path, project_text(postgres, lake, NODES.replace(*change)))

    with pytest.raises(FloodmarkError) as caught:
        project.run()

    assert caught.value.code == "FM-CONFIG-016"
    assert key in (caught.value.where or "")


def test_a_condition_that_the_database_does_not_take_is_told_as_such(
    postgres: PostgresServer, lake: PgLake, tmp_path: Path
) -> None:
    crash.append_rows(tmp_path, "lake/orders", [(1, 10)])
    nodes = """\
pipelines:
  - pipeline: orders
    nodes:
      - name: days
        read: {connection: lake, path: orders, method: snapshot}
        write: {connection: erp, table: @copy, mode: replace_where, replace_where: "id >"}
"""
    text = project_text(postgres, lake, nodes)

    error = error_of(open_project(tmp_path, text))
    summary = open_project(tmp_path, text.replace("id >", "id > 0")).run()

    assert (error.code, error.retryable) == ("FM-SINK-005", False)
    assert summary.exit_code == 0, summary.outcomes
    assert amounts(lake / "copy") == [(1, 10)]


MOVING = """\
pipelines:
  - pipeline: events
    nodes:
      - name: erp_orders
        read: {connection: lake, path: events, incremental: {cursor: at, type: timestamp}}
        write: {connection: erp, table: @orders, mode: append}
      - name: erp_copy
        depends_on: [erp_orders]
        write: {connection: erp, table: @copy, mode: append}
"""


def test_dependents_of_a_database_read_the_rows_that_were_written_there(
    postgres: PostgresServer, lake: PgLake, tmp_path: Path
) -> None:
    from deltalake import DeltaTable
    from tests.support.node_projects import add_events

    add_events(tmp_path, 1, 2, 3)
    project = open_project(tmp_path, project_text(postgres, lake, MOVING))
    with crash.armed("run.after_done"), pytest.raises(failpoints.FailpointReached):
        project.run()
    DeltaTable(str(tmp_path / "lake/events")).delete("id = 2")

    summary = open_project(tmp_path).run()

    assert summary.exit_code == 0
    assert sorted(row["id"] for row in (lake / "orders").rows()) == [1, 2, 3]
    assert sorted(row["id"] for row in (lake / "copy").rows()) == [1, 2, 3]


STRATEGIES = """\
pipelines:
  - pipeline: orders
    nodes:
      - name: first
        read: {connection: lake, path: orders}
        write:
          connection: erp
          table: @orders
          merge: {keys: [id], strategy: append_only, audit: {created_at: came, updated_at: seen}}
          on_schema_change: add_columns
      - name: gone
        depends_on: [first]
        write: {connection: erp, table: @copy, merge: {keys: [id], strategy: delete_match}}
      - name: softly
        depends_on: [first]
        write: {connection: erp, table: @log, merge: {keys: [id], deletes: soft, audit: {updated_at: seen}}}
"""  # fmt: skip


def test_strategies_audit_columns_and_new_columns_from_yaml(
    postgres: PostgresServer, lake: PgLake, tmp_path: Path
) -> None:
    import pyarrow as pa
    from deltalake import write_deltalake

    crash.append_rows(tmp_path, "lake/orders", [(1, 10), (2, 20)])
    copy = lake / "copy"
    copy.query(f"CREATE TABLE {copy.table} AS SELECT 2 AS id, 'x' AS why UNION SELECT 5, 'y'")
    project = open_project(tmp_path, project_text(postgres, lake, STRATEGIES))
    assert project.run().exit_code == 0
    before = {row["id"]: row for row in (lake / "log").rows()}
    assert [row["id"] for row in copy.rows()] == [5]

    crash.open_table(tmp_path, "lake/orders").update({"amount": "11"}, predicate="id = 1")
    crash.open_table(tmp_path, "lake/orders").delete("id = 2")
    wide = pa.table({"id": [3], "amount": [30], "city": ["Bern"]})
    write_deltalake(str(tmp_path / "lake/orders"), wide, mode="append", schema_mode="merge")
    summary = project.run()

    rows = {row["id"]: row for row in (lake / "orders").rows()}
    assert {key: (row["amount"], row["city"]) for key, row in rows.items()} == {
        1: (10, None),
        2: (20, None),
        3: (30, "Bern"),
    }
    assert all(row["came"] == row["seen"] is not None for row in rows.values())
    after = {row["id"]: row for row in (lake / "log").rows()}
    assert after[1]["seen"] > before[1]["seen"]
    assert [after[2]["is_deleted"], after[1]["is_deleted"]] == [True, False]
    error = summary.outcomes[-1].error
    assert error is not None
    assert (error.code, error.found) == ("FM-SINK-011", "new columns, not in the target: city")


def test_a_run_that_takes_too_long_ends_its_statements_too(
    tmp_path: Path, postgres: PostgresServer, lake: PgLake
) -> None:
    """`timeout:` covers COPY and locks: what the thread waits for in the database is cancelled."""
    crash.build_lake(tmp_path)
    place = lake / "orders"
    place.query(f"CREATE TABLE {place.table} (id bigint, amount bigint)")
    text = project_text(
        postgres, lake, NODES.replace("pipeline: orders", "pipeline: orders\n    timeout: 2s")
    )
    project = open_project(tmp_path, text)
    with psycopg.connect(postgres.dsn) as other:
        other.execute(f"LOCK TABLE {place.table} IN SHARE MODE".encode())

        (outcome,) = project.run().outcomes

        waiting = (
            "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            " AND application_name = 'floodmark'"
        )
        deadline = time.monotonic() + 10
        while (left := place.query(waiting)) and time.monotonic() < deadline:
            time.sleep(0.05)
    assert outcome.error is not None
    assert (outcome.error.code, left) == ("FM-RUN-007", [])
    assert place.rows() == []


SLOW = """\
CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS
'BEGIN PERFORM pg_sleep(300); RETURN new; END';
CREATE TRIGGER slow BEFORE INSERT ON {table} FOR EACH ROW WHEN (new.id = 8)
EXECUTE FUNCTION {name}()
"""


@pytest.mark.parametrize("how", ["by a lock", "in its middle"])
def test_a_copy_that_is_held_up_ends_in_time_and_a_retry_writes_each_row_once(
    tmp_path: Path, postgres: PostgresServer, lake: PgLake, how: str
) -> None:
    crash.build_lake(tmp_path)
    place = lake / "log"
    open_project(tmp_path, project_text(postgres, lake)).run()
    crash.grow_lake(tmp_path)
    before, slow = place.rows(), f"{place.table.rpartition('.')[0]}.slow"
    if how == "in its middle":
        place.query(SLOW.format(name=slow, table=place.table))
    limited = NODES.replace("pipeline: orders", "pipeline: orders\n    timeout: 4s")
    project = open_project(tmp_path, project_text(postgres, lake, limited))
    seen: set[str] = set()
    with psycopg.connect(postgres.dsn) as other, watched(place, seen):
        if how == "by a lock":
            other.execute(f"LOCK TABLE {place.table} IN SHARE MODE".encode())
        began = time.monotonic()

        (outcome,) = project.run().outcomes

        seconds = time.monotonic() - began
    error = outcome.error
    assert error is not None
    assert (error.code, error.retryable) == ("FM-RUN-007", True)
    assert "writes that committed stand" in (error.state or "")
    assert seconds < 30
    assert [statement for statement in seen if statement.startswith("COPY")], seen
    assert place.rows() == before
    place.query(f"DROP FUNCTION IF EXISTS {slow} CASCADE")
    batch_id = project.coordinator.status()[0].batch_id

    summary = open_project(tmp_path, project_text(postgres, lake)).retry(batch_id)

    assert summary.exit_code == 0
    assert [row[0] for row in amounts(lake / "orders")] == [1, 2, 3, 5, 6, 7, 8, 9]
    assert len(place.rows()) == len(table_rows(tmp_path / "lake/log")) == 7 + 4 + 1 + 2


@contextmanager
def watched(place: PgPlace, seen: set[str]) -> Iterator[None]:
    """Note what statements of ours wait for in the database while the block runs."""
    waiting = (
        "SELECT query FROM pg_stat_activity WHERE application_name = 'floodmark'"
        " AND (wait_event_type = 'Lock' OR wait_event = 'PgSleep')"
    )
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(0.1):
            seen.update(row["query"] for row in place.query(waiting))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
