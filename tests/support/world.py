"""The outside of a simulated Coordinator: journal storage, upstreams, sinks, clock, other machines.

Everything here lives in memory and belongs to one schedule. Before each effect the acting process
hands control to the scheduler (`World.pause`), which may let others go first, stall it or kill it:
production code runs unmodified between those points.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property
from typing import Any, Self, cast

import greenlet
from tests.support.rows import day_of, value_of, way_of
from tests.support.targets import SimTargets, target_of
from tests.support.truth import Truth

from floodmark.control import ControlReader
from floodmark.control.events.bodies import Event
from floodmark.control.heartbeats import Pulse
from floodmark.control.journal.journal import CommitConflict, CommitUnknown, Tail
from floodmark.control.rules.folding import Apply, apply
from floodmark.coordinator import Coordinator, Outside
from floodmark.deltalog import Storage
from floodmark.errors import SinkError, SourceError
from floodmark.model.clock import Clock
from floodmark.model.copying import replace
from floodmark.model.delta import TableFacts, VersionFacts
from floodmark.model.file_marks import AnyMark
from floodmark.model.marks import TimeMark
from floodmark.model.plan import Probe, TimeFacts
from floodmark.model.query import TimeQuery
from floodmark.model.receipt import Receipt, WriteResult
from floodmark.model.state import Holder, Mark, OnLostTarget, SinkDone, State
from floodmark.model.upstream import UpstreamOptions
from floodmark.model.window import Settlement, VersionWindow, Window
from floodmark.model.write import WriteSpec
from floodmark.run.engine import Engine
from floodmark.sinks.delta.target import DeltaTarget
from floodmark.sinks.rules import Target
from floodmark.sources import LookSpec
from floodmark.sources.delta import TableLog

START = datetime(2026, 1, 1, tzinfo=UTC)
TTL_SECONDS = 60.0
TRACE_LINES = 40
WITHOUT_VERSIONS = "/u/d"
"""The upstream that has no versions; now and then only a run can look into it."""
QUERY = TimeQuery("day", "orc")


class LostAnswer(Exception):
    """A sink's commit landed, and its answer did not come back."""


class UserError(Exception):
    """What a pipeline's function raises."""


@dataclass(frozen=True)
class PipelineSpec:
    """A pipeline of the simulated project; `writes` are (name, target)."""

    name: str
    scope: str
    upstreams: tuple[str, ...]
    writes: tuple[tuple[str, str], ...]
    is_external: bool = False

    @property
    def spare(self) -> str:
        """An upstream that no pipeline of another origin reads: it may be turned to at any time."""
        return f"/u/spare-{self.name.partition('-')[0]}"


@dataclass(eq=False)
class Process:
    """One simulated process: killed, it never acts again; stalled, it neither acts nor beats."""

    name: str
    pid: int
    steps: Any = None
    """The greenlet that runs its code."""
    is_dead: bool = False
    is_stalled: bool = False
    wakes_at: float = 0.0
    pulses: list[SimPulse] = field(default_factory=list)
    doing: tuple[str, str] = ("", "")
    """(batch id, pipeline) of its run."""
    hopeless: str | None = None
    """A target whose loss could not be settled as it was asked for."""


