"""An upsert of many rows: staged in a temporary table, then applied by one statement."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from floodmark.postgres.connect import quoted, run
from floodmark.postgres.rows.copy import PgColumn
from floodmark.postgres.transactions import MORE_MEMORY, fault, is_of_rows, savepoint

if TYPE_CHECKING:
    from floodmark.postgres.connect import Cursor

ROW = "floodmark_row"
"""The place of a row in its frame, and so in time: the higher one is the newer one."""
_STAGE = "floodmark_upsert"
_HAS_MERGE = 15_00_00


@dataclass(frozen=True, slots=True)
class RowTarget:
    """A table that takes rows: `columns` of it are filled from `sources` of a frame."""

    quoted: str
    columns: tuple[PgColumn, ...]
    sources: tuple[str, ...]
    keys: tuple[str, ...]
    """As the table spells them."""


class Refused(Protocol):
    """Is told of rows that the server refuses."""

    def server(self, row: int, error: BaseException) -> None:
        """A row by its place in the frame."""


def _statement(target: RowTarget, stage: str, condition: str = "true", newest: str = ROW) -> str:
    """One row per key, the newest, into the target; `newest` are columns of the stage."""
    keys, columns = listed(target.keys), listed(_names(target))
    return (
        f"INSERT INTO {target.quoted} ({columns}) {_newest(target, stage, condition, newest)}"
        f" ON CONFLICT ({keys}) DO UPDATE SET {_set(target, 'excluded')}"
    )


def _merge_statement(target: RowTarget, stage: str, newest: str = ROW) -> str:
    """The same by MERGE, which looks for the rows that are there all at once."""
    same = " AND ".join(f"t.{quoted(key)} = s.{quoted(key)}" for key in target.keys)
    values = ", ".join(f"s.{quoted(name)}" for name in _names(target))
    return (
        f"MERGE INTO {target.quoted} t USING ({_newest(target, stage, 'true', newest)}) s ON {same}"
        f" WHEN MATCHED THEN UPDATE SET {_set(target, 's')}"
        f" WHEN NOT MATCHED THEN INSERT ({listed(_names(target))}) VALUES ({values})"
    )


def _names(target: RowTarget) -> list[str]:
    return [column.name for column in target.columns]


def _newest(target: RowTarget, stage: str, condition: str, newest: str) -> str:
    keys, order = listed(target.keys), ", ".join(f"{name} DESC" for name in newest.split(", "))
    return (
        f"SELECT DISTINCT ON ({keys}) {listed(_names(target))} FROM {stage} WHERE {condition}"
        f" ORDER BY {keys}, {order}"
    )


def _set(target: RowTarget, source: str) -> str:
    # Keys alone are set as well: DO NOTHING would not count the rows that are there.
    rest = [name for name in _names(target) if name not in target.keys] or list(target.keys)
    return ", ".join(f"{quoted(name)} = {source}.{quoted(name)}" for name in rest)


def _look_at_keys(cursor: Cursor, target: RowTarget, tables: Iterable[str]) -> None:
    """Let the server see how many keys are staged: it would think of 200, however many rows."""
    for table in tables:
        run(cursor, f"ANALYZE {table} ({listed(target.keys)})")


def _merged(cursor: Cursor, target: RowTarget, stage: str, newest: str = ROW) -> int | None:
    """How many rows MERGE applied, in two thirds of the time of ON CONFLICT; None if it did not.

    It refuses a key that somebody else inserts meanwhile, and tables that it does not know how to
    change. Then nothing was done, and ON CONFLICT decides.
    """
    import psycopg

    if cursor.connection.info.server_version < _HAS_MERGE:
        return None
    try:
        with savepoint(cursor, ("row", "unclear", "lasting")):
            return run(cursor, _merge_statement(target, stage, newest)).rowcount
    except psycopg.Error as error:
        if fault(error) == "transient":
            raise
        return None


def upserted(
    cursor: Cursor, target: RowTarget, rows: str, tables: Iterable[str], newest: str
) -> int:
    """Apply all rows of a relation, of each key the newest; how many were applied.

    `tables` are those that the rows lie in, `newest` the columns that put them in order. An error of
    a row leaves the transaction to be given up, or rolled back to a savepoint.
    """
    run(cursor, MORE_MEMORY)
    _look_at_keys(cursor, target, tables)
    applied = _merged(cursor, target, rows, newest)
    if applied is None:
        applied = run(cursor, _statement(target, rows, newest=newest)).rowcount
    return applied


class Upsert:
    """One upsert within a transaction: `stage`, a copy into `stage_table`, then `merge`."""

    stage_table = f"pg_temp.{_STAGE}"

    def __init__(self, cursor: Cursor, target: RowTarget) -> None:
        self._cursor = cursor
        self._target = target
        self._refused: list[int] = []

    def stage(self) -> tuple[list[PgColumn], list[str]]:
        """Make the stage; returns its columns and the columns of the frame they are filled from."""
        row = PgColumn(ROW, "int8", "bigint")
        columns = self._target.columns
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
        _look_at_keys(self._cursor, self._target, [self.stage_table])
        rows = _merged(self._cursor, self._target, self.stage_table)
        if rows is not None:
            return staged - rows
        while True:
            try:
                with savepoint(self._cursor):
                    chosen = _statement(self._target, self.stage_table, self._condition)
                    return staged - run(self._cursor, chosen, self._values).rowcount
            except psycopg.Error as error:
                if not self._is_of_rows(error):
                    raise
            removed, applied = self._without_refused(refused)
            if not removed:
                return staged - applied
            staged -= removed

    def _is_of_rows(self, error: BaseException) -> bool:
        nothing = _statement(self._target, self.stage_table, "false")
        return is_of_rows(self._cursor, error, lambda: run(self._cursor, nothing))

    @property
    def _condition(self) -> str:
        return f"{ROW} <> ALL($1)" if self._refused else "true"

    @property
    def _values(self) -> tuple[list[int]] | None:
        return (self._refused,) if self._refused else None

    def _without_refused(self, refused: Refused) -> tuple[int, int]:
        """Leave the newest rows out that the target refuses, and undo the others.

        Returns how many were left out, and applied if there was none: in parts, rows may be taken
        that are refused in one statement (unique values that change places).
        """
        keys = listed(self._target.keys)
        newest = run(
            self._cursor,
            f"SELECT DISTINCT ON ({keys}) {ROW} FROM {self.stage_table} WHERE {self._condition}"
            f" ORDER BY {keys}, {ROW} DESC",
            self._values,
        ).fetchall()
        rows = sorted(int(row) for (row,) in newest)
        bad: list[int] = []
        run(self._cursor, "SAVEPOINT floodmark_search")
        self._search(rows, bad, refused)
        if bad:
            run(self._cursor, "ROLLBACK TO SAVEPOINT floodmark_search")
        run(self._cursor, "RELEASE SAVEPOINT floodmark_search")
        self._refused += bad
        return len(bad), len(rows) - len(bad)

    def _search(self, rows: Sequence[int], bad: list[int], refused: Refused) -> None:
        """Apply rows part by part, in halves where a part is refused."""
        import psycopg

        try:
            with savepoint(self._cursor):
                chosen = _statement(self._target, self.stage_table, f"{ROW} = ANY($1)")
                run(self._cursor, chosen, (list(rows),))
                return
        except psycopg.Error as error:
            if not self._is_of_rows(error):
                raise
            if len(rows) == 1:
                bad.append(rows[0])
                refused.server(rows[0], error)
                return
        middle = len(rows) // 2
        self._search(rows[:middle], bad, refused)
        self._search(rows[middle:], bad, refused)


def listed(names: Sequence[str]) -> str:
    """Names, quoted, with commas."""
    return ", ".join(map(quoted, names))
