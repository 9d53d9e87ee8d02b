"""The edge of a window on Spark frames; the same meaning as `floodmark.sources.sql.edges`.

The hashes are Spark's own: an edge that was made here is read here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.model.names import quoted
from floodmark.sources.sql.edges import Edge, Identity

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_IDENTITY = "__floodmark_identity"
_APPLIED = "__floodmark_applied"
_NUMBER = "__floodmark_number"


def fresh_rows(frame: DataFrame, edge: Edge, identity: Identity) -> DataFrame:
    """The rows that no window before has applied; the frame is computed once.

    With keys a row of the edge is left out however often it comes. Without, rows are counted, which
    takes a shuffle.
    """
    from pyspark.sql import Window as Over
    from pyspark.sql import functions as fn

    if not edge.applied:
        return frame
    known = frame.sparkSession.createDataFrame(
        list(edge.applied.items()), f"{_IDENTITY} string, {_APPLIED} long"
    )
    named = frame.withColumn(_IDENTITY, identity_of(frame, identity))
    if identity.keys:
        return named.join(fn.broadcast(known), _IDENTITY, "left_anti").drop(_IDENTITY)
    counted = named.join(fn.broadcast(known), _IDENTITY, "left").withColumn(
        _NUMBER, fn.row_number().over(Over.partitionBy(_IDENTITY).orderBy(_IDENTITY))
    )
    is_fresh = fn.col(_NUMBER) > fn.coalesce(fn.col(_APPLIED), fn.lit(0))
    return counted.where(is_fresh).drop(_IDENTITY, _APPLIED, _NUMBER)


def edge_left_by(frame: DataFrame, identity: Identity, is_near: Column) -> Edge:
    """The edge that a window leaves behind, of all rows it read; collects one line per row near.

    `is_near` holds for the rows that the next window reads again. The frame must be one that gives
    the same rows again: landed ones, not a second question to the database.
    """
    from pyspark.sql import functions as fn

    cursor = fn.col(quoted(identity.cursor))
    near = frame.where(cursor.isNull() | is_near).select(
        identity_of(frame, identity).alias(_IDENTITY)
    )
    rows = near.groupBy(_IDENTITY).count().collect()
    return Edge({str(row[0]): int(row[1]) for row in rows})


def identity_of(frame: DataFrame, identity: Identity) -> Column:
    """32 hexadecimal digits; equal for equal values of equal types."""
    from pyspark.sql import functions as fn

    names = [*identity.keys, identity.cursor] if identity.keys else sorted(frame.columns)
    kinds = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    parts = [_part(name, kinds[name]) for name in names]
    return fn.substring(fn.sha2(fn.concat(*parts), 256), 1, 32)


def _part(name: str, kind: str) -> Column:
    """One value with name, type and length, so that no two rows write the same text."""
    from pyspark.sql import functions as fn

    text = _as_text(name, kind)
    value = fn.concat(fn.length(text).cast("string"), fn.lit(":"), text)
    return fn.concat(fn.lit(f"{name}\0{kind}\0"), fn.coalesce(value, fn.lit("NULL")))


def _as_text(name: str, kind: str) -> Column:
    from pyspark.sql import functions as fn

    value = fn.col(quoted(name))
    if kind == "binary":
        return fn.hex(value)
    if kind == "timestamp":
        return fn.unix_micros(value).cast("string")  # as text it would depend on the session's zone
    is_nested = kind.startswith(("array", "map", "struct", "variant"))
    return fn.to_json(fn.struct(value)) if is_nested else value.cast("string")
