"""The log that a catalog tells of is the one in the folder: the same questions, the same answers.

No catalog that manages tables itself can be had here, so this is proven on ordinary tables, whose
folder is complete.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import floodmark as fm
from floodmark.control.events.bodies import Created, Named
from floodmark.control.journal.delta import DeltaEventLog
from floodmark.control.journal.journal import Journal
from floodmark.deltalog import DeltaLog, Storage
from floodmark.model.names import ASK_CATALOG
from floodmark.model.state import TableName
from floodmark.sources.delta.catalog_log import CatalogLog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from floodmark.run.context import Run

pytestmark = pytest.mark.spark

FEED = "delta.enableChangeDataFeed"


@pytest.fixture
def table(spark: SparkSession, tmp_lake: Path) -> Iterator[Path]:
    """0 created, 1 insert, 2 feed on, 3 merge, 4 delete, 5 new column, 6 insert, 7 optimize, 8 other
    property, 9 overwrite, 10 feed off.
    """
    spark.sql("CREATE SCHEMA told")
    name, place = "told.orders", tmp_lake / "orders"
    spark.sql(f"CREATE TABLE {name} (id LONG, v STRING NOT NULL) USING delta LOCATION '{place}'")
    for statement in (
        f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b')",
        f"ALTER TABLE {name} SET TBLPROPERTIES ({FEED} = true)",
        f"MERGE INTO {name} t USING (SELECT 2L id, 'c' v) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *",
        f"DELETE FROM {name} WHERE id = 1",
        f"ALTER TABLE {name} ADD COLUMNS (w INT)",
        f"INSERT INTO {name} VALUES (3, 'd', 1)",
        f"OPTIMIZE {name}",
        f"ALTER TABLE {name} SET TBLPROPERTIES (delta.appendOnly = false)",
        f"INSERT OVERWRITE {name} VALUES (9, 'z', 9)",
        f"ALTER TABLE {name} SET TBLPROPERTIES ({FEED} = false)",
    ):
        spark.sql(statement)
    yield place
    spark.sql("DROP SCHEMA told CASCADE")


def test_the_catalog_tells_what_the_folder_tells(spark: SparkSession, table: Path) -> None:
    told, log = CatalogLog(spark, "told.orders"), DeltaLog(table)
    mine, theirs = told.facts(), log.facts()

    assert (mine.path, mine.table_id, mine.latest_version, mine.earliest_version) == (
        theirs.path,
        theirs.table_id,
        theirs.latest_version,
        theirs.earliest_version,
    )
    assert (mine.latest_at, mine.feed_enabled) == (theirs.latest_at, theirs.feed_enabled)
    assert mine.schema_fingerprint == theirs.schema_fingerprint
    last = theirs.latest_version
    for mine_of, theirs_of in zip(told.versions(0, last), log.versions(0, last), strict=True):
        at = mine_of.version
        assert (mine_of.operation, mine_of.committed_at) == (
            theirs_of.operation,
            theirs_of.committed_at,
        )
        assert mine_of.kinds == theirs_of.kinds, mine_of.operation
        assert told.feed_enabled_at(at) == log.feed_enabled_at(at), at
        assert told.schema_at(at)[1] == log.schema_at(at)[1], at
    changed = [v.version for v in told.versions(1, last) if v.schema_fingerprint]
    assert changed == [5]
    assert [v.feed_enabled for v in told.versions(1, last) if v.feed_enabled is not None] == [
        True,
        False,
    ]


def test_what_is_beyond_or_gone_is_told_apart(spark: SparkSession, table: Path) -> None:
    told = CatalogLog(spark, "told.orders")
    with pytest.raises(fm.FloodmarkError) as beyond:
        told.versions(5, 99)
    for version in range(3):
        (table / f"_delta_log/{version:020}.json").unlink()
    with pytest.raises(fm.FloodmarkError) as gone:
        CatalogLog(spark, "told.orders").versions(1, 4)
    with pytest.raises(fm.FloodmarkError) as silent:
        CatalogLog(spark, "told.nothing").facts()

    codes = [caught.value.code for caught in (beyond, gone, silent)]
    assert codes == ["FM-SOURCE-001", "FM-SOURCE-002", "FM-SOURCE-009"]


def test_a_table_that_its_catalog_manages_is_planned_and_read_by_name(
    spark: SparkSession, table: Path, tmp_lake: Path
) -> None:
    spark.sql(f"ALTER TABLE told.orders SET TBLPROPERTIES ({FEED} = true)")
    control = f"{tmp_lake}/_control"
    coordinator = fm.Coordinator(control, spark, lease_ttl=2, schema=None)
    managed = TableName("told.orders", str(table), DeltaLog(table).facts().table_id, True)
    log = DeltaEventLog(control, Storage())
    log.create()
    # As resolving such a table leaves it.
    Journal(log, actor="t").commit(lambda _: [Created("c"), Named(managed)])
    coordinator.register("p", ["told.orders"])
    seen: list[tuple[str, list[int]]] = []

    def look(inputs: Mapping[str, DataFrame], run: Run) -> None:
        rows = inputs["told.orders"].collect()
        seen.append((run.windows[0].method, sorted(row["id"] for row in rows)))
        assert run.table("told.orders").count() >= 1
        run.write(inputs["told.orders"], f"{tmp_lake}/copy", mode="append")

    for number in (10, 11):
        batch_id = str(coordinator.create_batch().batch_id)
        coordinator.run_pipeline("p", batch_id, look)
        assert coordinator.finalize_batch(batch_id) == (str(table),)
        spark.sql(f"INSERT INTO told.orders VALUES ({number}, 'n', 0)")

    assert seen == [("snapshot", [9]), ("feed", [10])]
    without = fm.Coordinator(control, lease_ttl=2, schema=None)
    assert [lag.reason for lag in without.lag()] == [ASK_CATALOG]
    with pytest.raises(fm.FloodmarkError) as caught:
        without.create_batch(["told.orders"])
    assert caught.value.code == "FM-PLAN-009"
    assert [f.text for f in without.verify() if not f.ok] == []
