"""The memory of a stream, wherever it is kept: who may write, and what is committed.

It lives in the target, so that rows and offsets are committed together: as tables of the database
(`PostgresLedger`), or as the log of the Delta table (`DeltaLedger`). tests/contract/ledger_contract.py
holds what both promise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeVar

from floodmark.model.offsets import Offsets
from floodmark.streaming.ledger.batches import (
    AlreadyApplied,
    Applied,
    Claim,
    ClaimFacts,
    StreamBatch,
    StreamRow,
)
from floodmark.streaming.ledger.requests import Requests

Load_contra = TypeVar("Load_contra", contravariant=True)
"""What brings the rows of a batch into the target; each kind of target has its own."""


RECORDS = ("received", "written", "dead_lettered", "dropped")
"""What becomes of records, as `History.records` counts them."""


@dataclass(frozen=True, slots=True)
class History:
    """What a ledger still knows of the batches of its stream."""

    batches: int = 0
    last_processed_at: datetime | None = None
    seconds_since_last_batch: float | None = None
    records_last_minute: int = 0
    batches_last_minute: int = 0
    records: Mapping[str, int] | None = None
    """Records of these batches, by what became of them."""
    dead_letters: int = 0


class StreamLedger(Requests, Protocol[Load_contra]):
    """The memory of one stream.

    Every method may raise a StreamError. One that may pass is tried again by the runner, as the
    stream's settings say; any other ends the stream. An error never means "the stream is new".
    Not for several threads at once: another thread takes `another()`.
    """

    @property
    def stream_id(self) -> str:
        """The pipelineId of its configuration."""

    @property
    def place(self) -> str:
        """Where the memory is, for messages."""

    def another(self) -> StreamLedger[Load_contra]:
        """Another ledger of the same stream, for another thread."""

    def ensure(self, *, creates: bool = True) -> None:
        """See that its tables are there, and make them if `creates`; again it changes nothing.

        FM-STREAM-004: the stream does not start, and nothing was claimed.
        """

    def stored(self) -> StreamRow | None:
        """Where the stream stands; None if it was never claimed. Believes whatever is there."""

    def trusted(self, stream: str) -> StreamRow | None:
        """As `stored`, if nothing speaks against it. `stream` is what commands call it.

        Raises where target and memory have parted: an older copy was put back, a copy went its own
        way, a commit is gone. Then the stream does not start until a person decides.
        """

    def claim(self, facts: ClaimFacts, seen: StreamRow | None) -> Claim:
        """Take the stream: from here on every other runner of it is fenced.

        `seen` is what the decision to go on rests on. If the stream has moved since: FM-STREAM-011,
        nobody is fenced, and the runner looks again.
        """

    def commit(
        self, claim: Claim, batch: StreamBatch, load: Load_contra
    ) -> Applied | AlreadyApplied:
        """Write a batch exactly once: its rows by `load`, and with them its offsets.

        Called again for the same batch it writes nothing: AlreadyApplied. Writes nothing either if
        the claim is fenced (FM-STREAM-001), if records would be left out (-002) or written twice
        (-003), or if a record is not accounted for (-007). Every other error leaves all of the batch
        or none of it in the target, and the next attempt finds out which.
        """

    def move(
        self,
        claim: Claim,
        end: Offsets | None,
        note: str,
        *,
        spark_batch_id: int | None = None,
        begins_incarnation: bool = True,
    ) -> Claim:
        """Set the position by decision of a person, and keep the note; None begins anew.

        Called twice it is noted twice. An error leaves the position as it was, or moved with its
        note.
        """

    def refuse_fenced(self, claim: Claim) -> None:
        """Raise FM-STREAM-001 unless the stream is still this claim's; changes nothing."""

    def history(self) -> History:
        """What it still knows of batches; an error only keeps a status from being shown."""

    def tracked(self) -> int | None:
        """How many rows `batch_tracker` has of this stream; None where there is no such table."""

    def cleanup(self, retention_days: float) -> int:
        """Remove rows about batches that are older; how many. The position stays known.

        A target that keeps no such rows has none to remove. An error leaves all of them.
        """

    def cleanup_dead_letters(self, retention_days: float) -> int:
        """Remove dead letters that are older; how many. Those that wait for Kafka stay.

        An error leaves all of them.
        """
