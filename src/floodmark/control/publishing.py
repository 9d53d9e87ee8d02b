"""Showing what the journal says: after each commit, one process at a time, for all that wait."""

from __future__ import annotations

from typing import Protocol

from floodmark.control.events.bodies import Event
from floodmark.control.journal.delta import DeltaEventLog
from floodmark.control.published.projections import Projector
from floodmark.control.store import ControlReader
from floodmark.control.turns import turn
from floodmark.control.upkeep.upkeep import compact_if_due
from floodmark.model import State

RUNS = "pipeline_checkpoints"
"""The table that shows a run as soon as it has begun."""


class Publisher(Protocol):
    """Shows a control store to people and programs. Nothing decides on what is published.

    A ControlError of either `publish` means that what is shown lags behind; the next call mends it.
    """

    def observe(self, event: Event, state: State) -> None:
        """Take note of an event and of the state right after it; see control.journal.Observer."""

    def publish(self, store: ControlReader) -> None:
        """Show the newest state; called after something was journaled."""

    def publish_runs(self, store: ControlReader) -> None:
        """Show the runs only; called when one has begun."""


class TablePublisher:
    """Keeps the published tables up to date, and compacts the journal when that is due."""

    def __init__(self, log: DeltaEventLog, projector: Projector) -> None:
        self._log = log
        self._projector = projector

    def observe(self, event: Event, state: State) -> None:
        """See `Publisher.observe`."""
        self._projector.observe(event, state)

    def publish(self, store: ControlReader) -> None:
        """See `Publisher.publish`."""
        self._in_turn(store, "history")
        compact_if_due(self._log, self._projector)

    def publish_runs(self, store: ControlReader) -> None:
        """See `Publisher.publish_runs`."""
        self._in_turn(store, RUNS, only=(RUNS,))

    def _in_turn(
        self, store: ControlReader, table: str, only: tuple[str, ...] | None = None
    ) -> None:
        """Refresh the published tables, unless whoever had the turn before did it for us.

        `table` is the last one to be refreshed: what it shows, all of them show.
        """
        wanted = store.state().seq
        with turn(self._log.control) as has_waited:
            if not has_waited or self._projector.published_through(table) < wanted:
                self._projector.refresh(store.state(), only=only)
