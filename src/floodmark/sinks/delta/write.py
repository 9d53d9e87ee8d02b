"""The Delta sink on Spark: rows and receipt in one commit of the target."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from floodmark import failpoints
from floodmark.deltalog import Storage
from floodmark.engines.faults import engine_errors, java_errors, spark_condition
from floodmark.engines.jvm import (
    file_lock,
    has_delta_transactions,
    is_connect,
    is_gone,
    is_on_databricks,
    lacks_delta_catalog,
    session_like,
    setting_at_start,
)
from floodmark.errors import SinkError
from floodmark.model import (
    HIDDEN_VALUES,
    RESERVED_PREFIX,
    SOFT_DELETE_COLUMNS,
    OnLostTarget,
    Receipt,
    SinkDone,
    Window,
    WriteResult,
    WriteSpec,
    epoch_micros,
    retyped_columns,
)
from floodmark.model.names import is_on_s3, matching, quoted, scheme_of
from floodmark.next_steps import THEN_RETRY, statement, then_retry
from floodmark.sinks import changes, rules
from floodmark.sinks.delta import nested
from floodmark.sinks.delta.target import DeltaTarget, not_written
from floodmark.sinks.faults import NOTHING_WRITTEN, batch_named
from floodmark.sinks.origins import origins_of
from floodmark.sinks.rules import Target

if TYPE_CHECKING:
    from delta.tables import DeltaMergeBuilder
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

log = logging.getLogger("floodmark")

LOCK_FILE = "_floodmark.lock"
"""Inside the target's folder: Delta, VACUUM and readers pass over names that begin with `_`."""

_UNFIT_FOR_PARQUET = frozenset(" ,;{}()\n\t=")
"""Characters that Parquet does not take in column names, by Delta's own rule."""
_TXN_APP = "spark.databricks.delta.write.txnAppId"
_TXN_VERSION = "spark.databricks.delta.write.txnVersion"
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_SAFE_STORES = frozenset(("S3DynamoDBLogStore", "ConditionalPutLogStore"))
_STORAGE_ERRORS = frozenset(
    (
        "java.io.IOException",
        "java.nio.file.AccessDeniedException",
        "java.nio.file.FileSystemException",
        "org.apache.hadoop.fs.FSError",
        "org.apache.hadoop.security.AccessControlException",
    )
)
"""Exactly these: their subclasses for missing files speak of the upstreams."""

_OUTSIDE = "DELTA_REPLACE_WHERE_MISMATCH"
_BAD_CONDITION = "DELTA_FAILED_RECOGNIZE_PREDICATE"
_TYPES = frozenset(
    (
        "DELTA_CANNOT_CHANGE_DATA_TYPE",
        "DELTA_FAILED_TO_MERGE_FIELDS",
        "DELTA_MERGE_INCOMPATIBLE_DATATYPE",
        "DELTA_MERGE_INCOMPATIBLE_DECIMAL_TYPE",
    )
)
"""What Delta says of rows with other types."""
_VALUES = ("CAST_", "NUMERIC_VALUE_OUT_OF_RANGE", "DATATYPE_MISMATCH")
"""How what Spark says begins of values that do not fit another type."""

ZORDER_AFTER_COMMITS = 20
"""So many commits without an OPTIMIZE make the next one due; a new table is sorted at once."""


