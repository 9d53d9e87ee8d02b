"""The PostgreSQL sink: rows and receipt in one transaction."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from floodmark import failpoints
from floodmark.deltalog import Storage
from floodmark.engines.arrow_frames import UnfitColumnError, arrow_schema, record_batches
from floodmark.errors import SinkError
from floodmark.model import (
    CHANGE_COLUMNS,
    SOFT_DELETE_COLUMNS,
    OnLostTarget,
    Receipt,
    SinkDone,
    Window,
    WriteResult,
    WriteSpec,
    batch_of,
)
from floodmark.model.names import matching
from floodmark.next_steps import THEN_RETRY, Next, command, then_retry
from floodmark.postgres import Connect, cursor_of, quoted, run
from floodmark.postgres import merge as sql
from floodmark.postgres.rows import (
    EXACT_TYPES,
    MAX_NAME_BYTES,
    ColumnError,
    Field,
    MisfitError,
    PgColumn,
    copy_rows,
    create,
    definitions,
    differences,
    widen,
)
from floodmark.postgres.transactions import (
    LOCK_NOT_AVAILABLE,
    LOCK_SECONDS,
    MORE_MEMORY,
    is_of_an_execution,
    is_refused_login,
    lasting_commit,
    limit_locks,
    lock_holders,
    said,
    settle,
    sqlstate,
    wait_for_commit,
)
from floodmark.sinks import rules
from floodmark.sinks.faults import NOTHING_WRITTEN, batch_named
from floodmark.sinks.origins import Origin, origins_of
from floodmark.sinks.postgres_target import (
    PostgresTarget,
    Stored,
    TargetTable,
    add_receipt,
    create_receipts,
    has_rows,
    lock,
    lock_name,
    receipt_row,
)
from floodmark.sinks.rules import Target

if TYPE_CHECKING:
    from floodmark.postgres import Connection, Cursor

log = logging.getLogger("floodmark")

Fields = list[Field]

_CHANGE_TYPES = (pa.string(), pa.int64(), pa.timestamp("us", "UTC"))
_CHANGE_PG = (
    PgColumn(CHANGE_COLUMNS[0], "text", "text"),
    PgColumn(CHANGE_COLUMNS[1], "int8", "bigint"),
    PgColumn(CHANGE_COLUMNS[2], "timestamptz", "timestamp with time zone"),
)
_BAD_SQL = "42"
"""The class of SQLSTATE for syntax, unknown names and missing rights."""
_BAD_VALUES = ("22", "23", "54")
"""Classes of SQLSTATE: data, constraints, limits of the program (an index entry too long)."""
_CONSTRAINTS, _NOT_NULL = "23", "23502"


@dataclass(frozen=True, slots=True)
class Effects:
    """What the statements of one write did, by their own counts."""

    rows_written: int
    metrics: dict[str, str]


class PostgresSink:
    """Writes frames to one table of PostgreSQL, each with its receipt, exactly once.

    `spec.target` is `<connection>:<table>`, the table written as in SQL. A missing table is created
    with the types of `created_type`; a merge gives it an index on its keys. An overwrite deletes and
    fills in one transaction: readers see the old rows until it ends and wait for nothing. Frames are
    Spark's or Arrow tables; the driver holds two partitions of a Spark frame at a time.

    merge: as the Delta sink does it. Keys are compared null-safe; the frame is reduced to one row
    per key; `deletes="soft"` gives the target the columns `is_deleted` and `deleted_at`.
    """

    def __init__(
        self,
        connect: Connect,
        spec: WriteSpec,
        windows: tuple[Window, ...],
        previous: SinkDone | None = None,
        *,
        storage: Storage | None = None,
        lock_seconds: float = LOCK_SECONDS,
    ) -> None:
        self._spec = spec
        self._lock_seconds = lock_seconds
        self._windows = windows
        self._storage = storage or Storage()
        self._connect = connect
        self._target = PostgresTarget(spec.target, previous, connect, spec.sharers)

    def committed(self, receipt: Receipt) -> WriteResult | None:
        """See `Sink.committed`; raises FM-SINK-032 if the database does not answer."""
        return self._target.committed(receipt)

    def loss(self, receipt: Receipt) -> SinkError | None:
        """See `RecoverableSink.loss`."""
        return self._target.loss(receipt)

    def resolved(self, choice: OnLostTarget, receipt: Receipt, next_app_id: str) -> SinkDone:
        """See `RecoverableSink.resolved`."""
        return self._target.resolved(choice, receipt, next_app_id)

    def write(self, frame: Any, receipt: Receipt) -> WriteResult:
        """See `Sink.write`; the order of the steps is the guarantee.

        1. The receipt is looked for, and every rule checked, before the target is touched.
        2. In a transaction, under the lock of the table, both again: another may have come first.
        3. The rows, then the receipt, then COMMIT.
        4. If the answer to COMMIT was lost, the receipt is read back: it decides.
        """
        schema = self._schema(frame)
        # 1.
        with self._target.looking() as cursor:
            table = self._target.table(cursor)
            earlier = self._target.committed_in(cursor, table, receipt)
            if earlier is not None:
                return earlier
            self._admit(cursor, table, schema, receipt)
        with self._transaction(receipt) as connection:
            return self._write(connection, frame, schema, receipt)

    def check(self, frame: Any, receipt: Receipt) -> None:
        """See `Sink.check`."""
        schema = self._schema(frame)
        with self._target.looking() as cursor:
            table = self._target.table(cursor)
            if self._target.committed_in(cursor, table, receipt) is None:
                self._admit(cursor, table, schema, receipt)

    def _write(
        self, connection: Connection, frame: Any, schema: pa.Schema, receipt: Receipt
    ) -> WriteResult:
        cursor = cursor_of(connection)
        # 2.
        table = self._prepared(connection, cursor)
        earlier = self._target.committed_in(cursor, table, receipt)
        if earlier is not None:
            return earlier
        seen = self._admit(cursor, table, schema, receipt)
        failpoints.reached("postgres.after_lock")
        # 3.
        table = self._created(cursor, table, schema, seen)
        effects = self._store(cursor, table, frame, schema, seen)
        absent = self._absent(table, schema) if seen.exists else []
        effects = replace(
            effects, metrics=effects.metrics | rules.absence_notes(self._spec, absent)
        )
        if self._spec.mode == "merge" and not seen.exists:
            # Behind the rows: an index that grows row by row takes far longer.
            run(cursor, f"CREATE INDEX ON {table.quoted} ({self._key_columns(schema)})")
        failpoints.reached("postgres.after_copy")
        stored = Stored(
            seq=receipt.seq,
            version=seen.version + 1,
            batch_id=batch_of(receipt.user_metadata),
            rows_written=effects.rows_written,
            leaves_rows=has_rows(cursor, table),
            metrics=effects.metrics,
            write_id=uuid.uuid4().hex,
        )
        add_receipt(cursor, table, receipt, stored)
        failpoints.reached("sink.before_commit")
        self._commit(connection, receipt, stored)
        failpoints.reached("sink.after_commit")
        return self._target.result(table, stored, already_applied=False)

    @contextmanager
    def _transaction(self, receipt: Receipt) -> Iterator[Connection]:
        """A connection that is closed, and so rolled back, unless the block committed."""
        import psycopg

        try:
            connection = self._connect()
            try:
                # Whatever the database's default: behind the lock, what others committed is seen.
                connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
                yield connection
            finally:
                connection.close()
        except MisfitError as misfit:
            raise _unfit_value(self._spec, str(misfit)) from misfit
        except psycopg.Error as error:
            if sqlstate(error)[:2] in _BAD_VALUES or is_of_an_execution(error):
                raise _unfit_row(self._spec, error) from error
            if sqlstate(error)[:2] == _BAD_SQL and self._spec.mode == "replace_where":
                raise rules.bad_condition(self._spec, said(error)) from error
            if sqlstate(error) == LOCK_NOT_AVAILABLE:
                raise self._locked(error) from error
            raise _not_written(self._spec.target, receipt, error) from error

    def _locked(self, error: BaseException) -> SinkError:
        """FM-SINK-014 with the names of those who hold the locks, as far as they still do."""
        holders: list[str] = []
        try:
            with self._target.looking() as cursor:
                table = self._target.table(cursor)
                holders = lock_holders(cursor, lock_name(table), table.quoted)
        except SinkError:
            log.debug("the holders of the locks of %s cannot be asked for", self._spec.target)
        return _locked(self._spec.target, self._lock_seconds, holders, error)

    def _prepared(self, connection: Connection, cursor: Cursor) -> TargetTable:
        """The table as it is once every other writer is kept out."""
        limit_locks(cursor, self._lock_seconds)
        table = self._target.table(cursor)
        if not table.has_receipts:
            create_receipts(cursor, table)
            connection.commit()
            limit_locks(cursor, self._lock_seconds)
        lock(cursor, table)
        # Rows that an asynchronous commit loses would take a receipt that the store knows of along.
        run(
            cursor,
            f"SELECT {lasting_commit()}",
        )
        return self._target.table(cursor)

    def _schema(self, frame: Any) -> pa.Schema:
        try:
            return arrow_schema(frame)
        except UnfitColumnError as error:
            allowed = "plain values; arrays, maps and structs as text, by to_json"
            raise _misfit(self._spec, str(error), allowed) from error

    def _admit(
        self, cursor: Cursor, table: TargetTable, schema: pa.Schema, receipt: Receipt
    ) -> Target:
        if self._spec.partition_by:
            raise _misfit(self._spec, "partition_by=", "a table of PostgreSQL that is partitioned")
        if self._spec.mode == "replace_where" and self._spec.changes == "latest":
            raise _misfit(self._spec, 'replace_where with changes="latest"', "one of the two")
        seen = self._target.seen(cursor, table, receipt)
        self._refuse_generated(table, schema)
        rules.check_write(self._spec, self._windows, schema.names, seen)
        added = rules.new_columns(self._spec, schema.names, seen)
        self._definitions([f for f in self._fields(schema) if not seen.exists or f[0] in added])
        if seen.exists:
            self._check_types(table, [f for f in self._fields(schema) if f[0] not in added])
        return seen

    def _refuse_generated(self, table: TargetTable, schema: pa.Schema) -> None:
        """Columns that exist, and that no write may give values."""
        names = [name for name, _ in self._fields(schema) if matching(name, table.generated)]
        if names:
            raise rules.misfit(
                self._spec,
                f"the target makes the values of {', '.join(names)} itself (GENERATED ALWAYS)",
                "rows without such columns",
                "select the other columns in a step; or let the table take values, for an identity:"
                " ALTER TABLE ... ALTER COLUMN ... SET GENERATED BY DEFAULT; " + THEN_RETRY,
            )

    def _check_types(self, table: TargetTable, fields: Fields) -> None:
        different = differences(table, fields, "rows", "target")
        if different:
            raise _misfit(self._spec, "; ".join(different), EXACT_TYPES)

    def _data(self, schema: pa.Schema) -> list[str]:
        """The columns of the frame that are sent: to delete by key, keys and their order suffice."""
        data = rules.data_columns(schema.names)
        spec = self._spec
        if spec.mode != "merge" or spec.strategy != "delete_match":
            return data
        named = [*spec.keys, *([spec.sequence_by] if spec.sequence_by else [])]
        return list(dict.fromkeys(matching(name, data) or name for name in named))

    def _fields(self, schema: pa.Schema) -> Fields:
        """The columns that the target has, by this write: those of the frame and those we add."""
        fields = [(name, schema.field(name).type) for name in self._data(schema)]
        if self._spec.mode == "merge" and self._spec.deletes == "soft":
            fields += zip(SOFT_DELETE_COLUMNS, (pa.bool_(), _CHANGE_TYPES[2]), strict=True)
        elif self._spec.mode != "merge" and self._spec.changes == "log":
            fields += zip(rules.LOG_COLUMNS, _CHANGE_TYPES, strict=True)
        if self._spec.mode == "merge":
            fields += [(name, _CHANGE_TYPES[2]) for name in rules.audit_columns(self._spec)]
        return fields

    def _definitions(self, fields: Fields) -> list[str]:
        """New columns; raises FM-SINK-011 for what PostgreSQL cannot have."""
        try:
            return definitions(fields)
        except ColumnError as error:
            names = f"names of 1 to {MAX_NAME_BYTES} bytes without NUL"
            allowed = names if error.is_name else "plain values"
            raise _misfit(self._spec, str(error), allowed) from None

    def _created(
        self, cursor: Cursor, table: TargetTable, schema: pa.Schema, seen: Target
    ) -> TargetTable:
        """The table, made or widened in the transaction of the rows."""
        added = rules.new_columns(self._spec, schema.names, seen)
        fields = [f for f in self._fields(schema) if table.oid is None or f[0] in added]
        columns = self._definitions(fields)
        if not columns:
            return table
        if table.oid is None:
            create(cursor, table, columns)
        else:
            widen(cursor, table, columns)
        return self._target.table(cursor)

    def _key_columns(self, schema: pa.Schema) -> str:
        keys = [matching(key, schema.names) or key for key in self._spec.keys]
        return ", ".join(map(quoted, keys))

    def _store(
        self, cursor: Cursor, table: TargetTable, frame: Any, schema: pa.Schema, seen: Target
    ) -> Effects:
        if self._spec.mode == "replace_where":
            return self._replace(cursor, table, frame, schema)
        if rules.replaces(self._spec, seen):
            run(cursor, f"DELETE FROM {table.quoted}")
        if self._spec.mode == "merge":
            return self._merge(cursor, table, frame, schema)
        if self._spec.changes == "latest":
            merge = self._staged(cursor, table, frame, schema)
            written = sent = run(cursor, sql.latest(merge)).rowcount
        else:
            sent, written = self._append(cursor, table, frame, schema)
        notes = rules.left_out_notes(self._spec, sent - written)
        return Effects(written, {"rows_inserted": str(written), **notes})

    def _replace(
        self, cursor: Cursor, table: TargetTable, frame: Any, schema: pa.Schema
    ) -> Effects:
        """Put the frame in the place of the rows of a condition, which it has to match itself."""
        condition = f"({self._spec.replace_where}\n)"
        run(cursor, f"CREATE TEMPORARY TABLE floodmark_stage (LIKE {table.quoted}) ON COMMIT DROP")
        sent, _ = self._append(cursor, table, frame, schema, into=sql.STAGE)
        strays = f"SELECT EXISTS (SELECT 1 FROM {sql.STAGE} WHERE {condition} IS NOT TRUE)"
        if (run(cursor, strays).fetchone() or (False,))[0]:
            raise rules.outside(self._spec)
        deleted = run(cursor, f"DELETE FROM {table.quoted} WHERE {condition}").rowcount
        names = ", ".join(quoted(_column(table, name).name) for name, _ in self._fields(schema))
        insert = f"INSERT INTO {table.quoted} ({names}) SELECT {names} FROM {sql.STAGE}"
        written = run(cursor, insert).rowcount
        notes = rules.left_out_notes(self._spec, sent - written)
        counts = {"rows_inserted": str(written), "rows_deleted": str(deleted)}
        return Effects(written, {**counts, **notes})

    def _append(
        self,
        cursor: Cursor,
        table: TargetTable,
        frame: Any,
        schema: pa.Schema,
        *,
        into: str | None = None,
    ) -> tuple[int, int]:
        """The rows sent, and those that are in the table: a trigger may leave some out."""
        sources = rules.data_columns(schema.names)
        columns = [_column(table, name) for name in sources]
        if self._spec.changes == "log":
            sources = [*sources, *CHANGE_COLUMNS]
            columns += [_column(table, name) for name in rules.LOG_COLUMNS]
        place = into or table.quoted
        sent = 0

        def counted() -> Iterator[pa.RecordBatch]:
            nonlocal sent
            for batch in record_batches(frame):
                sent += batch.num_rows
                yield batch

        written = copy_rows(cursor, place, columns, sources, counted())
        return sent, written

    def _staged(
        self, cursor: Cursor, table: TargetTable, frame: Any, schema: pa.Schema
    ) -> sql.Merge:
        """Copy the frame into the stage, and leave the last change of each key in WINNERS."""
        owners = self._owners(schema)
        merge = self._merge_of(table, schema, has_origins=bool(owners))
        data = self._data(schema)
        # A row that deletes need not be one that the target would take.
        columns = [replace(_column(table, name), is_required=False) for name in data]
        changes = [c for c in _CHANGE_PG if c.name in merge.changes]
        definitions = ", ".join(f"{quoted(c.name)} {c.shown}" for c in (*columns, *changes))
        run(cursor, f"CREATE TEMPORARY TABLE floodmark_stage ({definitions}) ON COMMIT DROP")
        sources = [*data, *(c.name for c in changes)]
        batches = _known_changes(record_batches(frame))
        copy_rows(cursor, sql.STAGE, [*columns, *changes], sources, batches)
        if owners:
            run(cursor, sql.CREATE_ORIGINS)
            fields = [[getattr(o, name) for o in owners] for name in sql.ORIGIN_FIELDS]
            run(cursor, sql.FILL_ORIGINS, fields)
        run(cursor, MORE_MEMORY)
        run(cursor, sql.winners(merge, decides_ties=False))
        if self._ties(cursor, merge)["ties"] != "0":
            run(cursor, f"DROP TABLE {sql.WINNERS}")
            run(cursor, sql.winners(merge, decides_ties=True))
        run(cursor, f"ANALYZE {sql.WINNERS}")
        return merge

    def _owners(self, schema: pa.Schema) -> list[Origin]:
        """Whose each version is, as far as the columns of the frame can tell."""
        is_merge = self._spec.mode == "merge" and CHANGE_COLUMNS[1] in schema.names
        has_time = CHANGE_COLUMNS[2] in schema.names
        owners = origins_of(self._windows, self._storage) if is_merge else ()
        return [origin for origin in owners if has_time or not origin.needs_time]

    def _merge_of(self, table: TargetTable, schema: pa.Schema, *, has_origins: bool) -> sql.Merge:
        spec = self._spec
        names = {name: _column(table, name).name for name in self._data(schema)}
        sequence = matching(spec.sequence_by, list(names)) if spec.sequence_by else None
        return sql.Merge(
            table=table.quoted,
            columns=tuple(names.values()),
            keys=tuple(names[matching(key, list(names)) or key] for key in spec.keys),
            changes=frozenset(CHANGE_COLUMNS) & frozenset(schema.names),
            sequence_by=names[sequence] if sequence else None,
            is_soft=spec.mode == "merge" and spec.deletes == "soft",
            only_upserts=rules.only_upserts(spec),
            keeps_first=rules.keeps_first(spec),
            has_origins=has_origins,
            tells_equal_rows=rules.loses_order(spec, self._windows, schema.names),
            absent=tuple(self._absent(table, schema)),
            strategy=spec.strategy,
            created_at=_column(table, spec.created_at).name if spec.created_at else None,
            updated_at=_column(table, spec.updated_at).name if spec.updated_at else None,
        )

    def _merge(self, cursor: Cursor, table: TargetTable, frame: Any, schema: pa.Schema) -> Effects:
        merge = self._staged(cursor, table, frame, schema)
        notes = self._ties(cursor, merge)
        null_keys = bool((run(cursor, sql.has_null_keys(merge)).fetchone() or (False,))[0])
        counts = {"inserted": 0, "updated": 0, "deleted": 0}
        at = _time_sql(_seen_at(self._windows))
        statements = sql.applied(merge, at, null_keys=False)
        statements += sql.applied(merge, at, null_keys=True) if null_keys else []
        if rules.deletes_missing(self._spec, self._windows):
            statements.append(sql.missing(merge, at, null_keys=null_keys))
        for effect, statement in statements:
            counts[effect] += run(cursor, statement).rowcount
        metrics = {f"rows_{effect}": str(count) for effect, count in counts.items()}
        return Effects(sum(counts.values()), {**metrics, **notes})

    def _ties(self, cursor: Cursor, merge: sql.Merge) -> dict[str, str]:
        """How many keys had two last changes, and one of them; raises FM-SINK-036."""
        found = run(cursor, sql.ties(merge)).fetchone() or (0, None, None, None)
        return rules.tie_notes(self._spec, *found, loses_order=merge.tells_equal_rows)

    def _absent(self, table: TargetTable, schema: pa.Schema) -> list[str]:
        columns = [column.name for column in table.columns]
        return rules.absent_columns(self._spec, schema.names, columns)

    def _commit(self, connection: Connection, receipt: Receipt, stored: Stored) -> None:
        """COMMIT; returns only if the rows are there for good."""
        settle(connection, lambda error: self._is_there(receipt, stored, error))

    def _is_there(self, receipt: Receipt, stored: Stored, error: BaseException) -> bool:
        """Whether our own commit happened although its answer was lost, under the lock of the table."""
        import psycopg

        try:
            connection = self._connect()
            try:
                cursor = cursor_of(connection)
                wait_for_commit(cursor)
                table = self._target.table(cursor)
                lock(cursor, table)
                found = receipt_row(cursor, self._target.table(cursor), receipt)
            finally:
                connection.close()
        except psycopg.Error as second:
            raise _unknown_outcome(self._spec.target, receipt, said(error), said(second)) from error
        return found is not None and found.write_id == stored.write_id


def _column(table: TargetTable, name: str) -> PgColumn:
    """The column of the table that a name of the frame means; the rules have found one."""
    found = table.column(name)
    if found is None:
        raise KeyError(name)
    return found


def _known_changes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same batches; raises MisfitError where `_change_type` is none of Delta's."""
    import pyarrow.compute as pc

    known, before = pa.array(sql.CHANGE_TYPES), 0
    for batch in batches:
        if CHANGE_COLUMNS[0] in batch.schema.names:
            is_known = pc.is_in(batch.column(CHANGE_COLUMNS[0]), known)
            if not pc.all(is_known, min_count=0).as_py():
                row = before + pc.index(is_known, pa.scalar(value=False)).as_py() + 1
                raise MisfitError(CHANGE_COLUMNS[0], row, "not a change type of Delta")
        before += batch.num_rows
        yield batch


