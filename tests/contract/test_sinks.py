"""The contract of the sinks, on every implementation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.contract.sink_contract import Harness, SinkContract

from floodmark.model.state import SinkDone
from floodmark.model.window import Window
from floodmark.model.write import WriteSpec
from floodmark.sinks import Sink
from floodmark.testing.arrow import ArrowSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ARROW_TYPES = {
    "long": pa.int64(),
    "string": pa.string(),
    "timestamp": pa.timestamp("us", "UTC"),
}


class ArrowSinks:
    def sink(self, spec: WriteSpec, windows: tuple[Window, ...], previous: SinkDone | None) -> Sink:
        return ArrowSink(spec, windows, previous)

    def frame(self, rows: list[tuple[Any, ...]], fields: dict[str, str], parts: int = 1) -> Any:
        schema = pa.schema([(name, ARROW_TYPES[kind]) for name, kind in fields.items()])
        listed = [dict(zip(fields, row, strict=True)) for row in rows]
        return pa.Table.from_pylist(listed, schema=schema)


class SparkSinks:
    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def sink(self, spec: WriteSpec, windows: tuple[Window, ...], previous: SinkDone | None) -> Sink:
        from floodmark.sinks.delta import DeltaSink

        return DeltaSink(self._spark, spec, windows, previous)

    def frame(self, rows: list[tuple[Any, ...]], fields: dict[str, str], parts: int = 1) -> Any:
        from pyspark.sql.types import StructType

        schema = StructType()
        for name, kind in fields.items():
            schema = schema.add(name, kind)
        return self._spark.createDataFrame(rows, schema).repartition(parts)


class TestArrowSink(SinkContract):
    @pytest.fixture
    def harness(self) -> Harness:
        return Harness(ArrowSinks())


@pytest.mark.spark
class TestDeltaSink(SinkContract):
    @pytest.fixture
    def harness(self, spark: SparkSession) -> Harness:
        return Harness(SparkSinks(spark))
