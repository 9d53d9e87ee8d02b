"""Plans over a real PostgreSQL, by its driver alone: no Spark, no Java."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from floodmark.cli.main import main
from floodmark.engines.postgres_server import PostgresServer
from floodmark.errors import FloodmarkError
from floodmark.model.results import Batch
from floodmark.model.window import Window
from floodmark.project import Project

pytestmark = pytest.mark.postgres

PROJECT = """\
project: shop
connections:
  lake: {{type: lake, root: lake}}
  erp: {{type: postgres, host: {host}, port: {port}, database: {database}, user: {user},
        password: "${{env:ERP_PASSWORD}}"}}
pipelines:
  - pipeline: orders
    nodes:
      - name: load
        read: {{connection: erp, table: '{table}', incremental: {{{cursor}}}}}
        write: {{connection: lake, path: orders, mode: append}}
"""
SECONDS = timedelta(seconds=1)


class Shop:
    def __init__(self, root: Path, server: PostgresServer, schema: str) -> None:
        self.root, self.server = root, server
        quoted = schema.replace('"', '""')
        self.table = f'"{quoted}".orders'

    def run_sql(self, text: str) -> None:
        with psycopg.connect(self.server.dsn, autocommit=True) as connection:
            connection.execute(text.replace("orders", self.table).encode())

    def write(self, cursor: str) -> None:
        said = {
            "host": self.server.host,
            "port": self.server.port,
            "database": self.server.database,
            "user": self.server.user,
        }
        text = PROJECT.format(**said, table=self.table, cursor=cursor)
        (self.root / "floodmark.yaml").write_text(text)

    def plan(self, cursor: str) -> Batch:
        self.write(cursor)
        (batch,) = Project.load(self.root).plan()
        return batch

    def window(self, cursor: str) -> Window:
        (window,) = self.plan(cursor).windows
        return window

    def mark(self, cursor: str) -> Any:
        end = self.window(cursor).end_mark
        return json.loads(end)["value"] if end else None


@pytest.fixture
def shop(
    tmp_path: Path, postgres: PostgresServer, pg_schema: str, monkeypatch: pytest.MonkeyPatch
) -> Shop:
    monkeypatch.setenv("ERP_PASSWORD", postgres.password)
    return Shop(tmp_path, postgres, pg_schema)


def test_plan_and_lag_show_the_window_and_import_no_spark(shop: Shop) -> None:
    shop.run_sql("CREATE TABLE orders (id int); INSERT INTO orders VALUES (7)")
    shop.write("cursor: id")
    program = (
        "import sys\nfrom floodmark.cli.main import main\n"
        "try:\n    main()\nfinally:\n    assert 'pyspark' not in sys.modules\n"
    )

    def floodmark(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", program, *words],
            cwd=shop.root,
            env=os.environ | {"ERP_PASSWORD": shop.server.password},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert shop.server.password not in done.stdout + done.stderr
        return done.stdout

    planned = json.loads(floodmark("plan", "--json", "--freeze"))
    lag = json.loads(floodmark("lag", "--json"))
    screens = [floodmark(verb) for verb in ("plan", "status", "lag", "gaps", "doctor", "metrics")]

    assert "to 7" in screens[0]
    assert "sql://erp/" in screens[2]
    assert planned["windows"][0]["kind"] == "cursor"
    assert planned["windows"][0]["end_mark"] == '{"type":"int","value":"7"}'
    assert lag["upstreams"][0]["latest_mark"] == '{"type":"int","value":"7"}'
    assert shop.server.password not in "".join(
        path.read_text(errors="ignore") for path in (shop.root / "lake").rglob("*.json")
    )


def test_values_that_are_not_settled_wait(shop: Shop) -> None:
    now = datetime.now(UTC)
    old, recent, future = (now + n * 60 * SECONDS for n in (-60, -5, 60))
    shop.run_sql("CREATE TABLE orders (id int, at timestamptz, day date)")
    shop.run_sql(
        f"INSERT INTO orders VALUES (1, '{old}', '2026-01-01'), (2, '{recent}', '{now:%Y-%m-%d}'),"
        f" (3, '{future}', '2999-01-01')"
    )

    assert datetime.fromisoformat(shop.mark("cursor: at")) == recent
    assert datetime.fromisoformat(shop.mark("cursor: at, settle: 10 minutes")) == old
    assert shop.mark("cursor: day") == "2026-01-01"
    assert shop.mark("cursor: id, settle: 1") == "2"


def test_a_baseline_is_read_as_the_type_of_the_column(shop: Shop) -> None:
    shop.run_sql("CREATE TABLE orders (id numeric(6,2), at timestamptz)")
    shop.run_sql("INSERT INTO orders VALUES (1.50, '2026-01-01 00:00Z'), (3, '2026-01-02 00:00Z')")

    assert shop.mark("cursor: id, baseline: 2") == "3.00"
    assert shop.plan("cursor: id, baseline: 3").status == "NOOP"
    assert shop.mark("cursor: at, baseline: 2026-01-01") == "2026-01-02T00:00:00.000000Z"
    assert shop.plan("cursor: at, baseline: 2026-01-02").status == "NOOP"
    in_berlin = "cursor: at, baseline: '2026-01-02T01:00:00', time_zone: Europe/Berlin"
    assert shop.plan(in_berlin).status == "NOOP"


@pytest.mark.parametrize(
    ("cursor", "code"),
    [
        ("cursor: gone", "FM-SOURCE-031"),
        ("cursor: ratio", "FM-SOURCE-033"),
        ("cursor: name", "FM-SOURCE-033"),
        ("cursor: empty", "FM-SOURCE-032"),
        ("cursor: id, overlap: 5 minutes, baseline: 0", "FM-SOURCE-034"),
        ("cursor: id, settle: 5 minutes", "FM-SOURCE-034"),
        ("cursor: at, settle: 5", "FM-SOURCE-034"),
        ("cursor: at, baseline: 5", "FM-SOURCE-034"),
    ],
)
def test_what_does_not_go_with_the_column_is_refused_before_anything_is_planned(
    shop: Shop, cursor: str, code: str
) -> None:
    shop.run_sql(
        "CREATE TABLE orders (id int, at timestamptz, ratio float8, name text, empty int);"
        " INSERT INTO orders VALUES (1, now(), 0.5, 'a', NULL)"
    )
    shop.write(cursor)

    with pytest.raises(FloodmarkError) as planned:
        Project.load(shop.root).plan()
    assert planned.value.code == code
    assert not (shop.root / "lake/_control").exists()


TWO_READERS = """\
  - pipeline: settled
    nodes:
      - name: late
        read: {{connection: erp, table: '{table}', incremental: {{cursor: at, settle: 10 minutes}}}}
        write: {{connection: lake, path: late, mode: append}}
  - pipeline: whole
    nodes:
      - name: everything
        read: {{connection: erp, table: '{table}'}}
        write: {{connection: lake, path: everything, mode: overwrite}}
