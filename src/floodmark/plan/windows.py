"""Which versions of one upstream come next, and how they are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from floodmark.model import (
    DEFAULT_OPTIONS,
    NOTHING_PROCESSED,
    Mark,
    Probe,
    SnapshotSize,
    TableFacts,
    UpstreamOptions,
    VersionFacts,
    VersionWindow,
    Window,
    enable_feed_command,
    has_columns,
    overtaken_columns,
    retyped_columns,
)
from floodmark.next_steps import aside
from floodmark.plan import faults, times

_WIDENING = {"typeWidening", "typeWidening-preview"}


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an upstream stands, what its log shows, and what was said about it."""

    upstream: str
    probe: Probe
    after: int
    feed_enabled: bool
    fingerprint: str
    max_versions: int | None
    options: UpstreamOptions
    is_first: bool

    @property
    def facts(self) -> TableFacts:
        return self.probe.facts

    @property
    def schema_json(self) -> str | None:
        """The schema of what was processed, where it was looked up."""
        return self.probe.before.schema_json if self.probe.before else None


def next_window(
    upstream: str,
    probe: Probe,
    mark: Mark | None,
    max_versions: int | None = None,
    options: UpstreamOptions = DEFAULT_OPTIONS,
) -> Window:
    """The window that follows the watermark; NOOP if nothing is new.

    First run: a snapshot of the newest version, or what follows the baseline. Then the change
    feed, as far as it is on and the schema stays the same; a snapshot where the feed cannot tell.
    `options` decide what happens where something is lost or another table has come. Raises
    PlanError where a range cannot be read exactly: then nothing is planned and nothing is lost.
    """
    if probe.query is not None:
        return times.next_window(upstream, probe, mark, options)
    times.refuse_other_way(upstream, mark, None)
    faults.refuse_unreadable(upstream, probe.facts)
    if mark is not None and probe.facts.table_id != mark.table_id:
        return _reload_window(upstream, probe, mark, options)
    place = _place(upstream, probe, mark, max_versions, options)
    if place.is_first and place.after == NOTHING_PROCESSED and options.method != "feed":
        return _first_window(place)
    if place.facts.latest_version <= place.after:
        return _no_news(place, mark)
    if place.facts.earliest_version > place.after + 1:
        return _window_after_loss(place)
    return _following_window(place)


def standing_window(
    upstream: str, probe: Probe, mark: Mark | None, options: UpstreamOptions, reason: str
) -> Window:
    """The upstream at its watermark, whatever is new."""
    if probe.query is not None:
        return replace(times.standing_window(upstream, probe, mark), reason=reason)
    return _standing(_place(upstream, probe, mark, None, options), reason)


def _place(
    upstream: str,
    probe: Probe,
    mark: Mark | None,
    max_versions: int | None,
    options: UpstreamOptions,
) -> _Place:
    before = probe.before
    if mark is not None:
        after, feed_enabled, fingerprint = mark.version, mark.feed_enabled, mark.schema_fingerprint
    else:
        after = options.first_after
        feed_enabled = before.feed_enabled if before else False
        fingerprint = before.schema_fingerprint if before else ""
    return _Place(
        upstream, probe, after, feed_enabled, fingerprint, max_versions, options, mark is None
    )


def _following_window(place: _Place) -> Window:
    covered = _feed_prefix(place, place.probe.versions, feed_on=place.feed_enabled)
    change = _schema_change(place, covered)
    if change is not None and place.options.on_schema_change == "fail":
        raise faults.schema_changes(place.upstream, place.after, change or None)
    if place.options.method == "snapshot":
        return _snapshot_window(place, "the whole table, as asked for (method: snapshot)")
    if change is not None and covered and place.options.on_schema_change == "reload":
        reason = f"version {change} changes the schema: the whole table is read (reload)"
        return _snapshot_window(place, reason)
    gap = _feed_gap(place, covered)
    return _window_without_feed(place, gap) if gap else _feed_window(place, covered)


# The window of a first run, of a new table, and after a loss ------------------------------------------


def _first_window(place: _Place) -> Window:
    facts = place.facts
    reason = f"first run: the whole table at version {facts.latest_version}"
    if not facts.feed_enabled and place.options.method is None:
        reason += "; " + _feed_off_reason(place)
    return _snapshot_window(place, reason)


def _reload_window(upstream: str, probe: Probe, mark: Mark, options: UpstreamOptions) -> Window:
    if options.on_recreated == "fail":
        raise faults.recreated(upstream, probe.facts, mark)
    place = _place(upstream, probe, None, None, DEFAULT_OPTIONS)
    reason = (
        f"another table (id {probe.facts.table_id}) took the place of {mark.table_id}, processed"
        f" through version {mark.version}: the whole new table is read (reload)"
    )
    return _snapshot_window(place, reason, reload=True)