class World:
    """One schedule's universe."""

    def __init__(self, seed: int, pipelines: Sequence[PipelineSpec], faults: float) -> None:
        self.rng = random.Random(seed)
        self.faults = faults
        self.pipelines = {p.name: p for p in pipelines}
        self.latest: dict[str, int] = {}
        self.lost: dict[str, int] = {}
        """The version through which the changes of an upstream are gone; snapshots are kept."""
        self.targets = SimTargets()
        writes = {p.name: dict(p.writes) for p in pipelines}
        self.truth = Truth(writes, self.latest, self.lost, self.targets.moment_of)
        self.elapsed = 0.0
        self._ids = 0
        self.log = SimLog(self)
        self.pulses: dict[str, SimPulse] = {}
        """The signs of life of this world, by run."""
        self.clock = SimClock(self)
        self.ids = SimIds(self)
        self.chance = random.Random(seed).uniform
        self.apply = folding_once()
        self._trace: deque[tuple[float, str, str, tuple[Any, ...]]] = deque(maxlen=TRACE_LINES)
        self.acting: Process | None = None
        self.processes: dict[int, Process] = {}
        self.switch: Callable[[], object] = lambda: None

    def trace(self) -> tuple[str, ...]:
        """The last things that happened, as text; few schedules are ever told."""
        return tuple(
            f"{at:8.2f} {who}{what.format(*map(_shown, about))}"
            for at, who, what, about in self._trace
        )

    def pause(self, what: str, *about: Any) -> None:
        """The acting process is about to do something that others can see; `about` fills `what`."""
        process = self.acting
        if process is None:
            return
        self.switch()
        if process.is_dead:
            raise greenlet.GreenletExit
        self._trace.append((self.elapsed, process.name, ": " + what, about))

    def add_versions(self) -> None:
        """A lost target is noticed by the next write, so there has to be one."""
        for upstream in self.latest:
            self.latest[upstream] += 1

    def new_id(self) -> str:
        """An id that nothing else has in this world."""
        self._ids += 1
        return f"{self._ids:06d}"

    def happens(self, chance: float) -> bool:
        """Whether a fault of that chance strikes now."""
        return self.rng.random() < chance * self.faults

    def process(self, name: str) -> Process:
        """A new process."""
        process = Process(name, len(self.processes) + 1)
        self.processes[process.pid] = process
        return process

    def lose_answer(self) -> None:
        """An answer does not come back; often because its asker stands still."""
        self.note("the answer is lost")
        if self.acting and self.rng.random() < 0.4:
            self.stall(self.acting)

    def stall(self, process: Process) -> None:
        """The process neither acts nor beats until it is woken."""
        if not process.is_stalled:
            self.note(f"{process.name} stalls")
            process.is_stalled = True
            for pulse in process.pulses:
                pulse.stop()

    def note(self, text: str) -> None:
        self._trace.append((self.elapsed, "  ", "{}", (text,)))


