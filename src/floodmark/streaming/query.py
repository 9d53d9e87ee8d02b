"""A stream by Structured Streaming: Spark's checkpoint plans batches, the database decides.

Every micro-batch goes through the same writer as without a checkpoint: its offsets, from the
checkpoint's own log, are committed with its rows. An error always leaves `foreachBatch`, so Spark
never takes a batch for done that is not in the database.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from floodmark import failpoints
from floodmark.config import LoadedStream
from floodmark.config.stream import Trigger
from floodmark.engines.jvm import state_metric
from floodmark.engines.spark import needing_kafka
from floodmark.errors import StreamError
from floodmark.model.offsets import Offsets
from floodmark.next_steps import command
from floodmark.streaming.ledger.batches import (
    AlreadyApplied,
    Applied,
    Claim,
    StreamBatch,
    StreamRow,
)
from floodmark.streaming.ledger.refusals import not_by_spark
from floodmark.streaming.load.protocol import Results, counts_of
from floodmark.streaming.position.checkpoint import (
    INCARNATION,
    Checkpoint,
    batch_offsets,
    batch_watermark_ms,
    begin_checkpoint,
    incarnations,
    is_planned,
    note_state,
    noted_state,
    read_checkpoint,
)
from floodmark.streaming.position.decisions import (
    Start,
    check_offsets,
    decide,
    refuse_other_state,
    refuse_state_loss,
    stored_of,
)
from floodmark.streaming.records.read import Records, batch_records
from floodmark.streaming.records.spark_faults import ended, said_of_query
from floodmark.streaming.records.state import DUPLICATES, StateQuery, tallied
from floodmark.streaming.records.target_rules import TargetRules
from floodmark.streaming.runner import Runner, Stopped, end_of
from floodmark.streaming.running.watching import BatchDone, RunTotals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger("floodmark.streaming")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LOOK_SECONDS = 0.3
"""How soon a stop is noticed; Spark takes fractions although its types do not say so."""


@dataclass
class StreamQuery(Runner):
    """Runs one stream with a checkpoint of Spark."""

    accepts_state_loss: bool = False
    """Whether windows and keys that are only in a lost checkpoint may be given up."""
    _claim: Claim | None = None
    _folder: str = ""
    _rules: TargetRules = field(default_factory=TargetRules)
    """By which records are judged before they reach the state: the same as long as a query runs."""
    _error: BaseException | None = None
    _guard: threading.Lock = field(default_factory=threading.Lock)
    """Held while a batch is under way: a stop waits for it."""

    def run(self) -> RunTotals:
        """See runner.Runner: start the query and watch it to its end.

        One that Spark ends for a reason that may pass is started again. Attempts without a batch
        between them are counted, as those of a batch are.
        """
        failed = batches = 0
        with suppress(Stopped), self.listening():
            self.again(self.ledger.ensure)
            while (error := self._ended()) is not None:
                failed = failed + 1 if self.totals.batches == batches else 1
                batches = self.totals.batches
                self.retrying.pause(failed, error)
        return self.totals

    def _ended(self) -> StreamError | None:
        """Why Spark ended a query before its end; raises what was wrong with a batch."""
        self.again(self._refuse_fenced)
        start = self.again(self.begun)
        self.tidied(self._known())
        error = self._watched(self._started(start))
        if error is not None:
            # Spark tells of another runner by what it finds in the checkpoint.
            self.again(self._refuse_fenced)
        return error

    def _refuse_fenced(self) -> None:
        """FM-STREAM-001 if another runner has taken over: the stream is not taken back from it."""
        if self._claim is not None:
            self.ledger.refuse_fenced(self._claim)

    # Beginning ----------------------------------------------------------------------------------

    def begun(self) -> Offsets:
        """The stream is ours from here on; returns where Spark begins if its checkpoint is empty.

        Raises what the start-up table refuses. A new incarnation gets an empty checkpoint beside an
        old one, which stays as it is.
        """
        row, location = self._looked_at(), location_of(self.stream)
        folder, ids = active_folder(location, row), self.source.topic_ids()
        checkpoint = None if is_left(row) else self._followed(folder, row)
        start = self._decided(checkpoint, row, ids)
        begins = start.kind == "new_incarnation"
        if begins:
            folder = empty_folder(location, (row.incarnation if row else 0) + 1)
        if start.kind == "resume" and checkpoint is not None:
            query_id = checkpoint.query_id
        else:
            if self.state is not None:
                note_state(folder, self.state.definition, self.stream.called)
            query_id = begin_checkpoint(folder, self.stream.called)
        facts = self.facts(ids, query_id=query_id, checkpoint=folder, begins_incarnation=begins)
        claim, self._folder = self.ledger.claim(facts, row), folder
        self.taken(claim)
        self._claim = self.begun_at_settings(claim) if start.kind == "fresh" else claim
        return start.offsets or end_of(self._claim)

    def _followed(self, folder: str, row: StreamRow | None) -> Checkpoint | None:
        """The checkpoint there, unless its state is of other windows or keys and may be left."""
        called = self.stream.called
        found = read_checkpoint(folder, called)
        noted = noted_state(folder, called) if self.state is not None else None
        if self.state is None or noted in (None, self.state.definition):
            return found
        if not self.accepts_state_loss and row is not None:
            refuse_other_state(called, folder, row)
        return None

    def _decided(
        self, checkpoint: Checkpoint | None, row: StreamRow | None, topic_ids: dict[str, str]
    ) -> Start:
        called, is_stateful = self.stream.called, self.stream.settings.streaming.is_stateful
        start = decide(
            called,
            checkpoint,
            stored_of(row),
            topic_ids,
            keeps_state=is_stateful,
            accepts_state_loss=self.accepts_state_loss,
        )
        if start.offsets is not None:
            earliest = self.source.admin.earliest(self.source.topics)
            check_offsets(called, start.offsets, earliest, self.source.latest())
        return start

    def _looked_at(self) -> StreamRow | None:
        """The row of the stream, behind what is gone from Kafka where that is to be skipped."""
        row = self.ledger.trusted(self.stream.called)
        if not self.skips_to_earliest or row is None or row.end_offsets is None:
            return row
        ids = self.source.refuse_recreated(row.topic_ids)
        if self.source.lost(row.end_offsets):
            if self.state is not None and not self.accepts_state_loss:
                called = self.stream.called
                refuse_state_loss(command("stream", "run", called, "--skip-to-earliest"), row)
            # Without a query id the start-up table begins a new incarnation behind the losses.
            self.skipped(self.ledger.claim(self.facts(ids), row))
        return self.ledger.stored()

    def _started(self, start: Offsets) -> StreamingQuery:
        settings, is_bounded = self.stream.settings, self.writer.is_bounded
        source = (
            self.spark.readStream.format("kafka")
            .options(**self.access.source().spark)
            .option("subscribe", settings.extract.topic)
            .option("startingOffsets", self._starting(start))
            .option("maxOffsetsPerTrigger", str(self.limit))
            .option("failOnDataLoss", "true")
        )
        with needing_kafka():
            records = source.load()
        with self._told_by_spark():
            rows = records if self.state is None else self._with_state(self.state, records)
            writer = rows.writeStream.foreachBatch(self._batch)
            query: StreamingQuery = (
                writer.queryName(settings.streaming.query_name or settings.pipeline_id)
                .outputMode(self.state.output_mode if self.state is not None else "append")
                .option("checkpointLocation", self._folder)
                .trigger(**spark_trigger(settings.streaming.trigger_mode, is_bounded=is_bounded))
                .start()
            )
        return query

    @cached_property
    def state(self) -> StateQuery | None:
        """What the query keeps state for; None for one that keeps none."""
        return StateQuery(self.stream) if self.stream.settings.streaming.is_stateful else None

    def _with_state(self, state: StateQuery, records: DataFrame) -> DataFrame:
        """The rows of a query that keeps state."""
        self._rules = self.again(partial(self.writer.rules, state.own_columns))
        return state.frame(records, self._rules)

    @contextmanager
    def _told_by_spark(self) -> Iterator[None]:
        """Tell what Spark finds wrong with a query before it runs."""
        from pyspark.errors import AnalysisException

        try:
            yield
        except AnalysisException as error:
            raise not_by_spark(self.stream.called, said_of_query(error)) from error

    def _starting(self, start: Offsets) -> str:
        """As Spark wants it: every partition is to be named."""
        there = self.source.admin.partitions(self.source.topics)
        return Offsets.of({place: start.at(place) for place in there}).to_json()

    # Batches ------------------------------------------------------------------------------------

    def _batch(self, frame: DataFrame, number: int) -> None:
        """What Spark calls for each micro-batch; whatever is wrong is raised to it."""
        with self._guard:
            try:
                if self.stop.is_set():
                    raise Stopped  # noqa: TRY301  (as every other end of a batch)
                failpoints.reached("stream.after_wal")
                with self._computed_once(frame):
                    self.done(self.again(partial(self._applied, frame, number)))
            # The boundary to Spark, which tells no more than a text of it.
            except BaseException as error:
                self._error = error
                if isinstance(error, Exception):
                    raise
                # Java gets no answer for what is no Exception, and would wait for ever.
                raise RuntimeError(repr(error)) from error

    @contextmanager
    def _computed_once(self, frame: DataFrame) -> Iterator[None]:
        """Keep the rows of a query with state, which are asked for more than once."""
        if self.state is None:
            yield
            return
        frame.persist()
        try:
            yield
        finally:
            frame.unpersist()

    def _applied(self, frame: DataFrame, number: int) -> BatchDone:
        began = time.monotonic()
        claim = self._known()
        start, end = batch_offsets(self._folder, number, self.stream.called)
        is_last = claim.batch_id is not None and claim.spark_batch_id == number
        batch = StreamBatch(
            batch_id=int(claim.batch_id or 0) if is_last else claim.next_batch_id,
            incarnation=claim.incarnation,
            start=start,
            end=end,
            spark_batch_id=number,
            checkpoint=self._folder,
            event_watermark=self._watermark(number),
        )
        self._claim, outcome = self._written(claim, batch, frame, number)
        return BatchDone(
            outcome.batch_id,
            counts_of(outcome),
            self._behind(end),
            time.monotonic() - began,
            isinstance(outcome, AlreadyApplied),
            self._claim.event_watermark,
        )

    def _written(
        self, claim: Claim, batch: StreamBatch, frame: DataFrame, number: int
    ) -> tuple[Claim, Applied | AlreadyApplied]:
        if self.state is None:
            wanted = self.writer.wanted(claim, batch.start, batch.end)
            return self.writer.write(claim, batch, Records(frame, wanted))
        # Counted before the records are judged: it computes the rows.
        self.writer.asked(frame.count)
        duplicates = self._duplicates() if self.state.hides_duplicates else 0
        # Spark drops by the watermark of the batch before.
        before = batch_watermark_ms(self._folder, number - 1, self.stream.called)
        wanted = self.state.judging(batch.start, batch.end, before)
        records = batch_records(self.spark, self.access.source().spark, wanted)
        called = self.stream.called
        judged = self.state.judged(records, self._rules)
        tally = self.writer.asked(partial(tallied, called, judged))
        results = Results(frame, tally, self.state.has_windows, duplicates, self._rules)
        with tally.letters.kept():
            return self.writer.write_results(claim, batch, results)

    def _duplicates(self) -> int:
        ours = (q for q in self.spark.streams.active if q.id == self._known().query_id)
        return sum(state_metric(query, DUPLICATES) for query in ours)

    def _watermark(self, number: int) -> datetime | None:
        """Spark's event-time watermark of a batch, where there is one."""
        if self.state is None:
            return None
        reached = batch_watermark_ms(self._folder, number, self.stream.called)
        return _EPOCH + timedelta(milliseconds=reached) if reached > 0 else None

    def _known(self) -> Claim:
        if self._claim is None:
            raise ValueError(f"stream {self.stream_id} is not claimed")
        return self._claim

    def _behind(self, end: Offsets) -> int:
        latest = self.source.latest()
        return sum(max(0, last - end.at(place)) for place, last in latest.items())

    # Watching -----------------------------------------------------------------------------------

    def _watched(self, query: StreamingQuery) -> StreamError | None:
        """Wait until the query ends, or a stop ends it between two batches; what Spark says of it."""
        try:
            while not query.awaitTermination(LOOK_SECONDS):  # type: ignore[arg-type]
                if self.stop.is_set():
                    self._stop(query)
                    return None
                if _is_idle(query):
                    self.watcher.idle(0)
        # Whatever Spark throws: the query is over, and its own error or that of a batch is told.
        except Exception as error:
            if self.lost_spark_by_a_stop():
                return None
            self._end(query)
            if self._error is not None:
                raise self._error from error
            return ended(self.stream.called, error)
        return None

    def _stop(self, query: StreamingQuery) -> None:
        """End the query between two batches: the next one finds the stop and does nothing."""
        self.stop.set()
        with self._guard:
            pass
        # Not under the guard: Spark waits here for a batch that may be waiting for it.
        self._end(query)

    def _end(self, query: StreamingQuery) -> None:
        """Stop the query; Spark waits for its thread no longer than our sessions allow it."""
        try:
            query.stop()
        # What was not committed is repeated by the next run, whatever its thread still does.
        except Exception as error:  # noqa: BLE001
            log.warning(
                "stream %s: the query did not end: %s", self.stream_id, type(error).__name__
            )


