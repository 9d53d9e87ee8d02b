"""Whether the tables that people read show what the journal says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from floodmark.control import ControlReader
from floodmark.control.published import (
    committed_rows,
    folder_of,
    published_through,
    read_published,
    registry_rows,
    watermark_rows,
)
from floodmark.control.rules import fold
from floodmark.deltalog import Storage
from floodmark.errors import FloodmarkError
from floodmark.model import Finding, State, bad, good
from floodmark.next_steps import command

SHOWN = 3
"""How many differences of one table are spelled out."""
WAY_OUT = command("state", "rebuild")

Rows = Counter[tuple[Any, ...]]
Read = Callable[..., Rows]
Check = Callable[[State, Read], Iterator[str]]


@dataclass(frozen=True, slots=True)
class Shown:
    """What one published table shows."""

    table: str
    problems: Sequence[str] = ()
    damage: str | None = None
    """Why it cannot be read."""
    events_behind: int = 0
    """Events of the journal that it does not show yet, as after a kill: the next command that
    writes brings it up to date."""


def published_tables(reader: ControlReader, control: str, storage: Storage) -> list[Shown]:
    """Each table, compared with the journal as of the event that it says it shows."""
    # Read anew: a reader that has followed the journal knows batches whose rows were archived.
    state = fold(reader.events())
    checks = {**_CHECKS, "history": _history(control)}

    def read_of(table: str) -> Read:
        def read(*columns: str, folder: str = control) -> Rows:
            query = f"SELECT {', '.join(columns)} FROM t"
            rows = read_published(f"{folder}/{table}", storage, query)
            return Counter(tuple(row.values()) for row in rows.to_pylist()) if rows else Counter()

        return read

    shown = [_compared(name, check, state, read_of(name)) for name, check in checks.items()]
    # Most often all is as it should be, and nothing more has to be read.
    wrong = [each.table for each in shown if each.problems]
    if not wrong:
        return shown
    through = {name: published_through(f"{control}/{name}", storage) for name in checks}
    # One table that is missing was taken away; all are missing before the first was written.
    is_unpublished = all(each is None for each in through.values())

    def judged(each: Shown) -> Shown:
        seen = 0 if is_unpublished else through[each.table]
        if each.table not in wrong or seen is None:
            return each
        behind = _events_behind(reader, state, seen, checks[each.table], read_of(each.table))
        return Shown(each.table, events_behind=behind) if behind else each

    return [judged(each) for each in shown]


def _compared(table: str, check: Check, state: State, read: Read) -> Shown:
    try:
        return Shown(table, tuple(check(state, read)))
    except FloodmarkError as error:
        return Shown(table, damage=(error.found or error.title).splitlines()[0])


def _events_behind(
    reader: ControlReader, newest: State, through: int, check: Check, read: Read
) -> int:
    """How many events a table does not show yet; 0 if it is wrong for what it says it shows."""
    events = reader.events()
    is_folded = bool(
        through and events and events[0].kind == "SNAPSHOT" and events[0].seq > through
    )
    if through >= newest.seq or is_folded:
        return 0
    then = fold(event for event in events if event.seq <= through)
    return 0 if any(check(then, read)) else newest.seq - through


def examine_tables(reader: ControlReader, control: str, storage: Storage) -> list[Finding]:
    """One finding for `doctor`: that all can be read, or each one that cannot."""
    tables = published_tables(reader, control, storage)
    damaged = [
        bad(f"table {each.table}", f"cannot be read: {each.damage}", WAY_OUT)
        for each in tables
        if each.damage
    ]
    damaged += [
        bad(f"table {each.table}", each.problems[0], WAY_OUT) for each in tables if each.problems
    ]
    behind = max(each.events_behind for each in tables)
    more = f"; {behind} events behind the journal until the next run" if behind else ""
    return damaged or [good("published tables", f"{len(tables)} tables can be read{more}")]


def _committed_watermarks(state: State, read: Read) -> Iterator[str]:
    columns = ("scope", "table_name", "last_committed_version")
    wanted = _wanted(committed_rows(state), columns)
    yield from _differences("committed_watermarks", wanted, read(*columns))


def _pipeline_registry(state: State, read: Read) -> Iterator[str]:
    columns = ("pipeline_name", "scope", "definition_hash")
    wanted = _wanted(registry_rows(state), columns)
    yield from _differences("pipeline_registry", wanted, read(*columns))


def _watermarks(state: State, read: Read) -> Iterator[str]:
    columns = ("batch_id", "table_name", "start_version", "end_version", "status")
    rows = [row for batch in state.batches.values() for row in watermark_rows(batch)]
    # Finished batches leave the state one day but stay in the table.
    known = {row: n for row, n in read(*columns).items() if row[0] in state.batches}
    yield from _differences("watermarks", _wanted(rows, columns), Counter(known))


def _pipeline_checkpoints(state: State, read: Read) -> Iterator[str]:
    runs = [run for batch in state.batches.values() for run in batch.runs.values()]
    wanted = Counter({(run.run_id, run.status): 1 for run in runs})
    rows = read("run_id", "status")
    yield from _differences("pipeline_checkpoints", wanted, Counter({r: rows[r] for r in wanted}))


def _history(control: str) -> Check:
    def check(state: State, read: Read) -> Iterator[str]:
        every_event = Counter({(seq,): 1 for seq in range(1, state.seq + 1)})
        events, archived = read("seq"), read("seq", folder=folder_of(control))
        # On its way to the archive an event is in both; twice in one of them it is a mistake.
        events += Counter({row: count for row, count in archived.items() if row not in events})
        yield from _differences("history", every_event, events)
        twice = [row for row in archived if archived[row] > 1]
        yield from (f"the archive of history holds {row[0]} twice" for row in twice)

    return check


_CHECKS: dict[str, Check] = {
    "committed_watermarks": _committed_watermarks,
    "pipeline_registry": _pipeline_registry,
    "watermarks": _watermarks,
    "pipeline_checkpoints": _pipeline_checkpoints,
}


def _wanted(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> Rows:
    return Counter(tuple(row[column] for column in columns) for row in rows)


def _differences(name: str, wanted: Rows, found: Rows) -> Iterator[str]:
    for row in [*(wanted - found), *(found - wanted)][:SHOWN]:
        yield f"{name} differs at {', '.join(map(str, row))}"
