"""Keeping a control store quick and small."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from floodmark.control.events.bodies import Event, Snapshot
from floodmark.control.journal.delta import DeltaEventLog
from floodmark.control.journal.journal import CommitConflict, CommitUnknown, new_op_id
from floodmark.control.published.archive import (
    FOLDER,
    Policy,
    archive_rows,
    batches_inside,
    refuse_unfit,
)
from floodmark.control.published.projections import Projector
from floodmark.control.published.tables import TABLES
from floodmark.control.rules.folding import fold
from floodmark.control.rules.snapshots import snapshot_of
from floodmark.control.turns import alone
from floodmark.control.upkeep.retention import Removed, remove_heartbeats, remove_unneeded
from floodmark.deltalog import Storage
from floodmark.errors import ConfigError
from floodmark.model import State, Upkeep
from floodmark.next_steps import command

COMPACT_AFTER_FILES = 50
"""Opening one more small file costs a reader about a millisecond."""

KEEP_WINDOWS = 2_000
"""Finished batches stay in the state while they have no more windows than this together."""

NOTE = "_upkeep"
"""The file of a store that says when upkeep last finished."""

ATTEMPTS = 10
"""How often a journal that others keep committing to is tried to be folded."""


def keep_up(
    log: DeltaEventLog,
    projector: Projector,
    state: State,
    retain_seconds: float,
    now: datetime,
    *,
    keep_rows_seconds: float | None = None,
) -> Upkeep:
    """Everything that keeps a store quick, in this order; each step leaves the store sound.

    1. Publish what the tables do not show yet: only what `history` holds may be folded.
    2. Fold the journal into one event, without the batches that the policy for rows does not keep.
    3. Move the rows of those batches to the archive.
    4. Join the small files of the published tables.
    5. Remove files that no reader needs.
    6. Remove signs of life of runs that have ended.
    7. Leave a note of when that was.
    """
    storage, removed = projector.storage, Removed()
    before = None if keep_rows_seconds is None else now - timedelta(seconds=keep_rows_seconds)
    if before is not None:
        refuse_unfit(log.control, storage, state.control_id)
    projector.refresh(state)  # 1
    folded = _fold_journal(log.reopened(), projector, KEEP_WINDOWS, before) or 0  # 2
    archived = _archive(log.reopened(), projector, before) if before is not None else {}  # 3
    joined = projector.compact(above=1)  # 4
    folders = [table.name for table in TABLES]
    folders += [f"{FOLDER}/{table.name}" for table in TABLES]
    for path in (log.path, *(f"{log.control}/{folder}" for folder in folders)):  # 5
        removed += remove_unneeded(path, storage, retain_seconds, now)
    running = {
        run.run_id
        for b in state.open_batches()
        for run in b.runs.values()
        if run.status == "RUNNING"
    }
    signs = remove_heartbeats(log.control, storage, running, retain_seconds, now)  # 6
    storage.write(f"{log.control}/{NOTE}", now.isoformat().encode())  # 7
    return Upkeep(
        folded_events=folded,
        archived=archived,
        joined=joined,
        removed_files=removed.files,
        removed_bytes=removed.bytes,
        removed_heartbeats=signs,
        history_events=projector.published_through("history"),
    )


def last_upkeep(control: str, storage: Storage) -> datetime | None:
    """When upkeep last finished; None if it never did. Raises OSError if that cannot be told."""
    try:
        return datetime.fromisoformat(storage.read(f"{control}/{NOTE}").decode())
    except FileNotFoundError:
        return None


def refuse_short(retain_seconds: float, least: float) -> None:
    """Raise FM-CONFIG-007 for a retention that could take files from under somebody."""
    if retain_seconds < least:
        raise ConfigError(
            "FM-CONFIG-007",
            f"a retention of {retain_seconds:g} seconds could remove files that are in use",
            rule="retention_too_short",
            allowed=f"{least:g} seconds or more; less only if nobody else uses the store",
            state="nothing was removed",
            next=command("upkeep", "--retain", "1h") + ", or add --allow-short-retain",
        )


def compact_if_due(log: DeltaEventLog, projector: Projector) -> bool:
    """Compact once the journal has many small files; whether it was done.

    One process does it for all: it costs as much as reading the whole journal, and fifty that try
    at once keep one another from it. Works on a log of its own: the handle of `log` moves on with
    every commit of other threads, and a compare-and-swap must not move with it.
    """
    if log.file_count <= COMPACT_AFTER_FILES:
        return False
    with alone(log.control) as is_alone:
        return is_alone and compact(log.reopened(), projector)


def compact(log: DeltaEventLog, projector: Projector, *, keep_windows: int = KEEP_WINDOWS) -> bool:
    """Fold what `history` already holds into one SNAPSHOT event; the rest stays as it is.

    One compare-and-swap commit. If others always commit first, nothing is changed and False comes
    back: the next one to come will find it due again. State before and after is the same.
    """
    if not _fold_journal(log, projector, keep_windows):
        return False
    projector.compact()
    return True


def _archive(log: DeltaEventLog, projector: Projector, before: datetime) -> dict[str, int]:
    """Move old rows of batches that are no longer in the state: nothing writes those again."""
    events = log.read(None).events
    if not events or not isinstance(events[0].body, Snapshot):
        return {}  # nothing is folded yet, so that every event is still needed where it is
    state = fold(events)
    inside = batches_inside(log.control, projector.storage, state, before)
    policy = Policy(before, frozenset({*inside, *state.batches}), through=events[0].seq)
    return archive_rows(projector, state.control_id, policy)


def _fold_journal(
    log: DeltaEventLog,
    projector: Projector,
    keep_windows: int,
    before: datetime | None = None,
) -> int | None:
    """How many events were folded; None if others always committed first.

    Reading the journal takes longer than the time between two commits of a busy store. So what was
    folded is kept, and only what came meanwhile is read before the next attempt. Finished batches
    that nothing touched since `before` leave the state.
    """
    tail = log.read(None)
    published = projector.published_through("history")
    old = [event for event in tail.events if event.seq <= published]
    first = old[0].seq if old and isinstance(old[0].body, Snapshot) else 0
    if not old or not projector.history_is_complete(first, published):
        return 0
    state, inside = fold(old), None
    if before is not None:
        inside = batches_inside(log.control, projector.storage, state, before)
    if len(old) < 2 and (inside is None or state.batches.keys() <= inside):
        return 0
    events = [_folded(old[-1], state, keep_windows, inside), *tail.events[len(old) :]]
    for _ in range(ATTEMPTS):
        try:
            log.replace(events, tail.position)
        except (CommitConflict, CommitUnknown):
            tail = log.read(tail.position)
        else:
            return len(old) if len(old) > 1 else 0
        if tail.is_whole:
            return None  # somebody else has folded it meanwhile
        events += tail.events
    return None


def _folded(last: Event, state: State, keep_windows: int, inside: Collection[str] | None) -> Event:
    body = snapshot_of(state, keep_windows, inside)
    return Event(seq=last.seq, body=body, op_id=new_op_id(), actor=last.actor, at=last.at)
