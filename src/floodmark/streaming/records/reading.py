"""The records of one batch, before they are looked at, and the two ways to look at them.

Arrow reads those that are plainly sound, Spark the others; with too many others, Spark reads all.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from floodmark.streaming.ledger.refusals import disagreeing
from floodmark.streaming.records.plain_json import RECORD, PlainReader, why_not_plain
from floodmark.streaming.records.read import Records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger("floodmark.streaming")

TOO_MANY = 0.1
"""The share of records that are left to Spark from which on it is quicker to give it all."""
BATCHES_BY_SPARK = 50
"""How many batches Spark reads before Arrow is tried again."""


@dataclass
class RecordReading:
    """Who reads the records of a stream; remembers how the batches before went."""

    stream_id: str
    ask: Callable[[Callable[[], pa.Table]], pa.Table]
    """How a job of Spark is asked for its rows."""
    _by_spark: int = 0
    _told: set[str] = field(default_factory=set)

    def table(self, records: Records) -> pa.Table:
        """Every record of a batch, judged, on the driver."""
        reader = self.plain_reader(records)
        if reader is None:
            return self.ask(records.judged().toArrow)
        found = self.ask(records.frame.select(*RECORD).toArrow)
        rows, others = reader.read(found)
        self.counted(found.num_rows, others.num_rows)
        if not others.num_rows:
            return rows
        by_spark = self.ask(only(records, others).judged().toArrow)
        self.check(others.num_rows, by_spark.num_rows)
        return pa.concat_tables([rows, by_spark.cast(rows.schema)])

    def plain_reader(self, records: Records) -> PlainReader | None:
        """What reads records that are plainly sound; None if Spark is to read all of them."""
        if self._by_spark:
            self._by_spark -= 1
            return None
        reason = why_not_plain(records.wanted)
        if reason is None:
            return PlainReader(records.wanted.rules, _zone(records.frame))
        if reason not in self._told:
            self._told.add(reason)
            log.info("stream %s: all records are parsed by Spark: %s", self.stream_id, reason)
        return None

    def counted(self, records: int, others: int) -> None:
        """Remember how many records of a batch had to be given to Spark."""
        if others > TOO_MANY * records:
            self.give_up(f"{others:,} of {records:,}")

    def check(self, others: int, judged: int) -> None:
        """FM-STREAM-007 if Spark judged more or fewer records than it was given."""
        if others != judged:
            found = f"{others} records were given to Spark, {judged} came back"
            raise disagreeing(self.stream_id, found)

    def give_up(self, found: str) -> None:
        """Let Spark read the next batches."""
        self._by_spark = BATCHES_BY_SPARK
        log.info(
            "stream %s: records of a batch had to be parsed again by Spark: %s; it parses all of the"
            " next %s batches",
            self.stream_id,
            found,
            BATCHES_BY_SPARK,
        )


def only(records: Records, some: pa.Table) -> Records:
    """Some of the records, in a frame of their own."""
    # In one piece: Spark 4 takes an empty batch between others for the end, and drops the rest.
    frame = records.frame.sparkSession.createDataFrame(some.combine_chunks())
    return Records(frame, records.wanted)


def _zone(records: DataFrame) -> str:
    return str(records.sparkSession.conf.get("spark.sql.session.timeZone"))
