"""The door of the sinks: rows and their receipt are committed together, or neither."""

from __future__ import annotations

from typing import Any, Protocol

from floodmark.model.receipt import Receipt, WriteResult


class Sink(Protocol):
    """One target of one write. `Any` stands for the engine's frame."""

    def committed(self, receipt: Receipt) -> WriteResult | None:
        """The earlier result if the target already holds this receipt, else None.

        Reads the target's log only. Raises SinkError if the target cannot be looked at: "I could
        not look" is never "it is not there".
        """

    def write(self, frame: Any, receipt: Receipt) -> WriteResult:
        """Commit the rows of `frame` and `receipt` in one transaction.

        Called twice with one receipt, the second call writes nothing and returns the first
        result. If it raises before the commit, the target is unchanged.
        """
