"""The fold: events -> state. Pure, and the only place where the protocol's rules are enforced.

Every event has a check and an effect. A check answers with the reason why the event must not
happen, or None; a writer folds its own events before it appends them, so an event that breaks a
rule never reaches the journal, and one that did (another program wrote it) is refused on reading.
The same table serves the product, the simulator and `floodmark verify`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from floodmark.control.events.bodies import (
    Advanced,
    Amended,
    Cancelled,
    Created,
    Event,
    Failed,
    Frozen,
    Leased,
    Moved,
    Named,
    Paused,
    Planned,
    Rebuilt,
    Refreshed,
    Registered,
    Removed,
    Renamed,
    Reset,
    Resumed,
    SinkWritten,
    Snapshot,
    Succeeded,
    TargetSettled,
)
from floodmark.control.rules import marks, parts, pipelines, plans, registry, runs, snapshots
from floodmark.errors import ControlError
from floodmark.model import NOTHING_KNOWN, State
from floodmark.model.copying import replace
from floodmark.next_steps import command


class Rule(NamedTuple):
    """What must hold before an event, and what it does."""

    check: Callable[[State, Any], str | None]
    effect: Callable[[State, Event], State]


def apply(state: State, event: Event) -> State:
    """The state after one event; raises ControlError FM-CONTROL-010 if a rule forbids it."""
    rule = RULES[type(event.body)]
    problem = _out_of_place(state, event) or rule.check(state, event.body)
    if problem:
        raise rejected(event, problem)
    return replace(rule.effect(state, event), seq=event.seq)


Apply = Callable[[State, Event], State]
"""The state after one event: `apply`, or something that comes to the same."""


def fold(events: Iterable[Event], state: State | None = None, apply_one: Apply = apply) -> State:
    """The state after `events`, starting from `state` or from nothing."""
    current = state or NOTHING_KNOWN
    for event in events:
        current = apply_one(current, event)
    return current


def rejected(event: Event, problem: str) -> ControlError:
    return ControlError(
        "FM-CONTROL-010",
        f"the journal refused {event.kind}: {problem}",
        where=f"event {event.seq}, {event.body.key}, by {event.actor}",
        state="nothing was journaled; the watermarks stay where they are",
        next=command("status"),
    )


def _out_of_place(state: State, event: Event) -> str | None:
    if isinstance(event.body, Snapshot):
        return None if state.seq == 0 else "a snapshot can only come first"
    if event.seq != state.seq + 1:
        return f"it has number {event.seq}, expected {state.seq + 1}"
    return None


RULES: Mapping[type[Any], Rule] = {
    Created: Rule(registry.check_created, registry.created),
    Registered: Rule(registry.check_registered, registry.registered),
    Named: Rule(registry.check_named, registry.named),
    Moved: Rule(registry.check_moved, registry.moved),
    Planned: Rule(plans.check_planned, plans.planned),
    Leased: Rule(runs.check_leased, runs.leased),
    Frozen: Rule(runs.check_frozen, runs.frozen),
    Amended: Rule(runs.check_amended, runs.amended),
    SinkWritten: Rule(runs.check_run_event, runs.sink_written),
    TargetSettled: Rule(runs.check_run_event, runs.sink_written),
    Succeeded: Rule(runs.check_succeeded, runs.succeeded),
    Failed: Rule(runs.check_run_event, runs.failed),
    Advanced: Rule(marks.check_advanced, marks.advanced),
    Cancelled: Rule(plans.check_cancelled, plans.cancelled),
    Paused: Rule(pipelines.check_taken_out, pipelines.paused),
    Resumed: Rule(pipelines.check_resumed, pipelines.resumed),
    Removed: Rule(pipelines.check_taken_out, pipelines.removed),
    Renamed: Rule(pipelines.check_renamed, pipelines.renamed),
    Refreshed: Rule(pipelines.check_refreshed, pipelines.refreshed),
    Snapshot: Rule(parts.always, snapshots.restored),
    Reset: Rule(marks.check_reset, marks.reset),
    Rebuilt: Rule(snapshots.check_rebuilt, snapshots.rebuilt),
}