def _seen_at(windows: Sequence[Window]) -> datetime | None:
    return max((w.end_at for w in windows if w.has_news and w.end_at), default=None)


def _time_sql(at: datetime | None) -> str:
    return "now()" if at is None else f"'{at.isoformat()}'::timestamptz"


def _place(error: Any) -> str:
    """The column and constraint that the server names."""
    diagnosis = getattr(error, "diag", None)
    names = [("column", "column_name"), ("constraint", "constraint_name")]
    seen = [(label, getattr(diagnosis, field, None)) for label, field in names]
    return "".join(f"{label} {name}: " for label, name in seen if name)


def _unfit_row(spec: WriteSpec, error: BaseException) -> SinkError:
    """The error for a row that the server refuses, by what it is refused for."""
    found = _place(error) + said(error)
    if _has_no_partition(error):
        return _unfit(
            spec,
            "a row has no partition in its table",
            found,
            "rows for which the table has a partition",
            "create the partition, or a DEFAULT one, " + THEN_RETRY,
        )
    if sqlstate(error).startswith(_CONSTRAINTS) and sqlstate(error) != _NOT_NULL:
        return _unfit(
            spec,
            "a row breaks a constraint of its table",
            found,
            "rows that meet every constraint of the table",
            "change the row or the constraint, " + THEN_RETRY,
        )
    return _unfit_value(spec, found)


