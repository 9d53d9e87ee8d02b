"""RESET moves a mark through the journal, and the next plan goes on from there."""

from __future__ import annotations

import pytest

from floodmark.control.events.bodies import Body, Reset
from floodmark.control.rules.folding import fold
from floodmark.control.rules.snapshots import snapshot_of
from floodmark.errors import ControlError

from .conftest import Story, window

A, B = window("/u/a", -1, 3), window("/u/b", -1, 5)


def reset(version: int, upstream: str = "/u/b", scope: str = "default") -> Reset:
    return Reset(scope, upstream, version, f"id of {upstream}" if version >= 0 else "")


@pytest.fixture
def done(story: Story) -> Story:
    """a stands at 3 and b at 5, for P and Q."""
    return story.plan(A, B).succeed("b1", "P", "Q").advance("b1", a=3, b=5)


def test_after_a_reset_to_nothing_the_whole_table_is_planned_again(done: Story) -> None:
    done.then(reset(-1)).plan(window("/u/a", 3, 3), B)

    assert ("default", "/u/b") not in done.state.marks
    assert done.state.batches["b2"].seq == 2


@pytest.mark.parametrize("version", [2, 9])
def test_the_next_window_starts_after_the_version_of_the_reset(done: Story, version: int) -> None:
    done.then(reset(version)).plan(window("/u/a", 3, 3), window("/u/b", version, 12))

    assert done.state.marks["default", "/u/b"].version == version
    assert done.state.processed_through("Q", "/u/b") == version


def test_a_newcomer_that_was_never_seeded_is_not_taken_for_one_that_was(done: Story) -> None:
    done.register("L", "/u/b").then(reset(9))

    assert done.state.processed_through("L", "/u/b") == -1
    assert done.state.processed_through("P", "/u/b") == 9


def test_a_pipeline_that_reads_it_again_later_stands_at_the_reset_too(done: Story) -> None:
    done.register("P", "/u/a").then(reset(2)).register("P", "/u/a", "/u/b")

    assert done.state.processed_through("P", "/u/b") == 2
    done.plan(window("/u/a", 3, 3), window("/u/b", 2, 7))


def test_before_the_first_batch_a_reset_says_where_to_begin(story: Story) -> None:
    story.then(reset(4)).plan(A, window("/u/b", 4, 5))

    assert story.state.batches["b1"].is_open


REFUSED: dict[str, Body] = {
    "scope other does not know /u/b": reset(1, scope="other"),
    "scope default does not know /u/x": reset(1, "/u/x"),
    "version -2 is none": reset(-2),
    "version 1 is none": Reset("default", "/u/b", 1),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_refuses(done: Story, reason: str) -> None:
    with pytest.raises(ControlError, match=reason):
        done.then(REFUSED[reason])


def test_refuses_while_a_batch_holds_the_upstream(story: Story) -> None:
    with pytest.raises(ControlError, match="batch b1 holds /u/b"):
        story.plan(A, B).then(reset(2))


def test_a_snapshot_keeps_what_a_reset_did(done: Story) -> None:
    done.then(reset(-1), reset(1, "/u/a"))
    snapshot = snapshot_of(done.state, keep_windows=10)
    event = done.events[-1].__class__(done.state.seq, snapshot, "op", "t", done.events[-1].at)

    assert fold([event]) == done.state
