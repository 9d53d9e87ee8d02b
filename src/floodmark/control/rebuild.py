"""`floodmark state rebuild`: the published tables, written anew from the events."""

from __future__ import annotations

from floodmark.control import ControlReader
from floodmark.control.fold import apply
from floodmark.control.history import all_events
from floodmark.control.projections import Projector
from floodmark.deltalog import Storage
from floodmark.model.state import State


def rebuild_tables(reader: ControlReader, control: str, storage: Storage) -> bool:
    """Write every published table anew; whether all events since the beginning were at hand.

    `history` is only completed, never rewritten: it may be the last place of folded events. The
    journal is not touched. Called twice, the second call writes the same rows again.
    """
    events = all_events(reader, control, storage)
    projector = Projector(control, storage)
    state = State()
    for event in events:
        state = apply(state, event)
        projector.observe(event, state)
    projector.rewrite(state)
    return not events or events[0].kind != "SNAPSHOT"
