"""Ways forward where a planned window can no longer be read as it was planned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from floodmark.errors import SourceError
from floodmark.model import Settlement, VersionFacts, VersionWindow
from floodmark.next_steps import BATCH, command
from floodmark.sources.delta.log import TableLog
from floodmark.sources.delta.proof import prove_files, prove_readable
from floodmark.sources.row_counts import other_rows

LOST_CODES = {
    "FM-SOURCE-001",
    "FM-SOURCE-002",
    "FM-SOURCE-003",
    "FM-SOURCE-004",
    "FM-SOURCE-006",
    "FM-SOURCE-007",
    "FM-SOURCE-008",
}
"""Errors that say that a range is lost; others pass, or are no fault of the upstream."""


def resolved_loss(log: TableLog, window: VersionWindow, choice: Settlement) -> VersionWindow | None:
    """The same range, read in another way; None if it can be read as it was planned.

    snapshot: the whole table at the window's end; raises FM-SOURCE-010 if that is gone as well.
    accept: the changes after the last version that is lost, which may be none.
    """
    loss = _loss(log, window)
    if loss is None:
        return None
    return _as_snapshot(log, window, loss) if choice == "snapshot" else _accepted(log, window, loss)


def resolved_count(
    log: TableLog, window: VersionWindow, choice: Settlement, count: Callable[[VersionWindow], int]
) -> VersionWindow | None:
    """The same range with the rows that are read, if the log says another number; else None.

    accept: those rows are taken as they are. snapshot: the whole table at the window's end, whose
    number the next run compares as well.
    """
    if not window.is_counted:
        return None
    rows = count(window)
    if rows == window.rows:
        return None
    error = other_rows(window, rows)
    if choice == "snapshot" and window.method != "snapshot":
        return _as_snapshot(log, window, error)
    if window.method == "snapshot+feed":  # a run may amend a range to one way of reading only
        window = _as_snapshot(log, window, error)
        rows = count(window)
        if rows == window.rows:
            return window
    return window.taken_as_read(rows)


def _loss(log: TableLog, window: VersionWindow) -> SourceError | None:
    try:
        prove_readable(log, window)
        prove_files(log, window)
    except SourceError as error:
        if error.code not in LOST_CODES:
            raise
        return error
    return None


def _as_snapshot(log: TableLog, window: VersionWindow, loss: SourceError) -> VersionWindow:
    amended = replace(
        window,
        method="snapshot",
        feed_after_version=None,
        changes=frozenset(),
        reason=f"{loss.code} {loss.title}: the whole table at version {window.end} is read instead",
    )
    still_lost = _loss(log, amended)
    if still_lost is not None:
        raise _no_snapshot(window, still_lost) from still_lost
    size = log.snapshot_size(window.end)
    return replace(amended, bytes=size.bytes, rows=size.rows)


def _accepted(log: TableLog, window: VersionWindow, loss: SourceError) -> VersionWindow:
    left = _readable_tail(log, window)
    rest = "nothing of it is read"
    if left:
        rest = f"only the changes of versions {left[0].version}-{window.end} are read"
    rows = [version.rows for version in left]
    return replace(
        window,
        method="lost",
        feed_after_version=left[0].version - 1 if left else None,
        reason=f"{loss.code} {loss.title}: the loss was accepted, {rest}",
        bytes=sum(version.bytes for version in left),
        rows=None if None in rows else sum(r for r in rows if r is not None),
        changes=frozenset(kind for version in left for kind in version.kinds),
    )


def _readable_tail(log: TableLog, window: VersionWindow) -> Sequence[VersionFacts]:
    """The versions at the end of the window, in a row, whose changes can still be read."""
    tail: list[VersionFacts] = []
    if window.feed_start is None:
        return tail
    for version in range(window.end, window.feed_start - 1, -1):
        # All versions of a window have one schema, so each of them can be proven by itself.
        alone = replace(window, method="feed", after=version - 1, through=version)
        if _loss(log, alone) is not None:
            break
        tail.insert(0, log.versions(version, version)[0])
    return tail


def _no_snapshot(window: VersionWindow, error: SourceError) -> SourceError:
    return SourceError(
        "FM-SOURCE-010",
        f"the whole table at version {window.end} cannot be read either",
        where=window.upstream,
        found=f"{error.code} {error.title}: {error.found}",
        allowed="every data file of the table at the planned end",
        state="nothing was read or written; the committed watermark stays",
        next="restore the files, or declare the range lost: "
        + command("retry", BATCH, "--on-lost-range", "accept"),
    )