def _window_after_loss(place: _Place) -> Window:
    """The log begins later than it should."""
    first_left = place.facts.earliest_version
    lost = f"versions {place.after + 1}-{first_left - 1} are gone from the log"
    if place.options.on_lost_range == "snapshot":
        return _snapshot_window(place, f"{lost}: the whole table is read, as asked for")
    if place.options.on_lost_range == "fail":
        raise faults.history_gone(place.upstream, place.facts, place.after)
    before = place.probe.before
    was_on = before is not None and before.feed_enabled
    left = _feed_prefix(place, place.probe.versions, feed_on=was_on)
    taken = left[: place.max_versions]
    end = taken[-1].version if taken else first_left - 1
    rest = f"; changes of versions {first_left}-{end} are read" if taken else ""
    return _window(
        place,
        method="lost",
        through=end,
        reason=f"{lost}: the loss was accepted{rest}",
        feed_enabled=bool(taken),
        schema_fingerprint=_fingerprint_at_end(place, taken)
        if taken
        else place.facts.schema_fingerprint,
        feed_after_version=first_left - 1 if taken else None,
        end_at=taken[-1].committed_at if taken else None,
        **_cost(taken),
    )


# Where the feed covers what comes next, and where it does not -------------------------------------------


def _feed_prefix(
    place: _Place, versions: Sequence[VersionFacts], *, feed_on: bool
) -> list[VersionFacts]:
    """The versions that one change-feed read can cover, from the first on.

    It ends before the feed is switched off and before the schema changes again: Spark reads a
    range with one schema only.
    """
    covered: list[VersionFacts] = []
    for version in versions:
        feed_on = feed_on if version.feed_enabled is None else version.feed_enabled
        if not feed_on or (covered and _changes_schema(place, version, covered)):
            break
        covered.append(version)
    return covered


def _changes_schema(place: _Place, version: VersionFacts, before: list[VersionFacts]) -> bool:
    schema = _schema_at_end(place, before)
    if schema is not None and not has_columns(schema):
        return False  # the first columns of a table change nothing: no version before has rows
    written = version.schema_fingerprint
    return written is not None and written != _fingerprint_at_end(place, before)


def _fingerprint_at_end(place: _Place, versions: Sequence[VersionFacts]) -> str:
    written = [v.schema_fingerprint for v in versions if v.schema_fingerprint is not None]
    return written[-1] if written else place.fingerprint


def _schema_at_end(place: _Place, versions: Sequence[VersionFacts]) -> str | None:
    written = [v.schema_json for v in versions if v.schema_json is not None]
    return written[-1] if written else place.schema_json


def _schema_change(place: _Place, covered: list[VersionFacts]) -> int | None:
    """The next version, if it changes the schema; 0 if a version that is not known does."""
    if place.is_first and place.after == NOTHING_PROCESSED:
        return None
    if covered and place.options.method != "snapshot":
        return covered[0].version if _changes_schema(place, covered[0], []) else None
    return 0 if place.facts.schema_fingerprint != place.fingerprint else None


def _feed_gap(place: _Place, covered: list[VersionFacts]) -> str | None:
    """Why the change feed cannot tell what comes next; None where it can."""
    if not covered:
        return _feed_off_reason(place)
    retyped = retyped_columns(place.schema_json, covered[0].schema_json)
    if place.schema_json is None and _schema_change(place, covered) is not None:
        retyped = ["columns that the log no longer shows"]
    is_widening = bool(_WIDENING & set(place.facts.reader_features))
    if retyped and not is_widening and "delete" in covered[0].kinds:
        return (
            f"version {covered[0].version} replaces rows and changes the type of"
            f" {', '.join(retyped)}, which no feed can show: the whole table is read"
        )
    later = _changed_later(place, covered)
    if later and is_widening:
        return (
            f"a later version widens or drops {', '.join(later)}, and the feed before it cannot be read"
            " any more: the whole table is read"
        )
    return None


def _window_without_feed(place: _Place, gap: str) -> Window:
    if place.is_first and place.after > NOTHING_PROCESSED:
        raise faults.baseline_without_feed(place.upstream, place.after, gap)
    late = _late_feed_window(place) if place.options.method == "feed" else None
    if late is not None:
        return late
    if place.options.on_feed_gap == "fail" and not place.is_first:
        raise faults.feed_gap(place.upstream, place.after, gap)
    return _snapshot_window(place, gap)


def _late_feed_window(place: _Place) -> Window | None:
    """The whole table where the feed was switched on, then the feed; None where it was not."""
    versions = place.probe.versions
    switched_on = [i for i, version in enumerate(versions) if version.feed_enabled]
    if not switched_on or place.probe.enabled_size is None:
        return None
    enabling = versions[switched_on[0]]
    covered = _feed_prefix(place, versions[switched_on[0] :], feed_on=True)
    taken = covered[1:][: place.max_versions]
    if not taken:
        return None
    size, cost = place.probe.enabled_size, _cost(taken)
    rows = None if size.rows is None or cost["rows"] is None else size.rows + cost["rows"]
    return _window(
        place,
        method="snapshot+feed",
        through=taken[-1].version,
        reason=f"the change feed was switched on at version {enabling.version}: the whole table at"
        f" that version, then the feed{_why_it_ends(place, covered, len(taken) + 1)}",
        feed_enabled=True,
        schema_fingerprint=_fingerprint_at_end(place, [enabling]),
        feed_after_version=enabling.version,
        end_at=taken[-1].committed_at,
        **{**cost, "rows": rows, "bytes": size.bytes + cost["bytes"]},
    )


