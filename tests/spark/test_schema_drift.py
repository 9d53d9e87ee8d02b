"""A new column through a project: target, quarantine, backfill and full refresh, without a repair."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.support.node_projects import table_rows

from floodmark.errors import FloodmarkError
from floodmark.project import Project, RunSummary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.as_users]

PROJECT = """\
project: flights
lease_ttl: 1s
connections: {lake: {type: lake, root: lake}}
pipelines:
  - pipeline: silver
    nodes:
      - name: flights
        read: {connection: lake, path: raw}
        expect: [{check: "delay >= 0", action: quarantine}]
        write:
          connection: lake
          path: silver
          merge: {keys: [id], sequence_by: n, deletes: soft, missing: keep}
          on_schema_change: add_columns
          options: {partition_by: [month]}
"""


class Lake:
    """A raw table that gets a column, and the project that reads it."""

    def __init__(self, root: Path, spark: SparkSession) -> None:
        self.root, self.spark = root, spark
        (root / "floodmark.yaml").write_text(PROJECT)

    def put(self, rows: list[dict[str, Any]]) -> None:
        feed = {"delta.enableChangeDataFeed": "true"}
        table = pa.Table.from_pylist(rows)
        write_deltalake(
            str(self.root / "lake/raw"), table, mode="append", schema_mode="merge",
            configuration=feed,
        )  # fmt: skip

    @property
    def project(self) -> Project:
        return Project.load(self.root, session=lambda: self.spark)

    def run(self, **options: Any) -> RunSummary:
        return done(self.project.run(**options))

    def rows(self, table: str, columns: str) -> list[tuple[Any, ...]]:
        return table_rows(self.root / "lake" / table, columns)


def done(summary: RunSummary) -> RunSummary:
    for error in [*(o.error for o in summary.outcomes if o.error), *summary.refused]:
        raise error
    return summary


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> Lake:
    lake = Lake(tmp_path, spark)
    lake.put([flight(1, 5), flight(2, -1)])
    lake.run()
    return lake


def flight(id: int, delay: int, n: int = 1, **more: Any) -> dict[str, Any]:
    return {"id": id, "month": "2026-01", "delay": delay, "n": n, **more}


def test_a_new_column_reaches_target_and_quarantine_and_a_backfill_from_before_it(
    lake: Lake,
) -> None:
    lake.put([flight(3, 7, gate="B4"), flight(4, -2, gate="B5"), flight(1, 6, 2, gate="B6")])

    (outcome,) = lake.run().outcomes
    backfilled = done(lake.project.backfill("lake/raw", start=0, end=0)).outcomes[0]

    assert lake.rows("silver", "id, delay, gate") == [(1, 6, "B6"), (3, 7, "B4")]
    rejected = lake.rows("silver_quarantine", "id, gate")
    assert rejected == [(2, None), (2, None), (4, "B5")]  # the backfill has met 2 once more
    assert outcome.rows_written == 2  # without the one that was set aside
    assert backfilled.null_columns == {"flights": "gate"}
    partitions = DeltaTable(str(lake.root / "lake/silver")).metadata().partition_columns
    assert partitions == ["month"]


def test_a_replay_of_versions_from_before_a_column_writes_null_there(lake: Lake) -> None:
    (first,) = lake.project.coordinator.look.state().batches
    lake.put([flight(3, 7, gate="B4")])
    lake.run()

    (outcome,) = done(lake.project.replay(first, allow_stale=True)).outcomes

    assert lake.rows("silver", "id, delay, gate") == [(1, 5, None), (3, 7, "B4")]
    assert lake.rows("silver_quarantine", "id, gate") == [(2, None), (2, None)]
    assert outcome.null_columns == {"flights": "gate"}


def test_a_full_refresh_sets_aside_each_rejected_row_once(lake: Lake) -> None:
    lake.put([flight(3, -3)])
    lake.run()

    lake.run(full_refresh=True)

    assert lake.rows("silver_quarantine", "id") == [(2,), (3,)]
    assert lake.rows("silver", "id") == [(1,)]


def test_a_refusal_of_the_quarantine_comes_before_the_target_is_written(lake: Lake) -> None:
    quarantine = str(lake.root / "lake/silver_quarantine")
    DeltaTable(quarantine).alter.set_table_properties(
        {"delta.setTransactionRetentionDuration": "interval 1 days"}
    )
    version = DeltaTable(str(lake.root / "lake/silver")).version()
    lake.put([flight(5, 5), flight(6, -6)])

    with pytest.raises(FloodmarkError) as caught:
        lake.run()

    assert caught.value.code == "FM-SINK-010"
    assert DeltaTable(str(lake.root / "lake/silver")).version() == version


def test_keys_that_tie_are_counted_in_the_summary(lake: Lake) -> None:
    lake.put([flight(7, 1, 5), flight(7, 2, 5), flight(8, 1)])

    (outcome,) = lake.run().outcomes

    assert outcome.ties == {"flights": 1}
    assert outcome.tie_examples == {"flights": '{"id":7}'}


NESTED = """\
project: flights
lease_ttl: 1s
connections: {lake: {type: lake, root: lake}}
pipelines:
  - pipeline: silver
    nodes:
      - name: flights
        read: {connection: lake, path: raw}
        write: {connection: lake, path: silver, WRITE}
"""


@pytest.mark.parametrize("write", ["mode: append", "merge: {keys: [id]}"])
def test_fields_that_come_within_structs_are_columns_that_come(
    tmp_path: Path, spark: SparkSession, write: str
) -> None:
    lake = Lake(tmp_path, spark)
    text = NESTED.replace("WRITE", write)
    (tmp_path / "floodmark.yaml").write_text(text)
    lake.put([{"id": 1, "at": {"gate": "A"}, "legs": [{"to": "ZRH"}]}])
    lake.run()
    lake.put([{"id": 2, "at": {"gate": "B", "stand": 7}, "legs": [{"to": "CPH", "km": 9}]}])

    with pytest.raises(FloodmarkError) as caught:
        lake.run()

    assert caught.value.code == "FM-SINK-011"
    assert "legs.km" in str(caught.value.found)
    assert "at.stand" in str(caught.value.found)
    (tmp_path / "floodmark.yaml").write_text(
        text.replace("path: silver,", "path: silver, on_schema_change: add_columns,")
    )
    done(lake.project.retry(list(lake.project.coordinator.look.state().batches)[-1]))
    spark.sql(f"INSERT INTO delta.`{tmp_path}/lake/raw` VALUES (3, NULL, NULL)")
    lake.run()
    columns = "id, at['stand'] AS stand, legs[1]['km'] AS km"
    assert lake.rows("silver", columns) == [(1, None, None), (2, 7, 9), (3, None, None)]
