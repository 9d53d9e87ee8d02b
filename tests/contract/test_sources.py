"""The contract of the Delta sources, on every implementation."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from tests.contract.source_contract import DeltaTables, Harness, Row, SourceContract
from tests.support.windows import planned_window

from floodmark.errors import SourceError
from floodmark.model.delta import TableFacts
from floodmark.model.window import Settlement, VersionWindow
from floodmark.testing.arrow import ArrowSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TestArrowSource(SourceContract):
    @pytest.fixture
    def harness(self) -> Harness:
        return Harness(ArrowSource(), lambda frame: frame.to_pylist())


@pytest.mark.spark
class TestDeltaSource(SourceContract):
    @pytest.fixture
    def harness(self, spark: SparkSession) -> Harness:
        from floodmark.sources.delta.read import DeltaSource

        return Harness(DeltaSource(spark), _collected)


@pytest.mark.spark
class TestNamedSource(SourceContract):
    """Tables that are asked for and read through their catalog, proven on ordinary ones.

    What a catalog cannot tell of is refused: which files a version has, and ranges before a type
    change, which only delta-rs reads, and by folder.
    """

    @pytest.fixture
    def harness(self, spark: SparkSession) -> Iterator[Harness]:
        from floodmark.sources.delta.read import DeltaSource

        spark.sql("CREATE SCHEMA by_name")
        yield Harness(ByName(spark, DeltaSource(spark)), _collected)
        spark.sql("DROP SCHEMA by_name CASCADE")

    def test_lost_files_are_resolved_by_a_snapshot_or_by_what_is_left(
        self, harness: Harness, up: Path
    ) -> None:
        assert harness.source.resolved(planned_window(up, "feed", 2, 5), "accept") is None

    def test_changes_before_a_type_change_keep_their_type(self, harness: Harness, up: Path) -> None:
        planned = planned_window(up, "feed", 4, 5)
        texts = pa.table({"id": pa.array(["x"], pa.string())})
        write_deltalake(up, texts, mode="overwrite", schema_mode="overwrite")

        with pytest.raises(SourceError) as caught:
            harness.source.read(planned)
        assert caught.value.code == "FM-SOURCE-007"


class ByName:
    """A source that is given windows of paths and reads them by name."""

    def __init__(self, spark: SparkSession, source: DeltaTables) -> None:
        self._spark = spark
        self._source = source

    def _named(self, window: VersionWindow) -> VersionWindow:
        name = "by_name.t_" + hashlib.sha256(window.upstream.encode()).hexdigest()[:8]
        place = window.upstream
        self._spark.sql(f"CREATE TABLE IF NOT EXISTS {name} USING delta LOCATION '{place}'")
        return replace(window, location=name)

    def check(self, window: VersionWindow) -> TableFacts:
        return self._source.check(self._named(window))

    def read(self, window: VersionWindow) -> Any:
        return self._source.read(self._named(window))

    def resolved(self, window: VersionWindow, choice: Settlement) -> VersionWindow | None:
        return self._source.resolved(self._named(window), choice)

    def table(self, window: VersionWindow, at_version: int) -> Any:
        return self._source.table(self._named(window), at_version)


def _collected(frame: Any) -> list[Row]:
    return [row.asDict() for row in frame.collect()]
