"""What writes the batches of a stream, whatever its target is, and what it is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from floodmark.config import LoadedStream
from floodmark.model.offsets import Offsets
from floodmark.streaming.ledger.batches import (
    AlreadyApplied,
    Applied,
    Claim,
    LoadCounts,
    Loaded,
    StreamBatch,
)
from floodmark.streaming.ledger.protocol import StreamLedger
from floodmark.streaming.records.judged_letters import Joined
from floodmark.streaming.records.late import late_rule
from floodmark.streaming.records.read import JUDGEMENT, Records, Wanted
from floodmark.streaming.records.state import Tally
from floodmark.streaming.records.target_rules import TargetRules

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Result = TypeVar("Result")


@dataclass(frozen=True)
class Results:
    """The rows of a batch of a query that keeps state, and what became of its records before."""

    frame: DataFrame
    """Kept by the caller: it is asked more than once."""
    tally: Tally
    are_windows: bool
    """Whether a row is the result of many records."""
    duplicates: int = 0
    """Dropped before the windows; without windows the rows tell."""
    rules: TargetRules = field(default_factory=TargetRules)
    """Of the target, by which the records were judged too."""

    @property
    def columns(self) -> list[str]:
        """Those of the target, and where a row was in Kafka."""
        return [name for name in self.frame.columns if name not in JUDGEMENT]

    def accounted(self, rows: Loaded) -> Loaded:
        """The records of the batch, by what was done with its rows.

        Windows: a record counts as written once it is in Spark's state.
        """
        tally, letters = self.tally, Joined(self.tally.letters, rows.dead_letters)
        dead_lettered = len(tally.letters) + rows.counts.dead_lettered
        hidden = self.duplicates if self.are_windows else tally.counted - rows.counts.received
        duplicates = max(0, hidden)
        written = tally.counted - duplicates if self.are_windows else rows.counts.written
        counts = LoadCounts(
            tally.received,
            written,
            dead_lettered,
            tally.late + duplicates,
            0 if self.are_windows else rows.counts.duplicates,
        )
        return replace(rows, counts=counts, dead_letters=letters)


class StreamWriter(Protocol):
    """Commits the batches of one stream through its ledger.

    An error of `write` or `write_results` leaves all of a batch or none of it in the target. One that
    may pass is tried again with the same claim and batch, and finds out; any other ends the stream.
    """

    @property
    def ledger(self) -> StreamLedger[Any]:
        """Where its batches are committed."""

    @property
    def is_bounded(self) -> bool:
        """Whether a batch has to go through the driver, and so must not be too large for it."""

    def wanted(self, claim: Claim, start: Offsets, end: Offsets) -> Wanted:
        """What to read, judged by the watermark of the batch before."""

    def asked(self, act: Callable[[], Result]) -> Result:
        """What a job of Spark gives; raises FM-STREAM-026."""

    def rules(self, columns: Sequence[str]) -> TargetRules:
        """What the target asks of rows with these columns, where it cannot refuse them one by one."""

    def write(
        self, claim: Claim, planned: StreamBatch, records: Records
    ) -> tuple[Claim, Applied | AlreadyApplied]:
        """Commit a batch of records; the claim behind it, and what happened."""

    def write_results(
        self, claim: Claim, planned: StreamBatch, results: Results
    ) -> tuple[Claim, Applied | AlreadyApplied]:
        """Commit a batch of a query that keeps state.

        Its rows are computed in any case, also those of a batch that is found applied: Spark's state
        moves on by that alone.
        """

    def sweep(self, claim: Claim) -> None:
        """Clear away what this runner or one before it left behind in the middle of a batch.

        An error is tried again like that of a batch.
        """


def wanted_of(stream: LoadedStream, claim: Claim, start: Offsets, end: Offsets) -> Wanted:
    """What a batch reads, and by what it is judged."""
    rule = late_rule(stream.settings)
    return Wanted(
        start,
        end,
        stream.payload,
        stream.columns,
        rule.column if rule else None,
        claim.event_watermark if rule else None,
        stream.settings.load.nul_bytes,
    )


def advanced(claim: Claim, stored: StreamBatch) -> Claim:
    """The claim behind a batch."""
    return replace(
        claim,
        start_offsets=stored.start,
        end_offsets=stored.end,
        batch_id=stored.batch_id,
        spark_batch_id=stored.spark_batch_id,
        event_watermark=stored.event_watermark,
    )


def counts_of(outcome: Applied | AlreadyApplied) -> LoadCounts:
    """What a batch did; nothing where it was applied before."""
    return outcome.counts if isinstance(outcome, Applied) else LoadCounts(0, 0)
