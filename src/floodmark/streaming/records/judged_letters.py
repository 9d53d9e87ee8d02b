"""Dead letters among the judged records of a batch: they stay with the executors.

A batch may be one flood of broken records. The driver learns how many there are, and gets them in
pieces of a few megabytes where it has to hand them on itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from floodmark.streaming.ledger.batches import DeadLetter
from floodmark.streaming.records.late import LateRule
from floodmark.streaming.records.micro_batch import MicroBatch, letter_of_record
from floodmark.streaming.records.read import EVENT_TIME, JUDGEMENT, OFFSET, PARTITION, TOPIC
from floodmark.streaming.records.spark_faults import unread

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PIECE_BYTES = 8 * 1024**2
PIECE_RECORDS = 10_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROS = "_fm_event_micros"


class Letters(Protocol):
    """Dead letters whose number is known; the same each time they are gone through."""

    def __iter__(self) -> Iterator[DeadLetter]: ...

    def __len__(self) -> int: ...


@dataclass(frozen=True)
class JudgedLetters:
    """The refused records of a batch, as a frame of Spark."""

    called: str
    """What commands call the stream."""
    frame: DataFrame
    count: int
    size: int
    """Bytes of their keys and values."""
    late: LateRule | None = None

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[DeadLetter]:
        """Piece by piece; raises FM-STREAM-026 where Spark does not give them."""
        try:
            yield from self._at_once() if self._pieces <= 1 else self._piece_by_piece()
        # Whatever Spark throws is told as one of ours; its class says whether it may pass.
        except Exception as error:
            raise unread(self.called, error) from error

    def kept(self) -> AbstractContextManager[None]:
        """Computed once while the block runs, however often they are gone through."""
        return kept(self.frame) if self.count else nullcontext()

    @property
    def _pieces(self) -> int:
        return math.ceil(max(self.size / PIECE_BYTES, self.count / PIECE_RECORDS))

    def _at_once(self) -> Iterator[DeadLetter]:
        if self.count:
            yield from MicroBatch(self.frame.toArrow(), self.late).letters()

    def _piece_by_piece(self) -> Iterator[DeadLetter]:
        """A partition at a time comes to the driver, and only the one that is asked for."""
        from pyspark.sql import functions as f

        columns = [TOPIC, PARTITION, OFFSET, *JUDGEMENT]
        # Spark's times come to Python as those of this machine's zone; its numbers do not.
        moment = f.unix_micros(EVENT_TIME).alias(_MICROS)
        rows = self.frame.select(*columns, moment).drop(EVENT_TIME)
        for row in rows.repartition(self._pieces).toLocalIterator():
            micros = row[_MICROS]
            time = None if micros is None else _EPOCH + timedelta(microseconds=micros)
            yield letter_of_record({**row.asDict(), EVENT_TIME: time})


@dataclass(frozen=True)
class Joined:
    """Letters of two kinds, one after the other."""

    first: Iterable[DeadLetter]
    second: Iterable[DeadLetter]

    def __iter__(self) -> Iterator[DeadLetter]:
        yield from self.first
        yield from self.second


@contextmanager
def kept(frame: DataFrame) -> Iterator[None]:
    """Computed once, however often it is asked."""
    frame.persist()
    try:
        yield
    finally:
        frame.unpersist()
