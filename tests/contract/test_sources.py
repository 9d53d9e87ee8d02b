"""The contract of the Delta sources, on every implementation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.contract.source_contract import Harness, Row, SourceContract

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
        from floodmark.sources.delta import DeltaSource

        return Harness(DeltaSource(spark), _collected)


def _collected(frame: Any) -> list[Row]:
    return [row.asDict() for row in frame.collect()]