def _has_no_partition(error: BaseException) -> bool:
    """By the function of the server: the state is that of a CHECK constraint."""
    function = getattr(getattr(error, "diag", None), "source_function", None)
    return sqlstate(error) == "23514" and function == "ExecFindPartition"


def _unfit_value(spec: WriteSpec, found: str) -> SinkError:
    return _unfit(
        spec,
        "a value does not fit its column",
        found,
        "values that the column holds exactly; nothing is rounded or cut off",
        "change the value or the column, " + THEN_RETRY,
    )


def _unfit(spec: WriteSpec, title: str, found: str, allowed: str, next: Next) -> SinkError:
    return SinkError(
        "FM-SINK-030",
        title,
        where=f"write {spec.name!r} to {spec.target}",
        found=found,
        allowed=allowed,
        state=NOTHING_WRITTEN,
        next=next,
    )


def _misfit(spec: WriteSpec, found: str, allowed: str) -> SinkError:
    step = "change the rows or the table, " + THEN_RETRY
    return rules.misfit(spec, found, allowed, step)


def _locked(target: str, seconds: float, holders: Sequence[str], error: BaseException) -> SinkError:
    waited = f"waited {seconds:g} s for a lock"
    names = "; ".join(holders)
    return SinkError(
        "FM-SINK-014",
        "the target could not be locked",
        where=target,
        found=f"{waited}, held by {names}" if names else f"{waited}: {said(error)}",
        state="nothing was written",
        next="wait for the other writer; one whose process is stopped or gone is ended in the"
        " database by SELECT pg_terminate_backend(PID); then run the same command again",
        retryable=True,
    )


def _not_written(target: str, receipt: Receipt, error: BaseException) -> SinkError:
    return SinkError(
        "FM-SINK-019",
        "the target could not be written",
        where=target,
        found=said(error),
        state="rows and receipt go in one transaction, which was rolled back",
        next="mend what is said above, " + then_retry(batch_named(receipt)),
        retryable=not is_refused_login(error),
    )


def _unknown_outcome(target: str, receipt: Receipt, found: str, then: str) -> SinkError:
    return SinkError(
        "FM-SINK-031",
        "it could not be learned whether a commit happened",
        where=target,
        found=f"{found}; and when asked again: {then}",
        state="rows and receipt are both there or neither; the receipt decides at the next attempt",
        next=command("retry", batch_named(receipt)),
        retryable=True,
    )