"""


@pytest.mark.parametrize("is_first", [True, False], ids=["before the others", "behind them"])
def test_each_pipeline_plans_a_table_by_what_it_says_itself(shop: Shop, *, is_first: bool) -> None:
    now = datetime.now(UTC)
    old, recent = now - 60 * 60 * SECONDS, now - 60 * SECONDS
    shop.run_sql("CREATE TABLE orders (id int, at timestamptz)")
    shop.run_sql(f"INSERT INTO orders VALUES (1, '{old}'), (2, '{recent}')")
    shop.write("cursor: id")
    file = shop.root / "floodmark.yaml"
    head, pipelines, own = file.read_text().partition("pipelines:\n")
    others = TWO_READERS.format(table=shop.table)
    file.write_text(head + pipelines + (own + others if is_first else others + own))

    batches = Project.load(shop.root).freeze()

    ends = {b.scope: json.loads(str(b.windows[0].end_mark)) for b in batches}
    assert ends["orders"] == {"type": "int", "value": "2"}
    assert datetime.fromisoformat(ends["settled"]["value"]) == old
    assert ends["whole"]["type"] == "timestamp"


def test_a_table_that_was_made_anew_is_refused_until_it_is_begun_anew(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.run_sql("CREATE TABLE orders (id int); INSERT INTO orders VALUES (1), (7)")
    shop.write("cursor: id")
    project = Project.load(shop.root)
    (batch,) = project.freeze()
    project.coordinator.record_run("orders", str(batch.batch_id), status="SUCCESS")
    project.coordinator.finalize_batch(str(batch.batch_id))
    shop.run_sql("TRUNCATE orders; INSERT INTO orders VALUES (8)")
    assert shop.mark("cursor: id") == "8"
    shop.run_sql("DROP TABLE orders; CREATE TABLE orders (id int); INSERT INTO orders VALUES (3)")

    with pytest.raises(FloodmarkError) as caught:
        shop.plan("cursor: id")
    assert caught.value.code == "FM-PLAN-005"
    command = str(caught.value.next).partition("floodmark ")[2].partition("; or")[0]
    monkeypatch.chdir(shop.root)
    assert main(shlex.split(command)) == 0

    window = shop.window("cursor: id")
    assert (window.start_mark, window.end_mark) == (None, '{"type":"int","value":"3"}')


def test_a_read_without_a_cursor_is_all_rows_in_every_plan(shop: Shop) -> None:
    shop.run_sql("CREATE TABLE orders (id int); INSERT INTO orders VALUES (1)")
    shop.write("cursor: id")
    file = shop.root / "floodmark.yaml"
    whole = file.read_text().replace(", incremental: {cursor: id}", "")
    file.write_text(whole)
    with pytest.raises(FloodmarkError) as caught:
        Project.load(shop.root)
    assert caught.value.code == "FM-CONFIG-015"
    assert "would add them again" in caught.value.title
    file.write_text(whole.replace("mode: append", "mode: overwrite"))

    for _ in range(2):
        project = Project.load(shop.root)
        (batch,) = project.freeze()
        (window,) = batch.windows
        assert window.reason == "no cursor is said, so every run reads all rows"
        assert window.is_whole
        project.coordinator.record_run("orders", str(batch.batch_id), status="SUCCESS")
        project.coordinator.finalize_batch(str(batch.batch_id))
    Project.check(shop.root, connect=True)
    shop.run_sql("DROP TABLE orders")
    with pytest.raises(FloodmarkError) as gone:
        Project.check(shop.root, connect=True)
    assert gone.value.code == "FM-SOURCE-031"


def test_validate_asks_the_database_only_where_that_is_said(shop: Shop) -> None:
    shop.run_sql("CREATE TABLE orders (id int); INSERT INTO orders VALUES (1)")
    shop.write("cursor: gone")

    Project.check(shop.root)
    with pytest.raises(FloodmarkError) as caught:
        Project.check(shop.root, connect=True)

    assert caught.value.code == "FM-SOURCE-031"
    assert "nodes[0].read" in str(caught.value.where)
    shop.write("cursor: id")
    Project.check(shop.root, connect=True)


def committed(shop: Shop, cursor: str) -> Project:
    """The project with everything that is there committed, as if it had run elsewhere."""
    shop.write(cursor)
    project = Project.load(shop.root)
    (batch,) = project.freeze()
    project.coordinator.record_run("orders", str(batch.batch_id), status="SUCCESS")
    project.coordinator.finalize(str(batch.batch_id))
    return project


RANGES = [
    ("id", ("2", "3"), ('{"type":"int","value":"1"}', '{"type":"int","value":"3"}')),
    ("id", (2, 2), ('{"type":"int","value":"1"}', '{"type":"int","value":"2"}')),
    (
        "at",
        ("2026-01-01", "2026-01-02"),
        (
            '{"type":"timestamp","value":"2025-12-31T23:59:59.999999Z"}',
            '{"type":"timestamp","value":"2026-01-02T23:59:59.999999Z"}',
        ),
    ),
]


@pytest.mark.parametrize(("cursor", "ends", "marks"), RANGES)
def test_a_range_of_values_is_planned_once_more_and_the_mark_stays(
    shop: Shop, cursor: str, ends: Any, marks: tuple[str, str]
) -> None:
    shop.run_sql("CREATE TABLE orders (id int, at timestamptz)")
    shop.run_sql("INSERT INTO orders SELECT n, '2026-01-01Z'::timestamptz + n * interval '1 day' FROM generate_series(0, 4) n")  # fmt: skip
    coordinator = committed(shop, f"cursor: {cursor}").coordinator
    before = coordinator.checkpoints()[0].mark

    start, end = ends
    batch = coordinator.backfill(
        f"sql://erp/{shop.table}",
        start=start,
        end=end,
        pipelines=["orders"],
        scope="orders",
        allow_duplicates=True,  # the node appends
    )

    (window,) = batch.windows
    assert (batch.kind, window.kind) == ("backfill", "cursor")
    assert (window.start_mark, window.end_mark) == marks
    assert coordinator.checkpoints()[0].mark == before
    assert all(finding.ok for finding in coordinator.verify())


@pytest.mark.parametrize(
    ("cursor", "start", "end", "said"),
    [
        ("cursor: id", "2", "9", "--from 4 --to 4"),
        ("cursor: id", "3", "2", "--from 4 --to 4"),
        ("cursor: id", "x", "2", "--from 4 --to 4"),
        ("cursor: at", 0, 1, "--from 2026-01-05"),
        ("cursor: name, type: string, order: binary", "a", "b", "floodmark replay BATCH"),
    ],
)
def test_what_is_no_committed_range_of_a_cursor_is_refused_with_what_to_type(
    shop: Shop, cursor: str, start: Any, end: Any, said: str
) -> None:
    shop.run_sql("CREATE TABLE orders (id int, at timestamptz, name text)")
    shop.run_sql("INSERT INTO orders SELECT n, '2026-01-01Z'::timestamptz + n * interval '1 day', 'n' || n FROM generate_series(0, 4) n")  # fmt: skip
    coordinator = committed(shop, cursor).coordinator

    with pytest.raises(FloodmarkError) as caught:
        coordinator.backfill(
            f"sql://erp/{shop.table}", start=start, end=end, pipelines=["orders"], scope="orders"
        )

    assert caught.value.code == "FM-PLAN-014"
    assert said in str(caught.value.next)
    assert not list(coordinator.look.state().open_batches())


def test_a_reset_of_a_database_goes_to_its_beginning_and_says_what_else_there_is(
    shop: Shop,
) -> None:
    shop.run_sql("CREATE TABLE orders (id int); INSERT INTO orders VALUES (1)")
    coordinator = committed(shop, "cursor: id").coordinator
    upstream = f"sql://erp/{shop.table}"

    for said in ({"to": "1"}, {"to_version": 0}):
        with pytest.raises(FloodmarkError) as caught:
            coordinator.admin.reset(upstream, scope="orders", **said)
        assert caught.value.code == "FM-CONFIG-007"
        step = f"floodmark backfill {shlex.quote(upstream)} --from VALUE"
        assert step in str(caught.value.next)
    coordinator.admin.reset(upstream, scope="orders")
    assert coordinator.checkpoints() == ()
