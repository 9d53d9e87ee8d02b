"""The memory of a stream in its target database: who may write, and what is committed.

`floodmark_stream` decides; `batch_tracker` tells people. Rows, dead letters, offsets and the row of
the tracker are one transaction, so that none of them can be there without the others.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from floodmark import failpoints
from floodmark.config.stream import WRITE_SECONDS
from floodmark.errors import StreamError
from floodmark.model.offsets import Offsets, breaks
from floodmark.postgres import Connect, cursor_of, quoted_table, run
from floodmark.postgres.transactions import (
    LOCK_NOT_AVAILABLE,
    is_lost_connection,
    lasting_commit,
    lock_limit,
    said,
    settle,
    statement_limit,
    wait_for_commit,
)
from floodmark.streaming.ledger.batches import (
    AlreadyApplied,
    Applied,
    Claim,
    ClaimFacts,
    DeadLetter,
    LoadCounts,
    Loaded,
    OutboxMessage,
    StreamBatch,
    StreamRow,
    claim_of,
    claimed_by,
    is_same,
)
from floodmark.streaming.ledger.faults import database_error
from floodmark.streaming.ledger.limits import CANCEL_SECONDS, WriteLimit, statements_within
from floodmark.streaming.ledger.protocol import RECORDS, History
from floodmark.streaming.ledger.refusals import (
    broken,
    disagreeing,
    fenced,
    forgotten,
    moved,
    no_tables,
    parted,
    unknown,
)
from floodmark.streaming.ledger.requests import SignOfLife
from floodmark.streaming.ledger.tables import (
    DEAD_LETTERS,
    OUTBOX,
    REQUESTS,
    STREAM,
    TABLES,
    TRACKER,
    StreamTable,
)

if TYPE_CHECKING:
    from floodmark.postgres import Connection, Cursor

TAKEOVER_SECONDS = 5
"""How long a claim waits for a batch that another runner is committing, before it ends that one."""
CLAIM_ATTEMPTS = 6
_COPIED_AT_ONCE = 1_000
_UNDEFINED_COLUMN = "42703"

_ROW = ", ".join(name for name, _ in STREAM.columns if name != "updated_at")
_LETTER = (
    "stream_id, batch_id, topic, kafka_partition, kafka_offset, record_key, record_value, reason,"
    " detail, column_name, event_time"
)

# Only of the runner that has the stream: one that was fenced is not taken for it.
_SIGN = """INSERT INTO {0} (stream_id, runner_claim_id, runner_seen_at)
 SELECT stream_id, claim_id, now() FROM {1} WHERE stream_id = $1 AND claim_id = $2
 ON CONFLICT (stream_id) DO UPDATE SET runner_claim_id = excluded.runner_claim_id,
 runner_seen_at = excluded.runner_seen_at, runner_ended_at = NULL"""

_HISTORY = """SELECT count(*), max(processed_at), extract(epoch FROM now() - max(processed_at)),
 coalesce(sum(record_count) FILTER (WHERE processed_at > now() - interval '1 minute'), 0),
 count(*) FILTER (WHERE processed_at > now() - interval '1 minute'),
 coalesce(sum(record_count), 0), coalesce(sum(written), 0), coalesce(sum(dead_lettered), 0),
 coalesce(sum(dropped), 0) FROM {} WHERE pipeline_id = $1"""

Load = Callable[["Cursor"], Loaded]
"""Writes the rows of a batch inside the transaction of its cursor, and commits nothing."""


class PostgresLedger:
    """The tables of one stream; `stream_id` is the pipelineId of its configuration.

    Keeps one connection, and opens another where it broke. Not for several threads at once.
    """

    def __init__(
        self,
        connect: Connect,
        stream_id: str,
        schema: str | None = None,
        write_seconds: float = WRITE_SECONDS,
    ) -> None:
        self.stream_id = stream_id
        self._write_seconds = write_seconds
        self.schema = schema or "public"
        self._connect = connect
        self._kept: Connection | None = None
        self._stream = self._named(STREAM)
        self._tracker = self._named(TRACKER)

    @property
    def place(self) -> str:
        """Where the memory is, for messages."""
        return self.schema

    def another(self) -> PostgresLedger:
        """Another ledger of the same stream, for another thread."""
        return PostgresLedger(self._connect, self.stream_id, self.schema, self._write_seconds)

    def close(self) -> None:
        """Give the connection back; the next call opens one."""
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.close()

    def ensure(self, *, creates: bool = True) -> None:
        """See that every table is there with its columns; raises FM-STREAM-004 if one cannot be.

        What is there is left alone, so a role without the right to create tables passes too.
        """
        with self._transaction() as connection:
            cursor = cursor_of(connection)
            lacking = self._lacking(cursor)
            if not lacking:
                return
            if not creates:
                raise no_tables(self.stream_id, self.schema, f"missing: {', '.join(lacking)}")
            self._create(connection, cursor)

    def stored(self) -> StreamRow | None:
        """The row of the stream; None if it was never claimed."""
        with self._transaction() as connection:
            row = self._read(cursor_of(connection), "")
            return row if row is not None and row.epoch else None

    def trusted(self, stream: str) -> StreamRow | None:
        """As `stored`; raises FM-STREAM-036 if the tracker holds batches that the row forgot.

        FM-STREAM-048 if the two tell of different commits of one batch. Both are written by one
        transaction, so only somebody else can have parted them: a backup of one table, a row that was
        deleted. `stream` is what commands call it.
        """
        # The tracker first: a batch that is committed in between is then in the row too.
        tracked = self._asked(
            "SELECT batch_id, end_offsets, commit_id FROM {} WHERE pipeline_id = $1 AND end_offsets"
            " IS NOT NULL ORDER BY batch_id DESC LIMIT 1"
        )
        row = self.stored()
        known = -1 if row is None or row.batch_id is None else row.batch_id
        if tracked and tracked[0][0] > known:
            raise forgotten(stream, row, tracked[0][0], Offsets.parse(tracked[0][1]))
        if row is not None and tracked and tracked[0][0] == known and row.commit_id is not None:
            _, end, commit_id = tracked[0]
            if commit_id not in (None, row.commit_id):
                raise parted(stream, row, Offsets.parse(end))
        return row

    def claim(self, facts: ClaimFacts, seen: StreamRow | None) -> Claim:
        """Take the stream: from here on every other runner of it is fenced.

        `seen` is what `stored` gave and the decision to go on rests on; if the stream has moved
        since, FM-STREAM-011 is raised and nobody is fenced. A runner that is in the middle of a
        batch gets a few seconds to commit it; then its connection is ended.
        """
        for _ in range(CLAIM_ATTEMPTS):
            try:
                with self._transaction() as connection:
                    return self._claimed(connection, facts, seen)
            except StreamError as error:
                if error.details.get("sqlstate") != LOCK_NOT_AVAILABLE:
                    raise
                last = error
            self._end_others()
        raise last

    def commit(self, claim: Claim, batch: StreamBatch, load: Load) -> Applied | AlreadyApplied:
        """Write one batch exactly once; the order of the steps is the guarantee.

        1. Lock the row of the stream: a claim of another runner comes before or behind.
        2. Fenced (FM-STREAM-001), already applied, a gap (-002) or an overlap (-003): write nothing.
        3. The rows by `load`, dead letters and outbox; every record accounted for (-007).
        4. The row of the stream and that of the tracker, then COMMIT.
        5. If the answer to COMMIT was lost, the row is read back: it decides (-006 if it cannot be).

        Every error leaves the database as it was; called again it does the same again. Without
        `exactly_once` in the claim step 2 only fences, and the tracker gets no row; the batch gets
        the next free number, whatever number it comes with. What the database does not do within
        `write_seconds` is FM-STREAM-055.
        """
        limit = WriteLimit(self.stream_id, f"batch {batch.batch_id}", self._write_seconds)
        with (
            self._transaction() as connection,
            statements_within(connection, limit),
        ):
            cursor = cursor_of(connection)
            # 1.
            row = self._held(cursor, claim)
            failpoints.reached("stream.after_begin")
            # 2.
            if claim.exactly_once and row.holds(batch):
                return AlreadyApplied(batch.batch_id)
            if not claim.exactly_once:
                # A batch that is repeated, by Spark or after a lost answer, comes with its old number.
                batch = replace(batch, batch_id=row.next_batch_id)
            self._refuse_break(row, batch, claim)
            # 3.
            run(cursor, "SET CONSTRAINTS ALL IMMEDIATE")
            loaded = load(cursor)
            self._store_others(cursor, batch, loaded)
            failpoints.reached("stream.before_tracker")
            # 4.
            commit_id = uuid.uuid4().hex
            self._advance(cursor, claim, batch, commit_id)
            if claim.exactly_once:
                self._track(cursor, batch, loaded.counts, commit_id)
            failpoints.reached("stream.before_commit")
            # 5.
            self._settle(connection, commit_id)
            failpoints.reached("stream.after_commit")
            return Applied(batch.batch_id, loaded.counts)

    def move(
        self,
        claim: Claim,
        end: Offsets | None,
        note: str,
        *,
        spark_batch_id: int | None = None,
        begins_incarnation: bool = True,
    ) -> Claim:
        """Set the stored offsets by decision of a person, and say so in the tracker.

        None begins the stream anew. Called twice it is noted twice.
        """
        with self._transaction() as connection:
            cursor = cursor_of(connection)
            row = self._held(cursor, claim)
            decided = StreamBatch(
                # Of a row that forgot some batches the tracker still has the numbers.
                max(row.next_batch_id, self._last_tracked(cursor) + 1),
                row.incarnation + int(begins_incarnation),
                row.end_offsets or Offsets(),
                end or Offsets(),
                spark_batch_id,
                row.checkpoint,
                row.event_watermark,
            )
            commit_id = uuid.uuid4().hex
            self._advance(cursor, claim, decided, commit_id)
            if end is None:
                begun = f"UPDATE {self._stream} SET end_offsets = NULL, event_watermark = NULL"
                run(cursor, f"{begun} WHERE stream_id = $1", (self.stream_id,))
            self._track(cursor, decided, LoadCounts(0, 0), commit_id, note)
            there = self._read(cursor, "")
            self._settle(connection, commit_id)
        if there is None:
            raise fenced(claim, None)
        return claim_of(there)

    def refuse_fenced(self, claim: Claim) -> None:
        """Raise FM-STREAM-001 unless the stream is still this claim's; changes nothing."""
        with self._transaction() as connection:
            self._held(cursor_of(connection), claim)

    def ask_to_stop(self, claim_id: str, by: str) -> None:
        """See requests.Requests."""
        said = "stop_claim_id = $2, asked_by = $3, asked_at = now()"
        self._request(
            f"INSERT INTO {{0}} (stream_id, stop_claim_id, asked_by, asked_at) VALUES ($1, $2, $3,"
            f" now()) ON CONFLICT (stream_id) DO UPDATE SET {said}",
            (self.stream_id, claim_id, by),
        )

    def is_asked_to_stop(self, claim_id: str) -> bool:
        """See requests.Requests."""
        asked = "SELECT 1 FROM {0} WHERE stream_id = $1 AND stop_claim_id = $2"
        return bool(self._request(asked, (self.stream_id, claim_id)))

    def note_end(self, claim_id: str) -> None:
        """See requests.Requests."""
        # The end of a runner that was fenced says nothing of the one behind it.
        ended = "CASE WHEN runner_claim_id = $2 THEN now() ELSE runner_ended_at END"
        said = f"ended_claim_id = $2, ended_at = now(), runner_ended_at = {ended}"
        self._request(f"UPDATE {{0}} SET {said} WHERE stream_id = $1", (self.stream_id, claim_id))

    def has_ended(self, claim_id: str) -> bool:
        """See requests.Requests."""
        ended = "ended_claim_id = $2 OR (runner_claim_id = $2 AND runner_ended_at IS NOT NULL)"
        asked = f"SELECT 1 FROM {{0}} WHERE stream_id = $1 AND ({ended})"
        return bool(self._request(asked, (self.stream_id, claim_id)))

    def give_sign(self, claim_id: str) -> None:
        """See requests.Requests."""
        self._request(_SIGN, (self.stream_id, claim_id))

    def sign_of_life(self, claim_id: str) -> SignOfLife | None:
        """See requests.Requests."""
        ago = "extract(epoch FROM now() - runner_seen_at), runner_ended_at IS NOT NULL"
        asked = f"SELECT {ago} FROM {{0}} WHERE stream_id = $1 AND runner_claim_id = $2"
        try:
            rows = self._request(asked, (self.stream_id, claim_id))
        except StreamError as error:
            # Tables of an older floodmark, whose runners give no signs.
            is_older = error.details.get("sqlstate") == _UNDEFINED_COLUMN
            if error.code == "FM-STREAM-004" or is_older:
                return None
            raise
        return SignOfLife(max(0.0, float(rows[0][0])), bool(rows[0][1])) if rows else None

    def _request(self, statement: str, values: Sequence[Any]) -> list[Any]:
        with self._transaction() as connection:
            named = statement.format(self._named(REQUESTS), self._stream)
            done = run(cursor_of(connection), named, values)
            rows = done.fetchall() if done.description else []
            connection.commit()
        return rows

    def history(self) -> History:
        """What the tracker still has of its batches, by the clock of the database."""
        row = self._asked(_HISTORY)[0]
        with self._transaction() as connection:
            letters = run(
                cursor_of(connection),
                f"SELECT count(*) FROM {self._named(DEAD_LETTERS)} WHERE stream_id = $1",
                (self.stream_id,),
            ).fetchone() or (0,)
        return History(
            batches=int(row[0]),
            last_processed_at=row[1],
            seconds_since_last_batch=None if row[2] is None else float(row[2]),
            records_last_minute=int(row[3]),
            batches_last_minute=int(row[4]),
            records=dict(zip(RECORDS, map(int, row[5:]), strict=True)),
            dead_letters=int(letters[0]),
        )

    def tracked(self) -> int:
        """How many rows the tracker has of this stream."""
        return int(self._asked("SELECT count(*) FROM {} WHERE pipeline_id = $1")[0][0])

    def cleanup(self, retention_days: float) -> int:
        """Remove rows of the tracker that are older; returns how many.

        The row of the stream is never touched, so nothing that is removed can be applied again. The
        last batch stays in the tracker: by it an older copy of that row is known.
        """
        if retention_days < 0:
            raise ValueError(f"a retention of {retention_days} days")
        with self._transaction() as connection:
            removed = run(
                cursor_of(connection),
                f"DELETE FROM {self._tracker} WHERE pipeline_id = $1"
                " AND processed_at < now() - make_interval(secs => $2) AND batch_id <"
                f" (SELECT max(batch_id) FROM {self._tracker} WHERE pipeline_id = $1)",
                (self.stream_id, retention_days * 86_400.0),
            ).rowcount
            connection.commit()
        return removed

    def cleanup_dead_letters(self, retention_days: float) -> int:
        """Remove dead letters that are older; returns how many. One transaction: all or nothing.

        Messages that wait for Kafka are not touched, and neither are the letters of their batches:
        a message that is too large is sent without bytes that are only in its letter.
        """
        if retention_days < 0:
            raise ValueError(f"a retention of {retention_days} days")
        waiting = f"SELECT batch_id FROM {self._named(OUTBOX)} WHERE stream_id = $1"
        with self._transaction() as connection:
            removed = run(
                cursor_of(connection),
                f"DELETE FROM {self._named(DEAD_LETTERS)} WHERE stream_id = $1"
                " AND created_at < now() - make_interval(secs => $2)"
                f" AND batch_id NOT IN ({waiting})",
                (self.stream_id, retention_days * 86_400.0),
            ).rowcount
            failpoints.reached("letters.before_commit")
            connection.commit()
        return removed

    def _asked(self, statement: str) -> list[Any]:
        """What the tracker answers about this stream, `$1`."""
        with self._transaction() as connection:
            asked = statement.format(self._tracker)
            return run(cursor_of(connection), asked, (self.stream_id,)).fetchall()

    def _last_tracked(self, cursor: Cursor) -> int:
        """The last number in the tracker, -1 without any."""
        asked = f"SELECT max(batch_id) FROM {self._tracker} WHERE pipeline_id = $1"
        (last,) = run(cursor, asked, (self.stream_id,)).fetchone() or (None,)
        return -1 if last is None else int(last)

    def _lacking(self, cursor: Cursor) -> list[str]:
        """Tables, or columns of them, that are not there."""
        rows = run(
            cursor,
            "SELECT c.relname, a.attname FROM pg_class c JOIN pg_namespace n ON n.oid ="
            " c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid"
            " WHERE n.nspname = $1 AND c.relname = ANY($2) AND a.attnum > 0 AND NOT a.attisdropped",
            (self.schema, [table.name for table in TABLES]),
        )
        there = {f"{table}.{column}" for table, column in rows}
        wanted = [f"{table.name}.{column}" for table in TABLES for column, _ in table.columns]
        return [name for name in wanted if name not in there]

    def _create(self, connection: Connection, cursor: Cursor) -> None:
        import psycopg

        try:
            # Two that create at once would meet in the catalog, and one would fail.
            run(cursor, "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", (self._stream,))
            for table in TABLES:
                for statement in table.created(self.schema):
                    run(cursor, statement)
            connection.commit()
        except psycopg.errors.InsufficientPrivilege as error:
            raise no_tables(self.stream_id, self.schema, said(error)) from error

    def _claimed(self, connection: Connection, facts: ClaimFacts, seen: StreamRow | None) -> Claim:
        cursor = cursor_of(connection)
        run(cursor, f"SET LOCAL lock_timeout = '{TAKEOVER_SECONDS}s'")
        run(
            cursor,
            f"INSERT INTO {self._stream} (stream_id, batch_id) SELECT $1,"
            f" (SELECT max(batch_id) FROM {self._tracker} WHERE pipeline_id = $1)"
            " ON CONFLICT DO NOTHING",
            (self.stream_id,),
        )
        row = self._read(cursor, "FOR UPDATE")
        if row is None or not is_same(row, seen):
            raise moved(self.stream_id)
        claim = claimed_by(row, facts)
        run(
            cursor,
            f"UPDATE {self._stream} SET epoch = $2, claim_id = $3, incarnation = $4, topic_ids ="
            " $5::jsonb, query_id = $6, checkpoint_location = $7, config_hash = $8, exactly_once ="
            " $9, holder = $10, spark_batch_id = $11, updated_at = now() WHERE stream_id = $1",
            (
                self.stream_id,
                claim.epoch,
                claim.claim_id,
                claim.incarnation,
                json.dumps(dict(claim.topic_ids)),
                claim.query_id,
                claim.checkpoint,
                claim.config_hash,
                claim.exactly_once,
                claim.holder,
                claim.spark_batch_id,
            ),
        )
        # With the claim: a runner that is killed right behind it is missed too.
        sign = _SIGN.format(self._named(REQUESTS), self._stream)
        run(cursor, sign, (self.stream_id, claim.claim_id))
        connection.commit()
        return claim

    def _end_others(self) -> None:
        """End connections of runners of this stream: one that hangs would hold its batch for ever."""
        with self._transaction() as connection:
            run(
                cursor_of(connection),
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1"
                " AND pid <> pg_backend_pid() AND datname = current_database()"
                " AND xact_start IS NOT NULL",
                (self._application,),
            )

    def _held(self, cursor: Cursor, claim: Claim) -> StreamRow:
        """The row, locked; raises FM-STREAM-001 unless it is still this claim's."""
        row = self._read(cursor, "FOR UPDATE")
        if row is None or (row.epoch, row.claim_id) != (claim.epoch, claim.claim_id):
            raise fenced(claim, row)
        return row

    def _refuse_break(self, row: StreamRow, batch: StreamBatch, claim: Claim) -> None:
        if not batch.start <= batch.end:
            raise ValueError(f"batch {batch.batch_id} ends before it begins")
        if claim.exactly_once and row.end_offsets is not None:
            found = breaks(row.end_offsets, batch.start)
            if found:
                raise broken(row, batch, found)
        if (batch.batch_id, batch.incarnation) != (row.next_batch_id, row.incarnation):
            expected = f"batch {row.next_batch_id} of incarnation {row.incarnation}"
            raise ValueError(f"expected {expected}, not {batch.batch_id} of {batch.incarnation}")

    def _store_others(self, cursor: Cursor, batch: StreamBatch, loaded: Loaded) -> None:
        letters = self._dead_letters(cursor, batch, loaded.dead_letters)
        counts = loaded.counts
        if not counts.agree or letters != counts.dead_lettered:
            raise disagreeing(self.stream_id, f"{counts}; {letters} dead letters", batch)
        self._outbox(cursor, batch, loaded.outbox)

    def _dead_letters(
        self, cursor: Cursor, batch: StreamBatch, letters: Iterable[DeadLetter]
    ) -> int:
        rows = (
            (
                *(self.stream_id, batch.batch_id, letter.topic, letter.partition, letter.offset),
                *(letter.key, letter.value, letter.reason, _printable(letter.detail)),
                *(letter.column and _printable(letter.column), letter.event_time),
            )
            for letter in letters
        )
        return _copied(cursor, f"{self._named(DEAD_LETTERS)} ({_LETTER})", rows)

    def _outbox(self, cursor: Cursor, batch: StreamBatch, messages: Iterable[OutboxMessage]) -> int:
        rows = ((self.stream_id, batch.batch_id, m.topic, m.key, m.value) for m in messages)
        columns = "stream_id, batch_id, topic, message_key, message_value"
        return _copied(cursor, f"{self._named(OUTBOX)} ({columns})", rows)

    def _advance(self, cursor: Cursor, claim: Claim, batch: StreamBatch, commit_id: str) -> None:
        run(
            cursor,
            f"UPDATE {self._stream} SET incarnation = $2, start_offsets = $3::jsonb, end_offsets ="
            " $4::jsonb, batch_id = $5, spark_batch_id = $6, event_watermark = $7, exactly_once ="
            " $8, commit_id = $9, updated_at = now() WHERE stream_id = $1",
            (
                self.stream_id,
                batch.incarnation,
                batch.start.to_json(),
                batch.end.to_json(),
                batch.batch_id,
                batch.spark_batch_id,
                batch.event_watermark,
                claim.exactly_once,
                commit_id,
            ),
        )

    def _track(
        self,
        cursor: Cursor,
        batch: StreamBatch,
        counts: LoadCounts,
        commit_id: str,
        note: str | None = None,
    ) -> None:
        run(
            cursor,
            f"INSERT INTO {self._tracker} (pipeline_id, batch_id, record_count,"
            " checkpoint_location, incarnation, spark_batch_id, start_offsets, end_offsets, written,"
            " dead_lettered, dropped, duplicates, event_watermark, commit_id, note) VALUES"
            " ($1, $2, $3, left($4, 500), $5, $6, $7::jsonb, $8::jsonb, $9, $10, $11, $12, $13,"
            " $14, $15)",
            (
                self.stream_id,
                batch.batch_id,
                counts.received,
                batch.checkpoint,
                batch.incarnation,
                batch.spark_batch_id,
                batch.start.to_json(),
                batch.end.to_json(),
                counts.written,
                counts.dead_lettered,
                counts.dropped,
                counts.duplicates,
                batch.event_watermark,
                commit_id,
                note,
            ),
        )

    def _settle(self, connection: Connection, commit_id: str) -> None:
        """COMMIT; returns only if it happened."""
        settle(connection, lambda error: self._is_there(commit_id, error))

    def _is_there(self, commit_id: str, error: BaseException) -> bool:
        """Whether our own commit happened although its answer was lost, under the lock of the row."""
        self.close()
        try:
            with self._transaction() as connection:
                cursor = cursor_of(connection)
                wait_for_commit(cursor)
                row = self._read(cursor, "FOR UPDATE")
                if row is not None and row.commit_id == commit_id:
                    return True
                # Another runner may have gone on already.
                found = f"SELECT 1 FROM {self._tracker} WHERE pipeline_id = $1 AND commit_id = $2"
                return run(cursor, found, (self.stream_id, commit_id)).fetchone() is not None
        except StreamError as second:
            raise unknown(self.stream_id, said(error), second.found or second.title) from error

    def _read(self, cursor: Cursor, locking: str) -> StreamRow | None:
        row = run(
            cursor,
            f"SELECT {_ROW} FROM {self._stream} WHERE stream_id = $1 {locking}",
            (self.stream_id,),
        ).fetchone()
        return None if row is None else _as_row(row)

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        """The connection in a new transaction, rolled back unless the block committed it.

        After an error the connection is closed, whatever state it is in. Errors of the database
        become FM-STREAM-005, a missing table of the stream FM-STREAM-004.
        """
        import psycopg

        try:
            connection = self._begun()
            try:
                yield connection
                if not connection.closed:
                    connection.rollback()
            except BaseException:
                self.close()
                raise
        except psycopg.errors.UndefinedTable as error:
            if error.diag.context:  # a function of the database looks for a table of its own
                raise database_error(self.stream_id, error) from error
            raise no_tables(self.stream_id, self.schema, said(error)) from error
        except psycopg.Error as error:
            raise database_error(self.stream_id, error) from error

    def _begun(self) -> Connection:
        import psycopg

        if self._kept is not None:
            try:
                return self._prepared(self._kept)
            except psycopg.Error as error:
                self.close()
                if not is_lost_connection(error):
                    raise
        self._kept = self._connect()
        # Whatever the database's default: behind the lock, what others committed is seen.
        self._kept.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        return self._prepared(self._kept)

    def _prepared(self, connection: Connection) -> Connection:
        # Rows that an asynchronous commit loses would be ahead of nothing that we remember, but the
        # offsets in Spark's checkpoint would be ahead of them.
        run(
            cursor_of(connection),
            f"SELECT set_config('application_name', $1, true), {lasting_commit()}, {lock_limit()},"
            # Behind that of the runner itself, for one that is stopped.
            f" {statement_limit(self._write_seconds + CANCEL_SECONDS)}",
            (self._application,),
        )
        return connection

    @property
    def _application(self) -> str:
        """By which the server knows connections of this stream; names are cut off at 63 bytes."""
        named = f"{self.schema}\0{self.stream_id}".encode()
        return f"floodmark stream {hashlib.sha256(named).hexdigest()[:24]}"

    def _named(self, table: StreamTable) -> str:
        return quoted_table(self.schema, table.name)


def _copied(cursor: Cursor, into: str, rows: Iterable[Sequence[Any]]) -> int:
    """COPY rows part by part: between two parts the rows may ask the same transaction for more."""
    source, copied = iter(rows), 0
    while part := list(islice(source, _COPIED_AT_ONCE)):
        with cursor.copy(f"COPY {into} FROM STDIN".encode()) as copy:
            for row in part:
                copy.write_row(row)
        copied += len(part)
    return copied


def _printable(text: str) -> str:
    """Without what PostgreSQL cannot store, and bounded."""
    return text.replace("\0", "\\0").encode("utf-8", "replace").decode()[:2_000]


def _as_row(row: Sequence[Any]) -> StreamRow:
    names = [field.name for field in fields(StreamRow)]
    said = dict(zip(names, row, strict=True))
    for name in ("start_offsets", "end_offsets"):
        said[name] = None if said[name] is None else Offsets.parse(said[name])
    return StreamRow(**said)


__all__ = (
    "AlreadyApplied",
    "Applied",
    "Claim",
    "ClaimFacts",
    "DeadLetter",
    "Load",
    "LoadCounts",
    "Loaded",
    "OutboxMessage",
    "PostgresLedger",
    "StreamBatch",
    "StreamRow",
)
