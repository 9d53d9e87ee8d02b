"""What an executor does with a partition: its rows into a table of the attempt's own.

A task may run twice, side by side or one after the other, and either may die at any moment. Each
attempt makes a table with a name that no other one has, in one transaction with its rows, and says
its name; the driver moves only those whose names it hears.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any

import pyarrow as pa

from floodmark.config.stream import WRITE_SECONDS
from floodmark.model import epoch_micros
from floodmark.postgres import quoted, quoted_table, run
from floodmark.postgres.rows import MisfitError, PgColumn, copy_rows
from floodmark.postgres.transactions import fault, said, sqlstate, statement_limit
from floodmark.streaming.load.refused import Refusal, letter_of
from floodmark.streaming.load.staged_letters import LETTERS, Letters
from floodmark.streaming.records.late import LateRule
from floodmark.streaming.records.micro_batch import MicroBatch
from floodmark.streaming.records.plain_json import PlainReader
from floodmark.streaming.records.read import BAD

_TYPES = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
}
_RESULT = {
    "attempt": "string",
    "rows": "bigint",
    "letters": "bigint",
    "dropped": "bigint",
    "newest": "bigint",
    "others": "binary",
    "is_given_up": "boolean",
    "failed": "string",
    "state": "string",
    "is_transient": "boolean",
}
"""`newest` in microseconds since 1970: Spark would give a time of this machine's zone. `others` are
records that Spark has to judge, as Arrow writes tables; too many for that `is_given_up`. `failed`
is what the database said where it refused, with its SQLSTATE: Spark would tell but a text of it."""
RESULT = ", ".join(f"{name} {kind}" for name, kind in _RESULT.items())
_RESULT_SCHEMA = pa.schema([(name, _TYPES[kind]) for name, kind in _RESULT.items()])
MAX_OTHERS, MAX_OTHERS_BYTES = 10_000, 16 * 1024**2
"""Of one partition: they go through the driver."""


@dataclass(frozen=True)
class StageTask:
    """Called by Spark with the batches of a partition; gives one row, or none if there are no rows."""

    address: str
    """Of the database; holds the password, and is never shown."""
    schema: str
    prefix: str
    columns: tuple[PgColumn, ...]
    sources: tuple[str, ...]
    late: LateRule | None = None
    reader: PlainReader | None = None
    """For records as they came; without it they are judged."""
    write_seconds: float = WRITE_SECONDS
    """How long a statement may take."""
    is_logged: bool = True
    """Whether the tables are kept through a crash of the server."""

    def __repr__(self) -> str:
        return f"StageTask({self.schema}.{self.prefix})"

    @property
    def new_table(self) -> str:
        """What a statement that creates a table begins with."""
        return "CREATE TABLE" if self.is_logged else "CREATE UNLOGGED TABLE"

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Stage a partition; an error of the database is told, any other one is raised."""
        import psycopg

        source = iter(batches)
        first = next((batch for batch in source if batch.num_rows), None)
        if first is None:
            return
        attempt = _Attempt(self, self.prefix + uuid.uuid4().hex[:20])
        try:
            rows = attempt.store(chain([first], source))
        except _TooManyError:
            yield _result(is_given_up=True)
            return
        except psycopg.Error as error:
            is_transient = fault(error) == "transient"
            yield _result(failed=said(error), state=sqlstate(error), is_transient=is_transient)
            return
        newest = None if attempt.newest is None else epoch_micros(attempt.newest)
        yield _result(
            attempt=attempt.name,
            rows=rows,
            letters=attempt.letters.count,
            dropped=attempt.dropped,
            newest=newest,
            others=attempt.others.written(),
        )


def _result(**told: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([told], schema=_RESULT_SCHEMA)


class _TooManyError(Exception):
    """More records have to be judged by Spark than should go through the driver."""


class _Others:
    """Records that Spark has to judge."""

    def __init__(self) -> None:
        self._tables: list[pa.Table] = []
        self._rows = self._bytes = 0

    def add(self, table: pa.Table) -> None:
        self._rows += table.num_rows
        self._bytes += table.nbytes
        if self._rows > MAX_OTHERS or self._bytes > MAX_OTHERS_BYTES:
            raise _TooManyError
        if table.num_rows:
            self._tables.append(table)

    def written(self) -> bytes | None:
        if not self._tables:
            return None
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._tables[0].schema) as writer:
            writer.write_table(pa.concat_tables(self._tables))
        return bytes(sink.getvalue().to_pybytes())


class _Attempt:
    """One transaction of one attempt."""

    def __init__(self, task: StageTask, name: str) -> None:
        self.name = name
        self.letters = Letters()
        self.dropped = 0
        self.newest: datetime | None = None
        self.others = _Others()
        self._task = task
        self._current: tuple[int, pa.RecordBatch] | None = None
        self._before = 0

    def store(self, batches: Iterable[pa.RecordBatch]) -> int:
        """Returns how many rows are staged; those that do not fit are dead letters."""
        import psycopg

        with psycopg.connect(self._task.address, application_name="floodmark staging") as opened:
            cursor = psycopg.RawCursor(opened)
            # What a crash of the server loses is missed by the driver, which counts.
            run(cursor, "SET LOCAL synchronous_commit = off")
            run(cursor, f"SELECT {statement_limit(self._task.write_seconds)}")
            table = quoted_table(self._task.schema, self.name)
            self._create(cursor, table)
            rows = copy_rows(
                cursor,
                table,
                self._task.columns,
                self._task.sources,
                self._good(batches),
                refuse=self._refuse,
                freezes=True,
            )
            letters = quoted_table(self._task.schema, self.name + LETTERS)
            self.letters.store(cursor, letters, self._task.new_table)
        return rows

    def _create(self, cursor: Any, table: str) -> None:
        shown = ", ".join(f"{quoted(c.name)} {c.shown}" for c in self._task.columns)
        made = f"{self._task.new_table} {table} ({shown})"
        run(cursor, f"{made} WITH (autovacuum_enabled = off)")

    def _good(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            good = self._looked_at(batch)
            self._current = (self._before, good)
            yield good
            self._before += good.num_rows

    def _looked_at(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        table = pa.Table.from_batches([batch])
        if self._task.reader is not None:
            table, others = self._task.reader.read(table)
            self.others.add(others)
        return self._judged(table) if BAD in table.schema.names else batch

    def _judged(self, records: pa.Table) -> pa.RecordBatch:
        """The rows to be written; what becomes of the others is remembered."""
        found = MicroBatch(records, self._task.late)
        for letter in found.letters():
            self.letters.add(letter)
        self.dropped += found.dropped
        newest = found.newest_event
        if newest is not None and (self.newest is None or newest > self.newest):
            self.newest = newest
        rows = found.rows.combine_chunks().to_batches()
        return rows[0] if rows else pa.RecordBatch.from_pylist([], schema=found.rows.schema)

    def _refuse(self, misfit: MisfitError) -> None:
        if self._current is None:
            raise misfit
        before, batch = self._current
        table = pa.Table.from_batches([batch.slice(misfit.row - 1 - before, 1)])
        refusal = Refusal.of_misfit(misfit)
        self.letters.add(letter_of(table, 0, refusal))
