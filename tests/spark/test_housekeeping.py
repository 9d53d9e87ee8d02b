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


def restore(path: str) -> list[str]:
    return [f"RESTORE TABLE delta.`{path}` TO VERSION AS OF {_latest(path) - 1}"]


def append_only(path: str) -> list[str]:
    return [f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.appendOnly' = 'true')"]


def _latest(path: str) -> int:
    return DeltaLog(path).facts().latest_version


def mend_restore(spark: SparkSession) -> Callable[[Any, str], None]:
    def mend(_: Any, path: str) -> None:
        spark.sql(f"RESTORE TABLE delta.`{path}` TO VERSION AS OF {_latest(path) - 1}")

    return mend


CELLS: list[tuple[str, str, Statement, str]] = [
    ("batches", "journal", restore, "FM-CONTROL-028"),
    ("batches", "journal", append_only, WORKS),
    ("batches", "target", restore, "FM-SINK-009"),
    ("stream", "notes", restore, WORKS),
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