class SimLog:
    """An event log with compare-and-swap whose answers may get lost, also its own."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._commits: list[Sequence[Event]] = []
        self._nothing_new = Tail((), 0, is_whole=False)
        self._whole: list[Event] = []
        self._compacted_at = 0
        self._in_flight: list[tuple[Sequence[Event], int]] = []

    def read(self, after: int | None) -> Tail:
        self._world.pause("journal read")
        position = len(self._commits)
        if after == position:
            if self._nothing_new.position != position:
                self._nothing_new = Tail((), position, is_whole=False)
            return self._nothing_new
        is_gone = after is not None and after < self._compacted_at and self._world.happens(0.5)
        if after is None or is_gone:
            return Tail(list(self._whole), position, is_whole=True)
        events = [event for commit in self._commits[after:] for event in commit]
        return Tail(events, position, is_whole=False)

    def exists(self) -> bool:
        return True

    def create(self) -> None:
        """See ControlLog.create."""

    def append(self, events: Sequence[Event], position: int) -> None:
        self._world.pause("journal append {} at {}", events, position)
        if self._world.happens(0.02):
            raise CommitUnknown
        if self._world.happens(0.02):
            self._in_flight.append((events, position))
            raise CommitUnknown
        self.land(events, position)
        if self._world.happens(0.04):
            self._world.lose_answer()
            raise CommitUnknown if self._world.rng.random() < 0.7 else CommitConflict

    def land(self, events: Sequence[Event], position: int) -> None:
        """Put-if-absent."""
        if position != len(self._commits):
            self._world.note(f"conflict: the journal is at {len(self._commits)}")
            raise CommitConflict
        self._commits.append(events)
        self._whole += events
        self._world.truth.committed_events(events)

    def replace(self, events: Sequence[Event], position: int) -> None:
        """A compaction, see DeltaEventLog.replace."""
        self._world.pause("journal compact at {}", position)
        if position != len(self._commits):
            raise CommitConflict
        self._commits.append(())
        self._whole = list(events)
        self._compacted_at = len(self._commits)
        self._world.truth.compacted()

    def all_events(self) -> list[Event]:
        """Every event that ever landed, as if nothing had been compacted."""
        return [event for commit in self._commits for event in commit]

    def last_seq(self) -> int:
        """The number of the newest event."""
        return self._whole[-1].seq if self._whole else 0

    def deliver(self) -> None:
        """A put that its sender gave up on arrives at last."""
        if self._in_flight:
            events, position = self._in_flight.pop()
            self._world.note(f"late arrival of {describe(events[0].body)} at {position}")
            try:
                self.land(events, position)
            except CommitConflict:
                return


def _shown(value: Any) -> Any:
    """What a trace says about a value: of events, in a few characters what they are."""
    return " ".join(describe(event.body) for event in value) if isinstance(value, list) else value


def describe(body: Any) -> str:
    """An event in a few characters, for traces."""
    parts = [body.kind]
    if body.kind == "PLAN":
        spans = ",".join(f"{w.upstream}[{w.start}-{w.end}]" for w in body.windows)
        parts += [
            f"#{body.batch_seq}",
            body.batch_id[-6:],
            body.scope,
            spans,
            "/".join(body.required),
            body.batch_kind if body.batch_kind != "forward" else "",
        ]
    elif body.kind == "REGISTER":
        parts += [body.pipeline, body.scope, ",".join(body.upstreams)]
    elif body.kind == "ADVANCE":
        parts += [body.batch_id[-6:], str(dict(body.upstreams))]
    else:
        epoch = getattr(body, "epoch", None)
        parts += [body.key[-6:], getattr(body, "pipeline", "")]
        parts += [f"epoch {epoch}"] if epoch else []
    return " ".join(part for part in parts if part)


class SimClock:
    """The world's time; sleeping lets others act until it has passed."""

    def __init__(self, world: World) -> None:
        self._world = world

    def now(self) -> datetime:
        return START + timedelta(seconds=self._world.elapsed)

    def monotonic(self) -> float:
        return self._world.elapsed

    def sleep(self, seconds: float) -> None:
        process = self._world.acting
        if process:
            process.wakes_at = self._world.elapsed + seconds
        self._world.pause("slept {:.3f}", seconds)


class SimHeartbeats:
    """Signs of life: a living process beats by itself, a stalled or killed one does not."""

    def __init__(self, world: World, process: Process) -> None:
        self.world = world
        self.process = process

    def last(self, run_id: str) -> str | None:
        self.world.pause("heartbeat look")
        pulse = self.world.pulses.get(run_id)
        return None if pulse is None else str(pulse.beats())

    def beat(self, run_id: str, count: int) -> None:
        """A sign left by hand; may fail as a disk may."""
        if self.world.happens(0.02):
            raise OSError("no heartbeat today")

    def clear(self, run_id: str) -> None:
        self.world.pulses.pop(run_id, None)

    def pulse(self, run_id: str, ttl_seconds: float, clock: Clock) -> SimPulse:
        return SimPulse(self, run_id, ttl_seconds, clock)


class SimPulse(Pulse):
    """A pulse without a thread: it beats as the world's time passes."""

    def __init__(self, signs: SimHeartbeats, run_id: str, ttl_seconds: float, clock: Clock) -> None:
        super().__init__(signs, run_id, ttl_seconds, clock)
        self._world = signs.world
        self._process = signs.process
        self._stopped_at: float | None = None
        self._was_stopped = False

    def __enter__(self) -> Self:
        self._try_beat()
        self._world.pulses[self._run_id] = self
        self._process.pulses.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        if not self._process.is_dead:
            self._heartbeats.clear(self._run_id)
            self._process.pulses.remove(self)

    def stop(self) -> None:
        """The process is stalled or killed from now on."""
        self._stopped_at = self._world.elapsed

    def resume(self) -> None:
        """The process goes on; its last sign is as old as the stall, until it beats again."""
        if self._stopped_at is not None:
            self._last_beat = self._stopped_at
            self._was_stopped = True
        self._stopped_at = None

    def beats(self) -> int:
        at = self._world.elapsed if self._stopped_at is None else self._stopped_at
        return self._count + int(at / (self._ttl / 3))

    def is_late(self) -> bool:
        # After a stall either the run or its thread comes first; else the thread keeps up.
        is_late = self._was_stopped and super().is_late() and self._world.rng.random() < 0.5
        self._was_stopped = False
        return is_late


