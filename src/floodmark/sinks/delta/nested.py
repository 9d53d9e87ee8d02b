"""Fields within columns: those that come with new rows, and those that older rows lack."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from floodmark.model.names import matching, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


def has_fields(frame: DataFrame) -> bool:
    """Whether a frame has structs, at any depth."""
    return any("struct<" in field.dataType.simpleString() for field in frame.schema.fields)


def new_fields(rows: StructType, target: StructType) -> list[str]:
    """The fields that structs of the rows have and those of the target do not, as a.b.c.

    Of columns that both have; whole columns are no matter of these.
    """
    columns = target.fieldNames()
    pairs = ((field, matching(field.name, columns)) for field in rows.fields)
    return [
        path
        for field, name in pairs
        if name is not None
        for path in _more(field.name, field.dataType, target[name].dataType)
    ]


def _more(path: str, given: Any, known: Any) -> Iterator[str]:
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(given, ArrayType) and isinstance(known, ArrayType):
        yield from _more(path, given.elementType, known.elementType)
    elif isinstance(given, MapType) and isinstance(known, MapType):
        yield from _more(path, given.valueType, known.valueType)
    elif isinstance(given, StructType) and isinstance(known, StructType):
        names = {field.name.lower(): field for field in known.fields}
        for field in given.fields:
            same = names.get(field.name.lower())
            if same is None:
                yield f"{path}.{field.name}"
            else:
                yield from _more(f"{path}.{field.name}", field.dataType, same.dataType)


def with_all_fields(frame: DataFrame, target: DataFrame) -> DataFrame:
    """The frame, whose structs have the fields of the target too: NULL where a row lacks one."""
    rows, there = frame.schema, target.schema
    paths = [*new_fields(rows, there), *new_fields(there, rows)]
    columns = frame.columns
    names = dict.fromkeys(matching(path.partition(".")[0], columns) for path in paths)
    changed = [name for name in names if name is not None]
    if not changed:
        return frame
    wanted = [matching(name, target.columns) or name for name in changed]
    types = target.limit(0).select(*map(quoted, wanted)).toDF(*changed)
    merged = types.unionByName(frame, allowMissingColumns=True)
    return merged.select(*map(quoted, columns))
