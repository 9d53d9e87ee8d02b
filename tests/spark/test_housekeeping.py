"""What Spark does to tables of ours, while they are in use; see tests/contract/housekeeping.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.contract.housekeeping import WORKS, Coordinated, Streamed, outcome

from floodmark.deltalog import DeltaLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Statement = Callable[[str], list[str]]
"""The SQL of an operation on the table at a path."""


def everyday(path: str) -> list[str]:
    """What jobs do to every table of a lake, one after the other: work has to go on."""
    properties = "'team' = 'lake', 'delta.logRetentionDuration' = 'interval 1 days'"
    return [
        f"OPTIMIZE delta.`{path}`",
        f"VACUUM delta.`{path}` RETAIN 0 HOURS",
        f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ({properties})",
        f"ANALYZE TABLE delta.`{path}` COMPUTE DELTA STATISTICS",
        f"REORG TABLE delta.`{path}` APPLY (PURGE)",
        f"CREATE TABLE delta.`{path}_clone` SHALLOW CLONE delta.`{path}`",
    ]


def restore(path: str) -> list[str]:
    return [f"RESTORE TABLE delta.`{path}` TO VERSION AS OF {_latest(path) - 1}"]


def append_only(path: str) -> list[str]:
    return [f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.appendOnly' = 'true')"]


def raised(path: str) -> list[str]:
    return [f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')"]


def _latest(path: str) -> int:
    return DeltaLog(path).facts().latest_version


def mend_restore(spark: SparkSession) -> Callable[[Any, str], None]:
    def mend(_: Any, path: str) -> None:
        spark.sql(f"RESTORE TABLE delta.`{path}` TO VERSION AS OF {_latest(path) - 1}")

    return mend


def mend_protocol(spark: SparkSession) -> Callable[[Any, str], None]:
    def mend(_: Any, path: str) -> None:
        table = f"ALTER TABLE delta.`{path}`"
        spark.sql(f"{table} SET TBLPROPERTIES ('delta.enableRowTracking' = 'false')")
        spark.sql(f"{table} DROP FEATURE rowTracking")
        spark.sql(f"{table} DROP FEATURE domainMetadata")

    return mend


CELLS: list[tuple[str, str, Statement, str]] = [
    ("batches", "journal", everyday, WORKS),
    ("batches", "journal", restore, "FM-CONTROL-028"),
    ("batches", "journal", append_only, WORKS),
    ("batches", "published", everyday, WORKS),
    ("batches", "target", everyday, WORKS),
    ("batches", "target", restore, "FM-SINK-009"),
    ("stream", "notes", everyday, WORKS),
    ("stream", "notes", restore, WORKS),
    ("stream", "target", everyday, WORKS),
    ("stream", "target", restore, "FM-SINK-009"),
]


@pytest.mark.parametrize("cell", CELLS, ids=[f"{c[0]}-{c[1]}-{c[2].__name__}" for c in CELLS])
def test_work_goes_on_or_is_refused_with_a_way_out(
    spark: SparkSession, tmp_path: Path, cell: tuple[str, str, Statement, str]
) -> None:
    who, of, statements, expected = cell
    session = spark.newSession()
    session.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    place = (Coordinated if who == "batches" else Streamed)(tmp_path)

    def operation(path: str) -> None:
        for statement in statements(path):
            session.sql(statement).collect()

    assert outcome(place, of, operation, mend_restore(session)) == expected


def test_a_protocol_that_spark_raised_is_refused_until_its_feature_is_dropped(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = Coordinated(tmp_path)

    def operation(path: str) -> None:
        for statement in raised(path):
            spark.sql(statement)

    assert outcome(place, "journal", operation, mend_protocol(spark)) == "FM-CONTROL-030"