# Windows ------------------------------------------------------------------------------------------


def _feed_window(place: _Place, covered: list[VersionFacts]) -> Window:
    taken = covered[: place.max_versions]
    return _window(
        place,
        method="feed",
        through=taken[-1].version,
        reason="change feed"
        + _restores(taken)
        + _why_it_ends(place, covered, len(taken))
        + _reader(place, taken),
        feed_enabled=True,
        schema_fingerprint=_fingerprint_at_end(place, taken),
        end_at=taken[-1].committed_at,
        **_cost(taken),
    )


def _snapshot_window(place: _Place, reason: str, *, reload: bool = False) -> Window:
    facts = place.facts
    size = place.probe.size or SnapshotSize(files=0, bytes=0, rows=None)
    return _window(
        place,
        method="snapshot",
        through=facts.latest_version,
        reason=reason,
        feed_enabled=facts.feed_enabled,
        schema_fingerprint=facts.schema_fingerprint,
        end_at=facts.latest_at,
        bytes=size.bytes if place.probe.size else None,
        rows=size.rows,
        reload=reload,
    )


def _no_news(place: _Place, mark: Mark | None) -> Window:
    facts = place.facts
    if facts.latest_version < place.after:
        if mark is None:
            raise faults.baseline_beyond(place.upstream, facts, place.after)
        raise faults.older_than_processed(place.upstream, facts, mark)
    return _standing(place, "no news")


def _standing(place: _Place, reason: str) -> Window:
    facts = place.facts
    return _window(
        place,
        method="feed" if facts.feed_enabled else "snapshot",
        through=place.after,
        reason=reason,
        feed_enabled=facts.feed_enabled,
        schema_fingerprint=facts.schema_fingerprint,
        bytes=0,
        rows=0,
    )


def _window(place: _Place, **fields: Any) -> VersionWindow:
    versions = place.probe.versions
    return VersionWindow(
        upstream=place.upstream,
        after=place.after,
        table_id=place.facts.table_id,
        latest_version=place.facts.latest_version,
        start_at=versions[0].committed_at if versions else None,
        **fields,
    )


def _cost(taken: Sequence[VersionFacts]) -> dict[str, Any]:
    """What reading the changes of these versions takes, from the log."""
    rows = [version.rows for version in taken]
    return {
        "bytes": sum(version.bytes for version in taken),
        "rows": None if None in rows else sum(r for r in rows if r is not None),
        "changes": frozenset(kind for version in taken for kind in version.kinds),
    }


# Reasons ------------------------------------------------------------------------------------------


def _why_it_ends(place: _Place, covered: list[VersionFacts], taken: int) -> str:
    last = covered[-1].version
    if taken < len(covered):
        limit = place.max_versions
        return f"; limited to {limit} versions, the rest follows in the next batch"
    if last >= place.facts.latest_version:
        return ""
    what = "changes the schema or switches the feed off"
    following = [v for v in place.probe.versions if v.version == last + 1]
    if following:
        off = following[0].feed_enabled is False
        what = "switches the feed off" if off else "changes the schema"
    return f"; ends before version {last + 1}, which {what}; the rest follows in the next batch"


def _restores(taken: list[VersionFacts]) -> str:
    found = [str(v.version) for v in taken if v.operation == "RESTORE"]
    return f"; the upstream was restored by version {', '.join(found)}" if found else ""


def _reader(place: _Place, taken: list[VersionFacts]) -> str:
    """A note where Spark refuses a range because of a later version."""
    columns = _changed_later(place, taken)
    if not columns:
        return ""
    what = f"changes, drops or makes NOT NULL {', '.join(columns)}"
    return f"; read by delta-rs: a later version {what}"


def _changed_later(place: _Place, versions: Sequence[VersionFacts]) -> list[str]:
    """Columns that a version after these retyped, dropped or made NOT NULL: Spark refuses the range.

    With column mapping Spark reads a range with the schema of its end.
    """
    if _fingerprint_at_end(place, versions) == place.facts.schema_fingerprint:
        return []
    if place.facts.has_column_mapping:
        return []
    old, new = _schema_at_end(place, versions), place.facts.schema_json
    return overtaken_columns(old, new)


def _feed_off_reason(place: _Place) -> str:
    facts = place.facts
    if not facts.feed_enabled:
        return "the change feed is off: each batch reads the whole table" + aside(
            enable_feed_command(facts.path)
        )
    on = [v.version for v in place.probe.versions if v.feed_enabled]
    since = f"is on only since version {on[0]}" if on else "was off at the beginning of the range"
    return (
        f"the change feed did not cover the range, it {since}: the whole table is read, the next"
        " batch uses the feed"
    )
