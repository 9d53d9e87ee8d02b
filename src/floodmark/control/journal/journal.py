"""The journal: compare-and-swap commits over an event log, whatever stores the log."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from floodmark.control.events.bodies import Body, Event
from floodmark.control.rules.folding import Apply, apply, fold
from floodmark.control.store import Decide
from floodmark.errors import ControlError
from floodmark.model import NOTHING_KNOWN, Clock, RandomIds, State, SystemClock
from floodmark.next_steps import command
from floodmark.work import Chance, RetryPolicy, any_number

FORMAT_VERSION = 1
"""The format of a store; a store with a higher one is refused, never guessed at."""

PATIENCE_SECONDS = 60.0
"""How long a commit keeps trying while others win; each of them made progress meanwhile."""


class CommitConflict(Exception):
    """Somebody else committed first; nothing was written."""


class CommitUnknown(Exception):
    """The commit may or may not have landed; only a look at the log can tell."""


class CommitReplaced(Exception):
    """A commit that was read, or acknowledged, is not in the log any more: another is in its place."""


UNKNOWN_LIMIT = 3
"""How often a commit is tried again after it failed for another reason than a conflict."""


@dataclass(frozen=True, slots=True)
class Tail:
    """Events read from a log, and the position up to which it has been read."""

    events: Sequence[Event]
    position: int
    is_whole: bool
    """True where `events` is the whole log rather than what came after the asked position."""


class EventLog(Protocol):
    """An append-only log with compare-and-swap; `position` is its version."""

    def read(self, after: int | None) -> Tail:
        """Everything after a position seen before, or the whole log for None.

        May return the whole log when the part asked for can no longer be told apart. Raises
        CommitReplaced if what was read or appended here before is not there any more.
        """

    def append(self, events: Sequence[Event], position: int) -> None:
        """Append as one commit if the log is still at `position`.

        Raises CommitConflict if it is not (nothing was written), CommitUnknown if the answer was
        lost, CommitReplaced as `read` does (nothing was written).
        """


Observer = Callable[[Event, State], None]
"""Sees every event once, in order, with the state right after it."""


new_op_id = RandomIds().operation
_WAITS = RetryPolicy(0.01, longest_seconds=0.5, jitter=1.0)
"""After a conflict: others want to commit too, and nobody is to wait for long."""


class ControlLog(EventLog, Protocol):
    """An event log that a control store can be opened on."""

    def exists(self) -> bool:
        """Whether there is a log; raises ControlError if that cannot be told."""

    def create(self) -> None:
        """Make it, empty; if somebody else just made it, theirs is used."""


class Journal:
    """A ControlStore over an event log; safe to share between threads."""

    def __init__(
        self,
        log: EventLog,
        *,
        actor: str,
        clock: Clock | None = None,
        op_ids: Callable[[], str] = new_op_id,
        observer: Observer | None = None,
        chance: Chance = any_number,
        apply_one: Apply = apply,
    ) -> None:
        self._log = log
        self._actor = actor
        self._clock = clock or SystemClock()
        self._op_ids = op_ids
        self._observer = observer
        self._chance = chance
        self._apply = apply_one
        self._state = NOTHING_KNOWN
        self._position: int | None = None
        self._guard = threading.RLock()

    def state(self) -> State:
        """The newest state. Reads only what was journaled since the last call."""
        with self._guard:
            self._catch_up()
            return self._state

    def known_state(self) -> State:
        """The state as far as it was read: the first call reads, later ones do not."""
        with self._guard:
            if self._position is None:
                self._catch_up()
            return self._state

    def events(self) -> list[Event]:
        """Every event still in the journal, oldest first; the first may be a SNAPSHOT."""
        return list(self._log.read(None).events)

    def commit(self, decide: Decide) -> State:
        """See ControlStore.commit."""
        op_id = self._op_ids()
        deadline = self._clock.monotonic() + PATIENCE_SECONDS
        attempt = unknown = 0
        with self._guard:
            while True:
                # Looked for before each attempt too: a put that was given up on may arrive late.
                if self._has_landed(op_id):
                    return self._state
                state = self._state
                bodies = decide(state)
                if not bodies:
                    return state
                failure = self._attempt(state, bodies, op_id)
                if failure is None or self._has_landed(op_id):
                    return self._state
                attempt += 1
                unknown += isinstance(failure, CommitUnknown)
                if unknown > UNKNOWN_LIMIT:
                    raise _cannot_commit(failure) from failure
                if self._clock.monotonic() > deadline:
                    raise too_busy(attempt) from failure
                self._clock.sleep(_WAITS.wait_seconds(attempt, self._chance))

    def _attempt(self, state: State, bodies: Sequence[Body], op_id: str) -> Exception | None:
        """Append once; None if it was acknowledged, else what came instead."""
        events = number_events(state, bodies, op_id, self._actor, self._clock.now())
        fold(events, state, self._apply)  # never append what the fold would refuse
        position = self._position or 0  # known: the state was read before it was decided on
        try:
            self._log.append(events, position)
        except (CommitConflict, CommitUnknown) as failure:
            return failure
        except CommitReplaced as error:
            raise self._parted(error) from error
        self._position = position + 1
        self._take(events)
        return None

    def _has_landed(self, op_id: str) -> bool:
        """Whether a commit of ours is in the log although its answer was lost.

        Asked after a conflict too: an object store may answer "exists" to its own retried put.
        """
        return any(event.op_id == op_id for event in self._catch_up())

    def _catch_up(self) -> Sequence[Event]:
        """Fold what is new and return it."""
        try:
            tail = self._log.read(self._position)
        except CommitReplaced as error:
            raise self._parted(error) from error
        if tail.is_whole:
            self._state = NOTHING_KNOWN
        self._take(tail.events)
        self._position = tail.position
        return tail.events

    def _parted(self, error: CommitReplaced) -> ControlError:
        """The error for a journal in which an operation known here is not; the next call reads it anew."""
        self._position = None
        return ControlError(
            "FM-CONTROL-027",
            "an operation that was journaled is no longer in the journal",
            where=str(error),
            found="a commit of another program in its place: on a local disk Spark renames over it",
            allowed="commits by floodmark only",
            state="nothing was written; what the lost operation said is as if the process had been"
            " killed before it, and targets still hold their receipts",
            next="let nobody but floodmark write to that table; then run the same command"
            " again, and after it: " + command("state", "rebuild"),
            retryable=True,
        )

    def _take(self, events: Sequence[Event]) -> None:
        for event in events:
            self._state = self._apply(self._state, event)
            if self._observer:
                self._observer(event, self._state)


def number_events(
    state: State, bodies: Sequence[Body], op_id: str, actor: str, at: datetime
) -> list[Event]:
    """The events that would carry `bodies` right after `state`."""
    return [
        Event(seq=state.seq + offset, body=body, op_id=op_id, actor=actor, at=at)
        for offset, body in enumerate(bodies, start=1)
    ]


def too_busy(attempts: int) -> ControlError:
    return ControlError(
        "FM-CONTROL-009",
        f"other processes kept committing first, {attempts} times",
        state="nothing was journaled by this call; what the others committed stands",
        next="run the same command again",
        retryable=True,
    )


def _cannot_commit(failure: Exception) -> ControlError:
    cause = failure.__cause__ or failure
    return ControlError(
        "FM-CONTROL-014",
        "the journal could not be written",
        found=f"{type(cause).__name__}: {cause}",
        state="the journal was read again and does not hold this call; a late answer of the storage "
        "may still bring it, and would be found by the next command",
        next="mend the cause, then run the same command again",
        retryable=True,
    )
