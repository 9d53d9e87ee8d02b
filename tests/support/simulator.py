"""The control plane under a deterministic random scheduler: one seed is one schedule.

    python -m tests.support.simulator --seed 7 [--mutant NAME]     one schedule, with its trace
    python -m tests.support.simulator --schedules 20000 --processes 2 [--mutant NAME | --mutants]

Planners, runners, finalizers, cancellers, registrars and compactors run the production code, each
in a greenlet. Between any two of their outside effects they may be overtaken, stalled for long
(others take their leases over meanwhile) or killed; answers of commits get lost; functions raise.
A judge (testing.truth) checks the guarantees at every commit. Then the faults stop, the stalled
wake up, and plain plan, run and finalize must reach what an undisturbed run would have reached.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Any

import greenlet
from tests.support.mutants import MUTANTS, mutated
from tests.support.rows import day_of, span_of
from tests.support.truth import Violation, ensure
from tests.support.world import (
    QUERY,
    WITHOUT_VERSIONS,
    Frame,
    LostAnswer,
    PipelineSpec,
    Process,
    UserError,
    World,
    coordinator_in,
)

from floodmark.control.upkeep.upkeep import compact
from floodmark.coordinator import Coordinator
from floodmark.errors import FencedError, FloodmarkError
from floodmark.model.results import Batch
from floodmark.model.state import PlannedBatch, State
from floodmark.model.upstream import Upstream
from floodmark.model.window import Window
from floodmark.model.write import WriteSpec
from floodmark.run.context import Pass

UPSTREAMS = ("/u/a", "/u/b", "/u/c", WITHOUT_VERSIONS)
PROJECT = (
    PipelineSpec("P1", "default", ("/u/a", "/u/b"), (("/t/1", "/t/1"), ("/t/2", "/t/2"))),
    PipelineSpec(
        "P2", "default", ("/u/b", WITHOUT_VERSIONS), (("first", "/t/3"), ("second", "/t/3"))
    ),
    PipelineSpec("P3", "default", ("/u/b", "/u/c", WITHOUT_VERSIONS), (("/t/2", "/t/2"),)),
    PipelineSpec("P4", "other", ("/u/a",), (("/t/4", "/t/4"),)),
    PipelineSpec("PX", "default", ("/u/c",), (("/t/5", "/t/5"),), is_external=True),
)
TARGETS = sorted({target for spec in PROJECT if not spec.is_external for _, target in spec.writes})
ENOUGH_STEPS = 2_000
"""So many steps end whatever a few processes have left to do."""

EXPECTED = (FloodmarkError, UserError, LostAnswer)
"""What a command may end with; anything else is a violation too."""

Command = Callable[["Actor"], None]


@dataclass(frozen=True)
class Actor:
    """One process with its coordinator."""

    world: World
    process: Process
    coordinator: Coordinator
    is_careful: bool = False
    """True in the recovery, where functions do not raise."""


class Schedule:
    """One seed: a world, its processes, and the order in which they act."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.world = World(seed, PROJECT, faults=1.0)
        self.rng = self.world.rng
        self.live: list[Process] = []
        self.hub = greenlet.getcurrent()
        self.world.switch = self.hub.switch
        self.steps = self.rng.choice((120, 250, 400))
        for upstream in (*UPSTREAMS, *(spec.spare for spec in PROJECT)):
            self.world.latest[upstream] = self.rng.randrange(3)

    def run(self) -> None:
        """Play the schedule; raises Violation."""
        try:
            self._begin()
            self._disturb()
            self._recover()
        finally:
            self._tidy()

    def _begin(self) -> None:
        present = [spec for spec in PROJECT if self.rng.random() < 0.8] or [PROJECT[0]]
        first = self._spawn("operator", lambda actor: register_all(actor, present))
        while not first.steps.dead:
            self._step(first)

    def _disturb(self) -> None:
        latest: Process | None = None
        for _ in range(self.steps):
            self._nature()
            awake = [p for p in self.live if not p.is_stalled]
            if not awake:
                continue
            stays = latest in awake and self.rng.random() < 0.75
            latest = latest if stays and latest else self.rng.choice(awake)
            self._step(latest)

    def _nature(self) -> None:
        """Whatever happens to processes and upstreams from outside, now and then."""
        x, rng, world = self.rng.random(), self.rng, self.world
        world.elapsed += rng.random() * 0.5
        if x < 0.05:
            world.latest[rng.choice(UPSTREAMS)] += rng.choice((1, 1, 1, 3))
        elif x < 0.16 and len(self.live) < 6:
            name, command = rng.choices(COMMANDS, cum_weights=WEIGHTS)[0]
            self._spawn(name, command)
        elif x < 0.18 and self.live:
            self._kill(rng.choice(self.live))
        elif x < 0.20 and self.live:
            world.stall(rng.choice(self.live))
        elif x < 0.215:
            self._wake([p for p in self.live if p.is_stalled][:1])
        elif x < 0.225:
            world.elapsed += rng.choice((20.0, 90.0))
        elif x < 0.24:
            world.log.deliver()
        elif x < 0.243:
            self._lose_changes(rng.choice([u for u in UPSTREAMS if u != WITHOUT_VERSIONS]))
        elif x < 0.247:
            lose_rows(world, rng.choice(TARGETS))

    def _lose_changes(self, upstream: str) -> None:
        """VACUUM takes the changes of older versions away."""
        world = self.world
        through = world.rng.randint(0, world.latest[upstream])
        world.lost[upstream] = max(world.lost.get(upstream, -1), through)
        world.note(f"the changes of {upstream} are gone through {world.lost[upstream]}")

    def _spawn(self, name: str, command: Command, *, is_careful: bool = False) -> Process:
        process = self.world.process(f"{name}{len(self.world.processes) + 1}")
        process.steps = greenlet.greenlet(lambda: self._execute(process, command, is_careful))
        self.live.append(process)
        return process

    def _execute(self, process: Process, command: Command, is_careful: bool) -> None:
        coordinator = coordinator_in(self.world, process)
        try:
            command(Actor(self.world, process, coordinator, is_careful))
        except EXPECTED as error:
            self.world.note(f"{process.name} ends with {getattr(error, 'code', error)}")
        finally:
            coordinator.store.__dict__.clear()  # else only a garbage collection would free its states

    def _step(self, process: Process) -> None:
        """Let a process do its next effect."""
        world, steps = self.world, process.steps
        world.elapsed = max(world.elapsed, process.wakes_at)
        world.acting = process
        steps.switch()
        world.acting = None
        if steps.dead:
            self.live.remove(process)

    def _kill(self, process: Process) -> None:
        self.world.stall(process)
        self.world.note(f"kill -9 {process.name}")
        process.is_dead = True
        self.live.remove(process)

    def _wake(self, processes: Iterable[Process]) -> None:
        for process in processes:
            self.world.note(f"{process.name} wakes up")
            process.is_stalled = False
            for pulse in process.pulses:
                pulse.resume()

    def _recover(self) -> None:
        """G10: the faults stop; the stalled wake up at any time and must do no harm."""
        self.world.note("the faults stop")
        self.world.faults = 0.0
        if self.world.truth.has_losses():
            self.world.add_versions()
        for _ in range(30):
            worker = self._spawn("worker", work, is_careful=True)
            while not worker.steps.dead:
                self._zombies(worker)
                self._step(worker)
            if not self.world.truth.lagging() and self._all_end():
                return
        raise Violation(f"G10 stuck: {'; '.join(self.world.truth.lagging()) or 'still busy'}")

    def _all_end(self) -> bool:
        """Whether everybody who still lives comes to an end, once nothing is left to do."""
        for _ in range(ENOUGH_STEPS):
            if not self.live:
                return True
            process = self.rng.choice(self.live)
            self._wake([process] if process.is_stalled else [])
            self._step(process)
        return False

    def _zombies(self, worker: Process) -> None:
        others = [p for p in self.live if p is not worker]
        if others and self.rng.random() < 0.3:
            process = self.rng.choice(others)
            self._wake([process] if process.is_stalled else [])
            self._step(process)
        if self.rng.random() < 0.02:
            self.world.log.deliver()

    def _tidy(self) -> None:
        """End what was killed or left; none of it may act any more."""
        for process in self.world.processes.values():
            process.is_dead = True
            if process.steps and not process.steps.dead:
                process.steps.throw()
            process.steps = None  # it knows the process: only a garbage collection would free both
        self.world.processes.clear()


