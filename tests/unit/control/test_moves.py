"""MOVE: a table is in another place; its stored name, and all that is keyed by it, stays."""

from __future__ import annotations

import pytest

from floodmark.control.events.bodies import Event, Moved, decode, encode
from floodmark.control.rules.folding import fold
from floodmark.control.rules.snapshots import snapshot_of
from floodmark.errors import ControlError

from .conftest import AT, Story, window

A, B = window("/u/a", -1, 3), window("/u/b", -1, 5)
MOVE = Moved("/u/a", "/new/a", "id of /u/a")


def test_windows_of_the_past_and_of_later_are_read_in_the_new_place(story: Story) -> None:
    story.plan(A, B).then(MOVE)

    assert story.state.place_of("/u/a") == "/new/a"
    assert story.state.batches["b1"].windows["/u/a"].place == "/new/a"
    assert story.state.batches["b1"].windows["/u/b"].place == "/u/b"
    story.succeed("b1", "P", "Q").advance("b1", a=3, b=5)
    story.plan(window("/u/a", 3, 4), window("/u/b", 5, 5))
    assert story.state.batches["b2"].windows["/u/a"].place == "/new/a"
    assert story.state.marks["default", "/u/a"].version == 3


def test_a_table_that_comes_back_is_where_it_was(story: Story) -> None:
    story.plan(A, B).then(MOVE, Moved("/u/a", "/u/a", "id of /u/a"))

    assert story.state.places == {}
    assert story.state.batches["b1"].windows["/u/a"] == A


def test_a_move_outlives_a_compaction_and_its_own_text(story: Story) -> None:
    story.plan(A, B).then(MOVE)
    snapshot = Event(story.state.seq, snapshot_of(story.state, 100), "op", "tester", AT)

    assert fold([snapshot]).places == {"/u/a": "/new/a"}
    assert fold([snapshot]).batches == story.state.batches
    assert decode("MOVE", encode(MOVE)) == MOVE


def test_a_move_is_refused_while_a_run_may_read_the_table(story: Story) -> None:
    story.plan(A, B).lease("b1", "P")
    with pytest.raises(ControlError, match="may be reading it"):
        story.then(MOVE)


@pytest.mark.parametrize("path", ["/u/b", "/u/a"])
def test_a_move_to_where_a_table_is_already_is_refused(story: Story, path: str) -> None:
    with pytest.raises(ControlError, match="MOVE"):
        story.then(Moved("/u/a", path, "id of /u/a"))
