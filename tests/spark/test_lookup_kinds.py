"""Files, a table of a database and a web API as lookups: whole, and the same in every attempt."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from tests.support import crash
from tests.support.node_projects import table_rows
from tests.support.outsides import ALONE
from tests.support.web import Asked, Said, WebServer

from floodmark.engines.postgres_server import PostgresServer
from floodmark.failpoints import FailpointReached
from floodmark.model.window import Settlement
from floodmark.project import Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.as_users, pytest.mark.spark, pytest.mark.postgres]

TEXT = """\
project: shop
lease_ttl: 1s
connections:
  erp: {{type: postgres, host: {host}, port: {port}, database: {database}, user: {user},
        password: "${{env:ERP_PASSWORD}}"}}
  api: {{type: http, base_url: "{url}"}}
pipelines:
  - pipeline: sales
    parallel: 1
    nodes:
      - name: orders
        read: {{path: ./orders}}
      - name: countries
        read: {{path: countries/*.csv, format: csv, schema: "code INT, country STRING", lookup: true}}
      - name: customers
        read: {{connection: erp, table: '{table}', lookup: true}}
        transform: [{{join: {{with: countries, on: [code], how: left}}}}]
      - name: rates
        read: {{connection: api, path: rates, schema: "product INT, rate INT", lookup: true}}
      - name: one
        depends_on: [orders, customers, rates]
        transform: [&customer {{join: {{with: customers, on: [customer], how: left}}}},
                    &rate {{join: {{with: rates, on: [product], how: inner}}}}]
        write: {{path: ./one, mode: append}}
      - name: two
        depends_on: [one, orders, customers, rates]
        read: {{node: orders}}
        transform: [*customer, *rate]
        write: {{path: ./two, merge: {{keys: [id]}}}}
"""
COLUMNS = "id, name, country, rate"


def read_whole(text: str, table: str) -> str:
    """The project with the API and the database read for their news."""
    for read in (f"table: '{table}'", 'schema: "product INT, rate INT"'):
        text = text.replace(f"{read}, lookup: true", read)
    return text


def lose_answers(kept: Path) -> None:
    """What web APIs have answered is gone from the control store."""
    for path in [each for each in kept.rglob("*") if each.is_file()]:
        if b'"rate"' in path.read_bytes():
            path.unlink()


def retried(project: Project, batch_id: str, choice: Settlement | None = None) -> str:
    """The code of the error that a retry ends with, or SUCCESS."""
    (outcome,) = project.retry(batch_id, on_lost_range=choice).outcomes
    return outcome.error.code if outcome.error else "SUCCESS"


@pytest.mark.parametrize("is_lookup", [True, False], ids=["lookups", "read whole"])
def test_every_kind_of_lookup_is_whole_frozen_and_starts_nothing(
    tmp_path: Path,
    spark: SparkSession,
    postgres: PostgresServer,
    pg_schema: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_lookup: bool,
) -> None:
    """What is read whole by a pipeline of its own news is whole in every batch too."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("ERP_PASSWORD", postgres.password)
    quoted = '"' + pg_schema.replace('"', '""') + '".customers'
    rates: dict[int, int] = {1: 100, 2: 200}

    def answer(_: Asked) -> Said:
        return Said([{"product": product, "rate": rate} for product, rate in rates.items()])

    def sql(text: str) -> None:
        with psycopg.connect(postgres.dsn, autocommit=True) as connection:
            connection.execute(text.encode())

    def put(*orders: tuple[Any, ...]) -> None:
        frame = spark.createDataFrame(list(orders), "id int, customer int, product int")
        writer = frame.coalesce(1).write.format("delta").mode("append")
        writer.option("delta.enableChangeDataFeed", "true").save(str(tmp_path / "orders"))

    def project() -> Project:
        return Project.load(tmp_path, session=lambda: spark, outside=ALONE)

    def run() -> int:
        summary = project().run()
        for error in [*(o.error for o in summary.outcomes if o.error), *summary.refused]:
            raise error
        return len(summary.batches)

    sql(f"CREATE TABLE {quoted} (customer int, name text, code int)")
    sql(f"INSERT INTO {quoted} VALUES (7, 'ann', 1), (8, 'bob', 2)")
    (tmp_path / "countries").mkdir()
    (tmp_path / "countries/a.csv").write_text("code,country\n1,CH\n")
    server = WebServer(answer)
    with server.running():
        said = {
            "host": postgres.host,
            "port": postgres.port,
            "database": postgres.database,
            "user": postgres.user,
            "url": server.url,
            "table": quoted,
        }
        text = TEXT.format(**said)
        (tmp_path / "floodmark.yaml").write_text(text if is_lookup else read_whole(text, quoted))
        put((1, 7, 1))
        assert run() == 1
        put((2, 8, 2))
        assert run() == 1
        first = [(1, "ann", "CH", 100), (2, "bob", None, 200)]
        assert table_rows(tmp_path / "one", COLUMNS) == first
        assert table_rows(tmp_path / "two", COLUMNS) == first
        if not is_lookup:
            return

        def change() -> None:
            rates.update({product: rate + 1 for product, rate in rates.items()})
            sql(f"UPDATE {quoted} SET name = upper(name)")
            (tmp_path / "countries/b.csv").write_text("code,country\n2,DK\n")

        put((3, 8, 1))
        with crash.armed("run.after_done"), pytest.raises(FailpointReached):
            project().run()
        change()
        assert run() == 1
        third = (3, "bob", None, 100)
        assert table_rows(tmp_path / "one", COLUMNS) == [*first, third]
        assert table_rows(tmp_path / "two", COLUMNS) == [*first, third]
        assert run() == 0
        put((4, 8, 2))
        assert run() == 1
        assert table_rows(tmp_path / "one", COLUMNS)[3:] == [(4, "BOB", "DK", 201)]
        assert [Path(lag.upstream).name for lag in project().coordinator.lag()] == ["orders"]

        put((5, 8, 2))
        (batch,) = project().freeze()
        (tmp_path / "countries/a.csv").unlink()
        lose_answers(tmp_path / "lake/_control/files")
        rates[2] = 300
        batch_id = str(batch.batch_id)
        assert retried(project(), batch_id) == "FM-SOURCE-054"
        assert retried(project(), batch_id, "accept") == "FM-SOURCE-055"
        assert len(table_rows(tmp_path / "one", COLUMNS)) == 4
        assert retried(project(), batch_id, "snapshot") == "SUCCESS"
        assert table_rows(tmp_path / "one", COLUMNS)[4:] == [(5, "BOB", "DK", 300)]
        assert table_rows(tmp_path / "two", COLUMNS)[4:] == [(5, "BOB", "DK", 300)]


TOGETHER = """\
project: shop
lease_ttl: 1s
connections:
  erp: {{type: postgres, host: {host}, port: {port}, database: {database}, user: {user},
        password: "${{env:ERP_PASSWORD}}"}}
pipelines:
  - pipeline: one
    scope: shop
    nodes:
      - {{name: customers, read: {{connection: erp, table: '{table}', lookup: true}}}}
      - name: one
        read: {{path: ./orders}}
        depends_on: [customers]
        transform: [{{join: {{with: customers, on: [customer], how: left}}}}]
        write: {{path: ./one, mode: append}}
  - pipeline: two
    scope: shop
    nodes:
      - {{name: customers, read: {{connection: erp, table: '{table}', lookup: true}}}}
      - name: two
        read: {{path: ./orders}}
        depends_on: [customers]
        transform: [{{join: {{with: customers, on: [customer], how: left}}}}]
        write: {{path: ./two, mode: append}}
"""


@pytest.mark.parametrize("is_lookup", [True, False], ids=["lookup", "read whole"])
def test_pipelines_of_one_batch_see_the_same_rows_of_a_database(
    tmp_path: Path,
    spark: SparkSession,
    postgres: PostgresServer,
    pg_schema: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_lookup: bool,
) -> None:
    """Whatever happens between them: one batch shows one state of the dimension."""
    monkeypatch.setenv("ERP_PASSWORD", postgres.password)
    table = '"' + pg_schema.replace('"', '""') + '".customers'

    def sql(text: str) -> None:
        with psycopg.connect(postgres.dsn, autocommit=True) as connection:
            connection.execute(text.encode())

    def put(*orders: tuple[int, int]) -> None:
        frame = spark.createDataFrame(list(orders), "id int, customer int")
        writer = frame.coalesce(1).write.format("delta").mode("append")
        writer.option("delta.enableChangeDataFeed", "true").save(str(tmp_path / "orders"))

    def project() -> Project:
        return Project.load(tmp_path, session=lambda: spark, outside=ALONE)

    def frozen() -> str:
        (batch,) = project().freeze()
        return str(batch.batch_id)

    def ran(batch_id: str, pipeline: str) -> list[str]:
        outcomes = project().retry(batch_id, pipeline).outcomes
        return [outcome.error.code if outcome.error else "SUCCESS" for outcome in outcomes]

    columns = "id, name"
    sql(f"CREATE TABLE {table} (customer int, name text)")
    sql(f"INSERT INTO {table} VALUES (7, 'ann')")
    said = {
        "host": postgres.host,
        "port": postgres.port,
        "database": postgres.database,
        "user": postgres.user,
        "table": table,
    }
    text = TOGETHER.format(**said)
    text = text if is_lookup else text.replace(", lookup: true", "")
    (tmp_path / "floodmark.yaml").write_text(text)
    put((1, 7))
    first = frozen()
    assert ran(first, "one") == ["SUCCESS"]
    sql(f"UPDATE {table} SET name = 'anna'")
    assert ran(first, "two") == ["SUCCESS"]
    assert table_rows(tmp_path / "one", columns) == [(1, "ann")]
    assert table_rows(tmp_path / "two", columns) == [(1, "ann")]

    put((2, 7))
    second = frozen()
    with crash.armed("landing.after_write"), pytest.raises(FailpointReached):
        project().retry(second, "one")
    sql(f"UPDATE {table} SET name = 'bea'")
    assert ran(second, "two") == ["SUCCESS"]
    assert ran(second, "one") == ["SUCCESS"]
    assert table_rows(tmp_path / "one", columns)[1:] == table_rows(tmp_path / "two", columns)[1:]
    assert not list((tmp_path / "lake/_control/landing").glob("batch_*"))
