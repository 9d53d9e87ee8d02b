"""Which versions come next, and how they are read."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from floodmark.errors import PlanError
from floodmark.model.delta import SnapshotSize, TableFacts, VersionFacts
from floodmark.model.plan import Before, Probe
from floodmark.model.state import Mark
from floodmark.model.upstream import DEFAULT_OPTIONS, UpstreamOptions
from floodmark.model.window import Window
from floodmark.plan.windows import next_window

AT = datetime(2026, 1, 1, tzinfo=UTC)


def facts(latest: int, **changed: Any) -> TableFacts:
    given: dict[str, Any] = {
        "path": "/u/a",
        "table_id": "id",
        "latest_version": latest,
        "latest_at": AT,
        "earliest_version": 0,
        "feed_enabled": True,
        "schema_json": "{}",
        "schema_fingerprint": "f",
    }
    return TableFacts(**{**given, **changed})


def version(number: int, **changed: Any) -> VersionFacts:
    given: dict[str, Any] = {"bytes": 10, "rows": 2, **changed}
    return VersionFacts(number, AT, "WRITE", frozenset({"insert"}), **given)


def mark(at: int, *, feed: bool = True) -> Mark:
    return Mark("default", "/u/a", at, "id", feed, "f", "b1", AT, "tester")


def after(at: int, *versions: VersionFacts, feed: bool = True, **options: Any) -> Window:
    limit = options.pop("max_versions", None)
    said = options.pop("said", DEFAULT_OPTIONS)
    before = options.pop("before", None)
    latest = options.pop("latest", versions[-1].version if versions else at)
    probe = Probe(facts(latest, **options), versions, SnapshotSize(1, 99, 7), before)
    return next_window("/u/a", probe, mark(at, feed=feed), limit, said)


def test_the_first_window_is_a_snapshot_of_the_newest_version() -> None:
    window = next_window("/u/a", Probe(facts(4), size=SnapshotSize(2, 100, 50)), None)
    assert (window.method, window.start, window.end) == ("snapshot", 0, 4)
    assert (window.rows, window.bytes) == (50, 100)


def test_max_versions_never_cuts_a_snapshot() -> None:
    assert next_window("/u/a", Probe(facts(4)), None, max_versions=1).end == 4


def test_what_is_not_known_of_a_snapshot_is_none_not_zero() -> None:
    window = next_window("/u/a", Probe(facts(4)), None)
    assert (window.rows, window.bytes) == (None, None)


def test_then_the_change_feed_follows_the_watermark() -> None:
    window = after(3, version(4), version(5, rows=3))
    assert (window.method, window.start, window.end) == ("feed", 4, 5)
    assert (window.rows, window.bytes) == (5, 20)
    assert window.changes == frozenset({"insert"})


def test_rows_are_unknown_if_one_version_does_not_tell() -> None:
    assert after(3, version(4), version(5, rows=None)).rows is None


def test_no_news_stands_at_the_watermark() -> None:
    window = after(3)
    assert (window.status, window.start, window.end) == ("NOOP", 4, 3)


def test_max_versions_cuts_the_feed_and_says_so() -> None:
    window = after(3, version(4), version(5), version(6), max_versions=2)
    assert window.end == 5
    assert "limited to 2" in window.reason


def test_with_the_feed_off_the_whole_table_is_read_and_the_window_still_starts_at_the_mark() -> (
    None
):
    window = after(3, version(4), feed=False, feed_enabled=False)
    assert (window.method, window.start, window.end, window.rows) == ("snapshot", 4, 4, 7)
    assert "delta.enableChangeDataFeed = true" in window.reason


def test_a_feed_switched_on_in_the_first_version_covers_it() -> None:
    window = after(3, version(4, feed_enabled=True), version(5), feed=False)
    assert (window.method, window.end) == ("feed", 5)


def test_a_feed_switched_on_later_does_not_cover_the_range() -> None:
    window = after(3, version(4), version(5, feed_enabled=True), feed=False)
    assert (window.method, window.start, window.end) == ("snapshot", 4, 5)
    assert "did not cover" in window.reason


def test_the_window_ends_before_the_feed_is_switched_off() -> None:
    window = after(3, version(4), version(5, feed_enabled=False), feed_enabled=False)
    assert (window.method, window.end) == ("feed", 4)
    assert "ends before version 5" in window.reason


def test_the_window_ends_before_the_schema_changes() -> None:
    window = after(3, version(4), version(5, schema_fingerprint="g"), version(6))
    assert (window.end, window.schema_fingerprint) == (4, "f")


def test_a_schema_change_in_the_first_version_begins_the_next_window() -> None:
    window = after(4, version(5, schema_fingerprint="g"), version(6))
    assert (window.start, window.end, window.schema_fingerprint) == (5, 6, "g")


def test_metadata_with_the_same_schema_does_not_end_the_window() -> None:
    assert after(3, version(4), version(5, schema_fingerprint="f")).end == 5


@pytest.mark.parametrize(
    ("code", "options"),
    [
        ("FM-PLAN-005", {"latest": 6, "table_id": "other"}),
        ("FM-PLAN-006", {"latest": 9, "earliest_version": 5}),
        ("FM-PLAN-009", {"latest": 6, "reader_features": ("catalogManaged",)}),
        ("FM-PLAN-010", {"latest": 2}),
    ],
    ids=["recreated", "history gone", "hidden commits", "behind the watermark"],
)
def test_refuses_what_cannot_be_read_exactly(code: str, options: dict[str, Any]) -> None:
    with pytest.raises(PlanError) as caught:
        after(3, **options)
    assert caught.value.code == code
    assert "nothing was planned" in (caught.value.state or "")


def test_history_that_begins_right_after_the_watermark_is_enough() -> None:
    assert after(3, version(4), earliest_version=4).end == 4


def columns(kind: str) -> str:
    return '{"type": "struct", "fields": [{"name": "x", "type": "%s"}]}' % kind  # noqa: UP031


BEFORE = Before(feed_enabled=True, schema_fingerprint="f", schema_json=columns("integer"))
WIDENED: dict[str, Any] = {
    "before": BEFORE,
    "schema_json": columns("long"),
    "schema_fingerprint": "g",
    "reader_features": ("typeWidening",),
}


def test_changes_before_a_widened_column_are_read_as_the_whole_table() -> None:
    change = version(5, schema_fingerprint="g", schema_json=columns("long"))

    window = after(3, version(4), change, **WIDENED)

    assert (window.method, window.start, window.end) == ("snapshot", 4, 5)
    assert "widens or drops x" in window.reason


def test_a_widened_column_in_the_next_version_is_read_by_feed() -> None:
    change = version(4, schema_fingerprint="g", schema_json=columns("long"))
    assert after(3, change, version(5), **WIDENED).method == "feed"


def test_a_gap_before_a_widened_column_is_refused_where_a_snapshot_is_not_wanted() -> None:
    change = version(5, schema_fingerprint="g", schema_json=columns("long"))

    with pytest.raises(PlanError) as caught:
        after(3, version(4), change, said=UpstreamOptions(on_feed_gap="fail"), **WIDENED)

    assert caught.value.code == "FM-PLAN-020"


def test_a_type_change_that_replaces_rows_is_read_as_the_whole_table() -> None:
    change = replace(
        version(4, schema_fingerprint="g", schema_json=columns("string")),
        kinds=frozenset({"insert", "delete"}),
    )

    window = after(3, change, before=BEFORE, schema_json=columns("string"), schema_fingerprint="g")

    assert window.method == "snapshot"
    assert "changes the type of x" in window.reason


def test_with_column_mapping_a_later_change_hides_nothing() -> None:
    change = version(5, schema_fingerprint="g", schema_json=columns("long"))
    mapped = {**WIDENED, "properties": {"delta.columnMapping.mode": "name"}}

    window = after(3, version(4), change, **mapped)

    assert (window.method, window.end) == ("feed", 4)
    assert "delta-rs" not in window.reason
