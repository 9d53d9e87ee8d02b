"""A project over a real PostgreSQL, read by Spark: the fixture of its tests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from tests.support.node_projects import table_rows
from tests.support.outsides import ALONE

from floodmark.engines.postgres_server import PostgresServer
from floodmark.project import Project, RunSummary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HEAD = """\
project: shop
lease_ttl: 1s
jobs: 1
connections:
  lake: {{type: lake, root: lake}}
  erp: {{type: postgres, host: {host}, port: {port}, database: {database}, user: {user},
        password: "${{env:ERP_PASSWORD}}"}}
pipelines:
"""


class Shop:
    """A project over a schema of the test's own."""

    def __init__(
        self, root: Path, server: PostgresServer, schema: str, spark: SparkSession
    ) -> None:
        self.root, self.server, self.schema, self.spark = root, server, schema, spark

    def run_sql(self, text: str) -> None:
        with psycopg.connect(self.server.dsn, autocommit=True) as connection:
            quoted = self.schema.replace('"', '""')
            connection.execute(f'SET search_path TO "{quoted}"'.encode())
            connection.execute(text.encode())

    @property
    def orders(self) -> str:
        """The table as SQL and YAML write it."""
        quoted = self.schema.replace('"', '""')
        return f'"{quoted}".orders'

    def node(self, read: str, write: str = "mode: append", query: str = "table: 'ORDERS'") -> None:
        """A project with one pipeline of one node."""
        self.write(
            "  - pipeline: orders\n    nodes:\n      - name: load\n        read:\n"
            f"          connection: erp\n          {query}\n          {read}\n"
            f"        write: {{connection: lake, path: orders, {write}}}\n"
        )

    def write(self, pipelines: str) -> None:
        said = {
            "host": self.server.host,
            "port": self.server.port,
            "database": self.server.database,
            "user": self.server.user,
        }
        text = HEAD.format(**said) + pipelines.replace("ORDERS", self.orders)
        (self.root / "floodmark.yaml").write_text(text)

    @property
    def project(self) -> Project:
        return Project.load(self.root, session=lambda: self.spark, outside=ALONE)

    def run(self, **options: Any) -> RunSummary:
        summary = self.project.run(**options)
        errors = [o.error for o in summary.outcomes if o.error] + list(summary.refused)
        for error in errors:
            raise error
        return summary

    def rows(self, path: str = "lake/orders", *columns: str) -> list[tuple[Any, ...]]:
        return table_rows(self.root / path, ", ".join(columns) or "*")


@pytest.fixture
def shop(
    tmp_path: Path,
    postgres: PostgresServer,
    pg_schema: str,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> Shop:
    monkeypatch.setenv("ERP_PASSWORD", postgres.password)
    return Shop(tmp_path, postgres, pg_schema, spark)
