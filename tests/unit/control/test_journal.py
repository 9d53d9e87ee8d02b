"""Commits of the journal: decided on the newest state, journaled once, answered truthfully."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from floodmark.control.events.bodies import Body, Created, Event, Leased, Registered, Succeeded
from floodmark.control.journal.journal import CommitConflict, CommitUnknown, Journal, Tail
from floodmark.control.journal.memory import MemoryEventLog
from floodmark.errors import ControlError
from floodmark.finalize import advance_watermarks
from floodmark.model.clock import FrozenClock
from floodmark.model.state import Holder, State
from floodmark.run.leases import Leases

from .conftest import HOLDER, Story, window

A, B = window("/u/a", -1, 3), window("/u/b", -1, 5)


class Unreliable:
    """A log whose next appends go as told: a step gets the real append, and does what it likes."""

    def __init__(self, log: MemoryEventLog | None = None) -> None:
        self.log = log or MemoryEventLog()
        self.steps: list[Callable[[Callable[[], None]], None]] = []
        self.before_read: list[Callable[[], None]] = []

    def read(self, after: int | None) -> Tail:
        if self.before_read:
            self.before_read.pop(0)()
        return self.log.read(after)

    def append(self, events: Sequence[Event], position: int) -> None:
        step = self.steps.pop(0) if self.steps else lambda append: append()
        step(lambda: self.log.append(events, position))


def lost_answer(append: Callable[[], None]) -> None:
    append()
    raise CommitUnknown


def failed_before(append: Callable[[], None]) -> None:
    raise CommitUnknown


def exists_already(append: Callable[[], None]) -> None:
    append()
    raise CommitConflict


@pytest.fixture
def log() -> Unreliable:
    return Unreliable()


def journal_of(log: Unreliable, actor: str = "tester") -> Journal:
    return Journal(log, actor=actor, clock=FrozenClock())


def register(name: str) -> Body:
    return Registered(name, "default", ("/u/a",), "h")


@pytest.mark.parametrize("step", [lost_answer, exists_already])
def test_a_commit_whose_answer_was_lost_is_found_by_its_op_id(
    log: Unreliable, step: Callable[[Callable[[], None]], None]
) -> None:
    log.steps = [step]
    state = journal_of(log).commit(lambda _: [Created("c")])
    assert state.control_id == "c"
    assert len(log.read(None).events) == 1


def test_a_commit_that_did_not_land_is_tried_again(log: Unreliable) -> None:
    log.steps = [failed_before, failed_before, failed_before]
    journal_of(log).commit(lambda _: [Created("c")])
    assert len(log.read(None).events) == 1


def test_a_commit_that_never_lands_ends_with_a_typed_error(log: Unreliable) -> None:
    log.steps = [failed_before] * 4
    with pytest.raises(ControlError) as caught:
        journal_of(log).commit(lambda _: [Created("c")])
    assert caught.value.code == "FM-CONTROL-014"
    assert caught.value.retryable


def test_a_put_that_arrives_late_is_found_before_deciding_again(log: Unreliable) -> None:
    journal = journal_of(log)

    def given_up_on(append: Callable[[], None]) -> None:
        log.before_read = [lambda: None, append]
        raise CommitUnknown

    log.steps = [given_up_on]
    decided: list[int] = []

    def decide(state: State) -> list[Body]:
        decided.append(state.seq)
        return [Created("c")]

    assert journal.commit(decide).control_id == "c"
    assert decided == [0]


def test_after_a_conflict_it_decides_on_the_newer_state(log: Unreliable) -> None:
    journal, other = journal_of(log), journal_of(log, "other")
    journal.commit(lambda _: [Created("c")])
    seen: list[set[str]] = []

    def decide(state: State) -> list[Body]:
        if not seen:
            other.commit(lambda _: [register("theirs")])
        seen.append(set(state.pipelines))
        return [register("ours")]

    assert set(journal.commit(decide).pipelines) == {"theirs", "ours"}
    assert seen == [set(), {"theirs"}]


def test_nothing_is_appended_that_the_fold_refuses(log: Unreliable) -> None:
    journal = journal_of(log)
    journal.commit(lambda _: [Created("c")])
    with pytest.raises(ControlError, match="exists already"):
        journal.commit(lambda _: [register("P"), Created("again")])
    assert len(log.read(None).events) == 1


def test_too_busy_a_journal_is_an_error_that_can_be_retried(log: Unreliable) -> None:
    clock = FrozenClock()
    journal = Journal(log, actor="t", clock=clock)

    def beaten(append: Callable[[], None]) -> None:
        clock.sleep(61)
        raise CommitConflict

    log.steps = [beaten]
    with pytest.raises(ControlError) as caught:
        journal.commit(lambda _: [Created("c")])
    assert (caught.value.code, caught.value.retryable) == ("FM-CONTROL-009", True)


def test_an_observer_sees_every_event_once(log: Unreliable) -> None:
    seen: list[int] = []
    watching = Journal(
        log, actor="t", clock=FrozenClock(), observer=lambda e, _: seen.append(e.seq)
    )
    other = journal_of(log, "other")
    log.steps = [lost_answer]
    watching.commit(lambda _: [Created("c")])
    other.commit(lambda _: [register("P"), register("Q")])
    watching.state()
    assert seen == [1, 2, 3]


def planned(log: Unreliable) -> Journal:
    """A journal with batch b1 for P and Q."""
    story = Story().then(Created("c")).register("P", "/u/a", "/u/b").register("Q", "/u/b")
    story.plan(A, B)
    journal = journal_of(log)
    journal.commit(lambda _: [event.body for event in story.events])
    return journal


def office(journal: Journal, name: str) -> Leases:
    return Leases(journal, _NoBeats(), FrozenClock(), Holder(name, "", 1, ""), _is_gone)


def _is_gone(holder: Holder) -> bool:
    return True


class _NoBeats:
    def beat(self, run_id: str, count: int) -> None: ...

    def last(self, run_id: str) -> str | None:
        return None

    def clear(self, run_id: str) -> None: ...


def test_a_lease_taken_over_before_its_lost_answer_was_found_is_not_ours(log: Unreliable) -> None:
    first, second = office(planned(log), "first"), office(journal_of(log), "second")

    def overtaken(append: Callable[[], None]) -> None:
        append()
        second.acquire("P", "b1", "run of second")
        raise CommitUnknown

    log.steps = [overtaken]
    with pytest.raises(ControlError) as caught:
        first.acquire("P", "b1", "run of first")
    assert caught.value.code == "FM-CONTROL-006"


def test_finalizing_a_batch_that_compaction_let_go_of_moves_nothing(log: Unreliable) -> None:
    journal = planned(log)
    outcome = advance_watermarks(journal, "batch of long ago")
    assert (outcome.advanced, outcome.held) == ((), ())


def test_finalize_tells_what_was_journaled_if_an_earlier_attempt_landed_late(
    log: Unreliable,
) -> None:
    journal, other = planned(log), journal_of(log, "other")
    _succeed(other, "P")
    late: list[Callable[[], None]] = []

    def given_up_on(append: Callable[[], None]) -> None:
        late.append(append)
        raise CommitUnknown

    def arrives_then_conflicts(append: Callable[[], None]) -> None:
        late.pop()()
        append()

    log.steps = [given_up_on, arrives_then_conflicts]
    outcome = advance_watermarks(journal, "b1")
    assert outcome.advanced == ("/u/a",)
    assert [h.upstream for h in outcome.held] == ["/u/b"]


def _succeed(journal: Journal, pipeline: str) -> None:
    lease = Leased("b1", pipeline, 1, "run", HOLDER, 60)
    journal.commit(lambda _: [lease, Succeeded("b1", pipeline, 1)])
