"""Nodes at 20 days: what a batch has frozen is older than Delta lets anybody read it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from tests.spark.test_old_ranges import aged
from tests.support.node_projects import table_rows

from floodmark.deltalog import RETENTION_RULE
from floodmark.project import Project
from floodmark.project.outcomes import RunSummary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TABLES = ("customers", "prices", "orders")
PROJECT = """\
project: shop
lease_ttl: 1s
pipelines:
  - pipeline: orders
    nodes:
      - {name: customers, read: {path: ./customers, lookup: true}, transform: [{select: [id, v]}]}
      - {name: prices, read: {path: ./prices, method: snapshot}}
      - name: kept_prices
        depends_on: [prices]
        write: {path: ./kept_prices, mode: overwrite}
      - name: facts
        depends_on: [orders, customers, prices]
        transform:
          - join: {with: customers, on: {customer: id}, how: inner, columns: [v]}
          - sql: SELECT o.id, o.v, p.v AS price FROM input o JOIN prices p ON p.id = o.customer
        write: {path: ./facts, merge: {keys: [id]}}
      - {name: orders, read: {path: ./orders}, transform: [{select: [id, customer]}]}
"""


class Held:
    """A batch that was planned 20 days ago, over tables that have moved on since."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark, self.root = spark, root
        (root / "floodmark.yaml").write_text(PROJECT)
        for table in ("customers", "prices"):
            self.put(table, "overwrite", id=[7, 8], v=[f"old {table}", f"old {table}"])
        self.put("orders", "append", id=[1], customer=[7])
        (batch,) = self.project().freeze()
        self.batch_id = str(batch.batch_id)
        for table in ("customers", "prices"):
            self.put(table, "overwrite", id=[7, 8], v=[f"new {table}", f"new {table}"])
        self.put("orders", "append", id=[2], customer=[8])
        for table in TABLES:
            aged(root / table, 0)

    def put(self, table: str, mode: Any, **columns: list[Any]) -> None:
        write_deltalake(
            str(self.root / table),
            pa.table(columns),
            mode=mode,
            configuration={"delta.enableChangeDataFeed": "true"},
        )

    def project(self) -> Project:
        return Project.load(self.root, session=lambda: self.spark)

    def facts(self) -> list[tuple[Any, ...]]:
        return table_rows(self.root / "facts", "id, v, price")


@pytest.fixture
def held(spark: SparkSession, tmp_path: Path) -> Held:
    return Held(spark, tmp_path)


def raised(summary: RunSummary) -> None:
    for error in [*(o.error for o in summary.outcomes if o.error), *summary.refused]:
        raise error


def test_lookups_and_snapshots_of_20_days_show_what_was_frozen(held: Held) -> None:
    setting = held.spark.conf.get(RETENTION_RULE, None)

    raised(held.project().retry(held.batch_id))

    first = (1, "old customers", "old prices")
    assert held.facts() == [first]
    assert table_rows(held.root / "kept_prices", "v") == [("old prices",)] * 2
    assert held.spark.conf.get(RETENTION_RULE, None) == setting
    raised(held.project().run())
    second = (2, "new customers", "new prices")
    assert held.facts() == [first, second]


@pytest.mark.parametrize("table", ["customers", "prices"])
def test_what_is_gone_after_20_days_is_told_before_anything_is_written(
    held: Held, table: str
) -> None:
    log = (held.root / table / "_delta_log" / f"{0:020d}.json").read_text()
    (file,) = (f for f in (held.root / table).glob("*.parquet") if f.name in log)
    file.unlink()

    (outcome,) = held.project().retry(held.batch_id).outcomes

    assert outcome.error is not None
    assert outcome.error.code == ("FM-SOURCE-054" if table == "customers" else "FM-SOURCE-006")
    assert not (held.root / "facts").exists()
    assert not (held.root / "kept_prices").exists()
    if table == "prices":  # read whole at that version, it has no other way of being read
        return
    raised(held.project().retry(held.batch_id, on_lost_range="snapshot"))
    assert held.facts() == [(1, "new customers", "old prices")]
