"""Who may read the state of a store, and who may change it: two types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from floodmark.control.events.bodies import Body, Event
from floodmark.model import State

Decide = Callable[[State], Sequence[Body]]
"""Looks at the newest state and says what should happen; nothing, if there is nothing to do.

It is called again after a conflict, on the newer state, so it must not keep what it saw before.
"""


class ControlReader(Protocol):
    """Whoever only looks: status, lag, reports, the web page."""

    def state(self) -> State:
        """The newest state. Reads only what was journaled since the last call."""

    def events(self) -> list[Event]:
        """Every event still in the journal, oldest first; the first may be a SNAPSHOT."""


class ControlStore(ControlReader, Protocol):
    """Whoever may change state, one journal commit at a time."""

    def commit(self, decide: Decide) -> State:
        """Journal what `decide` asks for as one commit, and return the state after it.

        Decides again on newer state after a conflict. After a lost answer it looks for its own
        commit before it tries again, so a decision is journaled once or not at all. Raises what
        `decide` raises; FM-CONTROL-009 if others kept winning; FM-CONTROL-010 if a rule of the
        fold forbids the events.
        """
