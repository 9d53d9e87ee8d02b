"""Frames of any engine as Arrow record batches, never all of them at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BATCH_ROWS = 65_536
ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class UnfitColumnError(ValueError):
    """A column of a frame has a type that this road does not carry."""

    def __init__(self, column: str, kind: str) -> None:
        super().__init__(f"column {column} is of type {kind}")
        self.column = column
        self.kind = kind


def arrow_schema(frame: Any) -> pa.Schema:
    """The columns of an Arrow table or a Spark frame; starts no job.

    Raises UnfitColumnError for a type of Spark that is no plain value: array, map, struct, variant.
    """
    if isinstance(frame, pa.Table):
        return frame.schema
    fields = [(f.name, _arrow_type(f.name, f.dataType)) for f in frame.schema.fields]
    return pa.schema(fields)


def record_batches(frame: Any) -> Iterator[pa.RecordBatch]:
    """The rows, in batches; a Spark frame is computed once, partition by partition.

    The driver holds one partition and the next one at a time, in their Arrow form.
    """
    if isinstance(frame, pa.Table):
        yield from frame.to_batches(max_chunksize=BATCH_ROWS)
        return
    for row in _encoded(frame).toLocalIterator(prefetchPartitions=True):
        with pa.ipc.open_stream(row[0]) as reader:
            yield from reader


def value_bytes(array: pa.Array) -> bytes:
    """All values of an array of `string` or `binary`, one after the other.

    To look for something that hardly any value has: in all at once takes a twentieth of the time.
    """
    _, offsets, data = array.buffers()
    if data is None or not len(array):
        return b""
    ends = memoryview(offsets).cast("i")
    start, stop = ends[array.offset], ends[array.offset + len(array)]
    return bytes(data.slice(start, stop - start).to_pybytes())


def _encoded(frame: DataFrame) -> DataFrame:
    """One row per Arrow batch, made by the executors."""

    # Inside a function, so that it is sent by value: executors need not have floodmark.
    def encode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as writer:
                writer.write_batch(batch)
            column = pa.array([sink.getvalue().to_pybytes()], pa.binary())
            yield pa.RecordBatch.from_arrays([column], ["batch"])

    return mapped_in_arrow(frame, encode, "batch binary")


def mapped_in_arrow(frame: DataFrame, function: ArrowFunction, schema: Any) -> DataFrame:
    """`frame.mapInArrow`, for columns of whatever name: PySpark looks `a.b` up as a field of `a`."""
    names = frame.columns
    if not any({".", "`"} & set(name) for name in names):
        return frame.mapInArrow(function, schema)

    def named(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return function(pa.RecordBatch.from_arrays(batch.columns, names) for batch in batches)

    by_place = frame.toDF(*(f"column_{place}" for place in range(len(names))))
    return by_place.mapInArrow(named, schema)


def _arrow_type(column: str, kind: Any) -> pa.DataType:
    from pyspark.sql import types as t

    if isinstance(kind, t.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, t.StringType | t.CharType | t.VarcharType):
        return pa.string()
    plain: dict[type, pa.DataType] = {
        t.BooleanType: pa.bool_(),
        t.ByteType: pa.int8(),
        t.ShortType: pa.int16(),
        t.IntegerType: pa.int32(),
        t.LongType: pa.int64(),
        t.FloatType: pa.float32(),
        t.DoubleType: pa.float64(),
        t.BinaryType: pa.binary(),
        t.DateType: pa.date32(),
        t.TimestampType: pa.timestamp("us", "UTC"),
        t.TimestampNTZType: pa.timestamp("us"),
        t.NullType: pa.null(),
    }
    if type(kind) not in plain:
        raise UnfitColumnError(column, kind.simpleString())
    return plain[type(kind)]
