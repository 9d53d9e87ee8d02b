"""One batch of a stream into a Delta table: dead letters beside it first, then rows and offsets.

The dead letters of a batch and its rows are two commits, each with a receipt of the batch. A crash
between them leaves letters whose rows come with the next attempt, which finds the letters there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from floodmark import failpoints
from floodmark.config import LoadedStream
from floodmark.deltalog import is_delta_table
from floodmark.errors import SinkError, StreamError
from floodmark.model.names import quoted
from floodmark.model.offsets import Offsets
from floodmark.model.receipt import Receipt
from floodmark.model.write import WriteSpec
from floodmark.sinks.delta import DeltaSink
from floodmark.sinks.streams import last_write
from floodmark.streaming.batches import (
    AlreadyApplied,
    Applied,
    Claim,
    DeadLetter,
    LoadCounts,
    Loaded,
    StreamBatch,
)
from floodmark.streaming.delta_ledger import DEAD_LETTERS, DeltaLedger
from floodmark.streaming.late import late_rule
from floodmark.streaming.read import BAD, OFFSET, PARTITION, TOPIC, Records, Wanted
from floodmark.streaming.refusals import disagreeing, first_refused
from floodmark.streaming.spark_faults import asked, may_pass, said_by_spark
from floodmark.streaming.state import tallied
from floodmark.streaming.writing import Results, advanced, wanted_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("floodmark.streaming")

Result = TypeVar("Result")

_LETTERS = pa.schema(
    [
        ("stream_id", pa.string()),
        ("batch_id", pa.int64()),
        ("dead_lettered_at", pa.timestamp("us", "UTC")),
        ("topic", pa.string()),
        ("kafka_partition", pa.int32()),
        ("kafka_offset", pa.int64()),
        ("record_key", pa.binary()),
        ("record_value", pa.binary()),
        ("reason", pa.string()),
        ("detail", pa.string()),
        ("column_name", pa.string()),
        ("event_time", pa.timestamp("us", "UTC")),
    ]
)
_RANK = "_fm_rank"


@dataclass
class DeltaWriter:
    """Commits batches of one stream to its Delta table."""

    stream: LoadedStream
    ledger: DeltaLedger
    spec: WriteSpec
    is_bounded: bool = False
    """The executors write: a batch may be of any size."""

    @property
    def stream_id(self) -> str:
        """The stream's name in its receipts."""
        return self.stream.settings.pipeline_id

    def wanted(self, claim: Claim, start: Offsets, end: Offsets) -> Wanted:
        """What to read, judged by the watermark of the batch before."""
        return wanted_of(self.stream, claim, start, end)

    def asked(self, act: Callable[[], Result]) -> Result:
        """What a job of Spark gives; raises FM-STREAM-026."""
        return asked(self.stream.called, act)

    def sweep(self, claim: Claim) -> None:
        """Nothing is staged."""

    def write(
        self, claim: Claim, planned: StreamBatch, records: Records
    ) -> tuple[Claim, Applied | AlreadyApplied]:
        """Commit a batch of records, as `BatchWriter.write`."""
        rule, watermark = late_rule(self.stream.settings), claim.event_watermark
        frame = records.judged()
        with _kept(frame):
            tally = self.asked(lambda: tallied(frame, rule))
            if rule is not None:
                watermark = rule.watermark_after(watermark, tally.newest_event)
            counts = LoadCounts(tally.received, tally.counted, len(tally.letters), tally.late)
            rows = frame.where(f"{BAD} IS NULL")
            stored = replace(planned, event_watermark=watermark)
            outcome = self._committed(claim, stored, rows, tally.letters, counts)
        if rule is not None and rule.strategy == "logAndDrop" and tally.late:
            text = "stream %s, batch %s: %s late records were dropped"
            log.warning(text, self.stream_id, stored.batch_id, tally.late)
        return advanced(claim, stored), outcome

    def write_results(
        self, claim: Claim, planned: StreamBatch, results: Results
    ) -> tuple[Claim, Applied | AlreadyApplied]:
        """Commit a batch of a query that keeps state, as `BatchWriter.write_results`."""
        rows = self.asked(results.frame.count)
        loaded = results.accounted(Loaded(LoadCounts(rows, rows)))
        letters = list(loaded.dead_letters)
        outcome = self._committed(claim, planned, results.frame, letters, loaded.counts)
        return advanced(claim, planned), outcome

    def _committed(
        self,
        claim: Claim,
        batch: StreamBatch,
        rows: DataFrame,
        letters: Sequence[DeadLetter],
        counts: LoadCounts,
    ) -> Applied | AlreadyApplied:
        """The order of the steps is the guarantee.

        1. Fenced, already there, or not where the stream stands: nothing is written.
        2. Dead letters beside the target, with a receipt of the batch.
        3. Rows, receipt and offsets in one commit of the target.
        """
        # 1.
        if not self.ledger.admitted(claim, batch):
            return AlreadyApplied(batch.batch_id)
        if self.stream.settings.errors.fail_fast and letters:
            raise first_refused(f"stream {self.stream_id}", letters[0])
        if not counts.agree:
            raise disagreeing(self.stream_id, str(counts), batch)
        # 2.
        spark = rows.sparkSession
        if letters:
            beside = WriteSpec(
                f"{self.spec.target}{DEAD_LETTERS}",
                "append",
                self.stream_id,
                allow_single_writer=self.spec.allow_single_writer,
            )
            receipt = self.ledger.receipt(claim, batch, counts, of="/dead_letters")
            frame = spark.createDataFrame(_table_of(self.stream_id, batch.batch_id, letters))
            self._saved(spark, beside, frame, receipt)
        # 3.
        failpoints.reached("stream.before_commit")
        self._refuse_missing()
        self._saved(spark, self.spec, self._rows(rows), self.ledger.receipt(claim, batch, counts))
        failpoints.reached("stream.after_commit")
        return Applied(batch.batch_id, counts)

    def _rows(self, frame: DataFrame) -> DataFrame:
        """The columns of the target; for a merge the last record of each key."""
        columns = list(map(quoted, self.stream.columns))
        if self.spec.mode == "merge" and OFFSET in frame.columns:
            frame = _last_of_each(frame, self.spec.keys)
        return frame.select(*columns)

    def _saved(
        self, spark: SparkSession, spec: WriteSpec, frame: DataFrame, receipt: Receipt
    ) -> None:
        storage = self.ledger.storage
        previous = last_write(spec.target, receipt.app_id, storage)
        try:
            DeltaSink(spark, spec, (), previous, storage.options).write(frame, receipt)
        except SinkError as error:
            raise self._retold(error) from error
        # Whatever Spark throws; Delta's conflicts with other writers pass.
        except Exception as error:
            raise self._unwritten(error) from error

    def _refuse_missing(self) -> None:
        """FM-STREAM-008 where there is no table and none is to be made."""
        settings = self.stream.settings.load
        if settings.create_table or is_delta_table(self.spec.target, self.ledger.storage):
            return
        raise StreamError(
            "FM-STREAM-008",
            "the rows of a stream do not fit the target",
            where=f"stream {self.stream_id}, {self.spec.target}",
            found="there is no such table",
            allowed="a Delta table, or createTable: true",
            state="nothing of this batch was written",
            next="change the stream, then: floodmark stream run",
        )

    def _retold(self, error: SinkError) -> StreamError | SinkError:
        """One that may pass is tried again like any other of a stream."""
        if error.retryable:
            return self._unwritten(error, is_passing=True)
        error.next = (
            "put the table back as it was; or, if it is meant as it is now:"
            f" floodmark stream reset {self.stream.called} --to OFFSETS --yes"
        )
        return error

    def _unwritten(self, error: Exception, *, is_passing: bool | None = None) -> StreamError:
        return StreamError(
            "FM-STREAM-015",
            "a batch of a stream could not be written to its Delta table",
            where=f"stream {self.stream_id}, {self.spec.target}",
            found=said_by_spark(error),
            state="rows, receipt and offsets are one commit: all there or nothing, and the next"
            " attempt finds out",
            next=f"floodmark stream run {self.stream.called}",
            retryable=may_pass(error) if is_passing is None else is_passing,
        )


@contextmanager
def _kept(frame: DataFrame) -> Iterator[None]:
    """Computed once, however often it is asked."""
    frame.persist()
    try:
        yield
    finally:
        frame.unpersist()


def _last_of_each(frame: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Of several records of one key the last by topic, partition and offset."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    order = [f.col(name).desc() for name in (TOPIC, PARTITION, OFFSET)]
    window = Window.partitionBy(*map(quoted, keys)).orderBy(*order)
    return frame.withColumn(_RANK, f.row_number().over(window)).where(f"{_RANK} = 1").drop(_RANK)


def _table_of(stream_id: str, batch_id: int, letters: Sequence[DeadLetter]) -> pa.Table:
    now = datetime.now(UTC)
    rows: list[dict[str, Any]] = [
        {
            "stream_id": stream_id,
            "batch_id": batch_id,
            "dead_lettered_at": now,
            "topic": letter.topic,
            "kafka_partition": letter.partition,
            "kafka_offset": letter.offset,
            "record_key": letter.key,
            "record_value": letter.value,
            "reason": letter.reason,
            "detail": letter.detail,
            "column_name": letter.column,
            "event_time": letter.event_time,
        }
        for letter in letters
    ]
    return pa.Table.from_pylist(rows, schema=_LETTERS)