def lose_rows(world: World, target: str) -> None:
    """Somebody drops, empties or restores a target."""
    if world.targets.find(target) is None:
        return
    what = world.rng.choice(("drop", "empty", "restore"))
    world.note(f"{what} {target}")
    if what == "drop":
        world.truth.dropped(target, world.targets.drop(target))
    elif what == "empty":
        world.truth.dropped(target, world.targets.empty(target))
    else:
        moment, kept = world.targets.restore(target, world.rng.randint(1, 3))
        world.truth.restored(target, moment, kept)


# What processes do --------------------------------------------------------------------------------


def register_all(actor: Actor, specs: Iterable[PipelineSpec]) -> None:
    for spec in specs:
        actor.coordinator.register(spec.name, [*map(as_read, spec.upstreams)], spec.scope)


def as_read(upstream: str) -> str | Upstream:
    """An upstream as a pipeline is registered with it."""
    if upstream != WITHOUT_VERSIONS:
        return upstream
    return Upstream(upstream, time_column=QUERY.column, format=QUERY.format)


def plan(actor: Actor) -> None:
    rng = actor.world.rng
    scope = "other" if rng.random() < 0.2 else "default"
    limit = rng.choice((None, None, 1, 2))
    named = rng.sample(UPSTREAMS, rng.randint(1, 3)) if rng.random() < 0.4 else None
    plan_batch(actor, scope, named, limit)


