"""What a run asks of a target, and what more can be asked of those that notice a loss."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from floodmark.errors import SinkError
from floodmark.model import OnLostTarget, Receipt, SinkDone, WriteResult


class Sink(Protocol):
    """One target of one write. `Any` stands for the engine's frame."""

    def committed(self, receipt: Receipt) -> WriteResult | None:
        """The earlier result if the target already holds this receipt, else None.

        Reads the target's log only. Raises SinkError if the target cannot be looked at: "I could
        not look" is never "it is not there".
        """

    def check(self, frame: Any, receipt: Receipt) -> None:
        """Raise what `write` would refuse by its rules, and write nothing.

        Nothing is refused where the receipt is there already. What only the rows themselves show is
        left to `write`.
        """

    def write(self, frame: Any, receipt: Receipt) -> WriteResult:
        """Commit the rows of `frame` and `receipt` in one transaction.

        Called twice with one receipt, the second call writes nothing and returns the first
        result. If it raises before the commit, the target is unchanged.
        """


@runtime_checkable
class RecoverableSink(Sink, Protocol):
    """A sink whose target shows whether rows of ours were lost, and can go on after a loss."""

    def loss(self, receipt: Receipt) -> SinkError | None:
        """Why the target lost rows of ours since our last write there; None if it did not.

        Without a choice of the operator `committed` and `write` raise this very error.
        """

    def resolved(self, choice: OnLostTarget, receipt: Receipt, next_app_id: str) -> SinkDone:
        """The lost target as it stands, for the journal: from then on it counts as ours.

        Its `write_name` is for the caller to fill in. With "rebuild" the next write replaces all
        that it holds; with "accept" it goes on from what is there. Raises FM-SINK-018 where that
        would double rows or remove those of others.
        """


def loss_of(sink: Sink, receipt: Receipt) -> SinkError | None:
    """See `RecoverableSink.loss`; None where a target cannot show a loss."""
    return sink.loss(receipt) if isinstance(sink, RecoverableSink) else None
