"""Rows whose types are not those of the target any more: said by name, and a way on from an open batch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from tests.support import crash
from tests.support.node_projects import table_rows

from floodmark.errors import FloodmarkError
from floodmark.failpoints import FailpointReached
from floodmark.project import Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.as_users]

PROJECT = """\
project: shop
lease_ttl: 1s
connections: {{lake: {{type: lake, root: lake}}}}
pipelines:
  - pipeline: orders
    parallel: 1
    nodes:
      - name: log
        read: {{path: "in/*.csv", format: csv, schema: "id {type}, month STRING"}}
        {expect}
        write: {{connection: lake, path: log, mode: append, options: {{partition_by: [month]}}}}
      - name: newest
        depends_on: [log]
        write: {{connection: lake, path: newest, merge: {{keys: [id]{missing}}}}}
"""
EXPECT = """expect: [{check: "month <> 'never'", action: quarantine}]"""


class Shop:
    """Files of orders, whose numbers become texts one day."""

    def __init__(
        self, root: Path, spark: SparkSession, *, missing: str = "", expect: str = EXPECT
    ) -> None:
        self.root, self.spark, self.missing, self.expect = root, spark, missing, expect
        (root / "in").mkdir()
        self.say("LONG")
        self.put("a", "1,jan", *(["2,never"] if self.expect else []), "3,feb")
        assert self.end(self.project.run()) == "SUCCESS"
        self.put("b", "A1,feb")

    def say(self, kind: str) -> None:
        text = PROJECT.format(type=kind, missing=self.missing, expect=self.expect)
        (self.root / "floodmark.yaml").write_text(text)

    def put(self, name: str, *rows: str) -> None:
        (self.root / f"in/{name}.csv").write_text("\n".join(("id,month", *rows, "")))

    @property
    def project(self) -> Project:
        return Project.load(self.root, session=lambda: self.spark)

    @property
    def batch(self) -> str:
        (batch,) = [each for each in self.project.look.status() if each.is_open]
        return batch.batch_id

    def retried(self, **choice: Any) -> str:
        return self.end(self.project.retry(self.batch, **choice))

    @staticmethod
    def end(summary: Any) -> str:
        (outcome,) = summary.outcomes
        return "SUCCESS" if outcome.error is None else str(outcome.error)

    def ids(self, table: str) -> list[Any]:
        return [row[0] for row in table_rows(self.root / "lake" / table, "id")]


def test_a_batch_with_other_types_is_finished_by_loading_everything_anew(
    tmp_path: Path, spark: SparkSession
) -> None:
    shop = Shop(tmp_path, spark)
    assert "FM-SOURCE-059" in shop.end(shop.project.run())
    shop.say("STRING")

    refused = shop.retried()

    assert "FM-SINK-011" in refused
    assert "id is STRING, in the target BIGINT" in refused
    assert f"floodmark retry {shop.batch} --full-refresh" in refused
    assert shop.ids("log") == [1, 3]
    with crash.armed("sink.after_commit"), pytest.raises(FailpointReached):
        shop.project.retry(shop.batch, full_refresh=True)
    assert shop.retried(full_refresh=True) == "SUCCESS"
    assert shop.ids("log") == shop.ids("newest") == ["1", "3", "A1"]
    assert shop.ids("log_quarantine") == ["2"]
    shop.put("c", "B2,mar", "1,apr")
    assert shop.end(shop.project.run()) == "SUCCESS"
    assert shop.ids("log") == ["1", "1", "3", "A1", "B2"]
    assert shop.ids("newest") == ["1", "3", "A1", "B2"]
    assert all(each.ok for each in shop.project.look.verify())
    table = spark.read.format("delta").load(f"{tmp_path}/lake/log")
    assert dict(table.dtypes)["id"] == "string"
    assert DeltaTable(tmp_path / "lake/log").metadata().partition_columns == ["month"]


def test_a_target_that_keeps_what_is_missing_is_moved_away_first(
    tmp_path: Path, spark: SparkSession
) -> None:
    """Its rows may be gone from the source: a full refresh would lose them."""
    shop = Shop(tmp_path, spark, missing=", missing: keep", expect="")
    shop.project.run()
    shop.say("STRING")

    refused = shop.retried(full_refresh=True)

    assert "FM-SINK-011" in refused
    assert "newest" in refused
    assert "--on-lost-target rebuild" in refused
    assert shop.ids("log") == ["1", "3", "A1"]
    assert shop.ids("newest") == [1, 3]
    (tmp_path / "lake/newest").rename(tmp_path / "lake/newest_before")
    assert shop.retried(on_lost_target="rebuild") == "SUCCESS"
    assert shop.ids("newest") == ["1", "3", "A1"]
    assert all(each.ok for each in shop.project.look.verify())


def test_a_batch_that_is_put_in_order_again_has_no_full_refresh(
    tmp_path: Path, spark: SparkSession
) -> None:
    shop = Shop(tmp_path, spark)
    shop.project.run()
    shop.say("STRING")

    with pytest.raises(FloodmarkError) as raised:
        shop.project.run(full_refresh=True)

    assert raised.value.code == "FM-CONTROL-020"
    assert f"floodmark retry {shop.batch} --full-refresh" in str(raised.value)
