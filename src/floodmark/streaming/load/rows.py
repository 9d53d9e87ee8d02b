"""Rows of a batch into PostgreSQL, inside the transaction of the ledger: the driver's path.

Everything goes by one COPY. Values that do not fit are left out as they pass by; what only the
server refuses is found by bisection with savepoints. Either becomes a dead letter of the same
transaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from floodmark import failpoints
from floodmark.engines.arrow_frames import BATCH_ROWS
from floodmark.postgres import run
from floodmark.postgres.rows import PgColumn, Upsert, copy_rows
from floodmark.postgres.transactions import is_of_rows, savepoint
from floodmark.streaming.ledger.batches import DeadLetter, LoadCounts, Loaded
from floodmark.streaming.ledger.refusals import first_refused
from floodmark.streaming.load.refused import (
    Originals,
    Refusals,
    letter_of,
    with_originals,
)
from floodmark.streaming.load.target import TargetSpec, prepared

if TYPE_CHECKING:
    from floodmark.postgres import Cursor

_ORDER = ("_topic", "_partition", "_offset")


@dataclass(frozen=True, slots=True)
class PostgresLoad:
    """Writes Arrow tables: the data columns, and beside them where each row comes from (METADATA).

    append     every row.
    upsert     by the keys; of several rows of one key the last by topic, partition and offset.
    overwrite  instead of all rows that are there.

    Rows that are refused become dead letters with the bytes of `_key` and `_value`, or those that
    `originals` gives, or else the row as JSON. With `fail_fast` the first one is FM-STREAM-009.
    """

    spec: TargetSpec
    fail_fast: bool = False
    originals: Originals | None = None

    def apply(
        self,
        cursor: Cursor,
        table: pa.Table,
        rejects: Sequence[DeadLetter] = (),
        dropped: int = 0,
    ) -> Loaded:
        """Write a frame; `rejects` and `dropped` are records of the batch that are not in it.

        To be called by `PostgresLedger.commit`, which stores the dead letters and checks the counts. Raises
        FM-STREAM-008 if the target does not take such rows.
        """
        target = prepared(cursor, self.spec, table.schema)
        if self.spec.mode == "overwrite":
            run(cursor, f"DELETE FROM {target.quoted}")
        refused = Refusals()
        if self.spec.mode == "upsert":
            table = in_order(table)
            upsert = Upsert(cursor, target)
            columns, sources = upsert.stage()
            into = RowCopy(cursor, upsert.stage_table, columns, sources, upsert.numbered(table))
            duplicates = upsert.merge(refused, into.copy(refused))
            written = table.num_rows - len(refused)
        else:
            copy = RowCopy(cursor, target.quoted, target.columns, target.sources, table)
            written, duplicates = copy.copy(refused), 0
        letters = [*rejects, *self._letters(table, refused)]
        received = table.num_rows + len(rejects) + dropped
        counts = LoadCounts(received, written, len(letters), dropped, duplicates)
        return Loaded(counts, letters)

    def _letters(self, table: pa.Table, refused: Refusals) -> Iterator[DeadLetter]:
        if not refused:
            return
        rows = sorted(refused)
        records = table.take(pa.array(rows))
        letters = [letter_of(records, at, refused[row]) for at, row in enumerate(rows)]
        if self.fail_fast:
            raise first_refused(letters[0], table=self.spec.table)
        yield from letters if self.originals is None else with_originals(letters, self.originals)


class RowCopy:
    """Copies a table into another one of the database, leaving out the rows that it refuses."""

    def __init__(
        self,
        cursor: Cursor,
        into: str,
        columns: Sequence[PgColumn],
        sources: Sequence[str],
        table: pa.Table,
    ) -> None:
        self._cursor = cursor
        self._into = into
        self._columns = columns
        self._sources = sources
        self._table = table

    def copy(self, refused: Refusals) -> int:
        """Returns how many rows were written; errors that are no row's fault are raised."""
        return self._part(0, self._table.num_rows, refused)

    def _part(self, start: int, stop: int, refused: Refusals) -> int:
        import psycopg

        if start == stop:
            return 0
        try:
            with savepoint(self._cursor):
                return self._copied(start, stop, refused)
        except (psycopg.Error, UnicodeError) as error:
            if not is_of_rows(self._cursor, error, lambda: self._copied(0, 0, refused)):
                raise
            if stop - start == 1:
                refused.server(start, error)
                return 0
        middle = (start + stop) // 2
        return self._part(start, middle, refused) + self._part(middle, stop, refused)

    def _copied(self, start: int, stop: int, refused: Refusals) -> int:
        part = self._table.slice(start, stop - start)
        return copy_rows(
            self._cursor,
            self._into,
            self._columns,
            self._sources,
            _batches(part),
            refuse=lambda misfit: refused.misfit(misfit, start),
        )


def in_order(table: pa.Table) -> pa.Table:
    """The rows by topic, partition and offset, as far as the frame tells them; usually they are."""
    order = [name for name in _ORDER if name in table.schema.names]
    if not order or table.num_rows < 2 or _is_sorted(table, order):
        return table
    return table.take(pc.sort_indices(table, [(name, "ascending") for name in order]))


def _is_sorted(table: pa.Table, order: Sequence[str]) -> bool:
    """Whether each row is behind the one before it, compared column by column."""
    is_behind = pa.scalar(value=True)
    for name in reversed(order):
        before, after = (table.column(name).slice(at, table.num_rows - 1) for at in (0, 1))
        same = pc.and_(pc.equal(before, after), is_behind)
        is_behind = pc.or_(pc.less(before, after), same)
    return bool(pc.all(is_behind).as_py())


def _batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    for batch in table.to_batches(max_chunksize=BATCH_ROWS):
        yield batch
        failpoints.reached("stream.mid_copy")
