"""How a stream runs, from one batch to the next.

1. The stream is ours: its ledger says where it stands, and every other runner is fenced.
2. What an attempt before left behind is cleared away.
3. Batch after batch: the offsets behind the last one are planned against the brokers, Spark reads
   exactly those, and rows, dead letters and offsets are one commit of the target.
4. What the batch has for Kafka is sent.

Whatever is killed when, the next start finds a batch in the target or not. With a checkpoint Spark
plans the offsets of step 3: `query`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from floodmark.streaming.ledger.batches import (
    AlreadyApplied,
    Claim,
    StreamBatch,
)
from floodmark.streaming.load.protocol import counts_of
from floodmark.streaming.position.source import Next
from floodmark.streaming.records.read import batch_records
from floodmark.streaming.runner import Runner, Stopped, end_of
from floodmark.streaming.running.watching import BatchDone, RunTotals

IDLE_SECONDS = 0.5
"""How often a continuous stream looks for new records when there were none."""


@dataclass
class StreamRunner(Runner):
    """Runs one stream with its offsets in the database."""

    def run(self) -> RunTotals:
        """See Runner: the offsets of each batch are planned here, behind those that are stored."""
        with suppress(Stopped), self.listening():
            self.again(self.ledger.ensure)
            claim = self.again(self.claimed)
            self.tidied(claim)
            try:
                for batch in self.batches(claim):
                    self.done(batch)
            except Exception:
                if not self.lost_spark_by_a_stop():
                    raise
        return self.totals

    def claimed(self) -> Claim:
        """The stream is ours from here on; raises what stands against it."""
        row = self.ledger.trusted(self.stream.called)
        ids = self.source.refuse_recreated(row.topic_ids if row is not None else {})
        claim = self.ledger.claim(self.facts(ids), row)
        self.taken(claim)
        claim = claim if claim.end_offsets is not None else self.begun_at_settings(claim)
        return self.skipped(claim) if self.skips_to_earliest else claim

    def batches(self, claim: Claim) -> Iterator[BatchDone]:
        """One batch after the other, as the trigger says."""
        trigger = self.stream.settings.streaming.trigger_mode
        goal = self.again(self.source.latest) if trigger.kind == "availableNow" else None
        while not self.stop.is_set():
            began = time.monotonic()
            planned = self.again(partial(self.source.next_batch, end_of(claim), self.limit))
            if planned.records:
                claim, batch = self.again(partial(self._applied, claim, planned))
                yield batch
            else:
                self.watcher.idle(planned.waiting)
            is_there = goal is not None and (goal <= planned.end or not planned.records)
            if trigger.kind == "once" or is_there:
                return
            self._wait(trigger.seconds, began, found=bool(planned.records))

    def _wait(self, interval: float, began: float, *, found: bool) -> None:
        """Until the next batch is due; a stop ends it."""
        if interval:
            self.stop.wait(max(0.0, began + interval - time.monotonic()))
        elif not found:
            self.stop.wait(IDLE_SECONDS)

    def _applied(self, claim: Claim, planned: Next) -> tuple[Claim, BatchDone]:
        """Read exactly the planned offsets and commit them."""
        began = time.monotonic()
        batch = StreamBatch(claim.next_batch_id, claim.incarnation, planned.start, planned.end)
        wanted = self.writer.wanted(claim, planned.start, planned.end)
        records = batch_records(self.spark, self.access.source().spark, wanted)
        claim, outcome = self.writer.write(claim, batch, records)
        return claim, BatchDone(
            outcome.batch_id,
            counts_of(outcome),
            planned.waiting - planned.records,
            time.monotonic() - began,
            isinstance(outcome, AlreadyApplied),
            claim.event_watermark,
        )
