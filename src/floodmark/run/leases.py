"""Leases: one runner at a time for a pipeline of a batch.

Leases save work and name the runner; they are not what makes a run safe. Two runners of one batch
compete for one receipt in each sink, and the journal takes records of the newest epoch only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from floodmark.control import ControlStore, Heartbeats, Pulse
from floodmark.control.events import Body, Leased
from floodmark.control.operations import running
from floodmark.control.rules import check_fence, earlier_unfinished, is_paused, running_elsewhere
from floodmark.errors import ControlError, FencedError, UnknownNameError
from floodmark.model import Clock, Holder, PlannedBatch, Run, State
from floodmark.model.names import choices, nearest
from floodmark.next_steps import command

DEFAULT_TTL_SECONDS = 60.0


class _StillHeld(Exception):
    """The pipeline has a running lease."""

    def __init__(self, run: Run) -> None:
        self.run = run


@dataclass(frozen=True)
class Leases:
    """Grants leases through the journal, watching heartbeats by its own monotonic clock."""

    store: ControlStore
    heartbeats: Heartbeats
    clock: Clock
    holder: Holder
    is_gone: Callable[[Holder], bool]
    """Whether a holder is proven dead; no proof means False."""
    ttl_seconds: float = DEFAULT_TTL_SECONDS
    known_dead: set[str] = field(default_factory=set)
    """Runs that were found dead: nobody has to watch them twice."""

    def refuse_if_held(self, pipeline: str, batch_id: str) -> None:
        """Raise what `acquire` would raise now, without taking the lease."""
        batch = batch_for_run(self.store.state(), batch_id, pipeline)
        run = batch.runs.get(pipeline)
        if run is not None and run.status == "RUNNING":
            if not self._is_dead(run):
                raise _lease_held(run)
            self.known_dead.add(run.run_id)

    def proven_dead(self, pipeline: str, state: State) -> str | None:
        """The run of a pipeline that stands as RUNNING and is dead; raises FM-CONTROL-006 if one
        is alive.
        """
        dead = None
        for run in running(state, pipeline):
            if not self._is_dead(run):
                raise _lease_held(run)
            dead = run.run_id
        return dead

    def acquire(self, pipeline: str, batch_id: str, run_id: str) -> Run:
        """Take the lease, or return the finished run if the pipeline has succeeded already.

        A lease whose holder is proven dead on this host is replaced at once, another one after
        its heartbeat stood still for its ttl. Raises FM-CONTROL-006 while the holder lives.
        """
        seen_dead: str | None = None
        while True:
            try:
                return _ours(self._try(pipeline, batch_id, run_id, seen_dead), run_id)
            except _StillHeld as held:
                if not self._is_dead(held.run):
                    raise _lease_held(held.run) from None
                seen_dead = held.run.run_id

    def _try(self, pipeline: str, batch_id: str, run_id: str, seen_dead: str | None) -> Run:
        def decide(state: State) -> list[Body]:
            batch = batch_for_run(state, batch_id, pipeline)
            if batch.has_succeeded(pipeline):
                return []
            current = batch.runs.get(pipeline)
            is_held = current is not None and current.status == "RUNNING"
            if is_held and current is not None and current.run_id != seen_dead:
                raise _StillHeld(current)
            return [self._lease(state, pipeline, batch_id, run_id, seen_dead if is_held else None)]

        state = self.store.commit(decide)
        return state.batches[batch_id].runs[pipeline]

    def _lease(
        self, state: State, pipeline: str, batch_id: str, run_id: str, replaces: str | None
    ) -> Leased:
        return Leased(
            batch_id=batch_id,
            pipeline=pipeline,
            epoch=state.epochs.get(pipeline, 0) + 1,
            run_id=run_id,
            holder=self.holder,
            ttl_seconds=self.ttl_seconds,
            replaces=replaces,
        )

    def _is_dead(self, run: Run) -> bool:
        # A run elsewhere shows no signs of life; its silence proves nothing.
        if run.is_external:
            return False
        return run.run_id in self.known_dead or self.is_gone(run.holder) or self._stands_still(run)

    def _stands_still(self, run: Run) -> bool:
        """Whether the heartbeat does not change for a whole ttl; wall clocks are not asked."""
        first, since = self.heartbeats.last(run.run_id), self.clock.monotonic()
        while self.clock.monotonic() - since < run.ttl_seconds:
            self.clock.sleep(run.ttl_seconds / 10)
            if self.heartbeats.last(run.run_id) != first:
                return False
        return True


class Lease:
    """A granted lease: whatever the run records goes through it, and only while it is the newest."""

    def __init__(self, store: ControlStore, run: Run, pulse: Pulse) -> None:
        self._store = store
        self.run = run
        self._pulse = pulse
        self._given_up: str | None = None

    def give_up(self, problem: str) -> None:
        """Fence this run from inside: it can begin no write and record nothing but its failure."""
        self._given_up = problem

    def ensure_held(self) -> State:
        """The newest state, if the lease still stands; raises FencedError if it does not.

        A run that was stopped for a while and finds that nobody took over may go on: it shows a
        new sign of life first, and stops itself if it cannot.
        """
        self._refuse_if_given_up()
        state = self._store.state()
        self._refuse_if_fenced(state)
        if self._pulse.is_late():
            self._renew()
        return state

    def record(self, body: Callable[[State], Body | None]) -> State:
        """Journal a record of this run; raises FencedError if another run has taken over.

        Once its own SUCCESS is journaled there is nothing more to record, nor if `body` says None.
        """
        self._refuse_if_given_up()
        return self._commit(body)

    def record_failure(self, body: Callable[[State], Body]) -> State:
        """Like `record`, also for a run that was given up."""
        return self._commit(body)

    def _commit(self, body: Callable[[State], Body | None]) -> State:
        def decide(state: State) -> list[Body]:
            if self._has_succeeded(state):  # its answer was lost, and its op id compacted away
                return []
            self._refuse_if_fenced(state)
            decided = body(state)
            return [] if decided is None else [decided]

        return self._store.commit(decide)

    def _refuse_if_given_up(self) -> None:
        if self._given_up is not None:
            raise fenced(self.run, self._given_up)

    def _has_succeeded(self, state: State) -> bool:
        batch = state.batches.get(self.run.batch_id)
        run = batch.runs.get(self.run.pipeline) if batch else None
        return run is not None and (run.epoch, run.status) == (self.run.epoch, "SUCCESS")

    def _refuse_if_fenced(self, state: State) -> None:
        run = self.run
        problem = check_fence(state, run.batch_id, run.pipeline, run.epoch)
        if problem:
            raise fenced(run, problem)

    def _renew(self) -> None:
        try:
            self._pulse.beat()
        except OSError as error:
            raise fenced(self.run, f"its heartbeat cannot be written: {error}") from error


def batch_for_run(state: State, batch_id: str, pipeline: str) -> PlannedBatch:
    """The batch, if the pipeline may run for it now; else the error that says why not."""
    batch = known_batch(state, batch_id)
    if batch.is_cancelled:
        raise ControlError(
            "FM-CONTROL-012",
            f"batch {batch_id} was cancelled",
            state="its ranges are free and will be planned again",
            next=command("plan"),
        )
    if not batch.upstreams_of(pipeline):
        raise _not_in_batch(batch, pipeline)
    if is_paused(state, pipeline):
        raise paused(pipeline)
    other = running_elsewhere(state, batch, pipeline)
    if other:
        raise _lease_held(other.runs[pipeline])
    earlier = earlier_unfinished(state, batch, pipeline)
    if earlier:
        raise ControlError(
            "FM-CONTROL-008",
            f"pipeline {pipeline} has to finish batch {earlier.batch_id} first",
            where=f"batch {batch_id}",
            state="nothing was read or written; batches of a pipeline apply in order",
            next=command("retry", earlier.batch_id),
        )
    return batch


def known_batch(state: State, batch_id: str) -> PlannedBatch:
    """The batch of that id; raises FM-CONTROL-004."""
    if batch_id in state.batches:
        return state.batches[batch_id]
    newest = list(state.batches)[-3:]
    close = nearest(batch_id, list(state.batches)) or (newest[-1] if newest else None)
    raise UnknownNameError(
        "FM-CONTROL-004",
        f"batch {batch_id} is unknown",
        found=f"the newest batches are {', '.join(newest)}" if newest else "there is no batch yet",
        allowed=f"a batch of this store; nearest: {close}" if close else None,
        state="nothing was read or written",
        next=command("status"),
    )


def _not_in_batch(batch: PlannedBatch, pipeline: str) -> ControlError:
    return UnknownNameError(
        "FM-CONTROL-005",
        f"pipeline {pipeline} is not part of batch {batch.batch_id}",
        allowed=choices(list(batch.required), pipeline) or "the batch was planned for no pipeline",
        state="nothing was read or written; a plan keeps the registry of its moment",
        next="register the pipeline; the next batch will ask for it",
    )


def paused(pipeline: str) -> ControlError:
    return ControlError(
        "FM-CONTROL-018",
        f"pipeline {pipeline} is paused",
        state="nothing was read or written; what it misses is planned for it once it is resumed",
        next=command("resume", pipeline),
    )


def _ours(run: Run, run_id: str) -> Run:
    """The run, unless others took it over before the lost answer of our lease was found again."""
    if run.run_id != run_id and run.status != "SUCCESS":
        raise _lease_held(run)
    return run


def _lease_held(run: Run) -> ControlError:
    who = (
        "the run that was recorded as RUNNING"
        if run.is_external
        else f"process {run.holder.pid} on {run.holder.host}"
    )
    error = ControlError(
        "FM-CONTROL-006",
        f"another runner holds the lease of pipeline {run.pipeline}",
        where=f"batch {run.batch_id}, run {run.run_id}, epoch {run.epoch}",
        found=f"{who}, {'and has not ended' if run.is_external else 'which shows signs of life'}",
        state="nothing was read or written by this call",
        next="wait for it, or stop that process and run the same command again",
        retryable=True,
    )
    error.held_by = who
    return error


def fenced(run: Run, problem: str) -> FencedError:
    return FencedError(
        "FM-CONTROL-007",
        f"run {run.run_id} of pipeline {run.pipeline} was fenced",
        where=f"batch {run.batch_id}, epoch {run.epoch}",
        found=problem,
        state="the run that took over decides; receipts keep every row exactly once",
        next=command("status"),
    )
