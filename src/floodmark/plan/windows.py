"""Which versions of one upstream come next, and how they are read."""

from __future__ import annotations

from floodmark.errors import PlanError
from floodmark.model.delta import (
    SnapshotSize,
    TableFacts,
    VersionFacts,
    enable_feed_command,
)
from floodmark.model.plan import Probe
from floodmark.model.state import Mark
from floodmark.model.window import NOTHING_PROCESSED, Window

HIDDEN_COMMITS = {"catalogManaged", "catalogOwned-preview"}
"""Reader features of tables whose newest commits are not in the log folder."""


def next_window(
    upstream: str, probe: Probe, mark: Mark | None, max_versions: int | None = None
) -> Window:
    """The window that follows the watermark; NOOP if nothing is new.

    First run: a snapshot of the newest version. Then the change feed, as far as it is on and the
    schema stays the same; a snapshot where the feed is off. Raises PlanError where a range cannot
    be read exactly: then nothing is planned and nothing is lost.
    """
    facts = probe.facts
    _refuse_unreadable(upstream, facts)
    if mark is None:
        return _first_window(upstream, probe)
    _refuse_other_table(upstream, facts, mark)
    if facts.latest_version == mark.version:
        return _no_news(upstream, facts, mark)
    if facts.earliest_version > mark.version + 1:
        raise _history_gone(upstream, facts, mark)
    covered = _feed_prefix(probe.versions, mark)
    if not covered:
        return _snapshot_window(upstream, probe, mark.version, _feed_off_reason(facts))
    return _feed_window(upstream, facts, mark, covered, max_versions)


def _first_window(upstream: str, probe: Probe) -> Window:
    reason = f"first run: the whole table at version {probe.facts.latest_version}"
    if not probe.facts.feed_enabled:
        reason += f"; {_feed_off_reason(probe.facts)}"
    return _snapshot_window(upstream, probe, NOTHING_PROCESSED, reason)


def _snapshot_window(upstream: str, probe: Probe, after_version: int, reason: str) -> Window:
    facts = probe.facts
    size = probe.size or SnapshotSize(files=0, bytes=0, rows=None)
    return Window(
        upstream=upstream,
        method="snapshot",
        after_version=after_version,
        through_version=facts.latest_version,
        reason=reason,
        table_id=facts.table_id,
        feed_enabled=facts.feed_enabled,
        schema_fingerprint=facts.schema_fingerprint,
        latest_version=facts.latest_version,
        start_at=probe.versions[0].committed_at if probe.versions else None,
        end_at=facts.latest_at,
        bytes=size.bytes if probe.size else None,
        rows=size.rows,
    )


def _feed_window(
    upstream: str,
    facts: TableFacts,
    mark: Mark,
    covered: list[VersionFacts],
    max_versions: int | None,
) -> Window:
    taken = covered[:max_versions]
    rows = [version.rows for version in taken]
    return Window(
        upstream=upstream,
        method="feed",
        after_version=mark.version,
        through_version=taken[-1].version,
        reason=_feed_reason(facts, covered, len(taken)),
        table_id=facts.table_id,
        feed_enabled=True,
        schema_fingerprint=_fingerprint_at_end(taken, mark),
        latest_version=facts.latest_version,
        start_at=taken[0].committed_at,
        end_at=taken[-1].committed_at,
        bytes=sum(version.bytes for version in taken),
        rows=None if None in rows else sum(r for r in rows if r is not None),
        changes=frozenset(kind for version in taken for kind in version.kinds),
    )


def _no_news(upstream: str, facts: TableFacts, mark: Mark) -> Window:
    return Window(
        upstream=upstream,
        method="feed" if facts.feed_enabled else "snapshot",
        after_version=mark.version,
        through_version=mark.version,
        reason="no news",
        table_id=facts.table_id,
        feed_enabled=facts.feed_enabled,
        schema_fingerprint=facts.schema_fingerprint,
        latest_version=facts.latest_version,
        bytes=0,
        rows=0,
    )


def _feed_prefix(versions: tuple[VersionFacts, ...], mark: Mark) -> list[VersionFacts]:
    """The versions after the mark that one change-feed read can cover.

    It ends before the feed is switched off and before the schema changes again: Spark reads a
    range with one schema only.
    """
    feed_on = mark.feed_enabled
    covered: list[VersionFacts] = []
    for position, version in enumerate(versions):
        feed_on = feed_on if version.feed_enabled is None else version.feed_enabled
        if not feed_on or (position > 0 and _changes_schema(version, covered, mark)):
            break
        covered.append(version)
    return covered


def _changes_schema(version: VersionFacts, before: list[VersionFacts], mark: Mark) -> bool:
    found = version.schema_fingerprint
    return found is not None and found != _fingerprint_at_end(before, mark)


def _fingerprint_at_end(versions: list[VersionFacts], mark: Mark) -> str:
    written = [v.schema_fingerprint for v in versions if v.schema_fingerprint is not None]
    return written[-1] if written else mark.schema_fingerprint


def _feed_reason(facts: TableFacts, covered: list[VersionFacts], taken: int) -> str:
    if taken < len(covered):
        return f"change feed; limited to {taken} versions, the rest follows in the next batch"
    if covered[-1].version < facts.latest_version:
        return (
            f"change feed; ends before version {covered[-1].version + 1}, which changes the "
            "schema or switches the feed off; the rest follows in the next batch"
        )
    return "change feed"


def _feed_off_reason(facts: TableFacts) -> str:
    text = "the change feed did not cover the range: the whole table is read"
    if not facts.feed_enabled:
        text = f"the change feed is off: each batch reads the whole table; {enable_feed_command(facts.path)}"
    return text


def _refuse_unreadable(upstream: str, facts: TableFacts) -> None:
    hidden = HIDDEN_COMMITS & set(facts.reader_features)
    if hidden:
        raise PlanError(
            "FM-PLAN-009",
            f"{upstream} keeps its newest commits outside its log folder",
            found=f"reader feature {', '.join(sorted(hidden))}",
            state="nothing was planned",
            next="give the upstream by its catalog name once this version supports it",
        )


def _refuse_other_table(upstream: str, facts: TableFacts, mark: Mark) -> None:
    state = f"nothing was planned; the committed watermark stays at {mark.version}"
    if facts.table_id != mark.table_id:
        raise PlanError(
            "FM-PLAN-005",
            f"{upstream} was recreated: it is not the table that was processed before",
            found=f"table id {facts.table_id}, version {facts.latest_version}",
            allowed=f"table id {mark.table_id}",
            state=state,
            next="restore the old table, or register the new one in another scope",
        )
    if facts.latest_version < mark.version:
        raise PlanError(
            "FM-PLAN-010",
            f"{upstream} is older than what was processed of it",
            found=f"newest version {facts.latest_version}",
            allowed=f"version {mark.version} or newer",
            state=state,
            next="bring the table's log back to where it was, then plan again",
        )


def _history_gone(upstream: str, facts: TableFacts, mark: Mark) -> PlanError:
    return PlanError(
        "FM-PLAN-006",
        f"the log of {upstream} no longer holds every version that was not processed yet",
        found=f"oldest commit {facts.earliest_version}",
        allowed=f"every commit from {mark.version + 1}",
        state=f"nothing was planned; the committed watermark stays at {mark.version}",
        next="load it again from a snapshot: a new scope, and new targets",
    )
