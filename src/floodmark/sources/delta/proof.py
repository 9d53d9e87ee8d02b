"""Whether a frozen window of a Delta table can still be read exactly, proven from the log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from floodmark.errors import SourceError
from floodmark.model import TableFacts, VersionWindow, Window, overtaken_columns
from floodmark.next_steps import BATCH, THEN_RETRY, command
from floodmark.sources.delta.log import TableLog
from floodmark.sources.faults import LOST_STEP, of_window, schema_moved

T = TypeVar("T")

WIDENING = frozenset(("typeWidening", "typeWidening-preview"))
LATER_CHANGES = "changed or dropped a column, or made it NOT NULL"
"""What a version does after which Spark refuses the feed of those before it."""

_GONE = (
    "put the table back, "
    + THEN_RETRY
    + "; or declare the range lost: "
    + command("retry", BATCH, "--on-lost-range", "accept")
)


def prove_readable(log: TableLog, window: VersionWindow) -> TableFacts:
    """The facts of the table, if the window can be read exactly; else SourceError.

    FM-SOURCE-003 another table, -001 beyond the table, -002 commits or the snapshot gone, -004
    the feed does not cover the range, -007 another schema. A window without news needs only the
    table itself and its schema; one of which nothing is left needs nothing.
    """
    facts = log.facts()
    if window.method == "lost" and window.feed_start is None:
        return facts  # nothing of it is read
    if facts.table_id != window.table_id:
        raise _another_table(window, facts)
    if window.end > facts.latest_version:
        raise _beyond(window, facts)
    if window.has_news:
        _prove_versions(log, window)
    _prove_schema(log, window)
    _prove_not_overtaken(log, facts, window)
    return facts


def feed_missing(window: Window, found: str) -> SourceError:
    """The error for a range that the change feed does not cover."""
    return of_window(
        "FM-SOURCE-004",
        "the change feed does not cover the planned range",
        window,
        found=found,
        allowed="delta.enableChangeDataFeed on from the first version of the window to its last",
        next=LOST_STEP,
    )


def is_overtaken(log: TableLog, facts: TableFacts, window: VersionWindow) -> bool:
    """Whether Spark refuses the feed of a window because of what a later version did to columns.

    Spark reads every range with the newest schema, but for tables with column mapping. delta-rs
    reads what Spark refuses.
    """
    if window.feed_start is None or facts.schema_fingerprint == window.schema_fingerprint:
        return False
    if facts.has_column_mapping:
        return False
    return bool(overtaken_columns(log.schema_at(window.end)[0], facts.schema_json))


def _prove_not_overtaken(log: TableLog, facts: TableFacts, window: VersionWindow) -> None:
    """delta-rs reads what Spark refuses, unless a type was widened."""
    if is_overtaken(log, facts, window) and WIDENING & set(facts.reader_features):
        later = f"a later version {LATER_CHANGES}"
        raise schema_moved(
            window, f"{later}, and the table has type widening: nothing reads past it"
        )


def prove_files(log: TableLog, window: VersionWindow) -> None:
    """Raise FM-SOURCE-006 if data files that the window needs are gone; asks for every one."""
    if not window.has_news:
        return
    if window.snapshot_version is not None:
        prove_version_files(log, window, window.snapshot_version)
    if window.feed_start is not None:
        first = window.feed_start
        _refuse_lost(window, _retold(window, lambda: log.lost_feed_files(first, window.end)))


def prove_version_files(log: TableLog, window: VersionWindow, version: int) -> None:
    """The same for the whole table at a version."""
    _refuse_lost(window, _retold(window, lambda: log.lost_snapshot_files(version)))


def _refuse_lost(window: VersionWindow, lost: Sequence[str]) -> None:
    if lost:
        raise files_gone(window, f"{len(lost)} files, {lost[0]} among them")


def too_old(window: VersionWindow) -> SourceError:
    """The error for a version that Delta refuses for its age and nothing else can read."""
    return of_window(
        "FM-SOURCE-063",
        "Delta refuses to read versions as old as those of the planned range",
        window,
        found="a version older than delta.deletedFileRetentionDuration of the table, in a session"
        " in which that rule cannot be switched off for one read",
        allowed="a classic session of Spark, or a table that is given by path, which delta-rs reads",
        next="raise delta.deletedFileRetentionDuration of the table (ALTER TABLE ... SET"
        " TBLPROPERTIES), " + THEN_RETRY + "; or run in a classic session",
    )


def files_gone(window: Window, found: str) -> SourceError:
    """The error for data files that VACUUM took away while the log still names them."""
    return of_window(
        "FM-SOURCE-006",
        "data files of the planned range are gone",
        window,
        found=found,
        allowed="every data and change file of the window; VACUUM keeps them for the retention"
        " time of the table",
        next=LOST_STEP,
    )


def schema_text(log: TableLog, window: VersionWindow, version: int) -> str:
    """The schema at a version, as Delta writes it; the newest one where the version is not there.

    A window of which nothing is left, and one that ends before the first version, have no other.
    """
    if version < 0 or window.method == "lost":
        try:
            return log.schema_at(version)[0]
        except SourceError:
            return log.facts().schema_json
    return log.schema_at(version)[0]


def _prove_versions(log: TableLog, window: VersionWindow) -> None:
    at, first = window.snapshot_version, window.feed_start
    if at is not None:
        _retold(window, lambda: log.snapshot_size(at))
    if first is not None:
        _prove_feed(log, window, first)


def _prove_feed(log: TableLog, window: VersionWindow, first: int) -> None:
    versions = _retold(window, lambda: log.versions(first, window.end))
    if not _retold(window, lambda: log.feed_enabled_at(first)):
        raise feed_missing(window, f"the feed is off at version {first}")
    off = [v.version for v in versions if v.feed_enabled is False]
    if off:
        raise feed_missing(window, f"the feed was switched off at version {off[0]}")


def _prove_schema(log: TableLog, window: VersionWindow) -> None:
    if window.end < 0:
        return
    _, fingerprint = _retold(window, lambda: log.schema_at(window.end))
    if fingerprint != window.schema_fingerprint:
        # The whole table has that schema too, so it cannot stand for the range.
        raise schema_moved(window, f"schema {fingerprint} at version {window.end}", _GONE)


def _retold(window: VersionWindow, look: Callable[[], T]) -> T:
    """What `look` gives; a hole in the log is told again with the window that needs it."""
    try:
        return look()
    except SourceError as error:
        if error.code != "FM-SOURCE-002":
            raise
        missing = error.details.get("missing")
        raise of_window(
            error.code,
            "part of the planned range is gone from the log",
            window,
            found=f"{error.found}; missing: {missing}" if missing else str(error.found),
            allowed=str(error.allowed),
            next=LOST_STEP,
        ) from error


def _another_table(window: VersionWindow, facts: TableFacts) -> SourceError:
    return of_window(
        "FM-SOURCE-003",
        "the table is no longer the one that was planned",
        window,
        found=f"table id {facts.table_id}",
        allowed=f"table id {window.table_id}",
        next=_GONE,
    )


def _beyond(window: VersionWindow, facts: TableFacts) -> SourceError:
    return of_window(
        "FM-SOURCE-001",
        "the range reaches beyond the table",
        window,
        found=f"versions through {facts.latest_version}",
        allowed=f"a table that reaches version {window.end}",
        next=_GONE,
    )