@dataclass(frozen=True)
class Frame:
    """What a simulated function hands to `run.write`."""

    pipeline: str
    write: str
    reads: Mapping[str, Window]


@dataclass(frozen=True)
class SimSource:
    """Reads exactly what it is asked for, and reports that to the judge."""

    world: World
    process: Process

    def check(self, window: Window) -> TableFacts:
        self.world.pause("source check {}", window.upstream)
        if self._is_lost(window):
            raise SourceError("FM-SOURCE-006", "data files are gone", where=window.upstream)
        return facts_of(window.upstream, self.world.latest[window.upstream])

    def resolved(self, window: Window, choice: Settlement) -> Window | None:
        self.world.pause("source settle {}", window.upstream)
        if not isinstance(window, VersionWindow) or not self._is_lost(window):
            return None
        if choice == "snapshot":
            return replace(window, method="snapshot", feed_after_version=None)
        last = self.world.lost[window.upstream]
        return replace(
            window, method="lost", feed_after_version=last if last < window.end else None
        )

    def _is_lost(self, window: Window) -> bool:
        pipeline = self.process.doing[1]
        if not isinstance(window, VersionWindow) or self.world.pipelines[pipeline].is_external:
            return False  # a program of its own has its own way out
        first = window.feed_start
        return first is not None and first <= self.world.lost.get(window.upstream, -1)

    def read(self, window: Window) -> Window:
        batch_id, pipeline = self.process.doing
        self.world.truth.read(batch_id, pipeline, window)
        return window

    def look(self, window: Window, spec: LookSpec) -> TimeFacts:
        """See `Looker.look`."""
        self.world.pause("look into {}", window.upstream)
        return time_facts(value_of(window.after_mark), self.world.latest[window.upstream])


@dataclass(frozen=True)
class SimSink:
    """The product's look at a target, and Delta's semantics of a commit: it fails if the same
    receipt, or more than an append, came in between.
    """

    world: World
    spec: WriteSpec
    windows: tuple[Window, ...]
    previous: SinkDone | None

    @cached_property
    def _target(self) -> DeltaTarget:
        return target_of(self.world.targets, self.spec.target, self.previous)

    def committed(self, receipt: Receipt) -> WriteResult | None:
        self.world.pause("sink look {}", self.spec.name)
        return self._target.committed(receipt)

    def check(self, frame: Frame, receipt: Receipt) -> None:
        """Schedules have no rows that a rule could refuse."""

    def loss(self, receipt: Receipt) -> SinkError | None:
        self.world.pause("sink search {}", self.spec.name)
        return self._target.loss(receipt)

    def resolved(self, choice: OnLostTarget, receipt: Receipt, next_app_id: str) -> SinkDone:
        self.world.pause("sink settle {} {}", choice, self.spec.name)
        return self._target.resolved(choice, receipt, next_app_id)

    def write(self, frame: Frame, receipt: Receipt) -> WriteResult:
        while True:
            earlier = self.committed(receipt)
            if earlier is not None:
                return earlier
            seen = self._target.seen(receipt, self.windows)
            stored = self._stored(receipt)
            self.world.pause("sink commit {}/{} #{}", frame.pipeline, frame.write, receipt.seq)
            if self.world.happens(0.03):
                raise UserError("the sink's commit failed")
            if self._stored(receipt) == stored and self._is_undisturbed(seen):
                return self._commit(frame, receipt, seen)

    def _stored(self, receipt: Receipt) -> int | None:
        table = self.world.targets.find(self.spec.target)
        return table.transaction_version(receipt.app_id) if table else None

    def _is_undisturbed(self, seen: Target) -> bool:
        table = self.world.targets.find(self.spec.target)
        if table is None or not seen.exists:
            return table is None and not seen.exists
        newest = table.latest if seen.is_replaced else table.disturbed_at
        return table.table_id == seen.table_id and newest <= seen.version

    def _commit(self, frame: Frame, receipt: Receipt, seen: Target) -> WriteResult:
        world, replaces = self.world, seen.is_replaced
        moment = world.targets.write(self.spec.target, receipt, replaces=replaces)
        world.truth.written(
            frame.pipeline,
            frame.write,
            receipt.seq,
            {upstream: way_of(window) for upstream, window in frame.reads.items()},
            moment,
            replaces=replaces,
        )
        if world.happens(0.03):
            world.note("the sink's answer is lost")
            raise LostAnswer(self.spec.target)
        return self._target.read_back(receipt, seen, {})


