"""The contract of the sinks, on every implementation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from tests.contract.cut_contract import CutContract, UnionContract
from tests.contract.postgres_places import PgLake
from tests.contract.schema_contract import (
    WRITES,
    DeltaSchemaContract,
    SchemaContract,
    expected,
    widened,
)
from tests.contract.sink_contract import (
    DeltaLake,
    DeltaSinkContract,
    Harness,
    SinkContract,
    names_of,
    receipt,
)

from floodmark.engines.postgres_server import PostgresServer
from floodmark.model.state import SinkDone
from floodmark.model.window import Window
from floodmark.model.write import WriteSpec
from floodmark.postgres import connector
from floodmark.sinks import Sink
from floodmark.sinks.postgres import PostgresSink
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
        from floodmark.sinks.delta.write import DeltaSink

        return DeltaSink(self._spark, spec, windows, previous)

    def frame(self, rows: list[tuple[Any, ...]], fields: dict[str, str], parts: int = 1) -> Any:
        from pyspark.sql.types import StructType

        schema = StructType()
        for name, kind in fields.items():
            schema = schema.add(name, kind)
        return self._spark.createDataFrame(rows, schema).repartition(parts)


class PostgresSinks(ArrowSinks):
    """Arrow tables into PostgreSQL."""

    def __init__(self, dsn: str) -> None:
        self._connect = connector(dsn)

    def sink(self, spec: WriteSpec, windows: tuple[Window, ...], previous: SinkDone | None) -> Sink:
        return PostgresSink(self._connect, spec, windows, previous)


class TestArrowSink(DeltaSinkContract, CutContract, UnionContract, DeltaSchemaContract):
    @pytest.fixture
    def harness(self) -> Harness:
        return Harness(ArrowSinks())


@pytest.mark.spark
class TestDeltaSink(DeltaSinkContract, CutContract, UnionContract, DeltaSchemaContract):
    @pytest.fixture
    def harness(self, spark: SparkSession) -> Harness:
        return Harness(SparkSinks(spark))

    @pytest.mark.parametrize("write", [WRITES[0], WRITES[1], WRITES[2]], ids=lambda w: w["mode"])
    def test_new_columns_are_added_to_a_clustered_table(
        self, harness: Harness, lake: DeltaLake, write: dict[str, Any]
    ) -> None:
        place = lake / "wide"

        rows = widened(harness, place, cluster_by=("id",), **write)

        assert rows == expected(write)
        features = DeltaTable(place.path).protocol().writer_features or []
        assert "clustering" in features


@pytest.mark.postgres
class TestPostgresSink(SinkContract, CutContract, UnionContract, SchemaContract):
    @pytest.fixture
    def harness(self, postgres: PostgresServer) -> Harness:
        return Harness(PostgresSinks(postgres.dsn))

    @pytest.fixture
    def lake(self, postgres: PostgresServer, pg_schema: str) -> PgLake:
        return PgLake(postgres.dsn, pg_schema)

    def test_a_batch_without_rows_among_changes_is_no_unknown_change(
        self, harness: Harness, lake: PgLake
    ) -> None:
        target = lake / "orders"
        rows = self.changed(harness, (1, "a", 1, "insert", 1))
        empty = pa.RecordBatch.from_pylist([], schema=rows.schema)
        frame = pa.Table.from_batches([empty, *rows.to_batches(), empty])

        written = harness.sink(self.spec(target, "merge")).write(frame, receipt(1))

        assert written.rows_written == 1
        assert names_of(target) == {1: "a"}
