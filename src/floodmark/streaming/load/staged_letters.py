"""Dead letters of a batch that executors stage: however many there are, few are in memory at once."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from typing import IO, TYPE_CHECKING, Any

from floodmark.postgres import run
from floodmark.streaming.ledger.batches import DeadLetter
from floodmark.streaming.load.refused import MISFIT, Originals, with_originals

if TYPE_CHECKING:
    from floodmark.postgres import Cursor

LETTERS = "_l"
"""What the name of the table with an attempt's dead letters ends with."""
_COLUMNS = (
    "topic text, kafka_partition integer, kafka_offset bigint, reason text, detail text,"
    " record_key bytea, record_value bytea, column_name text, event_time timestamptz"
)
"""In the order of the fields of a dead letter."""
AT_ONCE = 1_000


class Letters:
    """Those of an attempt: written to a file of its own until its rows are copied."""

    def __init__(self) -> None:
        self.count = 0
        self._last: list[DeadLetter] = []
        self._file: IO[bytes] | None = None

    def add(self, letter: DeadLetter) -> None:
        self.count += 1
        self._last.append(letter)
        if len(self._last) == AT_ONCE:
            self._file = self._file or tempfile.TemporaryFile()  # noqa: SIM115 - `store` closes it
            pickle.dump(self._last, self._file)
            self._last = []

    def __iter__(self) -> Iterator[DeadLetter]:
        if self._file is not None:
            self._file.seek(0)
            for _ in range(self.count // AT_ONCE):
                yield from pickle.load(self._file)  # noqa: S301 - a file without a name, of ours
        yield from self._last

    def store(self, cursor: Cursor, table: str, new_table: str) -> None:
        """Into a table that `new_table` begins to create, if there are any; the file is gone then."""
        if self.count:
            run(cursor, f"{new_table} {table} ({_COLUMNS})")
            with cursor.copy(f"COPY {table} FROM STDIN".encode()) as copy:
                for letter in self:
                    copy.write_row(_row(letter))
        if self._file is not None:
            self._file.close()


def _row(letter: DeadLetter) -> tuple[Any, ...]:
    return astuple(replace(letter, detail=letter.detail.replace("\0", "\\0")))


@dataclass(frozen=True)
class StagedLetters:
    """Those of a batch, read from their tables each time they are gone through."""

    cursor: Cursor
    """Of the transaction that moves the batch."""
    tables: Sequence[str]
    more: Iterable[Sequence[DeadLetter]] = ()
    """Refused when the rows were moved, part by part."""
    originals: Originals | None = None

    def __iter__(self) -> Iterator[DeadLetter]:
        for table in self.tables:
            for letters in self._parts(table):
                # Records that were judged kept their bytes; those of rows are only in Kafka.
                rows = [letter for letter in letters if letter.reason == MISFIT]
                yield from (letter for letter in letters if letter.reason != MISFIT)
                yield from self._with_originals(rows)
        for part in self.more:
            yield from self._with_originals(part)

    def count(self) -> int:
        """How many are in the tables."""
        counted = [run(self.cursor, f"SELECT count(*) FROM {t}").fetchone() for t in self.tables]
        return sum(row[0] for row in counted if row is not None)

    def _parts(self, table: str) -> Iterator[list[DeadLetter]]:
        run(self.cursor, f"DECLARE floodmark_letters CURSOR FOR SELECT * FROM {table}")
        while rows := run(self.cursor, f"FETCH {AT_ONCE} FROM floodmark_letters").fetchall():
            yield [DeadLetter(*row) for row in rows]
        run(self.cursor, "CLOSE floodmark_letters")

    def _with_originals(self, letters: Sequence[DeadLetter]) -> Iterable[DeadLetter]:
        return letters if self.originals is None else with_originals(letters, self.originals)