@dataclass(frozen=True)
class SimEngine:
    """See run.engine.Engine."""

    world: World
    process: Process
    spark: Any = None

    @cached_property
    def _source(self) -> SimSource:
        return SimSource(self.world, self.process)

    def source(self) -> SimSource:
        return self._source

    def sink(
        self, spec: WriteSpec, windows: Sequence[Window], previous: SinkDone | None
    ) -> SimSink:
        return SimSink(self.world, spec, tuple(windows), previous)

    def is_lost_file(self, error: BaseException) -> bool:
        return False

    def refuse_without_receipts(self, pipeline: str) -> None:
        pass


class NoFiles(Storage):
    """A storage without a file: batches of schedules put nothing aside."""

    def names(self, folder: str) -> list[str]:
        raise FileNotFoundError(folder)


NO_FILES = NoFiles()


class SimIds:
    """Ids that count."""

    def __init__(self, world: World) -> None:
        self._world = world

    def store(self) -> str:
        return self._world.new_id()

    def operation(self) -> str:
        return self._world.new_id()

    def batch(self, at: datetime) -> str:
        return f"batch_{self._world.new_id()}"

    def run(self, at: datetime) -> str:
        return f"run_{self._world.new_id()}"


@dataclass(frozen=True)
class SimIdentity:
    """Who a simulated process is, and what it can tell about the others. See run.leases.Process."""

    world: World
    process: Process

    def user(self) -> str:
        return self.process.name

    def holder(self) -> Holder:
        return Holder("sim", "boot", self.process.pid, "start")

    def is_gone(self, holder: Holder) -> bool:
        # Half of the time the dead ran on another host, where nobody can tell.
        process = self.world.processes.get(holder.pid)
        return process is not None and process.is_dead and process.pid % 2 == 0


class Unpublished:
    """A publisher that shows nothing: schedules have no tables."""

    def observe(self, event: Event, state: State) -> None:
        """See `Publisher.observe`."""

    def publish(self, store: ControlReader) -> None:
        """See `Publisher.publish`."""

    def publish_runs(self, store: ControlReader) -> None:
        """See `Publisher.publish_runs`."""


UNPUBLISHED = Unpublished()


