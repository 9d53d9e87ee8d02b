"""The edge of a window: which rows the next one reads again, and has to leave out.

A window reads from `low - overlap`, so it meets rows of the windows before. What was applied is
remembered by identity: the values of the keys with the cursor, or the whole row where there are no
keys. Equal rows without keys count: three of them, two applied, leaves one. A row below
`high - overlap` that arrives later is not seen by any window: that is what the overlap is for.

An edge is a frame of identities, how often each was applied, and what they are made of: by that the
next window makes its own, so that new columns or other keys change nothing. The hashes are Spark's
own: an edge that was made here is read here. With keys it also has a hash of the whole row: who merges
takes a row once more that has changed although its cursor has not (an update within the same second).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from floodmark.errors import SourceError
from floodmark.model.cursor_marks import decoded_if_any
from floodmark.model.names import quoted
from floodmark.next_steps import BATCH, THEN_RETRY, command
from floodmark.sources.cursor.sql.queries import Beginning

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_IDENTITY, _CONTENT, _APPLIED, _MADE_OF = "identity", "content", "applied", "made_of"
_OWN_IDENTITY = "__floodmark_identity"
_OWN_APPLIED = "__floodmark_applied"
_OWN_CONTENTS = "__floodmark_contents"
_NUMBER = "__floodmark_number"
_EXACT_TIMES = {
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""JSON has times to the millisecond, in the zone of the session, unless told."""

Columns = list[tuple[str, str]]
"""Names and types."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What makes two rows one and the same."""

    cursor: str
    keys: tuple[str, ...] = ()
    """Empty where only the whole row tells."""


def edge_left_by(
    frame: DataFrame, identity: Identity, is_near: Column, begin: Beginning | None = None
) -> DataFrame:
    """The edge that a window leaves behind, of all rows it read.

    `is_near` holds for the rows that the next window reads again, those from `begin` on.
    The frame must be one that gives the same rows again: landed ones, not a second question to the
    database.
    """
    from pyspark.sql import functions as fn

    kinds = _kinds(frame)
    names = [*identity.keys, identity.cursor] if identity.keys else sorted(frame.columns)
    columns = [(name, kinds[name]) for name in names]
    whole = sorted(kinds.items()) if identity.keys else []
    made_of = json.dumps(
        {
            "keys": bool(identity.keys),
            "columns": columns,
            "whole": whole,
            "exact_times": True,
            "reach": None if begin is None else begin.mark.encoded(),
            "excludes_reach": begin is not None and begin.is_excluded,
        }
    )
    cursor = fn.col(quoted(identity.cursor))
    near = frame.where(cursor.isNull() | is_near).select(
        _hashed(columns).alias(_IDENTITY), _hashed(whole or columns).alias(_CONTENT)
    )
    counted = near.groupBy(_IDENTITY, _CONTENT).agg(fn.count(fn.lit(1)).alias(_APPLIED))
    # A row of no identity, so that an edge of no rows tells its reach too.
    nobody = frame.sparkSession.range(1).select(
        fn.lit("").alias(_IDENTITY),
        fn.lit("").alias(_CONTENT),
        fn.lit(0).cast("long").alias(_APPLIED),
    )
    return counted.unionByName(nobody).withColumn(_MADE_OF, fn.lit(made_of))


def beginning_of(edge: DataFrame) -> Beginning | None:
    """From where on the edge knows every row that was applied; older versions did not write it."""
    made_of = _made_of(edge)
    mark = decoded_if_any(made_of.get("reach"))
    return None if mark is None else Beginning(mark, bool(made_of.get("excludes_reach")))


def fresh_rows(
    frame: DataFrame, edge: DataFrame, where: str, *, keeps_changed: bool = False
) -> DataFrame:
    """The rows that no window before has applied.

    With keys a row of the edge is left out however often it comes; with `keeps_changed` not if other
    columns of it have changed since. Without, rows are counted, which takes a shuffle. Raises FM-SOURCE-036 if columns that tell rows apart are gone or of another type.
    """
    made_of = _made_of(edge)
    whole = _columns_of(made_of, "whole")
    is_comparable = bool(whole) and not _other_columns(frame, whole)
    if not (keeps_changed and is_comparable):
        return _parted(frame, edge, where, applied=False)
    from pyspark.sql import functions as fn

    columns = _columns_of(made_of)
    _refuse_other_columns(frame, columns, where)
    known = edge.groupBy(fn.col(_IDENTITY).alias(_OWN_IDENTITY)).agg(
        fn.collect_set(_CONTENT).alias(_OWN_CONTENTS)
    )
    named = frame.withColumn(_OWN_IDENTITY, _hashed(columns)).join(known, _OWN_IDENTITY, "left")
    contents = fn.col(_OWN_CONTENTS)
    is_fresh = contents.isNull() | ~fn.array_contains(contents, _hashed(whole))
    return named.where(is_fresh).drop(_OWN_IDENTITY, _OWN_CONTENTS)


