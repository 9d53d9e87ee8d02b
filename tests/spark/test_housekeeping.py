"""What Spark does to tables of ours, while they are in use; see tests/contract/housekeeping.py."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from tests.contract.housekeeping import WORKS, Coordinated, Kept, Nodes, Streamed, outcome
from tests.support.jvm import java, java_session

from floodmark.deltalog import DeltaLog
from floodmark.errors import FloodmarkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Housekeeping = Callable[["SparkSession", str], None]
"""An operation on the table at a path."""


def everyday(spark: SparkSession, path: str) -> None:
    """What jobs do to every table of a lake, one after the other: work has to go on.

    Each file is written anew, and what was there is gone at once. The protocol is raised to what
    delta-rs writes too.
    """
    spark.sql(f"OPTIMIZE delta.`{path}` ZORDER BY ({_column(path)})")
    retention = "'delta.deletedFileRetentionDuration' = 'interval 1 days'"
    _set(spark, path, f"{retention}, 'delta.logRetentionDuration' = 'interval 1 days'")
    statistics(spark, path)
    _set(spark, path, "'delta.enableDeletionVectors' = 'true', 'delta.checkpointPolicy' = 'v2'")
    spark.sql(f"REORG TABLE delta.`{path}` APPLY (PURGE)")
    spark.sql(f"CREATE TABLE delta.`{path}_clone` SHALLOW CLONE delta.`{path}`")
    spark.sql(f"INSERT INTO delta.`{path}_clone` SELECT * FROM delta.`{path}` LIMIT 1")
    _set(spark, path, "'delta.columnMapping.mode' = 'name'")
    spark.sql(f"ALTER TABLE delta.`{path}` ADD CONSTRAINT always CHECK (1 = 1)")
    spark.sql(f"VACUUM delta.`{path}` RETAIN 0 HOURS")


def statistics(spark: SparkSession, path: str) -> None:
    """ANALYZE TABLE ... COMPUTE DELTA STATISTICS: Delta has it, its SQL outside of Databricks not."""
    jvm = java(spark)
    name = "org.apache.spark.sql.delta.stats.StatisticsCollection$"
    collection = getattr(getattr(jvm, name), "MODULE$")
    none = getattr(getattr(jvm, "scala.None$"), "MODULE$")
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(java_session(spark), path)
    others = (getattr(collection, f"recompute$default${number}")() for number in (4, 5))
    collection.recompute(java_session(spark), log, none, *others)


def row_tracking(spark: SparkSession, path: str) -> None:
    """The protocol is raised to what delta-rs does not write."""
    _set(spark, path, "'delta.enableRowTracking' = 'true'")


def clustering(spark: SparkSession, path: str) -> None:
    """The same, and Delta does not take it back."""
    spark.sql(f"ALTER TABLE delta.`{path}` CLUSTER BY ({_column(path)})")


def type_widening(spark: SparkSession, path: str) -> None:
    """The same, and readers have to know it too."""
    _set(spark, path, "'delta.enableTypeWidening' = 'true'")


def every_feature(spark: SparkSession, path: str) -> None:
    """All of them, on tables that only Spark writes."""
    everyday(spark, path)
    _set(spark, path, "'delta.enableInCommitTimestamps' = 'true'")
    for operation in (row_tracking, clustering, type_widening):
        operation(spark, path)


def restore(spark: SparkSession, path: str) -> None:
    version = DeltaLog(path).facts().latest_version - 1
    spark.sql(f"RESTORE TABLE delta.`{path}` TO VERSION AS OF {version}")


def taken_back(spark: SparkSession, path: str) -> None:
    """Somebody adds rows and restores the table to what it was before."""
    version = DeltaLog(path).facts().latest_version
    spark.sql(f"INSERT INTO delta.`{path}` SELECT * FROM delta.`{path}`")
    spark.sql(f"RESTORE TABLE delta.`{path}` TO VERSION AS OF {version}")


def aged(spark: SparkSession, path: str) -> None:
    """The same 20 days later: Delta refuses to read what is not the newest version."""
    taken_back(spark, path)
    _age(path)


def restored_long_ago(spark: SparkSession, path: str) -> None:
    """The version that the advice names is 20 days old then."""
    restore(spark, path)
    _age(path)


def _age(path: str) -> None:
    then = time.time() - 20 * 86_400
    for commit in (Path(path) / "_delta_log").glob("*.json"):
        os.utime(commit, (then, then))


def short_log(spark: SparkSession, path: str) -> None:
    """The retention of the log is shortened, and Delta cleans up behind its next checkpoint."""
    names = ("delta.deletedFileRetentionDuration", "delta.logRetentionDuration")
    _set(spark, path, ", ".join(f"'{name}' = 'interval 0 hours'" for name in names))
    jvm = java(spark)
    yesterday = 1_700_000_000
    for commit in (Path(path) / "_delta_log").glob("*.json"):
        os.utime(commit, (yesterday, yesterday))
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(java_session(spark), path)
    log.checkpoint()
    assert DeltaLog(path).facts().earliest_version > 0


def clone_in_place(spark: SparkSession, path: str) -> None:
    """The table is moved aside, and a clone that reads its files takes its place."""
    os.rename(path, f"{path}_aside")
    spark.sql(f"CREATE TABLE delta.`{path}` SHALLOW CLONE delta.`{path}_aside`")


def _set(spark: SparkSession, path: str, properties: str) -> None:
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ({properties})")


def _column(path: str) -> str:
    """A column that is no partition."""
    table = DeltaTable(path)
    partitions = table.metadata().partition_columns
    return next(f.name for f in table.schema().fields if f.name not in partitions)


def put_back(spark: SparkSession, tables: Sequence[str]) -> None:
    for path in tables:
        if Path(f"{path}_aside").exists():
            os.rename(path, f"{path}_other")
            os.rename(f"{path}_aside", path)
        else:
            restore(spark, path)


ADVISED = re.compile(
    r"SET [\w.]+ = false|(?:ALTER|RESTORE) TABLE delta\.`[^`]+` [^;,(]+(?: \([^)]*\))?"
)


def advised(spark: SparkSession, place: Any, tables: Sequence[str], error: FloodmarkError) -> None:
    """What the error says, as it says it."""
    text = str(error.next)
    statements = ADVISED.findall(text)
    if statements:
        for statement in statements:
            spark.sql(statement)
    elif "state import" in text:
        place.move_store()
    elif "--on-lost-target rebuild" in text and isinstance(place, Coordinated):
        place.rebuild()
    elif "--on-lost-range" in text and isinstance(place, Nodes):
        place.accept_rows()
    elif "put the table back" in text:
        put_back(spark, tables)
    elif "move the folder away" in text:
        (notes,) = tables
        os.rename(notes, f"{notes}_away")
    else:
        raise AssertionError(error)


BATCHES, KEPT, STREAM, NODES = "batches", "kept", "stream", "nodes"
PLACES: dict[str, Any] = {BATCHES: Coordinated, KEPT: Kept, STREAM: Streamed, NODES: Nodes}
PUBLISHED = "two published"
CELLS: list[tuple[str, str, Housekeeping, str]] = [
    (BATCHES, "journal", everyday, WORKS),
    (BATCHES, "journal", row_tracking, "FM-CONTROL-030"),
    (BATCHES, "journal", clustering, "FM-CONTROL-030"),
    (BATCHES, "journal", type_widening, "FM-CONTROL-030"),
    (BATCHES, "journal", restore, "FM-CONTROL-028"),
    (BATCHES, "journal", short_log, WORKS),
    (BATCHES, "journal", clone_in_place, WORKS),
    (BATCHES, PUBLISHED, everyday, WORKS),
    (BATCHES, PUBLISHED, row_tracking, "rebuild FM-CONTROL-030"),
    (BATCHES, PUBLISHED, clone_in_place, WORKS),
    (BATCHES, "target", every_feature, WORKS),
    (BATCHES, "target", restore, "FM-SINK-009"),
    (BATCHES, "target", clone_in_place, "FM-SINK-007"),
    (STREAM, "notes", everyday, WORKS),
    (STREAM, "letters", every_feature, WORKS),
    (STREAM, "notes", row_tracking, "FM-STREAM-004"),
    (STREAM, "notes", clustering, "FM-STREAM-004"),
    (STREAM, "notes", restore, WORKS),
    (STREAM, "notes", clone_in_place, WORKS),
    (STREAM, "target", restore, "FM-SINK-009"),
    (BATCHES, PUBLISHED, restore, WORKS),
    (BATCHES, "target", short_log, WORKS),
    (KEPT, "archive", everyday, WORKS),
    (KEPT, "archive", row_tracking, "FM-CONTROL-030"),
    (KEPT, "archive", restore, "FM-CONTROL-033"),
    (KEPT, "archive", restored_long_ago, "FM-CONTROL-033"),
    (BATCHES, "journal", restored_long_ago, "FM-CONTROL-028"),
    (STREAM, "target", every_feature, WORKS),
    (STREAM, "letters", restore, "FM-SINK-009"),
    (NODES, "landing", everyday, WORKS),
    (NODES, "landing", row_tracking, WORKS),
    (NODES, "landing", taken_back, WORKS),
    (NODES, "landing", aged, WORKS),
    (NODES, "landing", short_log, "FM-RUN-012"),
    (NODES, "landing", clone_in_place, WORKS),
    (NODES, "target", every_feature, "FM-RUN-013"),
    (NODES, "target", taken_back, WORKS),
    (NODES, "target", aged, WORKS),
    (NODES, "target", restore, "FM-SINK-009"),
    (NODES, "target", clone_in_place, "FM-SINK-007"),
]
IDS = [f"{who}-{of.replace(' ', '_')}-{op.__name__}" for who, of, op, _ in CELLS]


@pytest.mark.parametrize("cell", CELLS, ids=IDS)
def test_work_goes_on_or_is_refused_with_a_way_out(
    spark: SparkSession, tmp_path: Path, cell: tuple[str, str, Housekeeping, str]
) -> None:
    who, of, operation, expected = cell
    session = spark.newSession()
    session.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    # Spark writes what it alone has to read: delta-rs takes a tenth of the time for all others.
    is_sparks = operation is every_feature or (who == NODES and operation in (everyday, aged))
    writer = session if is_sparks else None

    result = outcome(
        PLACES[who](tmp_path, writer),
        [of] if of == PUBLISHED else of.split(),
        lambda path: operation(session, path),
        lambda place, tables, error: advised(session, place, tables, error),
    )

    assert result == expected