@dataclass(frozen=True)
class SimProber:
    """Looks at the upstreams of the world. See coordinator.probing.Prober."""

    world: World

    def of(self, pipelines: Iterable[str]) -> SimProber:
        return self

    def has_table(self, path: str) -> bool:
        return path in self.world.latest

    def table_id(self, path: str) -> str:
        return facts_of(path, 0).table_id

    def log(self, upstream: str) -> TableLog:
        self.world.pause("look at the log of {}", upstream)
        return cast("TableLog", SimTableLog(facts_of(upstream, self.world.latest[upstream])))

    def probe(
        self,
        upstream: str,
        mark: Mark | None,
        options: UpstreamOptions,
        max_versions: int | None = None,
    ) -> Probe:
        self.world.pause("probe {}", upstream)
        latest = self.world.latest[upstream]
        facts = facts_of(upstream, latest)
        if upstream == WITHOUT_VERSIONS:
            can_look = self.world.rng.random() < 0.4
            found = time_facts(value_of(mark.mark if mark else None), latest)
            return Probe(facts, query=QUERY, time=found if can_look else None)
        if mark is None or mark.version >= latest:
            return Probe(facts)
        more = latest if max_versions is None else mark.version + 1 + max_versions
        last = min(latest, more)
        return Probe(facts, tuple(version_of(v) for v in range(mark.version + 1, last + 1)))

    def probe_again(
        self, upstream: str, after: int, mark: Mark | None, options: UpstreamOptions
    ) -> Probe:
        self.world.pause("probe {} from {}", upstream, after)
        facts = facts_of(upstream, self.world.latest[upstream])
        last = mark.version if mark else after
        if upstream == WITHOUT_VERSIONS:
            return Probe(facts, query=QUERY)
        return Probe(facts, tuple(version_of(v) for v in range(after + 1, last + 1)))

    def look(self, upstream: str, start: AnyMark | None, options: UpstreamOptions) -> TimeFacts:
        self.world.pause("look into {}", upstream)
        return time_facts(value_of(start), self.world.latest[upstream])

    def frozen_lookup(self, upstream: str) -> Window:
        """Pipelines of schedules look nothing up."""
        raise NotImplementedError(upstream)


@dataclass(frozen=True)
class SimTableLog:
    """What a reset asks of a log: a table that never changed but for its rows."""

    table: TableFacts

    def facts(self) -> TableFacts:
        return self.table

    def schema_at(self, version: int) -> tuple[str, str]:
        return self.table.schema_json, self.table.schema_fingerprint

    def feed_enabled_at(self, version: int) -> bool:
        return self.table.feed_enabled


def coordinator_in(world: World, process: Process) -> Coordinator:
    """The coordinator of a simulated process: the product's, in this world."""
    outside = Outside(
        clock=world.clock,
        ids=world.ids,
        chance=world.chance,
        process=SimIdentity(world, process),
        apply=world.apply,
        tell=told_nobody,
        storage=NO_FILES,
        log=world.log,
        heartbeats=SimHeartbeats(world, process),
        publisher=UNPUBLISHED,
        prober=SimProber(world),
        engine=cast("Engine", SimEngine(world, process)),
    )
    return Coordinator("/nowhere/control", lease_ttl=TTL_SECONDS, outside=outside)


def told_nobody(name: str, text: str, /, **fields: object) -> None:
    """Nobody reads the log of thousands of schedules."""


def folding_once() -> Apply:
    """Every process folds the same events on the same states: do each step of it once."""
    seen: dict[tuple[int, int], tuple[State, Event, State]] = {}

    def apply_once(state: State, event: Event) -> State:
        key = (id(state) if state.seq else 0, id(event))
        step = seen.get(key)
        if step is None:  # all three are kept alive, so ids stay theirs
            step = seen[key] = (state, event, apply(state, event))
        return step[2]

    return apply_once


@cache
def facts_of(upstream: str, latest: int) -> TableFacts:
    """A table with its feed on from the beginning."""
    return TableFacts(
        path=upstream,
        table_id=f"id of {upstream}",
        latest_version=latest,
        latest_at=START,
        earliest_version=0,
        feed_enabled=True,
        schema_json="{}",
        schema_fingerprint="f",
    )


def time_facts(start: int, latest: int) -> TimeFacts:
    """What is new after the value of a number: one row for each later one."""
    newest = TimeMark("date", day_of(latest)) if latest > start else None
    return TimeFacts("date", newest, newest, rows=latest - start)


@cache
def version_of(version: int) -> VersionFacts:
    return VersionFacts(version, START, "WRITE", frozenset({"insert"}), bytes=1, rows=1)
