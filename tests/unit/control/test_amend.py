"""AMEND changes how a pipeline reads a range, never the range; baselines and reloads in G1."""

from __future__ import annotations

from dataclasses import replace

import pytest

from floodmark.control.events.bodies import (
    Advanced,
    Amended,
    Failed,
    Registered,
    SinkWritten,
    Succeeded,
)
from floodmark.control.rules.folding import fold
from floodmark.control.rules.snapshots import snapshot_of
from floodmark.errors import ControlError
from floodmark.model.state import SinkDone
from floodmark.model.upstream import UpstreamOptions
from floodmark.model.window import Window

from .conftest import Story, window

A, B = window("/u/a", -1, 3), window("/u/b", -1, 5)
SNAPSHOT = replace(B, method="snapshot", reason="the feed is gone")
LOST = replace(B, method="lost", reason="accepted")


@pytest.fixture
def running(story: Story) -> Story:
    """b1 is planned, and Q, which reads b, holds its lease."""
    return story.plan(A, B).lease("b1", "Q")


def amend(new: Window, pipeline: str = "Q", epoch: int = 1) -> Amended:
    return Amended("b1", pipeline, epoch, new)


def test_an_amendment_holds_for_one_pipeline_and_is_shown(running: Story) -> None:
    batch = running.then(amend(SNAPSHOT)).state.batches["b1"]

    assert batch.window_for("Q", "/u/b") == SNAPSHOT
    assert batch.window_for("P", "/u/b") == B
    assert batch.windows["/u/b"] == B
    shown = batch.shown_window("/u/b")
    assert (shown.method, shown.start, shown.end) == ("snapshot", 0, 5)
    assert "amended for Q: the feed is gone" in shown.reason


def test_a_loss_outweighs_a_snapshot_in_what_is_shown(running: Story) -> None:
    batch = (
        running.then(amend(LOST)).lease("b1", "P").then(amend(SNAPSHOT, "P")).state.batches["b1"]
    )
    assert batch.shown_window("/u/b").method == "lost"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (amend(replace(SNAPSHOT, through=4)), "only the way of reading"),
        (amend(replace(SNAPSHOT, after=2)), "only the way of reading"),
        (amend(replace(SNAPSHOT, table_id="other")), "only the way of reading"),
        (amend(B), "cannot be amended to feed"),
        (amend(replace(LOST, upstream="/u/x")), "does not read"),
        (amend(SNAPSHOT, epoch=2), "epoch 2 was replaced by epoch 1"),
        (amend(SNAPSHOT, "P"), "no such run"),
    ],
    ids=["end", "start", "table", "feed", "upstream", "epoch", "no lease"],
)
def test_refuses(running: Story, body: Amended, reason: str) -> None:
    with pytest.raises(ControlError, match=reason):
        running.then(body)


def took_other_rows(epoch: int = 1, rows: int = 23) -> SinkWritten:
    sink = SinkDone("sink", "app", "/t", "id", 1, rows, misread={"/u/b": rows})
    return SinkWritten("b1", "Q", epoch, sink)


def test_nothing_succeeds_over_rows_that_nobody_has_accepted(running: Story) -> None:
    running.then(took_other_rows())
    for way in (None, LOST, SNAPSHOT):
        if way is not None:
            running.then(amend(way))
        with pytest.raises(ControlError, match="took rows that nobody has accepted"):
            running.then(Succeeded("b1", "Q", 1))

    running.then(amend(replace(LOST, as_read=True))).then(Succeeded("b1", "Q", 1))

    assert running.state.batches["b1"].has_succeeded("Q")


def test_another_attempt_and_a_snapshot_of_the_journal_know_what_a_write_took(
    running: Story,
) -> None:
    running.then(took_other_rows()).then(Failed("b1", "Q", 1, "FM-SOURCE-065"))
    snapshot = replace(
        running.events[0], seq=running.state.seq, body=snapshot_of(running.state, 10)
    )
    assert fold([snapshot]) == running.state

    running.lease("b1", "Q")

    with pytest.raises(ControlError, match="took rows that nobody has accepted"):
        running.then(Succeeded("b1", "Q", 2))


def test_a_snapshot_of_the_journal_keeps_amendments(running: Story) -> None:
    running.then(amend(LOST))
    snapshot = replace(
        running.events[0], seq=running.state.seq, body=snapshot_of(running.state, 10)
    )
    assert fold([snapshot]) == running.state


def test_a_first_window_starts_at_a_registered_baseline_and_nowhere_else(story: Story) -> None:
    options = {"/u/c": UpstreamOptions(baseline=4)}
    story.then(Registered("R", "default", ("/u/c",), "h", options))

    with pytest.raises(ControlError, match="starts after 3"):
        story.plan(window("/u/c", 3, 9))
    story.plan(window("/u/c", 4, 9))

    assert story.state.processed_through("R", "/u/c") == 4


@pytest.fixture
def done(story: Story) -> Story:
    """a stands at 3 and b at 5, for P and Q."""
    return story.plan(A, B).succeed("b1", "P", "Q").advance("b1", a=3, b=5)


def test_another_table_is_only_taken_as_a_reload_from_its_beginning(done: Story) -> None:
    other = window("/u/b", -1, 1, table_id="new")

    with pytest.raises(ControlError, match="is not id of /u/b"):
        done.plan(window("/u/a", 3, 3), replace(other, after=5, through=6))
    with pytest.raises(ControlError, match="starts after 0"):
        done.plan(window("/u/a", 3, 3), replace(other, after=0, reload=True))
    done.plan(window("/u/a", 3, 3), replace(other, reload=True)).succeed("b2", "P", "Q")
    done.then(Advanced("b2", {"/u/b": 1}))

    mark = done.state.marks["default", "/u/b"]
    assert (mark.version, mark.table_id) == (1, "new")
    assert done.state.processed_through("Q", "/u/b") == 1


def test_the_same_table_cannot_be_reloaded(done: Story) -> None:
    with pytest.raises(ControlError, match="starts after -1"):
        done.plan(window("/u/a", 3, 3), replace(B, reload=True))