def plan_batch(
    actor: Actor, scope: str, upstreams: Sequence[str] | None = None, limit: int | None = None
) -> Batch:
    """Plan, and check that the answer tells what was journaled."""
    planning, probes = actor.coordinator.planning, None
    if actor.world.rng.random() < 0.2:  # as a run does: show a plan, and execute what was shown
        probes = planning.probes()
        planning.preview(upstreams, scope=scope, max_versions=limit, probes=probes)
        actor.world.clock.sleep(actor.world.rng.choice((1.0, 60.0, 240.0)))
    batch = planning.create_batch(upstreams, scope=scope, max_versions=limit, probes=probes)
    if batch.batch_id is not None:
        planned = actor.world.truth.plans.get(batch.batch_id)
        ensure(planned is not None, "answer: a batch was returned that was not journaled")
        if planned is not None and not planned.cancelled:
            for window in batch.windows:
                same = window.deferred or span_of(window) == planned.windows.get(window.upstream)
                ensure(same, "answer: other windows were journaled")
    return batch


def run_some(actor: Actor) -> None:
    """Run a pipeline of an open batch, now and then out of turn."""
    found = list(actor.coordinator.current_plan())
    if found:
        batch = found[0] if actor.world.rng.random() < 0.7 else actor.world.rng.choice(found)
        if batch.pipelines:
            run_pipeline(actor, actor.world.rng.choice(batch.pipelines), str(batch.batch_id))


def run_pipeline(actor: Actor, pipeline: str, batch_id: str) -> None:
    """Run a pipeline, and check that the answer tells what was journaled."""
    if actor.world.pipelines[pipeline].is_external:
        record_elsewhere(actor, pipeline, batch_id)
        return
    actor.process.doing = (batch_id, pipeline)
    was = actor.world.truth.status.get((batch_id, pipeline))
    try:
        actor.coordinator.run_pipeline(
            pipeline,
            batch_id,
            SimPipeline(actor.world, actor.world.pipelines[pipeline]),
            on_lost_range=_choice(actor, "snapshot", "accept"),
            on_lost_target=_choice(actor, "rebuild", "accept"),
        )
    except FencedError as error:
        ours = was != "SUCCESS" and "the run is SUCCESS" in (error.found or "")
        ensure(not ours, "answer: a run that succeeded was told that it was fenced")
        raise
    status = actor.world.truth.status.get((batch_id, pipeline))
    ensure(status == "SUCCESS", f"answer: a run came back although it is {status}")


def _choice(actor: Actor, *choices: Any) -> Any:
    """What an operator says about losses; in the recovery never nothing."""
    rng = actor.world.rng
    return None if not actor.is_careful and rng.random() < 0.5 else rng.choice(choices)


@dataclass(frozen=True)
class OtherRows:
    """A reader that saw one row more than the log says."""

    window: Window

    def misread(self) -> int:
        """The rows that it saw."""
        return self.recounted()

    def recounted(self) -> int:
        """The same, counted now."""
        return (self.window.rows or 0) + 1


@dataclass(frozen=True)
class SimPipeline:
    """A pipeline that writes what it got to each of its targets; may raise at any point.

    It compares what it read with the plan, as nodes do.
    """

    world: World
    spec: PipelineSpec

    def run_nodes(self, inputs: Mapping[str, Any], run: Pass) -> dict[str, object]:
        """See `run.context.NodePipeline`."""
        world, pipeline = self.world, self.spec.name
        for name, target in self.spec.writes:
            if world.happens(0.05):
                raise UserError(f"{pipeline} before {name}")
            counts = [
                OtherRows(window)
                for window in inputs.values()
                if window.is_counted and world.happens(0.02)
            ]
            make = partial(Frame, pipeline, name, dict(inputs))
            run.writes.write(WriteSpec(target, "append", name), make, counts=counts)
        if world.happens(0.05):
            raise UserError(f"{pipeline} at its end")
        return {}