def applied_rows(frame: DataFrame, edge: DataFrame, where: str) -> DataFrame:
    """The rows that a window before has applied; see `fresh_rows`."""
    return _parted(frame, edge, where, applied=True)


def refuse_unknowable(frame: DataFrame, edge: DataFrame, where: str) -> None:
    """Raise FM-SOURCE-036 if the rows of a frame cannot be told from those of an edge."""
    _refuse_other_columns(frame, _columns_of(_made_of(edge)), where)


def _made_of(edge: DataFrame) -> dict[str, Any]:
    """What the identities of an edge are made of; nothing, of one without a row."""
    first = edge.select(_MADE_OF).head(1)
    return dict(json.loads(first[0][0])) if first else {}


def _columns_of(made_of: dict[str, Any], what: str = "columns") -> Columns:
    """What hashes are made of; nothing of an edge of an older version."""
    return [(str(name), str(kind)) for name, kind in made_of.get(what, ())]


def _parted(frame: DataFrame, edge: DataFrame, where: str, *, applied: bool) -> DataFrame:
    from pyspark.sql import Window as Over
    from pyspark.sql import functions as fn

    made_of = _made_of(edge)
    if not made_of:
        return frame.limit(0) if applied else frame
    columns = _columns_of(made_of)
    _refuse_other_columns(frame, columns, where)
    known = edge.select(
        fn.col(_IDENTITY).alias(_OWN_IDENTITY), fn.col(_APPLIED).alias(_OWN_APPLIED)
    )
    is_exact = bool(made_of.get("exact_times"))
    named = frame.withColumn(_OWN_IDENTITY, _hashed(columns, is_exact=is_exact))
    if made_of["keys"]:
        how = "left_semi" if applied else "left_anti"
        return named.join(known, _OWN_IDENTITY, how).drop(_OWN_IDENTITY)
    same = Over.partitionBy(_OWN_IDENTITY).orderBy(_OWN_IDENTITY)
    counted = named.join(known, _OWN_IDENTITY, "left").withColumn(
        _NUMBER, fn.row_number().over(same)
    )
    is_fresh = fn.col(_NUMBER) > fn.coalesce(fn.col(_OWN_APPLIED), fn.lit(0))
    wanted = counted.where(~is_fresh if applied else is_fresh)
    return wanted.drop(_OWN_IDENTITY, _OWN_APPLIED, _NUMBER)


def _kinds(frame: DataFrame) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in frame.schema.fields}


def _other_columns(frame: DataFrame, columns: Columns) -> list[str]:
    """Those that a frame does not have, or has with another type."""
    kinds = _kinds(frame)
    return [f"{name} {kind}" for name, kind in columns if kinds.get(name) != kind]


def _refuse_other_columns(frame: DataFrame, columns: Columns, where: str) -> None:
    other = _other_columns(frame, columns)
    if not other:
        return
    raise SourceError(
        "FM-SOURCE-036",
        "rows near the mark cannot be told from those that were applied",
        where=where,
        found=f"no longer there, or of another type: {', '.join(other)}",
        allowed="the columns by which rows were told apart before: keys and cursor, or all of them",
        state="nothing was written; the committed watermark stays",
        next="put the columns back, "
        + THEN_RETRY
        + "; or go on strictly after the mark: "
        + command("retry", BATCH, "--on-lost-range", "accept"),
    )


def _hashed(columns: Columns, *, is_exact: bool = True) -> Column:
    """32 hexadecimal digits; equal for equal values of equal types.

    Edges of older versions are not exact: they have times within lists to the millisecond.
    """
    from pyspark.sql import functions as fn

    parts = [_part(name, kind, is_exact=is_exact) for name, kind in columns]
    return fn.substring(fn.sha2(fn.concat(*parts), 256), 1, 32)


def _part(name: str, kind: str, *, is_exact: bool) -> Column:
    """One value with name, type and length, so that no two rows write the same text."""
    from pyspark.sql import functions as fn

    text = _as_text(name, kind, is_exact=is_exact)
    value = fn.concat(fn.length(text).cast("string"), fn.lit(":"), text)
    return fn.concat(fn.lit(f"{name}\0{kind}\0"), fn.coalesce(value, fn.lit("NULL")))


def _as_text(name: str, kind: str, *, is_exact: bool) -> Column:
    from pyspark.sql import functions as fn

    value = fn.col(quoted(name))
    if kind == "binary":
        return fn.hex(value)
    if kind == "timestamp":
        return fn.unix_micros(value).cast("string")  # as text it would depend on the session's zone
    is_nested = kind.startswith(("array", "map", "struct", "variant"))
    options = _EXACT_TIMES if is_exact else {}
    return fn.to_json(fn.struct(value), options) if is_nested else value.cast("string")
