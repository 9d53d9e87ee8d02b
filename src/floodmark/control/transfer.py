"""A store as one text file, one JSON document a line: a line that says what is in it, every event,
and the files beside the journal that the next windows go by.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from floodmark.control.events.bodies import Created, Event, decode, encode
from floodmark.control.journal.delta import DeltaEventLog, unreadable
from floodmark.control.journal.journal import FORMAT_VERSION, CommitConflict, CommitUnknown
from floodmark.control.published.archive import has_archive
from floodmark.control.published.projections import Projector
from floodmark.control.rules.folding import fold
from floodmark.deltalog import Storage
from floodmark.errors import ConfigError, ControlError
from floodmark.model import State, StoreContent
from floodmark.next_steps import command

EXPORT = "floodmark_export"
CARRIED = ("edges", "files")
"""The folders beside the journal that go with it."""


@dataclass(frozen=True, slots=True)
class Export:
    """What a file holds."""

    events: Sequence[Event]
    files: Mapping[str, bytes]
    """By their path below the control store."""


def export_text(events: Sequence[Event], at: datetime, files: Mapping[str, bytes]) -> bytes:
    """The file: its first line names format, control id and the number of events and files."""
    state = fold(events)
    header = {
        EXPORT: FORMAT_VERSION,
        "control_id": state.control_id,
        "events": len(events),
        "files": len(files),
        "exported_at": at.isoformat(),
    }
    carried = ({"file": path, "base64": b64encode(files[path]).decode()} for path in sorted(files))
    lines = [json.dumps(line) for line in (header, *map(_row, events), *carried)]
    return ("\n".join(lines) + "\n").encode()


def write_export(path: str, content: bytes, storage: Storage) -> None:
    """Put an export into a file; raises FM-CONFIG-007 if there is one of that name."""
    try:
        is_there = storage.exists(path)
        if not is_there:
            storage.write(path, content)
    except OSError as error:
        raise _not_written(path, f"{type(error).__name__}: {error}") from error
    if is_there:
        raise _not_written(path, "the file is there already")


def read_export(path: str, storage: Storage) -> Export:
    """What is in a file; raises FM-CONTROL-022 if it cannot be had."""
    try:
        content = storage.read(path)
    except OSError as error:
        raise _unusable(path, error) from error
    try:
        return _parsed(content)
    except (ValueError, KeyError, TypeError, AttributeError, ControlError) as error:
        raise _unusable(path, error) from error


def _parsed(content: bytes) -> Export:
    header, *lines = [json.loads(line) for line in content.decode().splitlines()]
    if header[EXPORT] > FORMAT_VERSION:
        raise ValueError(f"it has format {header[EXPORT]}, this version knows {FORMAT_VERSION}")
    count, more = header["events"], header.get("files", 0)
    if len(lines) != count + more:
        raise ValueError(f"it has {len(lines)} of {count + more} lines: it was cut off")
    events = [_event(line) for line in lines[:count]]
    if fold(events).control_id != header["control_id"]:
        raise ValueError("its events are of another store than its first line says")
    files = {_own(line["file"]): b64decode(line["base64"]) for line in lines[count:]}
    return Export(events, files)


def _own(path: str) -> str:
    """A path that stays below the control store, in a folder of those that exports carry."""
    parts = path.split("/")
    if parts[0] not in CARRIED or not all(parts) or {".", ".."} & set(parts):
        raise ValueError(f"it has a file that is not of a store: {path}")
    return path


def fill(log: DeltaEventLog, projector: Projector, events: Sequence[Event]) -> None:
    """Make a new store of events, in one commit; raises FM-CONTROL-021 if there is one.

    A store that has nothing but its id gives way: no receipt can bear that.

    Killed before the commit it leaves an empty journal, which another call may fill.
    """
    refuse_existing(log, projector)
    log.create()
    tail = log.read(None)
    if not _is_blank(tail.events):
        raise store_exists(log.control)
    try:
        if tail.events:
            log.replace(events, tail.position)
        else:
            log.append(events, tail.position)
    except CommitConflict as error:
        raise store_exists(log.control) from error
    except CommitUnknown as error:
        raise unreadable(log.path, error.__cause__ or error) from error


def refuse_existing(log: DeltaEventLog, projector: Projector) -> None:
    """Raise FM-CONTROL-021 unless the place holds nothing of a store, or just the id of one."""
    events = log.read(None).events if log.exists() else []
    has_rows = projector.published_through("history") > len(events)
    if not _is_blank(events) or has_rows or has_archive(log.control, projector.storage):
        raise store_exists(log.control)


def _is_blank(events: Sequence[Event]) -> bool:
    """Whether nothing has happened in a store since it was made."""
    return all(isinstance(event.body, Created) for event in events)


def content_of(control: str, events: Sequence[Event], state: State) -> StoreContent:
    """What a store holds, in a few numbers."""
    return StoreContent(
        control=control,
        control_id=state.control_id,
        events=len(events),
        batches=state.batch_seq,
        pipelines=tuple(state.pipelines),
        watermarks=len(state.marks),
        open_batches=tuple(batch.batch_id for batch in state.open_batches()),
        is_complete=not events or events[0].kind != "SNAPSHOT",
    )


def _row(event: Event) -> dict[str, Any]:
    return {
        "seq": event.seq,
        "kind": event.kind,
        "payload": json.loads(encode(event.body)),
        "op_id": event.op_id,
        "actor": event.actor,
        "at": event.at.isoformat(),
    }


def _event(row: dict[str, Any]) -> Event:
    body = decode(row["kind"], json.dumps(row["payload"]))
    at = datetime.fromisoformat(row["at"])
    return Event(seq=row["seq"], body=body, op_id=row["op_id"], actor=row["actor"], at=at)


def store_exists(control: str) -> ControlError:
    return ControlError(
        "FM-CONTROL-021",
        "there is a control store already",
        where=control,
        allowed="a place that holds no journal, no published tables and no archive",
        state="nothing was changed",
        next="name another control path, or move the folder away, then run the same command again",
    )


def not_carried(batch_id: str) -> str:
    """What an export says about an open batch that has put rows aside."""
    return (
        f"the rows that the open batch {batch_id} has put aside; "
        + command("retry", batch_id)
        + " first, then export into another file"
    )


def not_at_rest(control: str) -> ControlError:
    """The error for a store that changed each time it was looked at."""
    return ControlError(
        "FM-CONTROL-025",
        "the store is being written, faster than it can be exported",
        where=control,
        allowed="a store that nothing is written to for a moment",
        state="nothing was written",
        next="wait for the runs to end, then run the same command again",
        retryable=True,
    )


def _not_written(path: str, found: str) -> ConfigError:
    return ConfigError(
        "FM-CONFIG-007",
        "the export cannot be written there",
        rule="place_of_export",
        where=path,
        found=found,
        allowed="a new file in a folder that can be written",
        state="nothing was changed",
        next=command("state", "export", "ANOTHER_FILE"),
    )


def _unusable(where: str, error: BaseException) -> ControlError:
    return ControlError(
        "FM-CONTROL-022",
        "the file is no complete export of a control store",
        where=where,
        found=f"{type(error).__name__}: {error}",
        allowed="a file that floodmark state export wrote",
        state="nothing was changed",
        next=command("state", "export", "FILE") + ", on the store, then import that",
    )
