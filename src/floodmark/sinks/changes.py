"""Changes of rows as Spark expressions: what a frame of the change feed means for each key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from floodmark.model.names import quoted
from floodmark.model.write import CHANGE_COLUMNS
from floodmark.sinks.rules import LOG_COLUMNS, RESERVED_PREFIX, data_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

UPSERTS = ("insert", "update_postimage")
PRE_IMAGE = "update_preimage"
DELETE = "delete"

DELETED = f"{RESERVED_PREFIX}deleted"
"""Whether the last change of a key took it away."""
DELETED_AT = f"{RESERVED_PREFIX}deleted_at"
TIED = f"{RESERVED_PREFIX}tied"
"""Whether another row had the same claim to be the last change of the key."""

_POSITION = f"{RESERVED_PREFIX}position"
_TYPE, _VERSION, _TIMESTAMP = CHANGE_COLUMNS


def upserts(frame: DataFrame) -> DataFrame:
    """The rows that inserts and updates left behind, without the change columns.

    Does not reduce: a key that changed twice in the range is there twice, and a key that was
    deleted later is there too. `run.write(mode="merge")` reduces.
    """
    return _rows_of(frame, UPSERTS)


def deletes(frame: DataFrame) -> DataFrame:
    """The rows that were deleted, as they were before, without the change columns.

    Does not reduce: a key that was inserted again later is there too.
    """
    return _rows_of(frame, (DELETE,))


def logged(frame: DataFrame) -> DataFrame:
    """Every change as a row, the change columns renamed so that they can be stored."""
    from pyspark.sql import functions as fn

    renamed = zip(CHANGE_COLUMNS, LOG_COLUMNS, strict=True)
    stored = [fn.col(old).alias(new) for old, new in renamed]
    return frame.select(*_columns(data_columns(frame.columns)), *stored)


def latest(frame: DataFrame, keys: Sequence[str], sequence_by: str | None = None) -> DataFrame:
    """The last row of each key that still has one, without the change columns."""
    from pyspark.sql import functions as fn

    winners = reduced(frame, keys, sequence_by=sequence_by)
    return winners.where(~fn.col(DELETED)).select(*_columns(data_columns(frame.columns)))


def reduced(
    frame: DataFrame,
    keys: Sequence[str],
    *,
    sequence_by: str | None = None,
    ignores_deletes: bool = False,
) -> DataFrame:
    """One row per key, the last change, with DELETED, DELETED_AT and TIED; one shuffle.

    The order is (_commit_version, then pre-image < delete < insert or post-image, then
    `sequence_by`), as far as the frame has these columns. Rows equal in all of them are ties; the
    one applied is chosen by a hash of its values, so that partitioning cannot decide. With
    `ignores_deletes` a key keeps its last insert or post-image, as if no delete had been there.
    """
    from pyspark.sql import Window as Over
    from pyspark.sql import functions as fn

    if ignores_deletes and _TYPE in frame.columns:
        frame = frame.where(fn.col(_TYPE).isin(*UPSERTS))
    data = data_columns(frame.columns)
    order = _order(frame, sequence_by)
    newest = [claim.desc_nulls_last() for claim in (*order, _fingerprint(frame, data))]
    by_key = Over.partitionBy(*_columns(keys)).orderBy(*newest)
    claim = fn.struct(fn.lit(0).alias("same"), *order)
    # lead() gives null behind the last row, and a struct of nulls where the claims are null.
    runner_up = fn.lead(claim).over(by_key)
    ranked = frame.select(
        *_columns(data),
        *_fate(frame),
        (runner_up.isNotNull() & runner_up.eqNullSafe(claim)).alias(TIED),
        fn.row_number().over(by_key).alias(_POSITION),
    )
    return ranked.where(fn.col(_POSITION) == 1).drop(_POSITION)


def _rows_of(frame: DataFrame, kinds: Sequence[str]) -> DataFrame:
    from pyspark.sql import functions as fn

    chosen = frame.where(fn.col(_TYPE).isin(*kinds))
    return chosen.select(*_columns(data_columns(frame.columns)))


def _order(frame: DataFrame, sequence_by: str | None) -> list[Column]:
    from pyspark.sql import functions as fn

    order = [fn.col(_VERSION).alias("version")] if _VERSION in frame.columns else []
    order += [_rank().alias("rank")] if _TYPE in frame.columns else []
    order += [fn.col(quoted(sequence_by)).alias("sequence")] if sequence_by else []
    return order


def _rank() -> Column:
    from pyspark.sql import functions as fn

    kind = fn.col(_TYPE)
    unknown = fn.concat(fn.lit("not a change type of Delta: "), fn.coalesce(kind, fn.lit("NULL")))
    return (
        fn.when(kind == PRE_IMAGE, 0)
        .when(kind == DELETE, 1)
        .when(kind.isin(*UPSERTS), 2)
        .otherwise(fn.raise_error(unknown).cast("int"))
    )


def _fate(frame: DataFrame) -> list[Column]:
    """Whether the row means that its key is gone, and since when."""
    from pyspark.sql import functions as fn

    if _TYPE not in frame.columns:
        nothing = fn.lit(None).cast("timestamp")
        return [fn.expr("false").alias(DELETED), nothing.alias(DELETED_AT)]
    is_gone = ~fn.col(_TYPE).isin(*UPSERTS)
    at = fn.col(_TIMESTAMP) if _TIMESTAMP in frame.columns else fn.current_timestamp()
    return [is_gone.alias(DELETED), fn.when(is_gone, at).alias(DELETED_AT)]


def _fingerprint(frame: DataFrame, columns: Sequence[str]) -> Column:
    """A hash of the whole row; Spark cannot hash maps and variants, so they go in as JSON."""
    from pyspark.sql import functions as fn

    def hashable(column: str) -> Column:
        kind = frame.schema[column].dataType.simpleString()
        value = fn.col(quoted(column))
        return fn.to_json(fn.struct(value)) if "map<" in kind or "variant" in kind else value

    return fn.xxhash64(*[hashable(column) for column in columns])


def _columns(names: Sequence[str]) -> list[Column]:
    from pyspark.sql import functions as fn

    return [fn.col(quoted(name)) for name in names]
