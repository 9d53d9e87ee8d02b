"""Streams as an independent reader of their database sees them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.rows import dict_row

from floodmark.engines.postgres import connector, run
from floodmark.model.offsets import Offsets
from floodmark.model.sql_names import qualified
from floodmark.streaming.ledger import (
    AlreadyApplied,
    Applied,
    Claim,
    ClaimFacts,
    Ledger,
    LoadCounts,
    Loaded,
    StreamBatch,
)

if TYPE_CHECKING:
    from floodmark.engines.postgres import Cursor

ME = ClaimFacts(holder="test")


class StreamPlace:
    """A schema with a table of numbers, which are the offsets of the records they came with."""

    def __init__(self, dsn: str, schema: str) -> None:
        self.dsn = dsn
        self.schema = schema
        self.table = qualified("postgres", (schema, "numbers"))

    def query(self, text: str) -> list[dict[str, Any]]:
        with psycopg.connect(self.dsn, row_factory=dict_row, autocommit=True) as connection:
            connection.execute("SELECT set_config('search_path', %s, false)", (f'"{self._path}"',))
            cursor = connection.execute(text.encode())
            return cursor.fetchall() if cursor.description else []

    @property
    def _path(self) -> str:
        return self.schema.replace('"', '""')

    def ledger(self, stream_id: str = "numbers", dsn: str | None = None) -> Ledger:
        return Ledger(connector(dsn or self.dsn), stream_id, self.schema)

    def numbers(self) -> list[int]:
        return sorted(row["n"] for row in self.query("SELECT n FROM numbers"))

    def tracker(self, stream_id: str = "numbers") -> list[dict[str, Any]]:
        return self.query(
            f"SELECT * FROM batch_tracker WHERE pipeline_id = '{stream_id}' ORDER BY batch_id"
        )


def at(offset: int) -> Offsets:
    return Offsets.of({("t", 0): offset})


def batch(claim: Claim, number: int, start: int, end: int, **more: Any) -> StreamBatch:
    return StreamBatch(number, claim.incarnation, at(start), at(end), **more)


def put(cursor: Cursor, table: str, numbers: Sequence[int]) -> Loaded:
    """The load of these tests: a row for each offset."""
    for number in numbers:
        run(cursor, f"INSERT INTO {table} VALUES ($1)", (number,))
    return Loaded(LoadCounts(len(numbers), len(numbers)))


def committed(ledger: Ledger, claim: Claim, table: str, *where: int) -> Applied | AlreadyApplied:
    """Commit a batch: its number, its first offset, and the one behind its last."""
    number, start, end = where
    planned = batch(claim, number, start, end)
    return ledger.commit(claim, planned, lambda cursor: put(cursor, table, range(start, end)))
