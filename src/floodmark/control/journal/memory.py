"""An event log in memory: for tests and simulations. Passes the same contract suite as Delta's."""

from __future__ import annotations

from collections.abc import Sequence

from floodmark.control.events.bodies import Event
from floodmark.control.journal.journal import CommitConflict, Tail


class MemoryEventLog:
    """A log that several journals of one process may share."""

    def __init__(self) -> None:
        self._commits: list[tuple[Event, ...]] = []

    def exists(self) -> bool:
        """See ControlLog.exists."""
        return True

    def create(self) -> None:
        """See ControlLog.create."""

    def read(self, after: int | None) -> Tail:
        """See EventLog.read; the position is the number of commits."""
        commits = self._commits[after or 0 :]
        events = [event for commit in commits for event in commit]
        return Tail(events, len(self._commits), is_whole=after is None)

    def append(self, events: Sequence[Event], position: int) -> None:
        """See EventLog.append; never loses an answer."""
        if position != len(self._commits):
            raise CommitConflict
        self._commits.append(tuple(events))
