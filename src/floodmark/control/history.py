"""Every event that ever happened: the journal, and what was folded out of it into `history`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from floodmark.control.events.bodies import Event
from floodmark.control.journal.delta import SCHEMA, events_of
from floodmark.control.published.archive import read_archived, refuse_foreign
from floodmark.control.published.reading import read_published
from floodmark.control.rules.folding import RULES
from floodmark.control.store import ControlReader
from floodmark.deltalog import Storage
from floodmark.model import PlannedBatch, State

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ID = re.compile(r"batch_[0-9TZ]+_[0-9a-f]{8}")
"""The form of a batch id: nothing else is put into a query."""


def all_events(reader: ControlReader, control: str, storage: Storage) -> list[Event]:
    """Every event, oldest first.

    Starts with a SNAPSHOT only if the events before it are in no table any more; whoever needs
    them can tell by that.
    """
    events = reader.events()
    if not events or events[0].kind != "SNAPSHOT":
        return events
    first = events[0]
    refuse_foreign(control, storage, first.body.key)
    older = folded_events(control, storage, through=first.seq)
    return [*older, *events[1:]] if older else events


def folded_events(control: str, storage: Storage, through: int) -> list[Event]:
    """The events of `history` and its archive up to a number; empty unless all of them are there.

    While rows are on their way to the archive they are in both.
    """
    columns = ", ".join(SCHEMA.names)
    query = f"SELECT {columns} FROM t WHERE seq <= {int(through)} ORDER BY seq"
    events: dict[int, Event] = {}
    for rows in _from_both(control, storage, query):
        events |= {event.seq: event for event in events_of(rows.cast(SCHEMA))}
    return [events[seq] for seq in sorted(events)] if len(events) == through else []


def _from_both(control: str, storage: Storage, query: str) -> Iterator[pa.Table]:
    """The answers of the archive and of `history`, as far as they exist, the older ones first.

    `history` is read first: a row that is moved meanwhile is in both then, never in neither.
    """
    newer = read_published(f"{control}/history", storage, query)
    older = read_archived(control, storage, "history", query)
    yield from (rows for rows in (older, newer) if rows is not None)


def past_batch(control: str, storage: Storage, batch_id: str) -> PlannedBatch | None:
    """A finished batch that has left the state, as `history` remembers it; None if it does not."""
    if not BATCH_ID.fullmatch(batch_id):
        return None
    columns = ", ".join(SCHEMA.names)
    # A rebuilt store may begin with the batch.
    wanted = f"batch_id = '{batch_id}' OR kind = 'REBUILD'"
    query = f"SELECT {columns} FROM t WHERE {wanted} ORDER BY seq"
    tables = _from_both(control, storage, query)
    events = {event.seq: event for rows in tables for event in events_of(rows.cast(SCHEMA))}
    state = State()
    for event in (events[seq] for seq in sorted(events)):
        # What is past was checked when it happened; here only its effects are of interest.
        state = RULES[type(event.body)].effect(state, event)
    return state.batches.get(batch_id)
