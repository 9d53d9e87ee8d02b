"""`floodmark state rebuild`: the published tables, written anew from the events."""

from __future__ import annotations

from floodmark.control.history import all_events
from floodmark.control.journal.journal import too_busy
from floodmark.control.published.archive import archived_rows
from floodmark.control.published.projections import Projector
from floodmark.control.rules.folding import apply
from floodmark.control.store import ControlReader
from floodmark.deltalog import Storage
from floodmark.model import State

ATTEMPTS = 5


def rebuild_tables(reader: ControlReader, control: str, storage: Storage) -> bool:
    """Write the published tables anew; whether all events since the beginning were at hand.

    If they are not (the journal was compacted and `history` is lost), rows that no event can bring
    back are left alone. What is in the archive stays there. The journal is not touched. Called twice, the second call writes the same
    rows again.
    """
    for _ in range(ATTEMPTS):
        events = all_events(reader, control, storage)
        is_complete = not events or events[0].kind != "SNAPSHOT"
        projector, state = Projector(control, storage), State()
        for event in events:
            state = apply(state, event)
            projector.observe(event, state)
        is_archived = archived_rows(control, storage)
        if projector.rewrite(state, is_complete=is_complete, is_archived=is_archived):
            return is_complete
    raise too_busy(ATTEMPTS)
