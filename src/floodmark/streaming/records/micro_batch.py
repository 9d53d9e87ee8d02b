"""The rows of one batch on the driver: what is written, what becomes a dead letter, what is dropped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from floodmark.streaming.ledger.batches import DeadLetter
from floodmark.streaming.records.late import LateRule
from floodmark.streaming.records.read import (
    BAD,
    BAD_COLUMN,
    DETAILS,
    EVENT_TIME,
    JUDGEMENT,
    KEY,
    LATE,
    OFFSET,
    PARTITION,
    TOPIC,
    VALUE,
)


@dataclass(frozen=True)
class MicroBatch:
    """Every record of a batch, judged."""

    table: pa.Table
    late: LateRule | None = None

    @property
    def received(self) -> int:
        """The records there are."""
        return int(self.table.num_rows)

    @cached_property
    def rows(self) -> pa.Table:
        """What is to be written: columns of the target and places in Kafka."""
        bad = self.table.column(BAD)
        rows = self.table.filter(pc.is_null(bad)) if bad.null_count < len(bad) else self.table
        return rows.drop_columns(list(JUDGEMENT))

    @cached_property
    def late_rows(self) -> pa.Table:
        """Late records as rows, for a table of their own."""
        chosen = pc.fill_null(pc.equal(self.table.column(BAD), LATE), fill_value=False)
        return self.table.filter(chosen).drop_columns(list(JUDGEMENT))

    @cached_property
    def _rejects(self) -> list[dict[str, Any]]:
        bad = self.table.column(BAD)
        if bad.null_count == len(bad):
            return []
        place = (TOPIC, PARTITION, OFFSET)
        wanted = self.table.select([*place, *JUDGEMENT]).filter(pc.is_valid(bad))
        found: list[dict[str, Any]] = wanted.to_pylist()
        return found

    @property
    def dropped(self) -> int:
        """Late records that are only counted."""
        is_dropped = self.late is not None and self.late.is_dropped
        return sum(row[BAD] == LATE for row in self._rejects) if is_dropped else 0

    @property
    def refused(self) -> int:
        """Records that are no rows, late ones apart."""
        return sum(row[BAD] != LATE for row in self._rejects)

    def letters(self) -> Iterator[DeadLetter]:
        """A dead letter for each record that is neither written nor dropped."""
        for row in self._rejects:
            if row[BAD] != LATE or (self.late is not None and self._late_is_letter):
                yield letter_of_record(row)

    @property
    def _late_is_letter(self) -> bool:
        rule = self.late
        return rule is not None and not rule.is_dropped and rule.table is None

    @property
    def newest_event(self) -> datetime | None:
        """The newest event of the records that could be read."""
        bad = self.table.column(BAD)
        is_read = pc.or_kleene(pc.is_null(bad), pc.equal(bad, LATE))
        newest = pc.max(self.table.column(EVENT_TIME).filter(is_read)).as_py()
        return _aware(newest)


def letter_of_record(row: Mapping[str, Any]) -> DeadLetter:
    """The dead letter of a judged record."""
    reason = row[BAD]
    return DeadLetter(
        row[TOPIC],
        row[PARTITION],
        row[OFFSET],
        reason,
        DETAILS[reason],
        _bytes(row[KEY]),
        _bytes(row[VALUE]),
        row[BAD_COLUMN],
        _aware(row[EVENT_TIME]),
    )


def _bytes(value: bytes | bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


def _aware(time: datetime | None) -> datetime | None:
    return time.replace(tzinfo=UTC) if time is not None and time.tzinfo is None else time
