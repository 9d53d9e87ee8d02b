"""Which files of a control store nobody needs any more, and removing them.

Removing is safe at every moment: what is removed is named by no commit that a reader still starts
from, commits go oldest first, and a reader that was asleep for longer than the retention finds its
place gone and reads the store whole.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from floodmark import failpoints
from floodmark.control.journal.delta import HIDDEN, unreadable
from floodmark.deltalog import Entry, Storage
from floodmark.model import epoch_micros

HOUR = 3_600.0
SAFE_SECONDS = HOUR
"""Younger files may belong to a commit that is being written, or to a query that is running."""
DEFAULT_SECONDS = 7 * 24 * HOUR
"""As long as VACUUM keeps files of a Delta table by default."""
LONG_SILENT_SECONDS = 24 * HOUR
"""A holder without a sign of life for so long is not coming back."""

_LOG_FILE = re.compile(r"([0-9]{20})\.(?:json|crc|checkpoint\.parquet)")
_CHECKPOINT = re.compile(r"([0-9]{20})\.checkpoint\.parquet")


@dataclass(frozen=True, slots=True)
class Removed:
    """What a clean-up took away."""

    files: int = 0
    bytes: int = 0

    def __add__(self, other: Removed) -> Removed:
        return Removed(self.files + other.files, self.bytes + other.bytes)


def remove_unneeded(table: str, storage: Storage, retain_seconds: float, now: datetime) -> Removed:
    """Remove what no reader of a Delta table needs and is older than the retention.

    Data files that no commit names or that were replaced, and commits below the newest checkpoint.
    Killed in between, the table is as readable as before; called again, it goes on.
    """
    removed = Removed()
    names = [
        *_unneeded_data(table, storage, retain_seconds),
        *_unneeded_hidden(table, storage, retain_seconds, now),
    ]
    doomed = [f"{table}/{name}" for name in names]
    doomed += [
        f"{table}/_delta_log/{name}" for name in _old_log(table, storage, retain_seconds, now)
    ]
    for path in doomed:
        found = storage.entry(path)
        if found is None:
            continue  # removed before; the log still remembers it
        storage.delete(path)
        removed += Removed(1, found.size)
        failpoints.reached("cleanup.mid")
    return removed


def _unneeded_data(table: str, storage: Storage, retain_seconds: float) -> list[str]:
    """Chosen by delta-rs, removed by us: its VACUUM would put two commits into the log."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        return DeltaTable(table, storage_options=storage.options).vacuum(
            math.ceil(retain_seconds / HOUR),
            dry_run=True,
            enforce_retention_duration=False,
            full=True,
        )
    except TableNotFoundError:
        return []
    except (DeltaError, OSError) as error:
        raise unreadable(table, error) from error


def _unneeded_hidden(
    table: str, storage: Storage, retain_seconds: float, now: datetime
) -> list[str]:
    """The same of files that every VACUUM passes over; see `control.delta.HIDDEN`."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    entries = _entries(storage, table)
    old = {
        entry.name
        for entry in entries
        if entry.name.startswith(HIDDEN) and _age(entry, now) >= retain_seconds
    }
    if not old:
        return []
    try:
        # What is active is asked for behind the listing: a file that was committed meanwhile is.
        active = DeltaTable(table, storage_options=storage.options).file_uris()
        removed = _removed_at(table, storage)
    except (DeltaError, pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise unreadable(table, error) from error
    old -= {uri.rpartition("/")[2] for uri in active}
    if retain_seconds:  # with none, what this very clean-up has replaced goes too
        since = (epoch_micros(now) / 1e6 - retain_seconds) * 1e3
        old -= {name for name, at in removed.items() if at > since}
    return sorted(old)


def _removed_at(table: str, storage: Storage) -> dict[str, int]:
    """When commits took data files out of the table, in milliseconds, as far as the log says."""
    folder = f"{table}/_delta_log"
    names = [entry.name for entry in _entries(storage, folder)]
    checkpoints = [name for name in names if _CHECKPOINT.fullmatch(name)]
    removes: list[dict[str, Any]] = []
    newest = max(checkpoints, default="")
    if newest:
        content = pa.BufferReader(storage.read(f"{folder}/{newest}"))
        columns = ["remove.path", "remove.deletionTimestamp"]
        rows = pq.read_table(content, columns=columns, use_threads=False).to_pylist()
        removes += [row["remove"] for row in rows if row.get("remove")]
    for name in names:
        if name.endswith(".json") and _LOG_FILE.fullmatch(name) and name[:20] > newest[:20]:
            for line in storage.read(f"{folder}/{name}").decode().splitlines():
                if '"remove"' in line and (remove := json.loads(line).get("remove")):
                    removes.append(remove)
    return {each["path"]: each.get("deletionTimestamp") or 0 for each in removes if each["path"]}


def _old_log(table: str, storage: Storage, retain_seconds: float, now: datetime) -> Iterator[str]:
    """Log files below the checkpoint that readers start from, oldest first.

    Stops at the first one that is too young: what stays has no hole.
    """
    folder = f"{table}/_delta_log"
    entries = _entries(storage, folder)
    floor = _checkpoint(storage, folder, entries)
    for entry in entries:
        match = _LOG_FILE.fullmatch(entry.name)
        if match and (int(match[1]) >= floor or _age(entry, now) < retain_seconds):
            return
        if match:
            yield entry.name


def _checkpoint(storage: Storage, folder: str, entries: list[Entry]) -> int:
    """The version of the checkpoint that every reader can start from; 0 if there is none."""
    found = [int(match[1]) for e in entries if (match := _CHECKPOINT.fullmatch(e.name))]
    try:
        named = int(json.loads(storage.read(f"{folder}/_last_checkpoint"))["version"])
    except FileNotFoundError:
        return 0
    except (ValueError, KeyError, TypeError):
        return 0  # damaged: it names nothing, so nothing is known to be below it
    return min(named, max(found)) if found else 0


def remove_heartbeats(
    control: str, storage: Storage, running: Collection[str], retain_seconds: float, now: datetime
) -> int:
    """Remove the signs of life of runs that have ended or are silent for long; how many.

    A run that still runs leaves a new sign within a third of its ttl.
    """
    folder = f"{control}/_heartbeats"
    count = 0
    for entry in _entries(storage, folder):
        limit = LONG_SILENT_SECONDS if entry.name in running else min(retain_seconds, SAFE_SECONDS)
        if _age(entry, now) >= limit:
            storage.delete(f"{folder}/{entry.name}")
            count += 1
            failpoints.reached("cleanup.mid")
    return count


def _entries(storage: Storage, folder: str) -> list[Entry]:
    try:
        return storage.list(folder)
    except FileNotFoundError:
        return []


def _age(entry: Entry, now: datetime) -> float:
    """Seconds since a file was written; 0 where the store does not tell."""
    if not entry.modified_ms:
        return 0.0
    return epoch_micros(now) / 1e6 - entry.modified_ms / 1e3
