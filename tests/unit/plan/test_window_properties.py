"""Windows one after the other, over tables whose feed and schema change at random."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import given, settings
from hypothesis import strategies as st

from floodmark.model.delta import SnapshotSize, TableFacts, VersionFacts
from floodmark.model.plan import Before, Probe
from floodmark.model.state import Mark
from floodmark.model.upstream import UpstreamOptions
from floodmark.model.window import Window
from floodmark.plan.windows import next_window

AT = datetime(2026, 1, 1, tzinfo=UTC)
SIZE = SnapshotSize(1, 10, 5)
TYPES = ("integer", "long", "string")

commits = st.lists(
    st.tuples(st.sampled_from([None, None, True, False]), st.sampled_from([None, None, *TYPES])),
    min_size=1,
    max_size=12,
)
options = st.builds(
    UpstreamOptions,
    method=st.sampled_from([None, "feed", "snapshot"]),
    on_schema_change=st.sampled_from(["evolve", "reload"]),
)


class Table:
    """A log of commits: each may set the feed's flag and the type of the only column."""

    def __init__(self, changes: list[tuple[bool | None, str | None]]) -> None:
        self.versions: list[VersionFacts] = []
        self.feed: list[bool] = []
        self.type: list[str] = []
        for number, (feed, kind) in enumerate(changes):
            self.feed.append(feed if feed is not None else number > 0 and self.feed[-1])
            self.type.append(kind or (self.type[-1] if number else "integer"))
            has_metadata = number == 0 or feed is not None or kind is not None
            self.versions.append(self._version(number, has_metadata=has_metadata))

    def _version(self, number: int, *, has_metadata: bool) -> VersionFacts:
        facts = VersionFacts(number, AT, "WRITE", frozenset({"insert"}), bytes=1, rows=1)
        if not has_metadata:
            return facts
        kind = self.type[number]
        return replace(
            facts,
            feed_enabled=self.feed[number],
            schema_fingerprint=kind,
            schema_json=schema(kind),
        )

    def probe(self, mark: Mark | None, chosen: UpstreamOptions) -> Probe:
        latest = len(self.versions) - 1
        feed, kind = self.feed[-1], self.type[-1]
        facts = TableFacts("/u", "id", latest, AT, 0, feed, schema(kind), kind)
        if mark is None and chosen.method != "feed":
            return Probe(facts, size=SIZE)
        after = mark.version if mark else -1
        before = None
        if mark:
            before = Before(self.feed[after], self.type[after], schema(self.type[after]))
        return Probe(facts, tuple(self.versions[after + 1 :]), SIZE, before, SIZE)


def schema(kind: str) -> str:
    return json.dumps({"type": "struct", "fields": [{"name": "x", "type": kind}]})


def all_windows(table: Table, chosen: UpstreamOptions, limit: int | None) -> list[Window]:
    mark: Mark | None = None
    found: list[Window] = []
    while True:
        window = next_window("/u", table.probe(mark, chosen), mark, limit, chosen)
        if not window.has_news:
            return found
        found.append(window)
        mark = Mark(
            "default",
            "/u",
            window.end,
            "id",
            window.feed_enabled,
            window.schema_fingerprint,
            "b",
            AT,
            "t",
        )


@given(commits, options, st.sampled_from([None, 1, 3]))
@settings(max_examples=300, deadline=None)
def test_windows_cover_every_version_once_and_say_why(
    changes: list[tuple[bool | None, str | None]], chosen: UpstreamOptions, limit: int | None
) -> None:
    table = Table(changes)

    windows = all_windows(table, chosen, limit)

    covered = [version for window in windows for version in range(window.start, window.end + 1)]
    assert covered == list(range(len(table.versions)))
    assert all(window.reason for window in windows)


@given(commits, options)
@settings(max_examples=300, deadline=None)
def test_what_is_read_by_feed_has_the_feed_on_and_one_schema(
    changes: list[tuple[bool | None, str | None]], chosen: UpstreamOptions
) -> None:
    table = Table(changes)

    for window in all_windows(table, chosen, None):
        if window.feed_start is not None:
            read = range(window.feed_start, window.end + 1)
            assert all(table.feed[version] for version in read)
            assert {table.type[version] for version in read} == {window.schema_fingerprint}
        if window.snapshot_version is not None:
            assert table.type[window.snapshot_version] == window.schema_fingerprint


@given(commits, options)
@settings(max_examples=100, deadline=None)
def test_the_mark_after_a_window_is_the_table_at_its_end(
    changes: list[tuple[bool | None, str | None]], chosen: UpstreamOptions
) -> None:
    table = Table(changes)

    for window in all_windows(table, chosen, None):
        assert window.feed_enabled == table.feed[window.end]
        assert window.schema_fingerprint == table.type[window.end]
