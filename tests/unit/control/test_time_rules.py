"""The rules of the fold for windows without versions, and for ends that are frozen later."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from tests.unit.control.conftest import HOLDER, Story, window

from floodmark.control.events.bodies import (
    Advanced,
    Created,
    Frozen,
    Leased,
    Planned,
    Registered,
    Reset,
    Succeeded,
)
from floodmark.control.rules.folding import fold
from floodmark.control.rules.plans import check_window
from floodmark.control.rules.snapshots import snapshot_of
from floodmark.errors import ControlError
from floodmark.model.cursor_marks import ValueMark
from floodmark.model.marks import TimeMark, typed
from floodmark.model.query import CursorQuery, TimeQuery
from floodmark.model.state import PlannedBatch
from floodmark.model.upstream import UpstreamOptions
from floodmark.model.window import CursorWindow, TimeWindow, Window

AT = TimeQuery("at", "parquet")
OPTIONS = UpstreamOptions(time_column="at")


def mark(day: int | None) -> TimeMark | None:
    return None if day is None else TimeMark("date", date(2026, 1, day))


def step(after: int, start: int | None, end: int | None, **options: Any) -> TimeWindow:
    """The window after `after` steps, from one day to another."""
    values: dict[str, Any] = {"through": after + 1, "table_id": "id of u", "query": AT, **options}
    marks: dict[str, Any] = {"after_mark": mark(start), "through_mark": mark(end)}
    return TimeWindow(upstream="u", method="query", after=after, reason="", **marks, **values)


def story(**options: Any) -> Story:
    said = UpstreamOptions(time_column="at", **options)
    return (
        Story()
        .then(Created("c"))
        .then(*(Registered(p, "default", ("u",), "h", {"u": said}) for p in "pq"))
    )


def newest(told: Story) -> PlannedBatch:
    return list(told.state.batches.values())[-1]


def refused(told: Story, *bodies: Any) -> str:
    before = told.state
    with pytest.raises(ControlError) as caught:
        told.then(*bodies)
    assert told.state is before
    return caught.value.title


def leased(told: Story, pipeline: str, epoch: int = 1) -> Story:
    batch = newest(told).batch_id
    return told.then(Leased(batch, pipeline, epoch, f"run-{pipeline}-{epoch}", HOLDER, 60.0))


def done(told: Story, *pipelines: str) -> Story:
    """The newest batch run by these pipelines, and advanced."""
    batch = newest(told)
    for pipeline in pipelines:
        epoch = told.state.epochs.get(pipeline, 0) + 1
        leased(told, pipeline, epoch).then(Succeeded(batch.batch_id, pipeline, epoch))
    through = batch.windows["u"].through
    return told.then(Advanced(batch.batch_id, {"u": through}))


def test_the_watermark_carries_the_mark_of_its_step() -> None:
    told = done(story().plan(step(-1, None, 3)), "p", "q")

    found = told.state.marks["default", "u"]
    assert (found.version, found.kind, found.query, found.mark) == (0, "time", AT, mark(3))
    assert told.state.seeded_marks == {("p", "u"): mark(3), ("q", "u"): mark(3)}


@pytest.mark.parametrize(
    ("planned", "why"),
    [
        (step(0, 4, 5), "the watermark is"),
        (step(0, None, 5), "the watermark is"),
        (step(0, 3, 5, through=2), "is one step"),
        (step(0, 3, 5, through=0), "stands at the mark"),
        (step(0, 3, 5, deferred=True), "both deferred and known"),
        (replace(step(0, 3, 5), query=TimeQuery("other", "parquet")), "processed by time"),
        (window("u", 0, 1), "processed by time"),
    ],
)
def test_a_window_goes_on_from_the_very_mark_by_the_same_query(planned: Window, why: str) -> None:
    told = done(story().plan(step(-1, None, 3)), "p", "q")

    assert why in str(check_window(told.state, "default", planned))


def test_a_first_window_begins_at_the_beginning_or_at_a_baseline_that_was_said() -> None:
    story(baseline="2026-01-02").plan(step(-1, 2, 5))
    story().plan(step(-1, None, 5))
    with pytest.raises(ControlError, match="nobody said to start"):
        story().plan(step(-1, 2, 5))


def test_a_snapshot_keeps_marks_and_open_ends() -> None:
    told = done(story().plan(step(-1, None, 3)), "p", "q").plan(step(0, 3, None, deferred=True))
    folded = snapshot_of(told.state, keep_windows=0)
    again = fold([replace(told.events[-1], body=folded)])

    assert again.marks == told.state.marks
    assert again.seeded_marks == told.state.seeded_marks
    assert [b.windows for b in again.open_batches()] == [
        b.windows for b in told.state.open_batches()
    ]


# Deferred ends ------------------------------------------------------------------------------------


def deferred() -> Story:
    return leased(story().plan(step(-1, None, None, deferred=True)), "p")


def freeze(told: Story, window: Window, pipeline: str = "p", epoch: int = 1) -> Frozen:
    return Frozen(newest(told).batch_id, pipeline, epoch, window)


def test_an_end_is_frozen_once_for_all_pipelines() -> None:
    told = deferred()
    told.then(freeze(told, step(-1, None, 4)))
    leased(told, "q")

    batch = newest(told)
    assert batch.window_for("q", "u").through_mark == mark(4)
    assert "frozen already" in refused(told, freeze(told, step(-1, None, 5)))
    assert "frozen already" in refused(told, freeze(told, step(-1, None, 5), "q"))


def test_only_the_newest_lease_freezes() -> None:
    told = deferred()
    assert "epoch 2" in refused(told, freeze(told, step(-1, None, 4), epoch=2))
    assert "no such run" in refused(told, freeze(told, step(-1, None, 4), "q"))


@pytest.mark.parametrize(
    "window",
    [
        step(-1, None, None, deferred=True),
        step(-1, 2, 4),
        step(-1, None, 4, through=1),
        step(-1, None, 4, table_id="another"),
        replace(step(-1, None, 4), query=TimeQuery("other", "parquet")),
    ],
)
def test_nothing_but_the_end_is_frozen(window: Window) -> None:
    told = deferred()
    assert "only the end" in refused(told, freeze(told, window))


def test_nothing_succeeds_or_advances_before_the_end_is_frozen() -> None:
    told = deferred()
    batch = newest(told).batch_id
    assert "not frozen" in refused(told, Succeeded(batch, "p", 1))
    assert "not frozen" in refused(told, Advanced(batch, {"u": 0}))


def test_a_seed_ends_at_the_mark_of_the_scope_and_begins_at_that_of_its_pipeline() -> None:
    told = done(story().plan(step(-1, None, 3)), "p", "q").plan(step(0, 3, 5))
    done(told, "p", "q").then(Registered("r", "default", ("u",), "h", {"u": OPTIONS}))

    def seed(window: Window) -> Planned:
        return replace(told.planned(window, required={"r": ("u",)}), batch_kind="seed")

    for wrong in (step(-1, None, 3, through=1), step(-1, 3, 5, through=1)):
        assert "marks are not those" in refused(told, seed(wrong))
    told.then(seed(step(-1, None, 5, through=1)))

    assert told.state.open_ids


# Ranges of values ---------------------------------------------------------------------------------


def committed_through_5() -> Story:
    return done(done(story().plan(step(-1, None, 3)), "p", "q").plan(step(0, 3, 5)), "p", "q")


@pytest.mark.parametrize("kind", ["backfill", "replay"])
def test_only_values_that_are_committed_are_processed_again(kind: Any) -> None:
    told = committed_through_5()

    def again(window: Window) -> Planned:
        return replace(told.planned(window, required={"p": ("u",)}), batch_kind=kind)

    for wrong in (
        step(0, 2, 6),
        step(0, 4, 3),
        step(0, 2, None),
        step(0, 2, None, deferred=True),
        replace(step(0, 2, 4), query=TimeQuery("other", "parquet")),
        replace(step(0, 2, 4), through_mark=typed("timestamp_ntz", "2026-01-02T00:00:00")),
    ):
        assert "not of what is committed" in refused(told, again(wrong))
    told.then(again(step(0, 2, 4)))

    assert told.state.marks["default", "u"].mark == mark(5)


def count(after: int, start: int | None, end: int | None) -> CursorWindow:
    """A window of a cursor that counts."""
    marks = [None if n is None else ValueMark("int", n) for n in (start, end)]
    return CursorWindow(
        upstream="u",
        method="query",
        after=after,
        through=after + 1,
        reason="",
        table_id="id of u",
        query=CursorQuery("id", "sql"),
        after_mark=marks[0],
        through_mark=marks[1],
    )


def test_only_numbers_of_a_cursor_that_are_committed_are_backfilled() -> None:
    told = done(story().plan(count(-1, None, 9)), "p", "q")

    def again(window: Window, kind: Any = "backfill") -> Planned:
        return replace(told.planned(window, required={"p": ("u",)}), batch_kind=kind)

    for wrong in (
        count(-1, 2, 10),
        count(-1, 4, 3),
        count(-1, None, 3),
        replace(count(-1, 2, 4), query=CursorQuery("other", "sql")),
        replace(count(-1, 2, 4), through_mark=ValueMark("decimal", Decimal(4))),
    ):
        assert "not of what is committed" in refused(told, again(wrong))
    told.then(again(count(-1, 2, 9)))
    told.then(again(count(-1, None, 9), "replay"))

    assert told.state.marks["default", "u"].mark == count(-1, None, 9).through_mark


def reset_to(day: int | None, version: int, **options: Any) -> Reset:
    return Reset("default", "u", version, "id of u", query=AT, mark=mark(day), **options)


def test_a_reset_to_a_value_is_the_next_step() -> None:
    told = committed_through_5()

    assert "not the next" in refused(told, reset_to(2, 1))
    assert "stands at a mark" in refused(told, reset_to(None, 2))
    other = replace(reset_to(2, 2), query=TimeQuery("other", "parquet"))
    assert "in another way" in refused(told, other)
    told.then(reset_to(2, 2))

    found = told.state.marks["default", "u"]
    assert (found.version, found.kind, found.query, found.mark) == (2, "time", AT, mark(2))
    assert told.state.seeded_marks == {("p", "u"): mark(2), ("q", "u"): mark(2)}
    assert told.state.seeded_through == {("p", "u"): 2, ("q", "u"): 2}