def record_elsewhere(actor: Actor, pipeline: str, batch_id: str) -> None:
    """A program of its own: says RUNNING, writes idempotently, says how it ended."""
    coordinator, world = actor.coordinator, actor.world
    actor.process.doing = (batch_id, pipeline)
    coordinator.record_run(pipeline, batch_id, status="RUNNING")
    coordinator.inputs(batch_id, pipeline)
    world.pause("{} writes elsewhere", pipeline)
    plan = world.truth.plans[batch_id]
    for write, _ in world.pipelines[pipeline].writes:
        if plan.seq not in world.truth.sinks[pipeline, write].batches:
            world.truth.written(pipeline, write, plan.seq, plan.planned_ways(pipeline))
    status = "FAILED" if world.happens(0.1) else "SUCCESS"
    coordinator.record_run(pipeline, batch_id, status=status)  # type: ignore[arg-type]


def finalize(actor: Actor) -> None:
    """Finalize any batch, open or not."""
    found = actor.coordinator.status()
    if found:
        finalize_batch(actor, actor.world.rng.choice(found).batch_id)


def finalize_batch(actor: Actor, batch_id: str) -> None:
    for upstream in actor.coordinator.finalize_batch(batch_id):
        moved = upstream in actor.world.truth.plans[batch_id].advanced
        ensure(moved, f"answer: {upstream} is said to have advanced")


def cancel(actor: Actor) -> None:
    """Give up an open batch, a seed rather than another one: there are few."""
    found = actor.coordinator.current_plan()
    seeds = [batch for batch in found if batch.kind == "seed"]
    if found:
        actor.coordinator.cancel(str(actor.world.rng.choice(seeds or found).batch_id))


def register(actor: Actor) -> None:
    """A pipeline joins, leaves an upstream or takes one up."""
    rng = actor.world.rng
    spec = rng.choice(list(actor.world.pipelines.values()))
    kept = tuple(u for u in UPSTREAMS if rng.random() < 0.5)
    upstreams = spec.upstreams if rng.random() < 0.5 else kept or (spec.spare,)
    actor.coordinator.register(spec.name, [*map(as_read, upstreams)], spec.scope)


def operate(actor: Actor) -> None:
    """Pause, resume, remove, refresh or rename a pipeline."""
    rng, coordinator = actor.world.rng, actor.coordinator
    chances: tuple[Callable[[str], None], ...] = (
        coordinator.pause,
        coordinator.resume,
        coordinator.unregister,
        coordinator.admin.refresh,
        lambda name: rename(actor, name),
    )
    operation = rng.choices(chances, (4, 4, 1, 1, 2))[0]
    operation(rng.choice(list(actor.world.pipelines)))


def rename(actor: Actor, pipeline: str) -> None:
    """Give a pipeline a new name, now and then one that others want too, or after an accident."""
    world = actor.world
    spec = world.pipelines[pipeline]
    if world.happens(0.3) and not spec.is_external:
        lose_rows(world, world.rng.choice(spec.writes)[1])
    new_name = f"{pipeline}-{world.rng.choice((1, len(world.pipelines)))}"
    world.pipelines.setdefault(new_name, replace(spec, name=new_name))
    world.truth.may_be_named(pipeline, new_name)
    actor.coordinator.admin.rename(pipeline, new_name)


def reset(actor: Actor) -> None:
    """Put a watermark elsewhere, as an operator may; rather one that a newcomer has not reached,
    or that no batch holds.
    """
    world, rng = actor.world, actor.world.rng
    scope = "other" if rng.random() < 0.2 else "default"
    state = actor.coordinator.look.state()
    known = not_reached(state) or [mark for mark in state.marks if mark not in state.open_windows]
    upstream = rng.choice(UPSTREAMS)
    if known and rng.random() < 0.8:
        scope, upstream = rng.choice(known)
    version = rng.randint(-1, world.latest[upstream])
    if version < 0:
        actor.coordinator.admin.reset(upstream, scope=scope)
    elif upstream == WITHOUT_VERSIONS:
        attempt(
            actor, lambda a: a.coordinator.admin.reset(upstream, scope=scope, to=day_of(version))
        )
        attempt(actor, replay)  # of what may lie beyond the mark
    else:
        actor.coordinator.admin.reset(upstream, scope=scope, to_version=version)


