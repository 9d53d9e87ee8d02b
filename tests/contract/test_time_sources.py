"""The contract of the sources of time windows, on every implementation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.contract.time_contract import Change, Folder, Harness, TimeSourceContract

from floodmark.deltalog import Storage
from floodmark.errors import PlanError
from floodmark.model.write import CHANGE_COLUMNS
from floodmark.sources import Sources, SparkAccess
from floodmark.testing.arrow import arrow_sources

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TestArrowTimeSource(TimeSourceContract):
    @pytest.fixture
    def harness(self) -> Harness:
        return Harness(
            arrow_sources(),
            changes_of=_arrow_changes,
            ids_of=lambda table: sorted(table["id"].to_pylist()),
            columns_of=lambda table: list(table.column_names),
        )


@pytest.mark.spark
class TestSparkTimeSource(TimeSourceContract):
    @pytest.fixture
    def harness(self, spark: SparkSession) -> Harness:

        return Harness(
            Sources.on_spark(SparkAccess(spark, Storage())),
            changes_of=_spark_changes,
            ids_of=lambda frame: sorted(row["id"] for row in frame.select("id").collect()),
            columns_of=lambda frame: list(frame.columns),
        )

    def test_a_column_that_orc_and_folder_have_is_refused(
        self, harness: Harness, tmp_path: Path
    ) -> None:
        folder = Folder(tmp_path / "up", "orc", "timestamp")
        (tmp_path / "up").mkdir()
        inner = replace(folder, path=folder.path / "day=2026-01-05")
        inner.add((1, 1))
        assert harness.ids_of(harness.source.read(folder.window(-1, None, 1))) == [1]
        inner.add((2, 2), day=pa.array(["own"]))

        with pytest.raises(PlanError) as caught:
            harness.source.check(folder.window(-1, None, 2))

        assert caught.value.code == "FM-PLAN-025"


def _arrow_changes(table: pa.Table) -> list[Change]:
    columns = [table[name].to_pylist() for name in ("id", *CHANGE_COLUMNS[:2])]
    micros = table[CHANGE_COLUMNS[2]].cast(pa.int64()).to_pylist()
    return list(zip(*columns, micros, strict=True))


def _spark_changes(frame: Any) -> list[Change]:
    kind, version, at = CHANGE_COLUMNS
    rows = frame.selectExpr("id", kind, version, f"unix_micros({at}) AS micros").collect()
    return [tuple(row) for row in rows]
