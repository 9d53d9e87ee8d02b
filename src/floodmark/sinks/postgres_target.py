"""A table of PostgreSQL as the target of writes: what it is, and which receipts it holds.

Receipts are rows of `floodmark_receipts`, in the schema of the target, written in the transaction
of the rows they stand for. They belong to the table's oid: a table that was dropped and created
again has none.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from floodmark.errors import SinkError
from floodmark.model import (
    Ledger,
    OnLostTarget,
    Receipt,
    SinkDone,
    VersionFacts,
    WriteResult,
    app_id_root,
    batch_of,
)
from floodmark.next_steps import THEN_RETRY
from floodmark.postgres import Connect, cursor_of, quoted_table, run
from floodmark.postgres.rows import TABLE_NAMES, NoTableError, PgTable, look_up
from floodmark.postgres.transactions import is_refused_login, limit_locks, lock_holders, said
from floodmark.sinks import loss as lost
from floodmark.sinks.faults import NOTHING_WRITTEN, holds_later, holds_other
from floodmark.sinks.rules import Target, holds_rows_of_ours

if TYPE_CHECKING:
    from floodmark.postgres import Cursor

log = logging.getLogger("floodmark")

RECEIPTS = "floodmark_receipts"

_RECEIPTS_DDL = """CREATE TABLE IF NOT EXISTS {receipts} (
  app_id text NOT NULL, seq bigint NOT NULL, table_oid bigint NOT NULL, table_name text NOT NULL,
  version bigint NOT NULL, batch_id text, rows_written bigint, leaves_rows boolean NOT NULL,
  metrics text NOT NULL, user_metadata text NOT NULL, write_id text NOT NULL,
  committed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (table_oid, app_id, seq))"""


@dataclass(frozen=True, slots=True)
class Stored:
    """One row of the receipts."""

    seq: int
    version: int
    batch_id: str | None
    rows_written: int | None
    leaves_rows: bool
    metrics: Mapping[str, str]
    write_id: str


@dataclass(frozen=True, slots=True)
class TargetTable(PgTable):
    """The target, and whether there are receipts beside it."""

    has_receipts: bool
    """Whether the schema has the table of receipts."""

    @property
    def receipts(self) -> str:
        """The quoted table of receipts."""
        return quoted_table(self.schema, RECEIPTS)

    @property
    def table_id(self) -> str:
        """By which the table is known again."""
        return f"oid:{self.oid}"


@dataclass(frozen=True, slots=True)
class PostgresTarget:
    """`target` is `<connection>:<table>` or a table alone, written as in SQL."""

    target: str
    previous: SinkDone | None
    connect: Connect
    sharers: Sequence[tuple[str, str]] = ()
    """See `WriteSpec.sharers`."""

    @property
    def is_rebuilt(self) -> bool:
        """Whether the next write replaces whatever the target holds: its loss was settled so."""
        return self.previous is not None and self.previous.settled == "rebuild"

    @contextmanager
    def looking(self) -> Iterator[Cursor]:
        """A connection to look only; raises FM-SINK-032 if the database does not answer."""
        import psycopg

        try:
            connection = self.connect()
            try:
                connection.read_only = True
                cursor = cursor_of(connection)
                limit_locks(cursor)
                yield cursor
            finally:
                connection.close()
        except psycopg.Error as error:
            is_passing = not is_refused_login(error)
            raise _unseen(self.target, said(error), is_passing=is_passing) from error

    def committed(self, receipt: Receipt) -> WriteResult | None:
        """See `Sink.committed`; raises what a Delta target would (FM-SINK-007, -012, -015 to -017)."""
        with self.looking() as cursor:
            return self.committed_in(cursor, self.table(cursor), receipt)

    def committed_in(
        self, cursor: Cursor, table: TargetTable, receipt: Receipt
    ) -> WriteResult | None:
        """The same inside a transaction."""
        self._refuse_lost(cursor, table, receipt)
        stored = newest(cursor, table, receipt.app_id)
        if stored is None or stored.seq < receipt.seq:
            return None
        ours = receipt_row(cursor, table, receipt)
        if ours is None:
            raise holds_later(self.target, receipt, stored.seq)
        if ours.batch_id != batch_of(receipt.user_metadata):
            found = f"batch {ours.batch_id} has number {receipt.seq} there"
            raise holds_other(f"{self.target} version {ours.version}", found)
        if self.previous is None:
            self._refuse_emptied(cursor, table, -1, receipt)
        return self.result(table, ours, already_applied=True)

    def result(self, table: TargetTable, stored: Stored, *, already_applied: bool) -> WriteResult:
        """What a row of the receipts says of its write."""
        return WriteResult(
            target=self.target,
            table_id=table.table_id,
            version=stored.version,
            rows_written=stored.rows_written,
            already_applied=already_applied,
            metrics=stored.metrics,
        )

    def seen(self, cursor: Cursor, table: TargetTable, receipt: Receipt) -> Target:
        """What the rules need to know; raises what `loss` gives."""
        self._refuse_lost(cursor, table, receipt)
        if table.oid is None:
            return Target(exists=False)
        self._refuse_unknown_writes(newest(cursor, table, receipt.app_id), receipt)
        self._refuse_foreign_receipts(cursor, table, receipt)
        if self.previous is None:
            self._refuse_emptied(cursor, table, -1, receipt)
        counts_rows = not self.is_rebuilt
        return Target(
            exists=True,
            table_id=table.table_id,
            version=latest_version(cursor, table),
            columns=tuple(column.name for column in table.columns),
            has_rows=counts_rows and has_rows(cursor, table),
            holds_ours=counts_rows
            and holds_rows_of_ours(writers(cursor, table), receipt, self.sharers),
            is_shared=bool(self._sharers(cursor, table, receipt.app_id)),
            is_replaced=self.is_rebuilt,
        )

    def loss(self, receipt: Receipt) -> SinkError | None:
        """See `Sink.loss`."""
        if self.previous is None:
            return None
        with self.looking() as cursor:
            return self._loss(cursor, self.table(cursor), receipt)

    def resolved(self, choice: OnLostTarget, receipt: Receipt, next_app_id: str) -> SinkDone:
        """See `Sink.settled`."""
        known = self.previous
        if known is None:
            raise ValueError("only a target that was written before can be lost")
        with self.looking() as cursor:
            table = self.table(cursor)
            if table.oid is None:
                return SinkDone(
                    known.write_name, next_app_id, self.target, "", -1, None, settled=choice
                )
            if choice == "rebuild":
                self._refuse_shared(cursor, table, next_app_id)
            holds_batch = choice == "accept" and self._still_holds(cursor, table, receipt)
            version = latest_version(cursor, table)
        return replace(
            known,
            app_id=receipt.app_id if holds_batch else next_app_id,
            target=self.target,
            table_id=table.table_id,
            version=version,
            accepted_version=version,
            rows_written=None,
            seq=receipt.seq if holds_batch else None,
            batch_id=batch_of(receipt.user_metadata) if holds_batch else None,
            settled=choice,
        )

    def is_empty(self) -> bool:
        """Whether there is no table, or one without rows; raises FM-SINK-032 without an answer."""
        with self.looking() as cursor:
            table = self.table(cursor)
            return table.oid is None or not has_rows(cursor, table)

    def ledger(self) -> Ledger:
        """Every receipt of the table; raises FM-SINK-032 if there is no table, or no answer."""
        with self.looking() as cursor:
            table = self.table(cursor)
            if table.oid is None:
                raise _unseen(self.target, "no such table")
            if not table.has_receipts:
                return Ledger(table.table_id, ())
            rows = run(
                cursor,
                "SELECT version, committed_at, app_id, seq, rows_written, user_metadata FROM"
                f" {table.receipts} WHERE table_oid = $1 ORDER BY version",
                (table.oid,),
            )
            return Ledger(table.table_id, tuple(map(_as_commit, rows)))

    def table(self, cursor: Cursor) -> TargetTable:
        """One look at the catalog; raises FM-SINK-005 for a name or a thing that is no table."""
        try:
            table = look_up(cursor, self.target)
        except NoTableError as error:
            raise self._no_table(str(error)) from None
        receipts = quoted_table(table.schema, RECEIPTS)
        there = run(cursor, "SELECT to_regclass($1) IS NOT NULL", (receipts,))
        return TargetTable(
            table.schema,
            table.name,
            table.oid,
            table.columns,
            table.generated,
            has_receipts=bool(_one(there)),
        )

    def _refuse_lost(self, cursor: Cursor, table: TargetTable, receipt: Receipt) -> None:
        problem = self._loss(cursor, table, receipt)
        if problem is not None:
            raise problem

    def _loss(self, cursor: Cursor, table: TargetTable, receipt: Receipt) -> SinkError | None:
        known = self.previous
        if known is None or (known.settled and not known.table_id):
            return None
        if table.oid is None or table.table_id != known.table_id:
            return self._other_table(known, table, receipt)
        if self._is_emptied(cursor, table, known.accepted_version):
            return _emptied(self.target, receipt)
        if known.seq is None:
            return None
        stored = newest(cursor, table, known.app_id)
        if stored is None or stored.seq < known.seq:
            return lost.forgotten(known, stored.seq if stored else None, None, receipt)
        return self._copied(cursor, table, receipt)

    def _other_table(self, known: SinkDone, table: TargetTable, receipt: Receipt) -> SinkError:
        if known.target == self.target:
            return _not_the_table(known, table, receipt)
        found = "" if table.oid is None else table.table_id
        return lost.retargeted(known, self.target, found, receipt)

    def _copied(self, cursor: Cursor, table: TargetTable, receipt: Receipt) -> SinkError | None:
        """A copy of the database that went its own way: our last receipt names another batch."""
        known = self.previous
        if known is None or known.seq is None or known.settled:
            return None
        last = _stored(cursor, table, "app_id = $2 AND seq = $3", known.app_id, known.seq)
        if last is not None and _is_recorded(known, last):
            return None
        found = "no such receipt" if last is None else f"batch {last.batch_id} at {last.version}"
        return SinkError(
            "FM-SINK-044",
            "the target is a copy that went its own way: our last commit is not in it",
            where=self.target,
            found=f"receipt {known.seq} of {known.app_id}: {found}",
            allowed=f"batch {known.batch_id or known.seq} at {known.version}",
            state=NOTHING_WRITTEN,
            next=lost.way_out(receipt),
        )

    def _refuse_emptied(
        self, cursor: Cursor, table: TargetTable, after_version: int, receipt: Receipt
    ) -> None:
        if self._is_emptied(cursor, table, after_version):
            raise _emptied(self.target, receipt)

    def _is_emptied(self, cursor: Cursor, table: TargetTable, after_version: int) -> bool:
        """Whether the last write of ours left rows and none is there any more.

        One statement, so that a write in between cannot make it look so.
        """
        if table.oid is None or not table.has_receipts:
            return False
        row = run(
            cursor,
            f"SELECT leaves_rows AND NOT EXISTS (SELECT 1 FROM {table.quoted})"
            f" FROM {table.receipts} WHERE table_oid = $1 AND version > $2"
            " ORDER BY version DESC LIMIT 1",
            (table.oid, after_version),
        ).fetchone()
        return row is not None and bool(row[0])

    def _refuse_unknown_writes(self, last: Stored | None, receipt: Receipt) -> None:
        """The last write there must be the last one the store knows of, or this very batch."""
        if last is None or last.batch_id == batch_of(receipt.user_metadata):
            return
        if self.previous is not None and _is_recorded(self.previous, last):
            return
        found = f"batch {last.batch_id} is unknown to this control store"
        raise holds_other(f"{self.target} version {last.version}", found)

    def _refuse_foreign_receipts(
        self, cursor: Cursor, table: TargetTable, receipt: Receipt
    ) -> None:
        """Receipts of this write for another table of this name: which one has the rows?"""
        if not table.has_receipts or self.previous is not None:
            return
        foreign = _one(
            run(
                cursor,
                f"SELECT min(table_oid) FROM {table.receipts}"
                " WHERE table_name = $1 AND app_id = $2 AND table_oid <> $3",
                (table.name, receipt.app_id, table.oid),
            )
        )
        if foreign is not None:
            raise _restored(self.target, table, int(foreign), receipt)

    def _refuse_shared(self, cursor: Cursor, table: TargetTable, app_id: str) -> None:
        others = self._sharers(cursor, table, app_id)
        if others:
            raise lost.unsettled(
                self.target,
                "a rebuild would remove the rows of another write from the target",
                f"receipts of {', '.join(others[:3])}",
                "drop the table and rebuild each of its pipelines; or --on-lost-target accept",
            )

    def _sharers(self, cursor: Cursor, table: TargetTable, app_id: str) -> list[str]:
        """The receipts there of other writes."""
        ours = app_id_root(app_id)
        return sorted(a for a in writers(cursor, table) if not a.startswith(ours))

    def _still_holds(self, cursor: Cursor, table: TargetTable, receipt: Receipt) -> bool:
        ours = receipt_row(cursor, table, receipt)
        is_same = ours is not None and ours.batch_id == batch_of(receipt.user_metadata)
        return is_same and not self._is_emptied(cursor, table, -1)

    def _no_table(self, found: str) -> SinkError:
        return SinkError(
            "FM-SINK-005",
            "the target is not the name of a table",
            where=self.target,
            found=found,
            allowed=TABLE_NAMES,
            state=NOTHING_WRITTEN,
            next="correct the target, " + THEN_RETRY,
        )


def create_receipts(cursor: Cursor, table: TargetTable) -> None:
    """The table of receipts, if the schema has none; callers that come together take turns."""
    run(cursor, "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", (table.receipts,))
    run(cursor, _RECEIPTS_DDL.format(receipts=table.receipts))


def lock(cursor: Cursor, table: TargetTable) -> None:
    """Keep every other writer of this table out until the transaction ends.

    Somebody who has to wait is told for whom. The wait is limited by `limit_locks`.
    """
    name = lock_name(table)
    taken = run(cursor, "SELECT pg_try_advisory_xact_lock(hashtextextended($1, 0))", (name,))
    if taken.fetchone() == (True,):
        return
    holders = "; ".join(lock_holders(cursor, name, table.quoted))
    log.info("waiting for the lock of %s: %s holds it", table.quoted, holders or "somebody")
    run(cursor, "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", (name,))


def lock_name(table: TargetTable) -> str:
    """By which the writers of a table know its lock."""
    return f"floodmark {table.quoted}"


def add_receipt(cursor: Cursor, table: TargetTable, receipt: Receipt, stored: Stored) -> None:
    """The receipt of the rows that this transaction wrote."""
    run(
        cursor,
        f"INSERT INTO {table.receipts} (app_id, seq, table_oid, table_name, version, batch_id,"
        " rows_written, leaves_rows, metrics, user_metadata, write_id)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
        (
            receipt.app_id,
            receipt.seq,
            table.oid,
            table.name,
            stored.version,
            stored.batch_id,
            stored.rows_written,
            stored.leaves_rows,
            json.dumps(dict(stored.metrics)),
            receipt.user_metadata,
            stored.write_id,
        ),
    )


def newest(cursor: Cursor, table: TargetTable, app_id: str) -> Stored | None:
    """The receipt with the highest number of an app id."""
    return _stored(cursor, table, "app_id = $2 ORDER BY seq DESC LIMIT 1", app_id)


def receipt_row(cursor: Cursor, table: TargetTable, receipt: Receipt) -> Stored | None:
    """The very receipt."""
    return _stored(cursor, table, "app_id = $2 AND seq = $3", receipt.app_id, receipt.seq)


def writers(cursor: Cursor, table: TargetTable) -> dict[str, int]:
    """Every app id that wrote here, with its highest number."""
    if table.oid is None or not table.has_receipts:
        return {}
    statement = f"SELECT app_id, max(seq) FROM {table.receipts} WHERE table_oid = $1 GROUP BY 1"
    return {str(app): int(seq) for app, seq in run(cursor, statement, (table.oid,))}


def latest_version(cursor: Cursor, table: TargetTable) -> int:
    """How many writes of ours the table had, less one; -1 where it had none."""
    if table.oid is None or not table.has_receipts:
        return -1
    statement = f"SELECT coalesce(max(version), -1) FROM {table.receipts} WHERE table_oid = $1"
    return int(_one(run(cursor, statement, (table.oid,))))


def has_rows(cursor: Cursor, table: TargetTable) -> bool:
    return bool(_one(run(cursor, f"SELECT EXISTS (SELECT 1 FROM {table.quoted})")))


def _stored(cursor: Cursor, table: TargetTable, condition: str, *values: Any) -> Stored | None:
    if table.oid is None or not table.has_receipts:
        return None
    row = run(
        cursor,
        "SELECT seq, version, batch_id, rows_written, leaves_rows, metrics, write_id"
        f" FROM {table.receipts} WHERE table_oid = $1 AND {condition}",
        (table.oid, *values),
    ).fetchone()
    if row is None:
        return None
    seq, version, batch_id, rows_written, leaves_rows, metrics, write_id = row
    return Stored(seq, version, batch_id, rows_written, leaves_rows, json.loads(metrics), write_id)


def _is_recorded(known: SinkDone, stored: Stored) -> bool:
    """Whether a receipt is the one that the control store recorded; older stores have no batch."""
    return known.version == stored.version and known.batch_id in (None, stored.batch_id)


def _as_commit(row: tuple[Any, ...]) -> VersionFacts:
    """A receipt in the words of a log, for those who check or restore a store."""
    version, at, app_id, seq, rows_written, user_metadata = row
    return VersionFacts(
        version=version,
        committed_at=at,
        operation="WRITE",
        kinds=frozenset(),
        bytes=0,
        rows=rows_written,
        transactions={app_id: seq},
        user_metadata=user_metadata,
    )


def _one(cursor: Cursor) -> Any:
    row = cursor.fetchone()
    return None if row is None else row[0]


def _unseen(target: str, found: str, *, is_passing: bool = True) -> SinkError:
    return SinkError(
        "FM-SINK-032",
        "the target could not be looked at",
        where=target,
        found=found,
        state=f"{NOTHING_WRITTEN} by this call",
        next="mend what is said above, then run the same command again",
        retryable=is_passing,
    )


def _not_the_table(known: SinkDone, table: TargetTable, receipt: Receipt) -> SinkError:
    return SinkError(
        "FM-SINK-007",
        "the target is not the table that was written before",
        where=known.target,
        found="no table" if table.oid is None else table.table_id,
        allowed=f"{known.table_id}, last written at version {known.version}",
        state=NOTHING_WRITTEN,
        next=lost.way_out(receipt),
    )


def _emptied(target: str, receipt: Receipt) -> SinkError:
    return SinkError(
        "FM-SINK-016",
        "somebody else emptied or replaced the target: its receipts stand, our rows are gone",
        where=target,
        found="no row, although our last write left some",
        allowed="deletes and updates by others that leave rows; removing every one has to be settled",
        state=NOTHING_WRITTEN,
        next=lost.way_out(receipt),
    )


def _restored(target: str, table: TargetTable, foreign: int, receipt: Receipt) -> SinkError:
    condition = f"WHERE table_name = '{table.name}' AND app_id = '{receipt.app_id}'"
    return SinkError(
        "FM-SINK-007",
        "receipts of this write belong to another table of the same name",
        where=target,
        found=f"receipts for oid:{foreign}; the table is {table.table_id}",
        allowed="one table, or one that was restored together with its receipts",
        state=NOTHING_WRITTEN,
        next=f"if the table was restored with its rows: UPDATE {table.receipts} SET table_oid ="
        f" {table.oid} {condition}; if it was made anew: DELETE FROM {table.receipts} {condition}",
    )