def not_reached(state: State) -> list[tuple[str, str]]:
    """Scopes and upstreams whose watermark a pipeline has not reached yet."""
    return [
        (pipeline.scope, upstream)
        for pipeline in state.pipelines.values()
        for upstream in pipeline.upstreams
        if state.processed_through(pipeline.name, upstream)
        < state.committed_version(pipeline.scope, upstream)
    ]


def replay(actor: Actor) -> None:
    """Process a batch again, or a range, outside the order of the others."""
    if actor.world.happens(0.4):
        backfill(actor)
        return
    found = [b for b in actor.coordinator.status() if b.status == "COMPLETED" and b.required]
    if found:
        batch = actor.world.rng.choice(found)
        actor.coordinator.replay(batch.batch_id, allow_duplicates=True)


def backfill(actor: Actor) -> None:
    """Process a range again that may or may not be committed, for one pipeline."""
    world, state = actor.world, actor.coordinator.look.state()
    pipelines = [p for p in state.pipelines.values() if p.upstreams]
    if not pipelines:
        return
    pipeline = world.rng.choice(pipelines)
    upstream = world.rng.choice(pipeline.upstreams)
    end = world.rng.randint(0, max(0, world.latest[upstream]))
    start = world.rng.randint(0, end)
    edge = day_of if upstream == WITHOUT_VERSIONS else int
    actor.coordinator.backfill(
        upstream,
        start=edge(start),
        end=edge(end),
        pipelines=[pipeline.name],
        scope=pipeline.scope,
        allow_duplicates=True,
    )


def resume_all(actor: Actor) -> None:
    for name in sorted(actor.world.truth.paused):
        attempt(actor, lambda a, n=name: a.coordinator.resume(n))


def compact_journal(actor: Actor) -> None:
    compact(actor.world.log, _Published(actor.world), keep_windows=3)  # type: ignore[arg-type]


@dataclass(frozen=True)
class _Published:
    """A projector that has published all events of the journal, or all but a few."""

    world: World

    def published_through(self, _: str) -> int:
        return self.world.log.last_seq() - self.world.rng.choice((0, 0, 1, 3))

    def history_is_complete(self, after: int, through: int) -> bool:
        """In this world `history` never loses a row."""
        return after <= through <= self.world.log.last_seq()

    def compact(self) -> None:
        return


def work(actor: Actor) -> None:
    """What `floodmark run` does: plan, run what is open in order, finalize."""
    if actor.is_careful:
        resume_all(actor)
    for scope in ("default", "other"):
        if any(where == scope for where, _ in actor.world.truth.registry.values()):
            attempt(actor, plan_batch, scope)
    for batch in actor.coordinator.look.state().open_batches():
        finish(actor, batch)


def finish(actor: Actor, batch: PlannedBatch) -> None:
    """Run the pipelines of a batch and finalize it; a batch that nobody can finish is cancelled."""
    for pipeline in dict.fromkeys((*batch.required, *batch.aside)):
        attempt(actor, run_pipeline, pipeline, batch.batch_id)
        drop_hopeless(actor)
    attempt(actor, finalize_batch, batch.batch_id)
    held = actor.coordinator.finalize(batch.batch_id).held
    if actor.is_careful and held and not any(h.waiting_for for h in held):
        attempt(actor, lambda a: a.coordinator.cancel(batch.batch_id))


def drop_hopeless(actor: Actor) -> None:
    """In the recovery, an operator drops a target that nothing else can settle, as its error says."""
    world, target = actor.world, actor.process.hopeless
    if actor.is_careful and target is not None and world.targets.find(target):
        world.note(f"the operator drops {target}")
        world.truth.dropped(target, world.targets.drop(target))
        world.add_versions()
    actor.process.hopeless = None


def attempt(actor: Actor, command: Callable[..., object], *arguments: object) -> None:
    """Do something; a refusal ends this, not the process."""
    try:
        command(actor, *arguments)
    except EXPECTED as error:
        actor.world.note(f"{actor.process.name}: {getattr(error, 'code', error)}")
        if getattr(error, "code", None) == "FM-SINK-018":
            actor.process.hopeless = getattr(error, "where", None)


