"""Keeping a control store quick: old events are folded into one SNAPSHOT event."""

from __future__ import annotations

from floodmark.control.delta import DeltaEventLog
from floodmark.control.events import Event
from floodmark.control.fold import fold, snapshot_of
from floodmark.control.journal import CommitConflict, CommitUnknown, new_op_id
from floodmark.control.projections import Projector

COMPACT_AFTER_FILES = 50
"""Opening one more small file costs a reader about a millisecond."""

KEEP_WINDOWS = 2_000
"""Finished batches stay in the state while they have no more windows than this together."""


def compact_if_due(log: DeltaEventLog, projector: Projector) -> bool:
    """Compact once the journal has many small files; whether it was done.

    Works on a log of its own: the handle of `log` moves on with every commit of other threads, and
    a compare-and-swap must not move with it.
    """
    return log.file_count > COMPACT_AFTER_FILES and compact(log.reopened(), projector)


def compact(log: DeltaEventLog, projector: Projector, *, keep_windows: int = KEEP_WINDOWS) -> bool:
    """Fold what `history` already holds into one SNAPSHOT event; the rest stays as it is.

    One compare-and-swap commit. If somebody commits meanwhile, nothing is changed and False comes
    back: the next one to come will find it due again. State before and after is the same.
    """
    tail = log.read(None)
    published = projector.published_through("history")
    old = [event for event in tail.events if event.seq <= published]
    if len(old) < 2 or not projector.history_is_complete(published):
        return False
    try:
        log.replace([_folded(old, keep_windows), *tail.events[len(old) :]], tail.position)
    except (CommitConflict, CommitUnknown):
        return False
    projector.compact()
    return True


def _folded(events: list[Event], keep_windows: int) -> Event:
    last = events[-1]
    body = snapshot_of(fold(events), keep_windows)
    return Event(seq=last.seq, body=body, op_id=new_op_id(), actor=last.actor, at=last.at)
