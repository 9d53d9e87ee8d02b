"""Changes of rows as Spark expressions: what a frame of the change feed means for each key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from floodmark.model import CHANGE_COLUMNS, RESERVED_PREFIX, WriteSpec
from floodmark.model.arguments import checks_call
from floodmark.model.names import matching, quoted
from floodmark.sinks.origins import Origin
from floodmark.sinks.rules import LOG_COLUMNS, data_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.window import WindowSpec

UPSERTS = ("insert", "update_postimage")
PRE_IMAGE = "update_preimage"
DELETE = "delete"

DELETED = f"{RESERVED_PREFIX}deleted"
"""Whether the last change of a key took it away."""
DELETED_AT = f"{RESERVED_PREFIX}deleted_at"
TIED = f"{RESERVED_PREFIX}tied"
"""Whether another row had the same claim to be the last change of the key."""
UPSTREAMS = f"{RESERVED_PREFIX}upstreams"
"""Two upstreams between whose rows of the key nothing decides; NULL where there are none."""

_POSITION = f"{RESERVED_PREFIX}position"
_IS_LAST = f"{RESERVED_PREFIX}is_last_of_version"
_HASH = f"{RESERVED_PREFIX}hash"
_ORIGIN, _NUMBER, _RANKED, _SEQUENCE = (
    f"{RESERVED_PREFIX}{name}" for name in ("origin", "version", "rank", "sequence")
)
_TYPE, _VERSION, _TIMESTAMP = CHANGE_COLUMNS


@checks_call("fm")
def upserts(frame: DataFrame) -> DataFrame:
    """The rows that inserts and updates left behind, without the change columns.

    Does not reduce: a key that changed twice in the range is there twice, and a key that was
    deleted later is there too. `run.write(mode="merge")` reduces.
    """
    return _rows_of(frame, UPSERTS)


@checks_call("fm")
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
    only_upserts: bool = False,
    keeps_first: bool = False,
    origins: Sequence[Origin] = (),
    tells_equal_rows: bool = False,
) -> DataFrame:
    """One row per key, the last change, with DELETED, DELETED_AT, TIED and UPSTREAMS; one shuffle.

    The result is the same as if the versions were applied one by one. Within a version the order is
    pre-image < delete < insert or post-image, then `sequence_by`; among the versions of a key it is
    `sequence_by` (NULLs last), then the version; all as far as the frame has these columns. Rows
    equal in all of them are ties; the one applied is chosen by a hash of its values, so that
    partitioning cannot decide.

    With `only_upserts` a key keeps its last insert or post-image, as if no delete had been there;
    with `keeps_first` the row of its first version. `origins` tell whose each version is, where
    several upstreams are in the frame: equal sequence values of two of them are a tie too, and
    without `sequence_by` every key that comes from two of them has UPSTREAMS. With
    `tells_equal_rows` a key is TIED only if its rows differ.
    """
    from pyspark.sql import Window as Over
    from pyspark.sql import functions as fn

    if only_upserts and _TYPE in frame.columns:
        frame = frame.where(fn.col(_TYPE).isin(*UPSERTS))
    data, has_versions = data_columns(frame.columns), _VERSION in frame.columns
    rows = _with_claims(frame, data, sequence_by, origins if has_versions else ())
    is_by_version = has_versions and (sequence_by is not None or keeps_first)
    commit = [name for name in (_ORIGIN, _NUMBER) if name in rows.columns]
    claims = [name for name in (_NUMBER, _RANKED, _SEQUENCE) if name in rows.columns]
    by_key = Over.partitionBy(*_columns(keys))
    # The rows of one commit lie together.
    sorting = dict.fromkeys([*(commit if is_by_version else ()), *claims, _HASH])
    order = by_key.orderBy(*[fn.col(name).desc_nulls_last() for name in sorting])
    claim = fn.struct(fn.lit(0).alias("same"), *sorted({*commit, *claims}))
    # lead() gives null behind the last row, and a struct of nulls where the claims are null.
    runner_up = fn.lead(claim).over(order)
    is_same = runner_up.isNotNull() & runner_up.eqNullSafe(claim)
    differs = fn.min(_HASH).over(by_key) != fn.max(_HASH).over(by_key)
    rows = rows.withColumn(TIED, differs if tells_equal_rows else is_same)
    if is_by_version:
        version = fn.struct(fn.lit(0).alias("same"), *commit)
        rows = rows.withColumn(_IS_LAST, ~fn.lag(version).over(order).eqNullSafe(version))
        rows = rows.where(_IS_LAST)
        number = fn.col(_NUMBER)
        newest = [fn.col(_SEQUENCE).desc_nulls_last()] if sequence_by else []
        newest += [number.desc_nulls_last(), fn.col(_HASH).desc()]
        order = by_key.orderBy(*([number.asc()] if keeps_first else newest))
    same = [*_columns(keys), _SEQUENCE] if sequence_by else _columns(keys)
    rows = rows.withColumns(
        {
            UPSTREAMS: _several(Over.partitionBy(*same), has_origins=_ORIGIN in commit),
            _POSITION: fn.row_number().over(order),
        }
    )
    is_tied = (fn.col(UPSTREAMS).isNotNull() & fn.lit(bool(sequence_by))) | fn.col(TIED)
    fate = [fn.col(DELETED), fn.col(DELETED_AT), is_tied.alias(TIED), fn.col(UPSTREAMS)]
    return rows.where(fn.col(_POSITION) == 1).select(*_columns(data), *fate)


def _with_claims(
    frame: DataFrame, data: Sequence[str], sequence_by: str | None, origins: Sequence[Origin]
) -> DataFrame:
    """The data of each row, what becomes of its key, and what decides which row is the last."""
    from pyspark.sql import functions as fn

    claims = [_fingerprint(frame, data).alias(_HASH)]
    if _VERSION in frame.columns:
        claims.append(fn.col(_VERSION).alias(_NUMBER))
    if _TYPE in frame.columns:
        claims.append(_rank().alias(_RANKED))
    if sequence_by:
        claims.append(fn.col(quoted(sequence_by)).alias(_SEQUENCE))
    if origins:
        claims.append(fn.col(_ORIGIN))
    fate = _fate(frame)
    return _with_origins(frame, origins).select(*_columns(data), *fate, *claims)


def _with_origins(frame: DataFrame, origins: Sequence[Origin]) -> DataFrame:
    """The frame with the upstream of each row; NULL where nothing tells it."""
    from pyspark.sql import functions as fn

    if not origins:
        return frame
    has_time = _TIMESTAMP in frame.columns
    version, low, high = (f"{RESERVED_PREFIX}{name}" for name in ("of", "low", "high"))
    rows = [
        (origin.upstream, origin.version, origin.low, origin.high)
        for origin in origins
        if has_time or not origin.needs_time
    ]
    schema = f"{_ORIGIN} string, {version} long, {low} long, {high} long"
    known = fn.broadcast(frame.sparkSession.createDataFrame(rows, schema))
    at = fn.unix_micros(fn.col(_TIMESTAMP).cast("timestamp")) if has_time else fn.lit(0)
    at = fn.coalesce(at, fn.lit(0))
    is_theirs = (fn.col(_VERSION) == fn.col(version)) & (at >= fn.col(low)) & (at < fn.col(high))
    return frame.join(known, is_theirs, "left")


def _several(group: WindowSpec, *, has_origins: bool) -> Column:
    """Two upstreams of a group of rows, or NULL."""
    from pyspark.sql import functions as fn

    if not has_origins:
        return fn.lit(None).cast("array<string>")
    first, last = fn.min(_ORIGIN).over(group), fn.max(_ORIGIN).over(group)
    return fn.when(first != last, fn.array(first, last))


def _rows_of(frame: DataFrame, kinds: Sequence[str]) -> DataFrame:
    from pyspark.sql import functions as fn

    chosen = frame.where(fn.col(_TYPE).isin(*kinds))
    return chosen.select(*_columns(data_columns(frame.columns)))


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


def rows_to_write(frame: DataFrame, spec: WriteSpec) -> DataFrame:
    """The rows of a write that is no merge."""
    if spec.changes == "latest":
        return latest(frame, spelled(spec.keys, frame.columns))
    if spec.changes == "log":
        return logged(frame)
    return frame.select(*map(quoted, data_columns(frame.columns)))


def spelled(names: Sequence[str], columns: Sequence[str]) -> list[str]:
    """The columns that these names mean, as the frame spells them."""
    columns_or_none = [matching(name, columns) for name in names]
    return [name for name in columns_or_none if name is not None]
