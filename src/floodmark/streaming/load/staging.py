"""The executors' path: each task stages its partition, then one short transaction moves the rows.

Tables of attempts that nobody moves, because a task died, was repeated or raced another one, are
swept when a stream starts and after each batch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from floodmark import failpoints
from floodmark.config.stream import WRITE_SECONDS
from floodmark.engines.arrow_frames import UnfitColumnError, arrow_schema, mapped_in_arrow
from floodmark.errors import StreamError
from floodmark.next_steps import STREAM, command
from floodmark.postgres import Connect, address_of, cursor_of, quoted, quoted_table, run
from floodmark.postgres.rows import (
    ROW,
    PgColumn,
    RowTarget,
    Upsert,
    has_binary_form,
    listed,
    upserted,
)
from floodmark.postgres.transactions import OF_ROWS, fault, is_of_rows, savepoint
from floodmark.streaming.ledger.batches import DeadLetter, LoadCounts, Loaded
from floodmark.streaming.ledger.faults import database_error
from floodmark.streaming.ledger.limits import CANCEL_SECONDS, WriteLimit, jobs_within
from floodmark.streaming.ledger.refusals import ROLLED_BACK, first_refused
from floodmark.streaming.load.refused import Originals, Refusals
from floodmark.streaming.load.stage_task import RESULT, StageTask
from floodmark.streaming.load.staged_letters import AT_ONCE, LETTERS, StagedLetters
from floodmark.streaming.load.target import TargetSpec, prepared, unfit
from floodmark.streaming.records.late import LateRule
from floodmark.streaming.records.plain_json import RECORD
from floodmark.streaming.records.read import LATE, Records
from floodmark.streaming.records.reading import RecordReading, only
from floodmark.streaming.records.spark_faults import may_pass, said_of_job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from floodmark.postgres import Connection, Cursor

_PLACES = (
    PgColumn("_topic", "text", "text"),
    PgColumn("_partition", "int4", "integer"),
    PgColumn("_offset", "int8", "bigint"),
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBERED = "pg_temp.floodmark_numbered"


@dataclass(frozen=True, slots=True)
class Part:
    """What the winning attempt of one task staged."""

    table: str
    rows: int
    letters: int
    dropped: int


@dataclass(frozen=True, slots=True)
class Staged:
    """A batch that lies ready in the database; `places` are the columns of Kafka it has."""

    parts: tuple[Part, ...]
    schema: pa.Schema
    target: RowTarget
    places: tuple[str, ...]
    newest_event: datetime | None

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)


@dataclass(frozen=True, slots=True)
class StagePlan:
    """A task for each partition, and what to make of what they say."""

    task: StageTask
    schema: pa.Schema
    target: RowTarget
    places: tuple[str, ...]

    def staged(self, results: Sequence[Mapping[str, Any]]) -> Staged:
        """The batch by the results of the winning attempts, one for each partition with rows."""
        names = ("attempt", "rows", "letters", "dropped")
        parts = tuple(Part(*(row[name] for name in names)) for row in results)
        told = [row["newest"] for row in results if row["newest"] is not None]
        newest = _EPOCH + timedelta(microseconds=max(told)) if told else None
        return Staged(parts, self.schema, self.target, self.places, newest)


@dataclass(frozen=True, slots=True)
class Staging:
    """Stages frames of Spark for one stream, in `schema`; the role has to be allowed to create there."""

    connect: Connect
    stream_id: str
    schema: str
    spec: TargetSpec
    fail_fast: bool = False
    originals: Originals | None = None
    late: LateRule | None = None
    """Of a stream whose late records have no table of their own: those go through the driver."""
    write_seconds: float = WRITE_SECONDS
    is_logged: bool = True
    """Whether the server keeps the staged tables through a crash (decision 0060)."""

    def stage(self, frame: DataFrame, epoch: int = 0) -> Staged:
        """Let the executors load the frame, which is computed once; nothing reaches the target.

        `epoch` is that of the claim. Raises FM-STREAM-008 if the target does not take such rows, and
        FM-STREAM-013 if a task fails for good.
        """
        plan = self._planned_for(frame, epoch)
        return plan.staged(self._results(plan.task, frame))

    def stage_records(self, records: Records, reading: RecordReading, epoch: int = 0) -> Staged:
        """The same for records, which the executors read as far as they are plainly sound.

        The others come to the driver, are judged by Spark, and staged beside them.
        """
        judged = records.judged()
        reader = reading.plain_reader(records)
        if reader is None:
            return self.stage(judged, epoch)
        plan = self._planned_for(judged, epoch)
        task = replace(plan.task, reader=reader)
        results = self._results(task, records.frame.select(*RECORD))
        if any(row["is_given_up"] for row in results):
            reading.give_up("more than a partition should send to the driver")
            return self.stage(judged, epoch)
        others = _others(results)
        if others is not None:
            reading.counted(_told(results) + others.num_rows, others.num_rows)
            more = self._results(plan.task, only(records, others).judged())
            reading.check(others.num_rows, _told(more))
            results += more
        return plan.staged(results)

    def _results(self, task: StageTask, frame: DataFrame) -> list[dict[str, Any]]:
        """What the tasks say, one for each partition with rows.

        FM-STREAM-055 where they do not end: a backend that is stopped, or that hangs in its storage,
        never hears of the limit of its statement.
        """
        seconds = self.write_seconds + CANCEL_SECONDS
        limit = WriteLimit(self.stream_id, f"schema {self.schema}", seconds)
        try:
            with jobs_within(frame.sparkSession, limit):
                results = mapped_in_arrow(frame, task, RESULT)
                rows = [row.asDict() for row in results.collect()]
        except StreamError:
            raise
        # Whatever Spark throws is told as one of ours; its class says whether it may pass.
        except Exception as error:
            raise self._not_staged(said_of_job(error), is_passing=may_pass(error)) from error
        self._refuse_failed(rows)
        failpoints.reached("stream.after_stage")
        return rows

    def _planned_for(self, frame: DataFrame, epoch: int) -> StagePlan:
        try:
            schema = arrow_schema(frame)
        except UnfitColumnError as error:
            raise unfit(self.spec, str(error), "plain values; others as text") from error
        return self.planned(schema, epoch)

    def planned(self, schema: pa.Schema, epoch: int = 0) -> StagePlan:
        """What the executors have to do for a frame of such columns."""
        if self.late is not None and self.late.table:
            raise ValueError("late records with a table of their own go through the driver")
        target, address = self._looked_at(schema)
        places = tuple(one for one in _PLACES if one.name in schema.names)
        more = [one for one in places if one.name not in target.sources]
        columns = (*map(_as_staged, target.columns), *more)
        sources = (*target.sources, *(one.name for one in more))
        task = StageTask(
            address,
            self.schema,
            f"{self._prefix}{epoch}_",
            columns,
            sources,
            self.late,
            write_seconds=self.write_seconds,
            is_logged=self.is_logged,
        )
        return StagePlan(task, schema, target, tuple(one.name for one in places))

    def apply(self, cursor: Cursor, staged: Staged) -> Loaded:
        """Move a staged batch, in the transaction of `PostgresLedger.commit`; it may be tried again.

        Raises FM-STREAM-010 if rows that were staged are gone: the batch has to be staged again.
        """
        import psycopg

        target = prepared(cursor, self.spec, staged.schema)
        if target.columns != staged.target.columns:
            raise self._gone("the target has other columns than when the batch was staged")
        if self.spec.mode == "overwrite":
            run(cursor, f"DELETE FROM {target.quoted}")
        refused = Refusals()
        try:
            duplicates = self._moved(cursor, staged, target, refused)
            letters = self._letters(cursor, staged, refused)
        except psycopg.errors.UndefinedTable as error:
            raise self._gone("a table is not there") from error
        if self.fail_fast:
            for letter in letters:
                if letter.reason != LATE:
                    raise first_refused(letter, table=self.spec.table)
        for part in staged.parts:
            run(cursor, f"DROP TABLE {quoted_table(self.schema, part.table)}")
        # From what the tasks said, not from what was done with it: the ledger compares the two.
        dropped = sum(part.dropped for part in staged.parts)
        told = sum(part.letters for part in staged.parts)
        received = staged.rows + told + dropped
        counts = LoadCounts(
            received, staged.rows - len(refused), told + len(refused), dropped, duplicates
        )
        return Loaded(counts, letters)

    def sweep(self, epoch: int = 0) -> int:
        """Drop what was staged for this stream up to an epoch, and not moved; returns how many.

        Tables of a later epoch belong to the runner that took over. One that an attempt is still
        filling is left for the next time.
        """
        import psycopg

        try:
            connection = self.connect()
            try:
                names = self._staged_names(cursor_of(connection), epoch)
                return sum(_dropped(connection, quoted_table(self.schema, n)) for n in names)
            finally:
                connection.close()
        except psycopg.Error as error:
            raise database_error(self.stream_id, error) from error

    def _staged_names(self, cursor: Cursor, epoch: int) -> list[str]:
        found = run(
            cursor,
            "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE n.nspname = $1 AND starts_with(c.relname, $2) AND c.relkind = 'r'",
            (self.schema, self._prefix),
        ).fetchall()
        names = [str(name) for (name,) in found]
        return [n for n in names if int(n[len(self._prefix) :].split("_")[0]) <= epoch]

    @property
    def _prefix(self) -> str:
        return f"floodmark_stg_{hashlib.sha256(self.stream_id.encode()).hexdigest()[:12]}_"

    def _looked_at(self, schema: pa.Schema) -> tuple[RowTarget, str]:
        """The target as it will be; what this look creates is rolled back."""
        import psycopg

        try:
            connection = self.connect()
            try:
                return prepared(cursor_of(connection), self.spec, schema), address_of(connection)
            finally:
                connection.close()
        except psycopg.Error as error:
            raise database_error(self.stream_id, error) from error

    def _moved(self, cursor: Cursor, staged: Staged, target: RowTarget, refused: Refusals) -> int:
        """Move all rows by one statement; returns how many were replaced within the batch."""
        import psycopg

        if not staged.rows:
            return 0
        typed = self._all(staged, _casts(target, staged.places))
        try:
            with savepoint(cursor):
                if self.spec.mode == "upsert":
                    self._check_count(cursor, staged)
                    newest = ", ".join(map(quoted, staged.places)) or "1"
                    return staged.rows - upserted(
                        cursor, target, typed, self._filled(staged), newest
                    )
                names = listed([column.name for column in target.columns])
                insert = f"INSERT INTO {target.quoted} ({names}) SELECT {names} FROM {typed}"
                rows = run(cursor, insert).rowcount
                if rows != staged.rows:
                    raise self._gone(f"{rows} rows, not {staged.rows}")
                return 0
        except psycopg.Error as error:
            # Which rows, or whether it is none of them, is learned part by part.
            if fault(error) not in OF_ROWS:
                raise
        return self._moved_in_parts(cursor, staged, target, refused)

    def _moved_in_parts(
        self, cursor: Cursor, staged: Staged, target: RowTarget, refused: Refusals
    ) -> int:
        """The same, finding the rows that are refused, which takes a numbered copy of all of them."""
        self._check_count(cursor, staged)
        order = ", ".join(map(quoted, staged.places)) or "1"
        run(
            cursor,
            "CREATE TEMPORARY TABLE floodmark_numbered ON COMMIT DROP AS SELECT s.*,"
            f" row_number() OVER (ORDER BY {order}) - 1 AS {ROW} FROM {self._all(staged)}",
        )
        run(cursor, f"CREATE INDEX ON {_NUMBERED} ({ROW})")
        run(cursor, f"ANALYZE {_NUMBERED}")
        names, casts = [c.name for c in target.columns], _casts(target, ())
        if self.spec.mode != "upsert":
            into = f"INSERT INTO {target.quoted} ({listed(names)}) SELECT {casts}"
            _insert(cursor, into, (0, staged.rows), refused)
            return 0
        upsert = Upsert(cursor, target)
        upsert.stage()
        into = f"INSERT INTO {upsert.stage_table} ({listed([*names, ROW])}) SELECT {casts}, {ROW}"
        _insert(cursor, into, (0, staged.rows), refused)
        return upsert.merge(refused, staged.rows - len(refused))

    def _check_count(self, cursor: Cursor, staged: Staged) -> None:
        """A table that is not logged is emptied when the server recovers from a crash."""
        counted = run(cursor, f"SELECT count(*) FROM {self._all(staged)}").fetchone()
        if counted is None or counted[0] != staged.rows:
            raise self._gone(f"{counted and counted[0]} rows, not {staged.rows}")

    def _letters(self, cursor: Cursor, staged: Staged, refused: Refusals) -> StagedLetters:
        """Read when they are gone through, so their tables stay: those are swept after the batch."""
        tables = [
            quoted_table(self.schema, part.table + LETTERS) for part in staged.parts if part.letters
        ]
        refused_rows = self._refused(cursor, staged, refused)
        letters = StagedLetters(cursor, tables, refused_rows, self.originals)
        expected, found = sum(part.letters for part in staged.parts), letters.count()
        if found != expected:
            raise self._gone(f"{found} dead letters, not {expected}")
        return letters

    def _refused(self, cursor: Cursor, staged: Staged, refused: Refusals) -> RefusedRows:
        places = [f'"{name}"' if name in staged.places else "NULL" for name in _NAMES]
        hidden = "".join(f" - '{name}'" for name in (ROW, *staged.places))
        shown = f"{ROW}, {', '.join(places)}, (to_jsonb(s){hidden})::text"
        return RefusedRows(cursor, shown, refused)

    def _all(self, staged: Staged, columns: str = "*") -> str:
        """Every row that is staged, as one relation `s`."""
        selects = [f"SELECT {columns} FROM {table}" for table in self._filled(staged)]
        return f"({' UNION ALL '.join(selects)}) s"

    def _filled(self, staged: Staged) -> list[str]:
        return [quoted_table(self.schema, part.table) for part in staged.parts if part.rows]

    def _refuse_failed(self, results: Sequence[Mapping[str, Any]]) -> None:
        """FM-STREAM-013 if the database refused a task; what lasts is told before what may pass."""
        failed = sorted(
            (row for row in results if row["failed"] is not None), key=lambda r: r["is_transient"]
        )
        if failed:
            first = failed[0]
            raise self._not_staged(
                first["failed"], is_passing=first["is_transient"], state=first["state"]
            )

    def _not_staged(self, found: str, *, is_passing: bool, state: str = "") -> StreamError:
        mend = "nothing, it is tried again" if is_passing else "mend what is said"
        return StreamError(
            "FM-STREAM-013",
            "the executors could not stage a batch of a stream",
            stream=self.stream_id,
            where=f"schema {self.schema}",
            found=found,
            state="nothing reached the target; the stored offsets stand where they stood",
            next=mend + "; then: " + command("stream", "run", STREAM),
            retryable=is_passing,
            details={"sqlstate": state} if state else {},
        )

    def _gone(self, found: str) -> StreamError:
        return StreamError(
            "FM-STREAM-010",
            "rows that were staged for a batch of a stream are not all there",
            stream=self.stream_id,
            where=f"schema {self.schema}",
            found=found,
            state=ROLLED_BACK,
            next="nothing: the batch is staged again",
            retryable=True,
        )


def _dropped(connection: Connection, table: str) -> bool:
    """Whether a table could be dropped: not if somebody holds it."""
    import psycopg

    try:
        run(cursor_of(connection), "SET LOCAL lock_timeout = '1s'")
        run(cursor_of(connection), f"DROP TABLE IF EXISTS {table}")
        connection.commit()
    except psycopg.errors.LockNotAvailable:
        connection.rollback()
        return False
    return True


def _told(results: Sequence[Mapping[str, Any]]) -> int:
    """How many records became rows or dead letters, or were dropped."""
    return sum(row["rows"] + row["letters"] + row["dropped"] for row in results)


def _others(results: Sequence[Mapping[str, Any]]) -> pa.Table | None:
    """The records that tasks left to Spark."""
    written = [row["others"] for row in results if row["others"] is not None]
    tables = [pa.ipc.open_stream(bytes(each)).read_all() for each in written]
    return pa.concat_tables(tables) if tables else None


def _as_staged(column: PgColumn) -> PgColumn:
    """A column of the staging: types that pgpq does not write are texts until they are moved.

    So what the server thinks of a value is learned in the one place that can look for its row.
    """
    if has_binary_form(column):
        return column
    return PgColumn(column.name, "text", "text", is_required=column.is_required)


def _casts(target: RowTarget, places: Sequence[str]) -> str:
    """The columns of the target, in its types, and some places."""
    typed = [
        quoted(c.name) if has_binary_form(c) else f"{quoted(c.name)}::{c.shown} AS {quoted(c.name)}"
        for c in target.columns
    ]
    taken = {column.name for column in target.columns}
    return ", ".join([*typed, *(quoted(name) for name in places if name not in taken)])


def _insert(cursor: Cursor, into: str, rows: tuple[int, int], refused: Refusals) -> None:
    """Insert a range of numbered rows by `into`, in halves where it is refused."""
    import psycopg

    start, stop = rows
    chosen = f"{into} FROM {_NUMBERED} WHERE {ROW} >= $1 AND {ROW} < $2"
    try:
        with savepoint(cursor):
            run(cursor, chosen, (start, stop))
            return
    except psycopg.Error as error:
        if not is_of_rows(cursor, error, lambda: run(cursor, chosen, (0, 0))):
            raise
        if stop - start == 1:
            refused.server(start, error)
            return
    middle = (start + stop) // 2
    _insert(cursor, into, (start, middle), refused)
    _insert(cursor, into, (middle, stop), refused)


_NAMES = tuple(one.name for one in _PLACES)


@dataclass(frozen=True, slots=True)
class RefusedRows:
    """The letters of rows that the server refused, a thousand at a time from their numbered copy."""

    cursor: Cursor
    shown: str
    refused: Refusals

    def __iter__(self) -> Iterator[list[DeadLetter]]:
        numbers = sorted(self.refused)
        for first in range(0, len(numbers), AT_ONCE):
            rows = run(
                self.cursor,
                f"SELECT {self.shown} FROM {_NUMBERED} s WHERE {ROW} = ANY($1) ORDER BY 1",
                (numbers[first : first + AT_ONCE],),
            ).fetchall()
            yield [_letter(row, self.refused) for row in rows]


def _letter(row: Sequence[Any], refused: Refusals) -> DeadLetter:
    number, topic, partition, offset, said = row
    why = refused[int(number)]
    value = str(said).encode()
    return DeadLetter(
        topic, partition, offset, why.reason, why.detail, value=value, column=why.column
    )
