"""A node that reads PostgreSQL through Spark, killed: the next command finishes it."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from tests.support import crash
from tests.support.node_projects import table_rows

from floodmark.engines.postgres_server import PostgresServer
from floodmark.project import Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]

SECRET = "FLOODMARK_TEST_ERP"
POINTS = ("edge.after_write", "sink.after_commit")
NODES = """
pipelines:
  - pipeline: orders
    nodes:
      - name: load
        read: {connection: erp, table: TABLE, incremental: {cursor: at, overlap: 5, keys: [id]}}
        write: {connection: lake, path: orders, mode: append}
"""


def tell(root: str) -> None:
    """The normal command."""
    summary = Project.load(root).run()
    for error in [*(o.error for o in summary.outcomes if o.error), *summary.refused]:
        raise error


def test_a_killed_read_is_finished_with_the_rows_that_were_put_aside(
    spark: SparkSession,
    postgres: PostgresServer,
    pg_schema: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quoted = pg_schema.replace('"', '""')
    table = f'"{quoted}".orders'
    erp = {
        "type": "postgres",
        "host": postgres.host,
        "port": postgres.port,
        "database": postgres.database,
        "user": postgres.user,
        "password": f"${{env:{SECRET}}}",
    }
    head = "project: shop\nlease_ttl: 2s\njobs: 1\nconnections:\n"
    connections = f"  lake: {{type: lake, root: lake}}\n  erp: {json.dumps(erp)}"
    text = head + connections + NODES.replace("TABLE", json.dumps(table))
    (tmp_path / "floodmark.yaml").write_text(text)
    log, known = tmp_path / "log", {SECRET: postgres.password}
    with psycopg.connect(postgres.dsn, autocommit=True) as database:
        database.execute(f"CREATE TABLE {table} (id int, at int)".encode())
        database.execute(f"INSERT INTO {table} VALUES (1, 1), (2, 10)".encode())
        for number, point in enumerate(POINTS, 3):
            armed = {**known, "FLOODMARK_FAILPOINT": point}
            code = crash.run(tell, str(tmp_path), log=log, environment=armed)
            assert code == -signal.SIGKILL, log.read_text()
            # Late, and after the rows were put aside: they belong to the next window.
            database.execute(f"INSERT INTO {table} VALUES ({number}, {number + 3})".encode())
        database.execute(f"INSERT INTO {table} VALUES (9, 12)".encode())

    # The next process is that of the tests: its session is there, and costs no further JVM.
    monkeypatch.setenv(SECRET, postgres.password)
    tell(str(tmp_path))

    rows = table_rows(tmp_path / "lake/orders", "id, at")
    assert rows == [(1, 1), (2, 10), (3, 6), (4, 7), (9, 12)]
    assert [f.text for f in Project.load(tmp_path).verify() if not f.ok] == []
    assert postgres.password not in log.read_text()
