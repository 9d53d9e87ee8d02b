"""Rows that were put aside for a batch, after others have looked after their tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from floodmark.deltalog import DeltaLog
from floodmark.errors import RunError, SinkError, SourceError
from floodmark.model import (
    NOTHING_PROCESSED,
    VersionWindow,
    WriteResult,
    metadata_of,
    overtaken_columns,
)
from floodmark.next_steps import command, then_retry

ROWS_CHANGED = "data files are gone, or others have changed the rows"
UNREADABLE = ("FM-SOURCE-001", "FM-SOURCE-002", "FM-SOURCE-008")
"""What the log of a table says that has lost commits."""


@dataclass(frozen=True, slots=True)
class Landed:
    """What a landing has left in its table."""

    path: str
    committed: WriteResult | None
    unknown: str = ""
    """Why the table does not tell what it holds; then nothing is committed."""

    @property
    def result(self) -> WriteResult:
        """The commit of rows that can be read."""
        assert self.committed is not None  # noqa: S101  (`loss` is asked before)
        return self.committed

    def loss(self, log: DeltaLog, *, proves_files: bool) -> str:
        """Why the rows cannot be read; empty if they can. Files are asked for where it is said."""
        if self.unknown:
            return self.unknown
        return (
            ""
            if self.readable_version(log, proves_files=proves_files) is not None
            else ROWS_CHANGED
        )

    def readable_version(self, log: DeltaLog, *, proves_files: bool = False) -> int | None:
        """The version at which the rows are to be read; None if they are gone.

        Maintenance puts the rows into other files, and a VACUUM removes those that were landed: a
        newer version with the same rows and columns is read then. Where others have changed rows or
        columns, each file is asked for.
        """
        version = self.result.version
        try:
            facts = log.facts()
            later = log.versions(version + 1, facts.latest_version)
            is_same = _has_same_columns(log.schema_at(version)[0], facts.schema_json)
            is_kept = is_same and not any(commit.kinds for commit in later)
            version = facts.latest_version if is_kept else version
            asks = proves_files or not is_kept
            return None if asks and log.lost_snapshot_files(version) else version
        except SourceError as error:
            if error.code not in UNREADABLE:
                raise
            return None


def _has_same_columns(old: str, new: str) -> bool:
    """By names and types: column mapping, which others have switched on, gives the same rows."""
    names = [[field["name"] for field in json.loads(text)["fields"]] for text in (old, new)]
    return names[0] == names[1] and not overtaken_columns(old, new)


def newest_of_ours(path: str, log: DeltaLog) -> Landed:
    """What the newest commit of floodmark has left in a table of the control store.

    Where that commit was cleaned up, nothing speaks against the newest version.
    """
    facts = log.facts()
    commits = log.versions(facts.earliest_version, facts.latest_version)
    ours = [commit.version for commit in commits if metadata_of(commit.user_metadata)]
    version = ours[-1] if ours else facts.latest_version
    committed = WriteResult(path, facts.table_id, version, None, already_applied=True)
    return Landed(path, committed)


def whole_window(path: str, log: DeltaLog, version: int, reason: str) -> VersionWindow:
    """A table of the control store at a version, as a window: so it is read whatever its age."""
    facts = log.facts()
    return VersionWindow(
        upstream=path,
        method="snapshot",
        after=NOTHING_PROCESSED,
        through=version,
        reason=reason,
        table_id=facts.table_id,
        feed_enabled=facts.feed_enabled,
        schema_fingerprint=log.schema_at(version)[1],
        latest_version=facts.latest_version,
    )


def landed_before(path: str, look: Callable[[], WriteResult | None]) -> Landed | None:
    """What `look` finds committed in the table of a landing; None where that is nothing.

    Each landing has a table of its own, so whatever the log of a target can say against a receipt
    says that it does not tell any more which rows it holds.
    """
    try:
        committed = look()
    except SinkError as error:
        if error.retryable:
            raise
        return Landed(path, None, f"{error.code} {error.title}: {error.found}")
    return None if committed is None else Landed(path, committed)


def rows_gone(pipeline: str, batch_id: str, path: str, found: str) -> RunError:
    """The error for landed rows that some writes have taken, and others cannot read any more."""
    return RunError(
        "FM-RUN-012",
        "rows that were put aside for a batch are gone",
        where=f"pipeline {pipeline}, batch {batch_id}, {path}",
        found=found,
        allowed="the table as it was landed, or put together by maintenance (OPTIMIZE, REORG)",
        state="writes of this batch that have committed hold those rows; nothing else was written, and"
        " the committed watermark stays",
        next="put the table back as it was, "
        + then_retry(batch_id)
        + "; or read the planned window once more for the writes that are left: "
        + command("retry", batch_id, "--on-lost-range", "accept")
        + " (where the source has changed meanwhile, they get other rows than those"
        " before)",
    )
