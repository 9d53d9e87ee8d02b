"""A coordinator and its outside: one argument, and nothing happens before something is asked."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import pytest
from tests.support.crash import armed
from tests.support.outsides import ON_ARROW

import floodmark as fm
from floodmark.control.events.bodies import Event
from floodmark.control.journal.journal import CommitConflict
from floodmark.control.journal.memory import MemoryEventLog
from floodmark.coordinator import Outside
from floodmark.failpoints import FailpointReached
from floodmark.model.clock import FrozenClock

Append = Callable[..., str]
REACHES_OUT = ("open", "os.", "subprocess.", "socket.", "shutil.", "tempfile.")
"""How the events of Python's audit begin that tell of files, programs and connections."""


class Audit:
    """What this process does outside of itself while it is entered; a hook cannot be removed."""

    def __init__(self) -> None:
        self.is_on = False
        self.events: list[tuple[str, tuple[Any, ...]]] = []
        sys.addaudithook(self._note)

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.is_on and event.startswith(REACHES_OUT):
            self.events.append((event, arguments))

    def __enter__(self) -> Self:
        self.is_on = True
        return self

    def __exit__(self, *_: object) -> None:
        self.is_on = False


def test_constructing_a_coordinator_does_nothing_outside_of_this_process(tmp_path: Path) -> None:
    control = str(tmp_path / "_control")
    fm.Coordinator(control)  # whatever has to be imported first is imported now
    audit = Audit()

    with audit:
        coordinator = fm.Coordinator(control)

    assert audit.events == []
    with audit:  # the proof of the proof: who we are takes files of the system
        coordinator.outside.process.holder()
    assert audit.events or sys.platform != "linux"


def test_an_outside_is_a_value(coordinator: fm.Coordinator) -> None:
    with pytest.raises(FrozenInstanceError):
        coordinator.outside.clock = FrozenClock()  # type: ignore[misc]


class CountedIds:
    """Ids that a reader of the test can foresee."""

    def store(self) -> str:
        return "s"

    def operation(self) -> str:
        self.operations = getattr(self, "operations", 0) + 1
        return f"operation-{self.operations}"

    def batch(self, at: datetime) -> str:
        return f"batch-at-{at:%H}"

    def run(self, at: datetime) -> str:
        return f"run-at-{at:%H}"


def test_whatever_is_outside_is_taken_from_the_argument(grow: Append, tmp_path: Path) -> None:
    clock, log = FrozenClock(datetime(2026, 1, 1, 7, tzinfo=UTC)), MemoryEventLog()
    outside = replace(ON_ARROW, clock=clock, ids=CountedIds(), log=log)
    coordinator = fm.Coordinator(str(tmp_path / "_control"), actor="t", outside=outside)
    coordinator.register("p", [grow("orders", 1)])

    batch_id = str(coordinator.create_batch().batch_id)
    result = coordinator.run_pipeline("p", batch_id, lambda inputs, run: None)

    events = log.read(None).events
    assert (batch_id, result.run_id) == ("batch-at-07", "run-at-07")
    assert events[0].body.control_id == "s"  # type: ignore[union-attr]
    assert {event.at for event in events} == {clock.at}
    assert events[0].op_id == "operation-1"
    assert not (tmp_path / "_control/_journal").exists()


@pytest.mark.parametrize("looks_first", [True, False])
def test_a_store_whose_maker_was_killed_before_its_first_event_gets_an_id(
    tmp_path: Path, looks_first: bool
) -> None:
    """Receipts bear it: two stores without an id would take each other's writes for their own."""
    control = str(tmp_path / "_control")
    with armed("journal.after_data_file"), pytest.raises(FailpointReached):
        fm.Coordinator(control, actor="first").register("p", ["/u/a"])
    coordinator = fm.Coordinator(control, actor="second")
    if looks_first:
        assert coordinator.look.state().control_id == ""

    coordinator.register("p", ["/u/a"])

    assert coordinator.look.state().control_id != ""
    assert [event.kind for event in coordinator.history()] == ["CREATE", "REGISTER"]


class LosingLog(MemoryEventLog):
    """Somebody else commits first, once."""

    def __init__(self) -> None:
        super().__init__()
        self.has_lost = False

    def append(self, events: Any, position: int) -> None:
        if not self.has_lost:
            self.has_lost = True
            raise CommitConflict
        super().append(events, position)


def test_waiting_for_another_attempt_asks_no_generator_of_the_program(tmp_path: Path) -> None:
    waits: list[tuple[float, float]] = []
    clock = FrozenClock()

    def chance(least: float, most: float) -> float:
        waits.append((least, most))
        return most

    random.seed(7)
    before = random.getstate()
    for outside in (Outside(clock=clock, log=LosingLog(), chance=chance), Outside(log=LosingLog())):
        fm.Coordinator(str(tmp_path / "c"), actor="t", outside=outside).register("p", ["/u/a"])

    assert random.getstate() == before
    assert waits == [(0, 0.01)]
    assert clock.elapsed == 0.01


class Shown:
    """A publisher that remembers what it was told."""

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self.published = 0

    def observe(self, event: Event, state: Any) -> None:
        self.kinds.append(event.kind)

    def publish(self, store: Any) -> None:
        self.published += 1

    def publish_runs(self, store: Any) -> None:
        self.published += 1


def test_what_is_published_is_up_to_the_publisher(tmp_path: Path) -> None:
    shown = Shown()
    control = tmp_path / "_control"
    coordinator = fm.Coordinator(str(control), actor="t", outside=Outside(publisher=shown))

    coordinator.register("p", ["/u/a"])

    assert shown.kinds == ["CREATE", "REGISTER"]
    assert shown.published == 1
    assert not (control / "history").exists()