class DeltaSink:
    """Writes frames to one Delta table, each with its receipt, exactly once.

    `windows` are those of the run's inputs; `previous` is the last write of this name that the
    store knows of. On a local disk a lock file in the target's folder keeps other writers out
    while one writes; it stays there, empty.

    merge: keys are compared null-safe, so a NULL key is a key like any other. The frame is
    reduced to one row per key (see `changes.reduced`) and cached while the MERGE runs. A key that
    ends in a pre-image or delete is deleted; with `deletes="soft"` the target has the columns
    `is_deleted` and `deleted_at`, and a deleted key stays as a row that says so, also if it came
    and went within one batch; with `deletes="ignore"` it keeps its last row. A frame with
    `_change_type` is reduced by it also if `changes="handled"` was said.

    A new target has the change feed on and deletion vectors off, and column mapping only if a
    column name needs it. One exception: Delta 4.4 cannot MERGE a column whose name has a backtick
    while the feed is on, so a merge creates such a target without it.
    """

    def __init__(
        self,
        spark: SparkSession,
        spec: WriteSpec,
        windows: tuple[Window, ...],
        previous: SinkDone | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        self._spark = spark
        self._spec = spec
        self._windows = windows
        self._storage = Storage(storage_options)
        self._target = DeltaTarget(spec.target, previous, self._storage, spec.sharers)

    def committed(self, receipt: Receipt) -> WriteResult | None:
        """See `Sink.committed`; reads the log, starts no Spark job."""
        return self._target.committed(receipt)

    def loss(self, receipt: Receipt) -> SinkError | None:
        """See `RecoverableSink.loss`."""
        return self._target.loss(receipt)

    def resolved(self, choice: OnLostTarget, receipt: Receipt, next_app_id: str) -> SinkDone:
        """See `RecoverableSink.resolved`."""
        return self._target.resolved(choice, receipt, next_app_id)

    def write(self, frame: DataFrame, receipt: Receipt) -> WriteResult:
        """See `Sink.write`; the order of the steps is the guarantee.

        1. The receipt is looked for, and every rule checked, before the target is touched; a session
           that cannot commit a receipt is refused (FM-SINK-046).
        2. Under the lock both again: another writer may have come first.
        3. One commit with rows and receipt.
        4. The log is read back: the receipt is there, the table is the same.
        """
        # 1.
        refuse_without_receipts(self._spark, self._spec.target)
        refuse_unsafe_log(self._spark, self._spec, receipt)
        earlier = self.committed(receipt)
        if earlier is not None:
            return earlier
        self._admit(frame, receipt)
        with file_lock(self._spark, f"{self._spec.target}/{LOCK_FILE}"):
            # 2.
            earlier = self.committed(receipt)
            if earlier is not None:
                return earlier
            seen = self._admit(frame, receipt)
            # 3.
            with _retelling(self._spec, receipt, frame, seen):
                notes = self._commit(frame, receipt, seen)
            failpoints.reached("sink.after_commit")
            # 4.
            result = self._target.read_back(receipt, seen, notes)
            if self._spec.zorder_by:
                self._sort_files()
            return result

    def check(self, frame: DataFrame, receipt: Receipt) -> None:
        """See `Sink.check`."""
        if self.committed(receipt) is None:
            self._admit(frame, receipt)

    def _admit(self, frame: DataFrame, receipt: Receipt) -> Target:
        seen = self._target.seen(receipt, self._windows)
        rules.check_write(self._spec, self._windows, frame.columns, seen)
        if self._spec.mode == "merge" and seen.has_feed and _with_backtick(seen.columns):
            raise _unmergeable(self._spec, _with_backtick(seen.columns))
        fields = [] if self._spec.adds_columns else self._new_fields(frame, seen)
        if fields:
            raise rules.new_fields(self._spec, fields)
        return seen

    def _new_fields(self, frame: DataFrame, seen: Target) -> list[str]:
        """Fields of structs that the target does not have."""
        is_kept = seen.exists and not seen.is_replaced
        if not (is_kept and nested.has_fields(frame)) or self._spec.strategy == "delete_match":
            return []
        return nested.new_fields(frame.schema, self._now().schema)

    def _with_new_columns(self, frame: DataFrame, receipt: Receipt, seen: Target) -> Target:
        """The target with the frame's columns, added by a commit of its own without rows.

        A crash after it leaves columns that are NULL, which the next attempt finds there.
        """
        from pyspark.sql import functions as fn

        added = rules.new_columns(self._spec, frame.columns, seen)
        fields = self._new_fields(frame, seen)
        if not (added or fields):
            return seen
        # With the columns that are there: Delta wants those of its partitions in every write.
        missing = [fn.lit(None).cast(frame.schema[name].dataType).alias(name) for name in added]
        empty = nested.with_all_fields(self._now().limit(0), frame).select("*", *missing)
        writer = empty.write.format("delta").mode("append").option("mergeSchema", "true")
        writer.save(self._spec.target)
        return self._admit(frame, receipt)

    def _completed(self, frame: DataFrame, absent: Sequence[str]) -> DataFrame:
        """The frame with NULL in the columns that only the target has."""
        from pyspark.sql import functions as fn

        if not absent:
            return frame
        schema = self._now().schema
        return frame.withColumns(
            {name: fn.lit(None).cast(schema[name].dataType) for name in absent}
        )

    def _now(self) -> DataFrame:
        """The target as it is."""
        return self._spark.read.format("delta").load(self._spec.target)

    def _commit(self, frame: DataFrame, receipt: Receipt, seen: Target) -> dict[str, str]:
        absent = rules.absent_columns(self._spec, frame.columns, seen.columns)
        frame = self._completed(frame, absent)
        if self._spec.adds_columns and seen.exists and nested.has_fields(frame):
            frame = nested.with_all_fields(frame, self._now())
        if self._spec.mode == "merge":
            notes = self._commit_merge(frame, receipt, seen)
        else:
            rows, notes = changes.rows_to_write(frame, self._spec), {}
            added = rules.new_columns(self._spec, frame.columns, seen)
            widens = bool(added or self._new_fields(frame, seen))
            self._save(rows, receipt, seen, widens=widens)
        return {**notes, **rules.absence_notes(self._spec, absent)}

    def _commit_merge(self, frame: DataFrame, receipt: Receipt, seen: Target) -> dict[str, str]:
        spec = self._spec
        keys = changes.spelled(spec.keys, frame.columns)
        loses_order = rules.loses_order(spec, self._windows, frame.columns)
        winners = changes.reduced(
            frame,
            keys,
            sequence_by=matching(spec.sequence_by, frame.columns) if spec.sequence_by else None,
            only_upserts=rules.only_upserts(spec),
            keeps_first=rules.keeps_first(spec),
            origins=origins_of(self._windows, self._storage),
            tells_equal_rows=loses_order,
        ).persist()
        # Cached: ties are counted and rows merged from one computation of the user's frame.
        try:
            notes = _tie_notes(spec, winners, keys, loses_order=loses_order)
            seen = self._with_new_columns(frame, receipt, seen)
            if seen.exists and not (seen.is_replaced or spec.replaces_all):
                self._merge(winners, rules.data_columns(frame.columns), receipt, seen)
            else:
                self._save(self._first_rows(winners), receipt, seen)
            return notes
        finally:
            winners.unpersist()

    def _first_rows(self, winners: DataFrame) -> DataFrame:
        """The rows with which a merge creates its target."""
        from pyspark.sql import functions as fn

        data = [c for c in winners.columns if not c.startswith(RESERVED_PREFIX)]
        audit = [fn.current_timestamp().alias(name) for name in rules.audit_columns(self._spec)]
        if self._spec.deletes != "soft":
            return winners.where(~fn.col(changes.DELETED)).select(*map(quoted, data), *audit)
        is_deleted, deleted_at = SOFT_DELETE_COLUMNS
        return winners.select(
            *map(quoted, data),
            fn.col(changes.DELETED).alias(is_deleted),
            fn.col(changes.DELETED_AT).alias(deleted_at),
            *audit,
        )

    def _save(
        self, rows: DataFrame, receipt: Receipt, seen: Target, *, widens: bool = False
    ) -> None:
        replaces = rules.replaces(self._spec, seen)
        mode = "overwrite" if replaces else "append"
        is_new = not seen.exists
        is_retyped = self._is_retyped(rows, seen)
        is_mapped = _needs_column_mapping(rows.columns)
        # Of a table that is not there yet Delta does not ask whether rows match the condition.
        if is_new and (is_mapped or self._spec.cluster_by or self._spec.replace_where):
            self._create_empty(rows, is_mapped=is_mapped)
            is_new = False
        # A crash may have come between the empty table and its clustering.
        if self._spec.cluster_by and seen.version < 1 and not seen.holds_ours:
            self._cluster(rows.columns)
        writer = rows.write.format("delta").mode(mode)
        writer = writer.option("txnAppId", receipt.app_id).option("txnVersion", str(receipt.seq))
        writer = writer.option("userMetadata", receipt.user_metadata)
        if mode == "overwrite":
            writer = self._replacing(writer, rows, seen, is_new=is_new, is_retyped=is_retyped)
        if is_new:
            writer = self._with_creation(writer, rows.columns)
        if widens:
            writer = writer.option("mergeSchema", "true")
        if self._spec.file_rows is not None:
            writer = writer.option("maxRecordsPerFile", str(self._spec.file_rows))
        failpoints.reached("sink.before_commit")
        writer.save(self._spec.target)
        if is_retyped and self._spec.cluster_by:
            self._cluster(rows.columns)

    def _replacing(
        self,
        writer: DataFrameWriter,
        rows: DataFrame,
        seen: Target,
        *,
        is_new: bool,
        is_retyped: bool,
    ) -> DataFrameWriter:
        # Whatever the session says: an overwrite replaces the whole table.
        writer = writer.option("partitionOverwriteMode", "static")
        if self._spec.replace_where is not None:
            return writer.option("replaceWhere", self._spec.replace_where)
        if is_retyped:
            kept = [c for c in seen.partition_by if matching(c, rows.columns)]
            writer = writer.option("overwriteSchema", "true")
            return writer.partitionBy(*kept) if kept else writer
        if self._spec.cluster_by and not is_new:
            # A plain overwrite would drop the clustering.
            return writer.option("replaceWhere", "true")
        return writer

    def _is_retyped(self, rows: DataFrame, seen: Target) -> bool:
        """Whether all rows are made anew, with other types than those of the target."""
        is_anew = seen.is_replaced or self._spec.replaces_all
        return seen.exists and is_anew and bool(retyped_columns(seen.schema, rows.schema.json()))

    def _create_empty(self, rows: DataFrame, *, is_mapped: bool) -> None:
        """An empty target, as a commit of its own without a receipt.

        Delta refuses to create a table with column mapping, change feed and rows in one commit. A
        crash after this one leaves an empty table, which the next attempt writes to.
        """
        empty = self._spark.createDataFrame([], rows.schema)
        writer = empty.write.format("delta").mode("append")
        if is_mapped:
            writer = writer.option("delta.columnMapping.mode", "name")
        self._with_creation(writer, rows.columns).save(self._spec.target)

    def _cluster(self, columns: Sequence[str]) -> None:
        """Liquid clustering of a table that has no rows of ours yet; again it changes nothing.

        Delta does not take it together with rows that are saved by path.
        """
        by = ", ".join(map(quoted, changes.spelled(self._spec.cluster_by, columns)))
        self._spark.sql(f"ALTER TABLE delta.{quoted(self._spec.target)} CLUSTER BY ({by})")

    def _sort_files(self) -> None:
        """OPTIMIZE ... ZORDER BY, the first time and then once in a while: it writes all files anew.

        The rows are committed by then, so what goes wrong here is told and does not fail the write;
        the next one tries again.
        """
        from pyspark.errors import PySparkException

        if self._target.commits_since("OPTIMIZE") < ZORDER_AFTER_COMMITS:
            return
        by = ", ".join(map(quoted, self._spec.zorder_by))
        try:
            self._spark.sql(f"OPTIMIZE delta.{quoted(self._spec.target)} ZORDER BY ({by})")
        except PySparkException as error:
            hides = self._spec.hides_values
            why = HIDDEN_VALUES if hides else str(error)[: rules.EXAMPLE_LENGTH]
            log.warning("%s is not sorted: %s", self._spec.target, why)

    def _feed(self, columns: Sequence[str]) -> str:
        """Whether a new target has the change feed on; see the class."""
        return "false" if self._spec.mode == "merge" and _with_backtick(columns) else "true"

    def _with_creation(self, writer: DataFrameWriter, columns: Sequence[str]) -> DataFrameWriter:
        writer = writer.option("delta.enableChangeDataFeed", self._feed(columns))
        writer = writer.option("delta.enableDeletionVectors", "false")
        for key, value in self._spec.properties:
            writer = writer.option(key, value)
        partitions = changes.spelled(self._spec.partition_by, columns)
        return writer.partitionBy(*partitions) if partitions else writer

    def _merge(
        self, winners: DataFrame, data: Sequence[str], receipt: Receipt, seen: Target
    ) -> None:
        from delta.tables import DeltaTable

        keys = changes.spelled(self._spec.keys, data)
        known = [column for column in data if changes.spelled([column], seen.columns)]
        names = {column: changes.spelled([column], seen.columns)[0] for column in known}
        on = " AND ".join(f"t.{quoted(names[k])} <=> s.{quoted(k)}" for k in keys)
        with _receipt_session(self._spark, receipt) as session:
            table = DeltaTable.forPath(session, self._spec.target).alias("t")
            builder = self._clauses(table.merge(winners.alias("s"), on), names)
            failpoints.reached("sink.before_commit")
            builder.execute()

    def _clauses(self, builder: DeltaMergeBuilder, names: Mapping[str, str]) -> DeltaMergeBuilder:
        """`names` gives the target's name for each column of the frame."""
        values: dict[str, Any] = {quoted(n): f"s.{quoted(c)}" for c, n in names.items()}
        newer = self._newer(names)
        gone = f"s.{quoted(changes.DELETED)}"
        if self._spec.strategy == "delete_match":
            return self._delete_clauses(builder, f"NOT {gone} AND {newer}")
        if self._spec.strategy == "append_only":
            flags = dict(zip(map(quoted, SOFT_DELETE_COLUMNS), ("false", "NULL"), strict=True))
            flags = flags if self._spec.deletes == "soft" else {}
            return builder.whenNotMatchedInsert(f"NOT {gone}", {**values, **flags, **self._came()})
        if self._spec.deletes == "soft":
            return self._soft_clauses(builder, values, gone, newer)
        builder = builder.whenMatchedDelete(f"{gone} AND {newer}")
        builder = builder.whenMatchedUpdate(
            f"NOT {gone} AND {newer}", {**values, **self._changed()}
        )
        builder = builder.whenNotMatchedInsert(f"NOT {gone}", {**values, **self._came()})
        if rules.deletes_missing(self._spec, self._windows):
            builder = builder.whenNotMatchedBySourceDelete()
        return builder

    def _soft_clauses(
        self, builder: DeltaMergeBuilder, values: Mapping[str, Any], gone: str, newer: str
    ) -> DeltaMergeBuilder:
        is_deleted, deleted_at = map(quoted, SOFT_DELETE_COLUMNS)
        flags: dict[str, Any] = {
            is_deleted: gone,
            deleted_at: f"s.{quoted(changes.DELETED_AT)}",
            **self._changed(),
        }
        # Deletes too write their values: what comes later is compared with their `sequence_by`.
        builder = builder.whenMatchedUpdate(newer, {**values, **flags})
        builder = builder.whenNotMatchedInsert(values={**values, **flags, **self._came()})
        if rules.deletes_missing(self._spec, self._windows):
            builder = builder.whenNotMatchedBySourceUpdate(
                f"NOT coalesce(t.{is_deleted}, false)",
                {
                    is_deleted: "true",
                    deleted_at: _timestamp_sql(_seen_at(self._windows)),
                    **self._changed(),
                },
            )
        return builder

    def _delete_clauses(self, builder: DeltaMergeBuilder, applies: str) -> DeltaMergeBuilder:
        if self._spec.deletes != "soft":
            return builder.whenMatchedDelete(applies)
        is_deleted, deleted_at = map(quoted, SOFT_DELETE_COLUMNS)
        flags: dict[str, Any] = {
            is_deleted: "true",
            deleted_at: _timestamp_sql(_seen_at(self._windows)),
            **self._changed(),
        }
        return builder.whenMatchedUpdate(
            f"{applies} AND NOT coalesce(t.{is_deleted}, false)", flags
        )

    def _came(self) -> dict[str, Any]:
        """What a row that is inserted has beside its own values."""
        return {quoted(name): "current_timestamp()" for name in rules.audit_columns(self._spec)}

    def _changed(self) -> dict[str, Any]:
        """What a row that is written again has beside its own values."""
        name = self._spec.updated_at
        return {quoted(name): "current_timestamp()"} if name else {}

    def _newer(self, names: Mapping[str, str]) -> str:
        """The condition under which a row of the frame may replace the target's."""
        if self._spec.sequence_by is None:
            return "true"
        column = changes.spelled([self._spec.sequence_by], list(names))[0]
        new, old = f"s.{quoted(column)}", f"t.{quoted(names[column])}"
        return f"({new} >= {old} OR {old} IS NULL)"


def refuse_without_receipts(spark: SparkSession, target: str) -> None:
    """Raise FM-SINK-046 for a session that would commit rows without their receipt.

    Spark Connect has one session for the user and us: the settings that give a MERGE its receipt
    would be on a write of the user's in that moment too, which Delta then skips as ours. And what
    answers there need not be Spark: Sail takes the options of a receipt and writes none.
    """
    if is_connect(spark):
        found = "a Spark Connect session"
    elif not has_delta_transactions(spark) and not is_gone(spark):  # who is gone says nothing
        found = "no Delta that knows txnAppId and txnVersion"
    elif lacks_delta_catalog(spark):
        found = "spark.sql.catalog.spark_catalog is not set, without which Delta does nothing"
    else:
        return
    raise SinkError(
        "FM-SINK-046",
        "the Spark session cannot commit rows and receipt together",
        where=target,
        found=found,
        allowed="a session of Spark with a driver of its own and Delta 2.0 or newer, by Delta's"
        " extension and catalog",
        state="nothing was written; without receipts every retry would append the rows again",
        next="in a process without Spark Connect pass such a session to fm.Coordinator, say"
        " spark=fm.local_session(); " + THEN_RETRY,
    )


def refuse_unsafe_log(spark: SparkSession, spec: WriteSpec, receipt: Receipt) -> None:
    """Raise FM-SINK-048 for a target on S3 whose log store may lose an acknowledged commit.

    Delta's own store for S3 looks whether a commit is there and then writes it: of two drivers at
    once one replaces the other's commit. Stores that put a commit only where there is none are safe,
    and so is the one of Databricks.
    """
    scheme = scheme_of(spec.target)
    if not is_on_s3(spec.target) or spec.allow_single_writer:
        return
    if is_on_databricks(spark):
        return
    keys = (f"spark.delta.logStore.{scheme}.impl", "spark.delta.logStore.class")
    # Delta reads them from the settings that Spark was started with, and from nowhere else.
    if {setting_at_start(spark, key).rpartition(".")[2] for key in keys} & _SAFE_STORES:
        return
    raise SinkError(
        "FM-SINK-048",
        "two Spark drivers that write to S3 at once lose acknowledged commits",
        where=spec.target,
        found="Delta's log store for S3, which is made for a single driver",
        allowed="io.delta.storage.S3DynamoDBLogStore as"
        f" {keys[0]} when Spark is started (a setting of a running session is not looked at by"
        " Delta); or a table to which nothing else writes, said by allow_single_writer",
        state=NOTHING_WRITTEN,
        next="if nothing else writes to the table: allow_single_writer: true in the node's"
        " write or its lake connection, run.write(..., allow_single_writer=True); "
        + then_retry(batch_named(receipt)),
    )


@contextmanager
def _retelling(spec: WriteSpec, receipt: Receipt, frame: DataFrame, seen: Target) -> Iterator[None]:
    """Tell a store that does not take the rows (FM-SINK-019) from an error of the user's frame.

    Rows that Delta refuses beside a replacement (FM-SINK-034), or by their types (FM-SINK-011), are
    told too.
    """
    try:
        yield
    except engine_errors() as error:
        condition = spark_condition(error)
        if condition == _OUTSIDE:
            raise rules.outside(spec) from error
        if condition == _BAD_CONDITION:
            raise rules.bad_condition(spec, condition) from error
        if condition in _TYPES or condition.startswith(_VALUES):
            retyped = rules.retyped(spec, frame.schema.json(), seen)
            if retyped is not None:
                raise retyped from error
        for name, message in java_errors(error):
            if name in _STORAGE_ERRORS:
                raise not_written(spec.target, receipt, f"{name}: {message}") from error
        raise


@contextmanager
def _receipt_session(spark: SparkSession, receipt: Receipt) -> Iterator[SparkSession]:
    """A session in which one MERGE carries the receipt; the settings of `spark` stay as they are."""
    settings = {
        _TXN_APP: receipt.app_id,
        _TXN_VERSION: str(receipt.seq),
        _USER_METADATA: receipt.user_metadata,
    }
    yield session_like(spark, settings)


def _tie_notes(
    spec: WriteSpec, winners: DataFrame, keys: Sequence[str], *, loses_order: bool
) -> dict[str, str]:
    """How many keys had two last changes, and one of them; raises FM-SINK-036."""
    from pyspark.sql import functions as fn

    key = fn.to_json(fn.struct(*map(quoted, keys)))
    row = winners.agg(
        fn.count_if(changes.TIED).alias("ties"),
        fn.min(fn.when(fn.col(changes.TIED), key)).alias("tie_example"),
        fn.min(fn.when(fn.col(changes.UPSTREAMS).isNotNull(), key)).alias("mixed"),
        fn.min(changes.UPSTREAMS).alias("upstreams"),
    ).collect()[0]
    names = ("ties", "tie_example", "mixed", "upstreams")
    return rules.tie_notes(spec, *(row[name] for name in names), loses_order=loses_order)


def _needs_column_mapping(columns: Sequence[str]) -> bool:
    return any(_UNFIT_FOR_PARQUET & set(name) for name in columns)


def _with_backtick(columns: Sequence[str]) -> list[str]:
    return [name for name in columns if "`" in name]


def _unmergeable(spec: WriteSpec, columns: Sequence[str]) -> SinkError:
    feed = "'delta.enableChangeDataFeed' = 'false'"
    return SinkError(
        "FM-SINK-011",
        "Delta cannot merge columns with a backtick in their name while the change feed is on",
        where=f"write {spec.name!r} to {spec.target}",
        found=f"change feed on, and the columns {', '.join(columns)}",
        allowed="other names, or the change feed of the target off",
        state="nothing was written; the target and the watermark are unchanged",
        next=statement(f"ALTER TABLE delta.{quoted(spec.target)} SET TBLPROPERTIES ({feed})")
        + "; "
        + THEN_RETRY,
    )


def _seen_at(windows: Sequence[Window]) -> datetime | None:
    return max((w.end_at for w in windows if w.has_news and w.end_at), default=None)


def _timestamp_sql(at: datetime | None) -> str:
    if at is None:
        return "current_timestamp()"
    return f"timestamp_micros({epoch_micros(at)})"
