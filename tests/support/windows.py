"""Windows as a plan of the moment would freeze them, for tests of sources."""

from __future__ import annotations

from pathlib import Path

from floodmark.deltalog import DeltaLog
from floodmark.model.window import Method, VersionWindow


def planned_window(
    path: Path, method: Method, after: int, through: int, feed: int | None = None
) -> VersionWindow:
    """The versions after one and through another of a table, which must have the latter."""
    log = DeltaLog(path)
    facts = log.facts()
    return VersionWindow(
        upstream=str(path),
        method=method,
        after=after,
        through=through,
        reason="",
        table_id=facts.table_id,
        feed_enabled=facts.feed_enabled,
        schema_fingerprint=log.schema_at(max(through, 0))[1],
        latest_version=facts.latest_version,
        feed_after_version=feed,
    )
