"""An upsert of many rows: staged in a temporary table, then applied by one statement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from floodmark.engines.postgres import quoted, run
from floodmark.engines.postgres_copy import PgColumn
from floodmark.sinks.postgres_merge import MORE_MEMORY
from floodmark.streaming.faults import fault
from floodmark.streaming.savepoints import savepoint
from floodmark.streaming.target import Target

if TYPE_CHECKING:
    from floodmark.engines.postgres import Cursor

ROW = "floodmark_row"
"""The place of a row in its frame, and so in time: the higher one is the newer one."""
_STAGE = "floodmark_upsert"


class Refused(Protocol):
    """Is told of rows that the server refuses."""

    def server(self, row: int, error: BaseException) -> None:
        """A row by its place in the frame."""


def statement(target: Target, stage: str, condition: str = "true") -> str:
    """One row per key, the newest, into the target."""
    names = [column.name for column in target.columns]
    keys, columns = _list(target.keys), _list(names)
    # Keys alone are set as well: DO NOTHING would not count the rows that are there.
    rest = [name for name in names if name not in target.keys] or list(target.keys)
    action = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in rest)
    return (
        f"INSERT INTO {target.quoted} ({columns}) SELECT DISTINCT ON ({keys}) {columns}"
        f" FROM {stage} WHERE {condition} ORDER BY {keys}, {ROW} DESC"
        f" ON CONFLICT ({keys}) DO UPDATE SET {action}"
    )


class Upsert:
    """One upsert within a transaction: `stage`, a copy into `stage_table`, then `merge`."""

    stage_table = f"pg_temp.{_STAGE}"

    def __init__(self, cursor: Cursor, target: Target) -> None:
        self._cursor = cursor
        self._target = target

    def stage(self) -> tuple[list[PgColumn], list[str]]:
        """Make the stage; returns its columns and the columns of the frame they are filled from.

        A key has to have a value, whatever the target says: NULL conflicts with nothing.
        """
        row = PgColumn(ROW, "int8", "bigint")
        keys = set(self._target.keys)
        columns = [
            replace(c, is_required=c.is_required or c.name in keys) for c in self._target.columns
        ]
        shown = ", ".join(f"{quoted(c.name)} {c.shown}" for c in (*columns, row))
        run(self._cursor, f"CREATE TEMPORARY TABLE {_STAGE} ({shown}) ON COMMIT DROP")
        return [*columns, row], [*self._target.sources, ROW]

    @staticmethod
    def numbered(table: pa.Table) -> pa.Table:
        """The frame with the place of each row."""
        ones = pa.repeat(pa.scalar(1, pa.int64()), table.num_rows)
        return table.append_column(ROW, pc.subtract(pc.cumulative_sum(ones), 1))

    def merge(self, refused: Refused, staged: int) -> int:
        """Apply the rows that are staged; returns how many were replaced by a newer one of their key.

        If the newest row of a key is refused, the one before it counts, as if each had come in a
        batch of its own.
        """
        import psycopg

        run(self._cursor, MORE_MEMORY)
        while True:
            try:
                with savepoint(self._cursor):
                    applied = run(self._cursor, statement(self._target, self.stage_table)).rowcount
                    return staged - applied
            except psycopg.Error as error:
                if fault(error) != "row":
                    raise
            removed, applied = self._without_refused(refused)
            if not removed:
                return staged - applied
            staged -= removed

    def _without_refused(self, refused: Refused) -> tuple[int, int]:
        """Take the newest rows that the target refuses out of the stage, and undo the others.

        Returns how many were removed, and applied if there was none: in parts, rows may be taken
        that are refused in one statement (unique values that change places).
        """
        keys = _list(self._target.keys)
        newest = run(
            self._cursor,
            f"SELECT DISTINCT ON ({keys}) {ROW} FROM {self.stage_table} ORDER BY {keys}, {ROW} DESC",
        ).fetchall()
        rows = sorted(int(row) for (row,) in newest)
        bad: list[int] = []
        run(self._cursor, "SAVEPOINT floodmark_search")
        self._search(rows, bad, refused)
        if bad:
            run(self._cursor, "ROLLBACK TO SAVEPOINT floodmark_search")
            run(self._cursor, f"DELETE FROM {self.stage_table} WHERE {ROW} = ANY($1)", (bad,))
        run(self._cursor, "RELEASE SAVEPOINT floodmark_search")
        return len(bad), len(rows) - len(bad)

    def _search(self, rows: Sequence[int], bad: list[int], refused: Refused) -> None:
        """Apply rows part by part, in halves where a part is refused."""
        import psycopg

        try:
            with savepoint(self._cursor):
                chosen = statement(self._target, self.stage_table, f"{ROW} = ANY($1)")
                run(self._cursor, chosen, (list(rows),))
                return
        except psycopg.Error as error:
            if fault(error) != "row":
                raise
            if len(rows) == 1:
                bad.append(rows[0])
                refused.server(rows[0], error)
                return
        middle = len(rows) // 2
        self._search(rows[:middle], bad, refused)
        self._search(rows[middle:], bad, refused)


def _list(names: Sequence[str]) -> str:
    return ", ".join(map(quoted, names))
