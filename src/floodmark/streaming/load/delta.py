"""One batch of a stream into a Delta table: dead letters beside it first, then rows and offsets.

The dead letters of a batch and its rows are two commits, each with a receipt of the batch. A crash
between them leaves letters whose rows come with the next attempt, which finds the letters there.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from floodmark import __version__
from floodmark.config import LoadedStream
from floodmark.deltalog import is_delta_table
from floodmark.errors import SinkError, StreamError
from floodmark.model import Receipt, WriteSpec
from floodmark.model.names import quoted
from floodmark.model.offsets import Offsets
from floodmark.next_steps import STREAM, command
from floodmark.sinks.delta import DeltaSink, last_stream_write
from floodmark.streaming.ledger.batches import (
    AlreadyApplied,
    Applied,
    Claim,
    DeadLetter,
    LoadCounts,
    Loaded,
    StreamBatch,
)
from floodmark.streaming.ledger.delta import DeltaLedger
from floodmark.streaming.ledger.delta_letters import FILE_LETTERS
from floodmark.streaming.ledger.limits import WriteLimit, jobs_within
from floodmark.streaming.ledger.refusals import first_refused, refused_window
from floodmark.streaming.load.letter_rows import letter_rows
from floodmark.streaming.load.protocol import Results, advanced, wanted_of
from floodmark.streaming.records.judged_letters import JudgedLetters, kept
from floodmark.streaming.records.late import late_rule
from floodmark.streaming.records.read import (
    BAD,
    DETAILS,
    OFFSET,
    PARTITION,
    TOPIC,
    Records,
    Wanted,
)
from floodmark.streaming.records.spark_faults import asked, may_pass, said_of_job
from floodmark.streaming.records.state import tallied
from floodmark.streaming.records.target_rules import TargetRules

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("floodmark.streaming")

Result = TypeVar("Result")

_RANK = "_fm_rank"
_JUDGING = {"watermark", "late_data", "state_timeout", "deduplicate", "aggregate", "output_mode"}
"""Settings that decide what becomes of a record."""


@dataclass
class DeltaWriter:
    """Commits batches of one stream to its Delta table; see protocol.StreamWriter."""

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
        """Take dead letters out that came without their rows, and will come again.

        An incarnation that was cut off between the two leaves them behind: the next one judges its
        records anew, in batches of its own. Raises FM-STREAM-053.
        """
        app_id = self.ledger.app_id("")
        self.ledger.letters.withdraw_cut_off(claim, app_id, self.ledger.held())

    def write(
        self, claim: Claim, planned: StreamBatch, records: Records
    ) -> tuple[Claim, Applied | AlreadyApplied]:
        """Commit a batch of records, which are computed once."""
        rule, watermark = late_rule(self.stream.settings), claim.event_watermark
        rules = self.rules(self.stream.columns)
        frame = _judged(records, rules)
        with kept(frame):
            tally = self.asked(lambda: tallied(self.stream.called, frame, rule))
            if rule is not None:
                watermark = rule.watermark_after(watermark, tally.newest_event)
            counts = LoadCounts(tally.received, tally.counted, len(tally.letters), tally.late)
            rows = frame.where(f"{BAD} IS NULL")
            stored = replace(planned, event_watermark=watermark)
            load = _DeltaBatch(self, stored, rows, tally.letters, counts, self._judged_by(rules))
            outcome = self.ledger.commit(claim, stored, load)
        if rule is not None and rule.strategy == "logAndDrop" and tally.late:
            text = "stream %s, batch %s: %s late records were dropped"
            log.warning(text, self.stream_id, stored.batch_id, tally.late)
        return advanced(claim, stored), outcome

    def rules(self, columns: Sequence[str]) -> TargetRules:
        """Delta refuses the whole write for one row."""
        return TargetRules.of(self.spec.target, self.ledger.storage, columns)

    def write_results(
        self, claim: Claim, planned: StreamBatch, results: Results
    ) -> tuple[Claim, Applied | AlreadyApplied]:
        """Commit a batch of a query that keeps state.

        FM-STREAM-014 where the table refuses the result of a window; nothing of the batch is written
        then.
        """
        if results.are_windows:
            self._refuse_windows(results.frame)
        rows = self.asked(results.frame.count)
        loaded, letters = results.accounted(Loaded(LoadCounts(rows, rows))), results.tally.letters
        judged_by = self._judged_by(results.rules)
        load = _DeltaBatch(self, planned, results.frame, letters, loaded.counts, judged_by)
        outcome = self.ledger.commit(claim, planned, load)
        return advanced(claim, planned), outcome

    def _refuse_windows(self, rows: DataFrame) -> None:
        """What a window is of was judged record by record; a measure is no record's own."""
        rules = self.rules(self.stream.columns)
        broken = self.asked(lambda: rules.first_broken(rows)) if rules else None
        if broken is not None:
            reason, name = broken
            letter = DeadLetter(None, None, None, reason, DETAILS[reason], column=name)
            raise refused_window(self.stream_id, letter)

    def write_rows(self, frame: DataFrame, receipt: Receipt) -> None:
        """Rows, receipt and offsets in one commit of the target."""
        self._refuse_missing()
        self._saved(frame.sparkSession, self.spec, self._rows(frame), receipt)

    def write_letters(self, receipt: Receipt, load: _DeltaBatch, *, is_new: bool) -> None:
        """The letters of a batch, once, as its rows are judged.

        FM-STREAM-009 where the stream is to stop at the first of a new batch.

        An attempt before may have judged by other settings and left its letters without rows: those
        are withdrawn first. Where the rows are there after all, by a runner that was taken for dead,
        letters that were withdrawn come back.
        """
        batch, letters = load.batch, load.letters
        if is_new and self.stream.settings.errors.fail_fast and len(letters):
            raise first_refused(next(iter(letters)), stream=self.stream_id)
        table, attempt = self.ledger.letters, 0
        last = table.last(receipt.app_id)
        if last is not None and last.batch_id == batch.batch_id:
            attempt = last.attempt
            if last.judged_by != load.judged_by:
                if is_new and not last.is_withdrawn:
                    table.withdraw(receipt.app_id, last)
                    attempt += 1
                elif not last.is_withdrawn:
                    return
                attempt += 1
        elif not is_new:
            return
        if not len(letters):
            return
        number = (batch.incarnation, batch.batch_id)
        rows = letter_rows(letters.frame, self.stream_id, number, self._topics)
        spec = WriteSpec(
            table.path,
            "append",
            self.stream_id,
            adds_columns=True,
            file_rows=FILE_LETTERS,
            allow_single_writer=self.spec.allow_single_writer,
        )
        of_letters = table.receipt(receipt, attempt, judged_by=load.judged_by)
        self._saved(letters.frame.sparkSession, spec, rows, of_letters)

    @property
    def _topics(self) -> tuple[str | None, str | None]:
        """Where dead letters go, and late records."""
        dlq, rule = self.stream.settings.errors.dlq, late_rule(self.stream.settings)
        return (
            dlq.topic if dlq.dlq_type == "kafka" else None,
            rule.topic if rule is not None else None,
        )

    def _judged_by(self, rules: TargetRules) -> str:
        """By what records are judged: the same for settings that find the same records sound.

        `rules` are those that judged them: the table may have got another one meanwhile.
        """
        settings = self.stream.settings
        said = [
            __version__,
            [astuple(field) for field in self.stream.payload.fields],
            list(self.stream.columns),
            settings.streaming.model_dump(mode="json", include=_JUDGING),
            settings.load.nul_bytes,
        ]
        if rules:
            said.append(astuple(rules))
        return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:16]

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
        previous = last_stream_write(spec.target, receipt.app_id, storage)
        limit = WriteLimit(self.stream_id, spec.target, self.stream.settings.load.write_seconds)
        sink = DeltaSink(spark, spec, (), previous, storage.options)
        try:
            with jobs_within(spark, limit):
                sink.write(frame, receipt)
        except StreamError:
            raise
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
            stream=self.stream_id,
            where=self.spec.target,
            found="there is no such table",
            allowed="a Delta table, or createTable: true",
            state="nothing of this batch was written",
            next="change the stream, then: " + command("stream", "run", STREAM),
        )

    def _retold(self, error: SinkError) -> StreamError | SinkError:
        """One that may pass is tried again like any other of a stream."""
        if error.retryable:
            return self._unwritten(error, is_passing=True)
        error.next = "put the table back as it was; or, if it is meant as it is now: " + command(
            "stream", "reset", self.stream.called, "--to", "OFFSETS", "--yes"
        )
        return error

    def _unwritten(self, error: Exception, *, is_passing: bool | None = None) -> StreamError:
        return StreamError(
            "FM-STREAM-015",
            "a batch of a stream could not be written to its Delta table",
            stream=self.stream_id,
            where=self.spec.target,
            found=said_of_job(error),
            state="rows, receipt and offsets are one commit: all there or nothing, and the next"
            " attempt finds out",
            next=command("stream", "run", self.stream.called),
            retryable=may_pass(error) if is_passing is None else is_passing,
        )


@dataclass(frozen=True)
class _DeltaBatch:
    """What the ledger gets of a batch: streaming.ledger.delta.DeltaLoad."""

    writer: DeltaWriter
    batch: StreamBatch
    rows: DataFrame
    letters: JudgedLetters
    counts: LoadCounts
    judged_by: str

    def write_letters(self, receipt: Receipt, *, is_new: bool) -> None:
        self.writer.write_letters(receipt, self, is_new=is_new)

    def write_rows(self, receipt: Receipt) -> None:
        self.writer.write_rows(self.rows, receipt)


def _judged(records: Records, rules: TargetRules) -> DataFrame:
    """The records as the stream and the rules of the table judge them."""
    if not rules:
        return records.judged()
    kept_whole = replace(records, wanted=replace(records.wanted, keeps_bytes=True))
    return rules.applied(kept_whole.judged())


def _last_of_each(frame: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Of several records of one key the last by topic, partition and offset."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    order = [f.col(name).desc() for name in (TOPIC, PARTITION, OFFSET)]
    window = Window.partitionBy(*map(quoted, keys)).orderBy(*order)
    return frame.withColumn(_RANK, f.row_number().over(window)).where(f"{_RANK} = 1").drop(_RANK)