def _is_idle(query: StreamingQuery) -> bool:
    """Whether a query has looked and found nothing; one that is starting has not looked yet."""
    status = query.status
    is_waiting = not status["isDataAvailable"] and not status["isTriggerActive"]
    return is_waiting and query.lastProgress is not None


def location_of(stream: LoadedStream) -> str:
    """Where the file says that the checkpoint is."""
    said = stream.settings.streaming.checkpoint_location or ""
    is_plain = "://" not in said and not said.startswith("file:")
    return str(stream.root / said) if is_plain else said


def active_folder(location: str, row: StreamRow | None) -> str:
    """The checkpoint that a stream used last: that of its row, else the newest at its place."""
    known = row.checkpoint if row is not None else None
    is_ours = known is not None and f"{known}/".startswith(f"{location.rstrip('/')}/")
    return known if known is not None and is_ours else newest_folder(location)


def newest_folder(location: str) -> str:
    """The checkpoint of the last incarnation at a place; the place itself if it has no others."""
    numbers = incarnations(location)
    return _beside(location, numbers[-1]) if numbers else location


def empty_folder(location: str, incarnation: int) -> str:
    """Where a new incarnation has its checkpoint: the place itself if nothing was planned there."""
    folder = location
    while is_planned(folder):
        folder, incarnation = _beside(location, incarnation), incarnation + 1
    return folder


def _beside(location: str, incarnation: int) -> str:
    return f"{location.rstrip('/')}/{INCARNATION}{incarnation}"


def is_left(row: StreamRow | None) -> bool:
    """Whether the stream goes on at its position whatever checkpoint is there: reset or rewound."""
    return row is not None and row.end_offsets is not None and row.query_id is None


def spark_trigger(trigger: Trigger, *, is_bounded: bool = False) -> Mapping[str, Any]:
    """The arguments of Spark's trigger.

    Its `once` makes one batch of all there is, whatever limit is said; where batches have to be
    bounded the same records come in several.
    """
    kinds: Mapping[str, dict[str, Any]] = {
        "once": {"availableNow": True} if is_bounded else {"once": True},
        "availableNow": {"availableNow": True},
        "processingTime": {"processingTime": f"{trigger.seconds:f} seconds"},
        "continuous": {"processingTime": "0 seconds"},
    }
    return kinds[trigger.kind]
