"""The fold over the journals that random schedules leave behind."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.simulator import Schedule

from floodmark.control.events.bodies import Event, Refreshed, decode, encode
from floodmark.control.rules.folding import apply, fold
from floodmark.control.rules.snapshots import snapshot_of
from floodmark.errors import ControlError
from floodmark.model.state import State

SEEDS = st.integers(0, 300)


@cache
def journal(seed: int) -> Sequence[Event]:
    """Every event of a schedule, none of them folded away."""
    schedule = Schedule(seed)
    schedule.run()
    return tuple(schedule.world.log.all_events())


def snapshot_at(state: State, keep_windows: int) -> Event:
    body = snapshot_of(state, keep_windows)
    return replace(journal(0)[0], seq=state.seq, body=body)


@given(SEEDS)
@settings(max_examples=60, deadline=None)
def test_folding_in_two_parts_gives_the_same_state(seed: int) -> None:
    events = journal(seed)
    middle = len(events) // 2
    assert fold(events[middle:], fold(events[:middle])) == fold(events)


@given(SEEDS, st.floats(0.01, 1))
@settings(max_examples=100, deadline=None)
def test_a_snapshot_at_any_place_changes_nothing(seed: int, share: float) -> None:
    events = journal(seed)
    cut = max(1, int(len(events) * share))
    snapshot = snapshot_at(fold(events[:cut]), keep_windows=10_000)
    assert fold([snapshot, *events[cut:]]) == fold(events)


@given(SEEDS, st.floats(0.01, 1), st.integers(0, 4))
@settings(max_examples=100, deadline=None)
def test_a_snapshot_that_forgets_old_batches_forgets_nothing_else(
    seed: int, share: float, keep: int
) -> None:
    events = journal(seed)
    cut = max(1, int(len(events) * share))
    after = fold([snapshot_at(fold(events[:cut]), keep), *events[cut:]])
    whole = fold(events)
    assert after.batches.items() <= whole.batches.items()
    assert replace(after, batches={}) == replace(whole, batches={})
    assert list(after.open_batches()) == list(whole.open_batches())


@given(SEEDS)
@settings(max_examples=60, deadline=None)
def test_events_survive_their_json(seed: int) -> None:
    events = journal(seed)
    assert [decode(e.kind, encode(e.body)) for e in events] == [e.body for e in events]
    snapshot = snapshot_of(fold(events), keep_windows=10_000)
    assert decode(snapshot.kind, encode(snapshot)) == snapshot


@given(SEEDS, st.data())
@settings(max_examples=100, deadline=None)
def test_a_missing_event_is_noticed(seed: int, data: st.DataObject) -> None:
    events = journal(seed)
    lost = data.draw(st.integers(0, len(events) - 2))
    with pytest.raises(ControlError, match="expected"):
        fold([*events[:lost], *events[lost + 1 :]])


REPEATABLE = ("SINK_DONE", "TARGET", "AMEND", "REFRESH")
"""What a run found out about its own reads and writes, and that a pipeline shall begin anew; said
again it changes nothing."""


@given(SEEDS, st.data())
@settings(max_examples=100, deadline=None)
def test_what_has_an_effect_cannot_happen_twice(seed: int, data: st.DataObject) -> None:
    events = journal(seed)
    once = [i for i, e in enumerate(events) if e.kind not in ("REGISTER", *REPEATABLE)]
    position = data.draw(st.sampled_from(once))
    state = fold(events[: position + 1])
    again = replace(events[position], seq=state.seq + 1)
    if events[position].kind == "RESET" and _changes_nothing(state, again):
        return  # a mark that stands where it is moved to
    with pytest.raises(ControlError):
        apply(state, again)


def _changes_nothing(state: State, event: Event) -> bool:
    with suppress(ControlError):
        return replace(apply(state, event), seq=state.seq) == state
    return False


@given(SEEDS, st.data())
@settings(max_examples=100, deadline=None)
def test_what_can_happen_twice_changes_nothing_the_second_time(
    seed: int, data: st.DataObject
) -> None:
    events = journal(seed)
    again = [i for i, e in enumerate(events) if e.kind in REPEATABLE]
    position = data.draw(st.sampled_from(again or [0]))
    if not again:
        return
    state = fold(events[: position + 1])
    twice = apply(state, replace(events[position], seq=state.seq + 1))
    assert replace(twice, seq=state.seq) == state


@given(SEEDS)
@settings(max_examples=60, deadline=None)
def test_a_pipeline_that_shall_begin_anew_does_so_once_however_often_it_is_said(seed: int) -> None:
    """Schedules seldom find a pipeline free to be refreshed; at their end most are."""
    state = fold(journal(seed))
    for name in (name for name in state.pipelines if not state.open_batches_of(name)):
        refresh = replace(journal(seed)[0], seq=state.seq + 1, body=Refreshed(name))
        once = apply(state, refresh)
        twice = apply(once, replace(refresh, seq=once.seq + 1))
        assert not any(pipeline == name for pipeline, _ in once.seeded_through)
        assert replace(twice, seq=once.seq) == once
