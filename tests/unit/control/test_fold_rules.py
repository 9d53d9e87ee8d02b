"""Each rule of the fold refuses what it should, and says why."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from floodmark.control.events.bodies import (
    Advanced,
    Body,
    Cancelled,
    Created,
    Event,
    Failed,
    Planned,
    Registered,
    Removed,
    Succeeded,
)
from floodmark.control.operations import pausing, removing
from floodmark.control.rules.folding import apply, fold
from floodmark.control.rules.runs import check_fence
from floodmark.control.rules.snapshots import snapshot_of
from floodmark.errors import ControlError
from floodmark.model.state import State

from .conftest import AT, Story, window

A, B = window("/u/a", -1, 3), window("/u/b", -1, 5)


def refusal(story: Story, *bodies: Body) -> str:
    before = story.state
    with pytest.raises(ControlError) as caught:
        story.then(*bodies)
    assert caught.value.code == "FM-CONTROL-010"
    assert story.state is before
    return caught.value.title


def ready(story: Story) -> Story:
    """Batch b1, which both pipelines have finished."""
    return story.plan(A, B).succeed("b1", "P", "Q")


def done(story: Story) -> Story:
    return ready(story).advance("b1", a=3, b=5)


REFUSED: dict[str, Callable[[Story], tuple[Story, Body]]] = {
    "the store exists already": lambda s: (s, Created("other")),
    "belongs to scope default": lambda s: (s, Registered("P", "other", ("/u/a",), "h")),
    "reads nothing": lambda s: (s, Registered("N", "default", (), "h")),
    "names an upstream twice": lambda s: (s, Registered("N", "default", ("/u/a", "/u/a"), "h")),
    "batch number 3 does not follow 0": lambda s: (s, s.planned(A, B, number=3)),
    "the batch id is taken": lambda s: (done(s), s.planned(window("/u/b", 5, 6), window("/u/a", 3, 3), batch_id="b1")),
    "no upstream has news": lambda s: (done(s), s.planned(window("/u/a", 3, 3))),
    "it has an open window already": lambda s: (s.plan(A, B), s.planned(A, B)),
    "the window starts after 4, the watermark is 3": lambda s: (
        done(s), s.planned(window("/u/a", 4, 6), window("/u/b", 5, 5)),
    ),
    "the window starts after 2, the watermark is 3": lambda s: (
        done(s), s.planned(window("/u/a", 2, 6), window("/u/b", 5, 5)),
    ),
    "the window ends before it starts": lambda s: (
        done(s), s.planned(window("/u/b", 5, 7), window("/u/a", 3, 2)),
    ),
    "is not id of /u/a, which was processed before": lambda s: (
        done(s), s.planned(window("/u/a", 3, 4, table_id="new"), window("/u/b", 5, 5)),
    ),
    "the required pipelines are not those": lambda s: (s, s.planned(A, B, required={"P": ("/u/a", "/u/b")})),
    "pipeline P also reads /u/a": lambda s: (s, s.planned(B)),
    "pipeline L has not processed /u/b": lambda s: (
        done(s).register("L", "/u/b"), s.planned(window("/u/a", 3, 3), window("/u/b", 5, 6)),
    ),
    "there is no such open batch": lambda s: (s, Cancelled("b9")),
    "a runner has leased the batch": lambda s: (s.plan(A, B).lease("b1", "P"), Cancelled("b1")),
    "the batch does not ask for this pipeline": lambda s: (s.plan(A, B), s.leased("b1", "Z")),
    "the pipeline has succeeded for this batch": lambda s: (ready(s), s.leased("b1", "P")),
    "epoch 1 does not follow 1": lambda s: (
        s.plan(A, B).lease("b1", "P"), s.leased("b1", "P", epoch=1, replaces="run1"),
    ),
    "run run1 holds the lease": lambda s: (s.plan(A, B).lease("b1", "P"), s.leased("b1", "P")),
    "there is no such run": lambda s: (s.plan(A, B), Succeeded("b1", "P", 1)),
    "epoch 1 was replaced by epoch 2": lambda s: (
        s.plan(A, B).lease("b1", "P").lease("b1", "P", replaces="run1"), Succeeded("b1", "P", 1),
    ),
    "the run is SUCCESS": lambda s: (ready(s), Failed("b1", "P", 1, "late")),
    "there is no such batch": lambda s: (s, Advanced("b9", {"/u/a": 1})),
    "nothing advances": lambda s: (ready(s), Advanced("b1", {})),
    "it is not pending in this batch": lambda s: (done(s), Advanced("b1", {"/u/a": 3})),
    "version 2 is not the planned end": lambda s: (ready(s), Advanced("b1", {"/u/a": 2})),
    "Q has not run": lambda s: (s.plan(A, B).succeed("b1", "P"), Advanced("b1", {"/u/b": 5})),
}  # fmt: skip


@pytest.mark.parametrize("reason", REFUSED)
def test_refuses(reason: str, story: Story) -> None:
    prepared, body = REFUSED[reason](story)  # the story is told before the body is built
    assert reason in refusal(prepared, body)


def test_refuses_an_upstream_that_nobody_reads(story: Story) -> None:
    story.plan(A, B, window("/u/lonely", -1, 0)).succeed("b1", "P", "Q")
    assert "no pipeline is registered for it" in refusal(story, Advanced("b1", {"/u/lonely": 0}))


def test_refuses_a_cancelled_batch(story: Story) -> None:
    story.plan(A, B).then(Cancelled("b1"))
    assert "there is no such open batch" in refusal(story, Cancelled("b1"))
    assert "does not ask" in refusal(story, story.leased("b1", "P"))
    assert "not pending" in refusal(story, Advanced("b1", {"/u/a": 3}))


def test_refuses_a_batch_before_an_earlier_one_is_finished(story: Story) -> None:
    story.register("P", "/u/a").plan(B).register("Q", "/u/a").plan(A)
    assert "batch b1 comes first" in refusal(story, story.leased("b2", "Q"))


def test_refuses_an_event_out_of_place(story: Story) -> None:
    late = Event(story.state.seq + 2, Cancelled("b1"), "op", "t", AT)
    with pytest.raises(ControlError, match="expected"):
        apply(story.state, late)


def test_refuses_a_snapshot_that_is_not_the_first(story: Story) -> None:
    snapshot = snapshot_of(story.state, keep_windows=10)
    assert "a snapshot can only come first" in refusal(story, snapshot)


def test_a_cancelled_range_is_planned_again_with_a_new_number(story: Story) -> None:
    story.plan(A, B).then(Cancelled("b1")).plan(A, B)
    assert story.state.batches["b2"].seq == 2
    assert story.state.open_windows == {("default", "/u/a"): "b2", ("default", "/u/b"): "b2"}


def test_what_nobody_reads_can_be_given_up_once_the_rest_is_finished(story: Story) -> None:
    lonely = window("/u/lonely", -1, 0)
    story.plan(A, B, lonely).succeed("b1", "P", "Q")
    assert "leased" in refusal(story, Cancelled("b1"))
    story.advance("b1", a=3, b=5).then(Cancelled("b1"))
    batch = story.state.batches["b1"]
    statuses = [batch.window_status(u) for u in ("/u/a", "/u/b", "/u/lonely")]
    assert statuses == ["COMPLETED", "COMPLETED", "CANCELLED"]
    assert story.register("L", "/u/lonely").plan(lonely).state.batches["b2"].is_open


def test_a_finished_batch_cannot_be_cancelled(story: Story) -> None:
    assert "leased" in refusal(done(story), Cancelled("b1"))


def test_a_takeover_keeps_the_writes_that_are_done(story: Story) -> None:
    story.plan(A, B).lease("b1", "P")
    story.then(story.sink_written("b1", "P", 1)).lease("b1", "P", replaces="run1")
    run = story.state.batches["b1"].runs["P"]
    assert (run.epoch, run.retries, list(run.sinks)) == (2, 1, ["w"])


def test_changes_of_a_run_are_strictly_later_even_if_the_clock_stands(story: Story) -> None:
    story.plan(A, B).lease("b1", "P")
    leased = story.state.batches["b1"].runs["P"].changed_at
    story.then(Failed("b1", "P", 1, "no"))
    assert story.state.batches["b1"].runs["P"].changed_at > leased


@pytest.mark.parametrize("told", [ready, done, lambda s: s.plan(A, B).lease("b1", "P")])
def test_a_snapshot_stands_for_everything_before_it(story: Story, told: Any) -> None:
    told(story)
    snapshot = snapshot_of(story.state, keep_windows=10)
    assert fold([Event(story.state.seq, snapshot, "op", "t", AT)]) == story.state


def test_a_snapshot_lets_go_of_old_finished_batches_only(story: Story) -> None:
    done(story).plan(window("/u/a", 3, 4), window("/u/b", 5, 6))
    snapshot = snapshot_of(story.state, keep_windows=0)
    state = fold([Event(story.state.seq, snapshot, "op", "t", AT)])
    assert list(state.batches) == ["b2"]
    assert dataclasses.replace(state, batches={}) == dataclasses.replace(story.state, batches={})


def test_nothing_folds_to_an_empty_state() -> None:
    assert fold([]) == State()


def test_a_run_of_a_removed_pipeline_is_fenced_once_its_successor_has_a_lease(story: Story) -> None:
    story.plan(window("/u/b", -1, 0), window("/u/a", -1, 0)).lease("b1", "Q")
    story.then(Removed("Q", {}, seen_dead="run1")).succeed("b1", "P").advance("b1", a=0, b=0)
    story.register("Q", "/u/b")
    seed = Planned("b2", 2, "default", (window("/u/b", -1, 0),), {"Q": ("/u/b",)}, "seed")
    before = check_fence(story.state, "b1", "Q", 1)
    story.then(seed).lease("b2", "Q")

    assert before is None
    assert check_fence(story.state, "b1", "Q", 1) == "epoch 1 was replaced by epoch 2"


def test_a_run_that_began_after_the_look_stops_a_pause(story: Story) -> None:
    story.plan(window("/u/b", -1, 0), window("/u/a", -1, 0)).lease("b1", "Q")

    for operation in (pausing, removing):
        with pytest.raises(ControlError) as caught:
            operation(story.state, "Q", "an earlier run")
        assert caught.value.code == "FM-CONTROL-006"