COMMANDS: tuple[tuple[str, Command], ...] = (
    ("planner", plan),
    ("runner", run_some),
    ("finalizer", finalize),
    ("canceller", cancel),
    ("registrar", register),
    ("operator", operate),
    ("resetter", reset),
    ("replayer", replay),
    ("compactor", compact_journal),
    ("worker", work),
)
WEIGHTS = tuple(accumulate((20, 30, 14, 5, 4, 7, 3, 5, 3, 24)))
"""Summed up here: `choices` would do it each time."""


# Campaigns ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Failure:
    """A schedule that broke a guarantee."""

    seed: int
    mutant: str | None
    violation: str
    trace: tuple[str, ...]

    def __str__(self) -> str:
        head = f"seed {self.seed}, mutant {self.mutant or 'none'}: {self.violation}"
        again = f"python -m tests.support.simulator --seed {self.seed}"
        again += f" --mutant {self.mutant}" if self.mutant else ""
        return "\n".join([head, *(f"  {line}" for line in self.trace), f"again: {again}"])


def play(seed: int, mutant: str | None = None) -> Failure | None:
    """Play one schedule; the failure if a guarantee was broken."""
    with mutated(mutant) if mutant else nullcontext():
        return _play(seed, mutant)


def _play(seed: int, mutant: str | None) -> Failure | None:
    schedule = Schedule(seed)
    try:
        schedule.run()
    except Violation as violation:
        return Failure(seed, mutant, str(violation), schedule.world.trace())
    except Exception as error:  # noqa: BLE001 an error of no known kind is a finding
        text = f"untyped {type(error).__name__}: {error}"
        return Failure(seed, mutant, text, schedule.world.trace())
    # Their parts know them in turn: else only a garbage collection would free a world.
    schedule.world.truth.__dict__.clear()
    schedule.world.__dict__.clear()
    return None


def first_failure(seeds: Iterable[int], mutant: str | None = None) -> Failure | None:
    """The first of some schedules that breaks a guarantee."""
    with mutated(mutant) if mutant else nullcontext(), rare_garbage_collection():
        return next((f for f in (_play(seed, mutant) for seed in seeds) if f), None)


@contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """Schedules make many frozen values and few cycles: looking for these takes a third of the time."""
    before = gc.get_threshold()
    gc.set_threshold(200_000, 10, 100)
    gc.freeze()  # nor is there anything to find in what was imported
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


def campaign(schedules: int, processes: int = 2, begin: int = 0) -> Failure | None:
    """Play many schedules of the protocol as it is; the failure with the lowest seed, if any."""
    chunk = 250
    chunks = [
        range(s, min(s + chunk, begin + schedules)) for s in range(begin, begin + schedules, chunk)
    ]
    return next((f for f in _spread(first_failure, chunks, processes) if f), None)


def _spread(function: Any, work: Sequence[Any], processes: int) -> Iterator[Any]:
    if processes == 1:
        yield from map(function, work)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap(function, work)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; exit code 1 if a guarantee was broken (of a mutant: if none was)."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.simulator")
    parser.add_argument("--seed", type=int, help="play this schedule only")
    parser.add_argument("--mutant", choices=sorted(MUTANTS), help="break the protocol this way")
    parser.add_argument("--mutants", action="store_true", help="all mutants, each until caught")
    parser.add_argument("--schedules", type=int, default=2000)
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args(arguments)
    if options.mutants:
        return _all_mutants(options.schedules)
    started = time.monotonic()
    failure = _chosen(options)
    seconds = time.monotonic() - started
    count = 1 if options.seed is not None else options.schedules
    _say(str(failure) if failure else f"{count} schedules, no violation, {count / seconds:.0f}/s")
    return int((failure is None) == bool(options.mutant))


def _chosen(options: argparse.Namespace) -> Failure | None:
    if options.seed is not None:
        return play(options.seed, options.mutant)
    if options.mutant:
        return first_failure(range(options.schedules), options.mutant)
    return campaign(options.schedules, options.processes)


def _all_mutants(schedules: int) -> int:
    survivors = 0
    for name in MUTANTS:
        with mutated(name) as mutation:
            failure = first_failure(range(schedules))
        idle = mutation.idle()
        survivors += failure is None or bool(idle)
        verdict = (
            f"caught by schedule {failure.seed + 1}: {failure.violation}" if failure else "SURVIVES"
        )
        verdict += f"; never ran: {', '.join(idle)}" if idle else ""
        _say(f"{name:<32} {verdict}")
    return int(survivors > 0)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
