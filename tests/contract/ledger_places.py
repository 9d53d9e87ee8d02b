"""Streams of numbers with their memory in PostgreSQL and in a Delta table, as tests handle them.

The record at offset `n` of the one partition brings the row `n`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import psycopg
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import DeltaError
from tests.services.stream_places import StreamPlace, at, batch, letter_table, put

from floodmark.deltalog import is_delta_table
from floodmark.errors import StreamError
from floodmark.model.receipt import Receipt, commit_metadata
from floodmark.streaming.ledger.batches import Claim, DeadLetter, LoadCounts, Loaded
from floodmark.streaming.ledger.delta import BESIDE, DEAD_LETTERS, REQUESTS, DeltaLedger
from floodmark.streaming.ledger.postgres import PostgresLedger
from floodmark.streaming.ledger.protocol import StreamLedger

STREAM = "numbers"


class LedgerPlace(Protocol):
    """One kind of target. Each ledger is that of another process."""

    @property
    def restored(self) -> str:
        """The code for a target that is older than the memory of the stream."""

    @property
    def forked(self) -> str:
        """For one that went its own way."""

    @property
    def cleaned(self) -> str | None:
        """For one whose record of the last batch was cleaned away; None where that changes nothing."""

    def ledger(self, stream_id: str = STREAM) -> StreamLedger[Any]: ...

    def load(
        self,
        start: int,
        end: int,
        counts: LoadCounts | None = None,
        during: Callable[[], object] = lambda: None,
    ) -> Any:
        """What `commit` takes for some numbers; `during` is called once in the middle."""

    def numbers(self) -> list[int]:
        """The rows of the target."""

    def commit_without_answer(self, claim: Claim, end: int, *, arrives: bool) -> None:
        """An attempt at the batch up to `end` whose runner hears nothing of its commit."""

    def save(self) -> None:
        """Take a copy of what is to be put back."""

    def put_back(self) -> None:
        """Put the copy in its place; what the stream noted elsewhere stays."""

    def go_its_own_way(self, batch_id: int) -> None:
        """Let the last batch be one of another copy of the stream."""

    def clean(self) -> None:
        """Remove what tells of the last batch by itself, as a retention does."""

    def let_pass(self, seconds: float) -> None:
        """Let signs of life grow older."""

    def forget_sign(self, claim_id: str) -> None:
        """As an older floodmark leaves it, whose runners give none."""

    def add_letter(self, batch_id: int, days: float, stream_id: str = STREAM) -> None:
        """A dead letter that was written days ago."""

    def letters(self) -> list[int]:
        """The batches of the dead letters there are."""


class PostgresLedgers:
    """Streams whose memory is tables of their database."""

    restored, forked, cleaned = "FM-STREAM-036", "FM-STREAM-048", None

    def __init__(self, place: StreamPlace) -> None:
        self.place = place
        place.query("CREATE TABLE numbers (n bigint)")

    def ledger(self, stream_id: str = STREAM) -> PostgresLedger:
        return self.place.ledger(stream_id)

    def load(
        self,
        start: int,
        end: int,
        counts: LoadCounts | None = None,
        during: Callable[[], object] = lambda: None,
    ) -> Any:
        def loaded(cursor: Any) -> Loaded:
            done = put(cursor, self.place.table, range(start, end))
            during()
            return done if counts is None else Loaded(counts)

        return loaded

    def numbers(self) -> list[int]:
        return self.place.numbers()

    def commit_without_answer(self, claim: Claim, end: int, *, arrives: bool) -> None:
        kind = Unheard if arrives else Unsaid
        deaf = PostgresLedger(lambda: kind.connect(self.place.dsn), STREAM, self.place.schema)
        start = end_of(claim)
        with suppress(StreamError):
            planned = batch(claim, claim.next_batch_id, start, end)
            deaf.commit(claim, planned, self.load(start, end))
        deaf.close()

    def save(self) -> None:
        self.place.query("CREATE TABLE copy AS SELECT * FROM floodmark_stream")

    def put_back(self) -> None:
        self.place.query(
            "DELETE FROM floodmark_stream; INSERT INTO floodmark_stream SELECT * FROM copy"
        )

    def go_its_own_way(self, batch_id: int) -> None:
        said = f"SET commit_id = 'of a copy' WHERE batch_id = {batch_id}"
        self.place.query(f"UPDATE batch_tracker {said}")

    def clean(self) -> None:
        self.place.query("DELETE FROM batch_tracker")

    def let_pass(self, seconds: float) -> None:
        self.place.query(
            "UPDATE floodmark_stream_requests"
            f" SET runner_seen_at = runner_seen_at - make_interval(secs => {seconds})"
        )

    def forget_sign(self, claim_id: str) -> None:
        del claim_id
        self.place.query("ALTER TABLE floodmark_stream_requests DROP COLUMN runner_seen_at")

    def add_letter(self, batch_id: int, days: float, stream_id: str = STREAM) -> None:
        name = stream_id.replace("'", "''")
        self.place.query(
            "INSERT INTO floodmark_dead_letters (stream_id, batch_id, reason, detail, created_at)"
            f" VALUES ('{name}', {batch_id}, 'value', 'd',"
            f" now() - make_interval(secs => {days * 86_400}))"
        )

    def letters(self) -> list[int]:
        rows = self.place.query("SELECT batch_id FROM floodmark_dead_letters")
        return sorted(row["batch_id"] for row in rows)


class Unheard(psycopg.Connection[Any]):
    """Commits, and loses the answer."""

    def commit(self) -> None:
        super().commit()
        self.close()
        raise psycopg.OperationalError("server closed the connection unexpectedly")


class Unsaid(psycopg.Connection[Any]):
    """Breaks before the server hears of the commit."""

    def commit(self) -> None:
        self.close()
        raise psycopg.OperationalError("server closed the connection unexpectedly")


class DeltaLedgers:
    """Streams whose memory is the log of their Delta table, at `path`."""

    restored, forked, cleaned = "FM-STREAM-045", "FM-STREAM-046", "FM-STREAM-047"

    def __init__(self, path: Path) -> None:
        self.path = path

    def ledger(self, stream_id: str = STREAM) -> DeltaLedger:
        return DeltaLedger(str(self.path), stream_id)

    def load(
        self,
        start: int,
        end: int,
        counts: LoadCounts | None = None,
        during: Callable[[], object] = lambda: None,
    ) -> DeltaRows:
        there = counts or LoadCounts(end - start, end - start)
        return DeltaRows(self.path, range(start, end), there, during)

    def numbers(self) -> list[int]:
        if not is_delta_table(str(self.path)):
            return []
        return sorted(DeltaTable(self.path).to_pyarrow_table().column("n").to_pylist())

    def commit_without_answer(self, claim: Claim, end: int, *, arrives: bool) -> None:
        start = end_of(claim)

        def lost() -> None:
            raise StreamError("FM-STREAM-015", "no answer")

        load = self.load(start, end, during=lambda: None if arrives else lost())
        with pytest.raises(StreamError):
            self.ledger().commit(
                claim, batch(claim, claim.next_batch_id, start, end), Answerless(load)
            )

    def save(self) -> None:
        shutil.copytree(self.path, self._copy)

    def put_back(self) -> None:
        shutil.rmtree(self.path)
        shutil.copytree(self._copy, self.path)

    @property
    def _copy(self) -> Path:
        return self.path.with_name("copy")

    def go_its_own_way(self, batch_id: int) -> None:
        last = DeltaTable(self.path).version()
        (self.path / "_delta_log" / f"{last:020d}.json").unlink()
        app_id = self.ledger().app_id(1)
        metadata = commit_metadata(
            *("stream", f"{app_id}/{batch_id}", batch_id, STREAM, {}),
            start_offsets=at(0).to_json(),
            end_offsets=at(1).to_json(),
            claim_id="of a copy",
        )
        append(self.path, [0], Receipt(app_id, batch_id, metadata))

    def clean(self) -> None:
        for _ in range(2):
            append(self.path, [])
        table = DeltaTable(self.path)
        table.create_checkpoint()
        for version in range(table.version()):
            (self.path / "_delta_log" / f"{version:020d}.json").unlink(missing_ok=True)

    def let_pass(self, seconds: float) -> None:
        for sign in self._signs().glob("alive-*"):
            then = sign.stat().st_mtime - seconds
            os.utime(sign, (then, then))

    def forget_sign(self, claim_id: str) -> None:
        (self._signs() / f"alive-{claim_id}").unlink()

    def _signs(self) -> Path:
        return Path(f"{self.path}{BESIDE}") / REQUESTS

    def add_letter(self, batch_id: int, days: float, stream_id: str = STREAM) -> None:
        letter = DeadLetter("t", 0, batch_id, "value", "detail")
        then = datetime.now(UTC) - timedelta(days=days)
        write_deltalake(
            self.letter_path, letter_table([letter], batch_id, stream_id, then), mode="append"
        )

    def letters(self) -> list[int]:
        rows = pa.table(DeltaTable(self.letter_path).to_pyarrow_table())
        return sorted(rows["batch_id"].to_pylist())

    @property
    def letter_path(self) -> str:
        return f"{self.path}{DEAD_LETTERS}"


@dataclass
class DeltaRows:
    """Numbers for a Delta table: streaming.ledger.delta.DeltaLoad without Spark."""

    path: Path
    rows: Sequence[int]
    counts: LoadCounts
    during: Callable[[], object] = lambda: None

    def write_letters(self, receipt: Receipt, *, is_new: bool) -> None:
        del receipt, is_new

    def write_rows(self, receipt: Receipt) -> None:
        self.during()
        append(self.path, self.rows, receipt)


@dataclass
class Answerless:
    """The same, whose writer fails once it is done."""

    load: DeltaRows

    @property
    def counts(self) -> LoadCounts:
        return self.load.counts

    def write_letters(self, receipt: Receipt, *, is_new: bool) -> None:
        self.load.write_letters(receipt, is_new=is_new)

    def write_rows(self, receipt: Receipt) -> None:
        self.load.write_rows(receipt)
        raise StreamError("FM-STREAM-015", "no answer")


def append(path: Path, rows: Sequence[int], receipt: Receipt | None = None) -> None:
    """As the sink does it: nothing where the receipt is there, and never on top of another writer."""
    data = pa.table({"n": pa.array(rows, pa.int64())})
    properties = None
    if receipt is not None:
        properties = CommitProperties(
            custom_metadata={"userMetadata": receipt.user_metadata},
            app_transactions=[Transaction(receipt.app_id, receipt.seq)],
            max_commit_retries=0,
        )
    try:
        if not is_delta_table(str(path)):
            write_deltalake(path, data, mode="error", commit_properties=properties)
            return
        table = DeltaTable(path)
        there = table.transaction_version(receipt.app_id) if receipt is not None else None
        if there is None or receipt is None or there < receipt.seq:
            write_deltalake(table, data, mode="append", commit_properties=properties)
    except DeltaError as error:
        raise StreamError("FM-STREAM-015", str(error), retryable=True) from error


def end_of(claim: Claim) -> int:
    """Where the one partition of a stream stands."""
    return 0 if claim.end_offsets is None else claim.end_offsets.at(("t", 0))
