"""Gaps are what a pipeline is past without having seen it, and only that."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from floodmark.control.events.bodies import (
    Advanced,
    Amended,
    Body,
    Cancelled,
    Event,
    Planned,
    Registered,
    Removed,
    Renamed,
    Reset,
    Succeeded,
)
from floodmark.model.cursor_marks import ValueMark
from floodmark.model.file_marks import AnyMark, FilesMark
from floodmark.model.query import FILE_LIST, CursorQuery
from floodmark.model.window import VersionWindow, Window, window_of
from floodmark.report.gaps import find_gaps

AT = datetime(2026, 1, 1, tzinfo=UTC)
REGISTERED = Registered("p", "default", ("/a",), "h")


def window(after: int, through: int, **options: Any) -> VersionWindow:
    return VersionWindow(
        upstream="/a",
        method=options.pop("method", "feed"),
        after=after,
        through=through,
        reason="",
        table_id="id",
        feed_enabled=True,
        schema_fingerprint="f",
        latest_version=through,
        **options,
    )


def done(number: int, read: Window, *pipelines: str, kind: Any = "forward") -> list[Body]:
    names = pipelines or ("p",)
    plan = Planned(f"b{number}", number, "default", (read,), dict.fromkeys(names, ("/a",)), kind)
    finished: list[Body] = [plan, *(Succeeded(f"b{number}", name, number) for name in names)]
    if kind == "forward":
        finished.append(Advanced(f"b{number}", {"/a": read.through}))
    return finished


def gaps(*bodies: Body) -> list[tuple[int, int, tuple[str, ...]]]:
    events = [Event(seq, body, uuid.uuid4().hex, "me", AT) for seq, body in enumerate(bodies, 1)]
    return [(gap.start, gap.end, gap.pipelines) for gap in find_gaps(events)]


FIRST = [REGISTERED, *done(1, window(-1, 3, method="snapshot"))]
SKIPPED = [*FIRST, Reset("default", "/a", 9, "id")]


def test_batches_that_follow_each_other_leave_none() -> None:
    assert gaps(*FIRST, *done(2, window(3, 5)), *done(3, window(5, 6))) == []


def test_a_reset_that_goes_on_leaves_one_for_every_reader() -> None:
    other = Registered("q", "default", ("/a",), "h")
    elsewhere = Registered("r", "elsewhere", ("/a",), "h")

    assert gaps(other, elsewhere, *SKIPPED) == [(4, 9, ("p", "q"))]


def test_a_reset_that_goes_back_or_says_where_to_begin_leaves_none() -> None:
    assert gaps(*FIRST, Reset("default", "/a", 1, "id"), *done(2, window(1, 5))) == []
    assert gaps(*FIRST, Reset("default", "/a", -1)) == []
    assert gaps(REGISTERED, Reset("default", "/a", 5, "id"), *done(1, window(5, 7))) == []


def test_a_cancelled_batch_is_no_gap_until_somebody_goes_past_it() -> None:
    cancelled = [done(2, window(3, 5))[0], Cancelled("b2")]

    assert gaps(*FIRST, *cancelled) == []
    assert gaps(*FIRST, *cancelled, Reset("default", "/a", 5, "id")) == [(4, 5, ("p",))]


@pytest.mark.parametrize(
    ("kind", "read", "left"),
    [
        ("backfill", window(3, 9), []),
        ("backfill", window(5, 7), [(4, 5, ("p",)), (8, 9, ("p",))]),
        ("backfill", window(-1, 5), [(6, 9, ("p",))]),
        ("seed", window(-1, 12, method="snapshot"), []),
        ("forward", window(9, 12, method="snapshot"), []),
        ("forward", window(9, 12), [(4, 9, ("p",))]),
        ("forward", window(9, 12, method="snapshot+feed", feed_after_version=10), []),
    ],
)
def test_what_is_read_later_is_missing_no_more(kind: str, read: Window, left: list[Any]) -> None:
    assert gaps(*SKIPPED, *done(2, read, kind=kind)) == left


def test_a_backfill_helps_only_who_ran_in_it() -> None:
    other = Registered("q", "default", ("/a",), "h")

    found = gaps(other, *SKIPPED, *done(2, window(3, 9), "q", kind="backfill"))

    assert found == [(4, 9, ("p",))]


def test_an_accepted_loss_is_a_gap_of_the_pipeline_that_accepted_it() -> None:
    plan = Planned("b2", 2, "default", (window(3, 8),), {"p": ("/a",), "q": ("/a",)})
    lost = replace(window(3, 8), method="lost", feed_after_version=6)
    ran: list[Body] = [
        Amended("b2", "p", 1, lost),
        Succeeded("b2", "p", 1),
        Succeeded("b2", "q", 2),
    ]

    assert gaps(*FIRST, plan, *ran, Advanced("b2", {"/a": 8})) == [(4, 6, ("p",))]
    whole = replace(lost, feed_after_version=None)
    ran[0] = Amended("b2", "p", 1, whole)
    assert gaps(*FIRST, plan, *ran, Advanced("b2", {"/a": 8})) == [(4, 8, ("p",))]


def test_a_new_table_in_the_place_of_the_old_one_begins_without_gaps() -> None:
    read = window(-1, 0, method="snapshot", reload=True)

    assert gaps(*SKIPPED, *done(2, read)) == []


def test_who_left_misses_nothing_and_who_was_renamed_still_does() -> None:
    assert gaps(*SKIPPED, Removed("p")) == []
    assert gaps(*SKIPPED, Renamed("p", "new")) == [(4, 9, ("new",))]


NUMBERS = [ValueMark("int", number) for number in range(4)]
LISTS = [FilesMark("list", number) for number in range(4)]


def unnumbered(after: int, kind: Any = "cursor", **options: Any) -> Window:
    query = CursorQuery("id", "sql") if kind == "cursor" else FILE_LIST
    marks: Sequence[AnyMark] = LISTS if kind == "files" else NUMBERS
    return window_of(
        query,
        upstream="/a",
        method=options.pop("method", "query"),
        after=after,
        through=after + 1,
        reason="",
        table_id="id",
        after_mark=marks[after] if after >= 0 else None,
        through_mark=marks[after + 1],
        **options,
    )


def marks_of(*bodies: Body) -> list[tuple[int, int, str | None, str | None]]:
    events = [Event(seq, body, uuid.uuid4().hex, "me", AT) for seq, body in enumerate(bodies, 1)]
    return [(gap.start, gap.end, gap.start_mark, gap.end_mark) for gap in find_gaps(events)]


@pytest.mark.parametrize(
    ("kind", "ends"),
    [("cursor", (None, NUMBERS[0].encoded())), ("files", (LISTS[0].encoded(), LISTS[1].encoded()))],
)
def test_what_was_given_up_of_a_cursor_or_of_files_is_told_by_marks_until_all_is_loaded(
    kind: Any, ends: tuple[str | None, str]
) -> None:
    plan = Planned("b2", 2, "default", (unnumbered(0, kind),), {"p": ("/a",)})
    story = [
        REGISTERED,
        *done(1, unnumbered(-1, kind)),
        plan,
        Amended("b2", "p", 1, unnumbered(0, kind, method="lost")),
        Succeeded("b2", "p", 1),
        Advanced("b2", {"/a": 1}),
    ]

    assert marks_of(*story) == [(-1, -1, *ends)]
    assert marks_of(*story, *done(3, unnumbered(1, kind))) == [(-1, -1, *ends)]
    again = done(3, unnumbered(-1, kind), kind="backfill")
    assert marks_of(*story, *again) == [(-1, -1, *ends)]
    assert marks_of(*story, *done(3, unnumbered(-1, kind), kind="seed")) == []
