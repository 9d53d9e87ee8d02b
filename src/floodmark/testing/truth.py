"""The judge of the simulator: what really happened, kept apart from the fold.

It sees every commit of the journal and every commit of a sink, in the order they land, and raises
Violation at the first one that breaks a guarantee (G1 to G8). It shares no code with the fold, so
that a mistake there cannot excuse itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from floodmark.control.events import Event
from floodmark.model.marks import decoded
from floodmark.model.window import Window

FIRST_DAY = datetime(2000, 1, 1, tzinfo=UTC)

Span = tuple[int, int]
"""Versions, inclusive at both ends; empty where the second is smaller. Of an upstream without
versions the values of its column, which the simulator counts as well."""


def value_of(mark: str | None) -> int:
    """The number of a value; marks of the simulator are days after the first one."""
    return -1 if mark is None else (decoded(mark).instant - FIRST_DAY).days


def span_of(window: Window) -> Span:
    """What a window holds; nothing while its end is deferred."""
    if window.kind == "version":
        return window.after_version + 1, window.through_version
    start = value_of(window.start_mark) + 1
    return start, start - 1 if window.deferred else value_of(window.end_mark)


class Violation(Exception):
    """A guarantee does not hold; the first word names it."""


def ensure(holds: bool, text: str) -> None:  # noqa: FBT001 reads like an assertion
    if not holds:
        raise Violation(text)


@dataclass
class PlanTruth:
    """A batch as it was journaled."""

    seq: int
    scope: str
    windows: dict[str, Span]
    required: dict[str, tuple[str, ...]]
    kind: str = "forward"
    leased: bool = False
    cancelled: bool = False
    advanced: set[str] = field(default_factory=set)
    given_up: set[str] = field(default_factory=set)
    """Upstreams whose range is free again."""
    reads: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """What each pipeline reads, also once the batch no longer waits for it."""
    fresh: set[str] = field(default_factory=set)
    """Upstreams that the batch moves."""
    deferred: set[str] = field(default_factory=set)
    """Upstreams whose end is not frozen yet."""
    steps: dict[str, int] = field(default_factory=dict)
    """What each upstream advances to: a version, or a count of windows."""
    debts: set[str] = field(default_factory=set)
    """Pipelines that were paused after they had begun, and have to finish it first of all."""

    @property
    def is_ordered(self) -> bool:
        return self.kind in ("forward", "seed")

    def spans(self, pipeline: str) -> dict[str, Span]:
        """What a run of the pipeline has to read."""
        return {u: self.windows[u] for u in self.reads[pipeline]}

    def readers(self, upstream: str) -> list[str]:
        return [p for p, upstreams in self.required.items() if upstream in upstreams]


@dataclass
class SinkTruth:
    """One write of a pipeline: which batches, and how far each upstream, are in its target."""

    batches: set[int] = field(default_factory=set)
    through: dict[str, int] = field(default_factory=dict)


class Truth:
    """What has happened so far. `writes` gives the names of the writes of each pipeline."""

    def __init__(self, writes: Mapping[str, Sequence[str]], latest: Mapping[str, int]) -> None:
        self.latest = latest
        self.registry: dict[str, tuple[str, tuple[str, ...]]] = {}
        self.paused: set[str] = set()
        self.plans: dict[str, PlanTruth] = {}
        self.committed: dict[tuple[str, str], int] = {}
        self.status: dict[tuple[str, str], str] = {}
        self.sinks = {(p, name): SinkTruth() for p, names in writes.items() for name in names}
        self._writes = writes
        self._planned: dict[tuple[str, str], int] = {}
        self._epochs: dict[str, int] = {}
        self._holders: dict[tuple[str, int], str] = {}
        self._actor = ""
        self._batch_seq = 0
        self._op_ids: set[str] = set()
        self._by_seq: dict[int, PlanTruth] = {}
        self._abandoned: set[tuple[int, str]] = set()
        """(batch, pipeline) that ended with the removal of the pipeline: its targets are its own."""
        self._see: dict[str, Callable[[Any], None]] = {
            "REGISTER": self._registered,
            "PLAN": self._planned_batch,
            "CANCEL": self._cancelled,
            "PAUSE": self._paused,
            "RESUME": lambda body: self.paused.discard(body.pipeline),
            "REMOVE": self._removed,
            "REFRESH": self._refreshed,
            "LEASE": self._leased,
            "FREEZE": self._frozen,
            "SINK_DONE": self._sink_done,
            "SUCCESS": self._succeeded,
            "FAILED": self._failed,
            "ADVANCE": self._advanced,
        }

    def committed_events(self, events: Iterable[Event]) -> None:
        """A commit of the journal has landed."""
        for op_id in {event.op_id for event in events}:
            ensure(op_id not in self._op_ids, "journal: one decision was journaled twice")
            self._op_ids.add(op_id)
        for event in events:
            see = self._see.get(event.kind)
            self._actor = event.actor
            if see:
                see(event.body)

    def compacted(self) -> None:
        """Older events were folded; whoever lost an answer can no longer find it by its op id."""
        self._op_ids.clear()

    def read(self, batch_id: str, pipeline: str, upstream: str, span: Span) -> None:
        """A run reads a window of its batch."""
        planned = self.plans[batch_id].windows[upstream]
        is_frozen = upstream not in self.plans[batch_id].deferred
        ensure(is_frozen, f"G2 {pipeline} read {upstream} before its end was frozen")
        ensure(span == planned, f"G6 {pipeline} read {upstream} {span}, planned was {planned}")

    def written(self, pipeline: str, write: str, seq: int, spans: Mapping[str, Span]) -> None:
        """A sink has committed the rows of a batch."""
        if (seq, pipeline) in self._abandoned:
            return
        where, sink = f"{pipeline}/{write}, batch {seq}", self.sinks[pipeline, write]
        plan = self._by_seq[seq]
        ensure(seq not in sink.batches, f"G3 {where}: applied twice")
        if plan.is_ordered:
            self._in_sequence(where, sink, spans)
        planned = plan.spans(pipeline)
        ensure(spans == planned, f"G6 {where}: holds {spans}, planned was {planned}")
        given_up = plan.cancelled and plan.is_ordered
        ensure(not given_up, f"G2 {where}: the batch was cancelled")
        sink.batches.add(seq)

    def _in_sequence(self, where: str, sink: SinkTruth, spans: Mapping[str, Span]) -> None:
        for upstream, (start, end) in spans.items():
            through = sink.through.get(upstream, -1)
            if start <= end:
                ensure(start > through, f"G3 {where}: {upstream} {start} is there already")
                ensure(start == through + 1, f"G7 {where}: {upstream} misses {through + 1}")
                sink.through[upstream] = end

    def _registered(self, body: Any) -> None:
        self.registry[body.pipeline] = (body.scope, body.upstreams)

    def _planned_batch(self, body: Any) -> None:
        ensure(body.batch_seq > self._batch_seq, f"G7 batch number {body.batch_seq} is reused")
        ensure(body.batch_id not in self.plans, "G2 a batch is planned again")
        windows = {w.upstream: span_of(w) for w in body.windows}
        required = dict(body.required)
        plan = PlanTruth(body.batch_seq, body.scope, windows, required, body.batch_kind)
        plan.fresh = {w.upstream for w in body.windows if w.after_version < w.through_version}
        plan.deferred = {w.upstream for w in body.windows if w.deferred}
        plan.steps = {w.upstream: w.through_version for w in body.windows}
        plan.reads = dict(required)
        if plan.kind == "forward":
            self._planned_forward(plan)
        else:
            self._planned_beside(plan)
        self.plans[body.batch_id] = self._by_seq[plan.seq] = plan
        self._batch_seq = body.batch_seq

    def _planned_forward(self, plan: PlanTruth) -> None:
        for upstream, (start, end) in plan.windows.items():
            planned = self._planned.get((plan.scope, upstream), -1)
            ensure(start > planned, f"G1 overlap: {upstream} from {start}, planned to {planned}")
            ensure(start == planned + 1, f"G1 gap: {upstream} from {start}, planned to {planned}")
            ensure(start - 1 <= end <= self.latest[upstream], f"G1 {upstream} ends at {end}")
            self._planned[plan.scope, upstream] = end
        wanted = self._required(plan)
        ensure(plan.required == wanted, "G4 wrong pipelines required")

    def _planned_beside(self, plan: PlanTruth) -> None:
        """A seed, backfill or replay covers only what is committed."""
        for upstream, (start, end) in plan.windows.items():
            committed = self.committed.get((plan.scope, upstream), -1)
            ensure(start > end or end <= committed, f"G1 {upstream}: {end} is not committed")
        for pipeline in plan.required:
            ensure(pipeline in self.registry, f"G4 {pipeline} is not registered")
            ensure(pipeline not in self.paused, f"G4 {pipeline} is paused")

    def _required(self, plan: PlanTruth) -> dict[str, tuple[str, ...]]:
        active = {p: us for p, (s, us) in self.registry.items() if s == plan.scope}
        return {p: us for p, us in active.items() if plan.fresh & set(us) and p not in self.paused}

    def _frozen(self, body: Any) -> None:
        plan, upstream = self.plans[body.batch_id], body.window.upstream
        self._fence(body)
        ensure(upstream in plan.deferred, f"G2 the end of {upstream} is frozen twice")
        start, end = span_of(body.window)
        ensure(start == plan.windows[upstream][0], f"G2 {upstream} starts elsewhere when frozen")
        ensure(start - 1 <= end <= self.latest[upstream], f"G1 {upstream} is frozen at {end}")
        plan.deferred.discard(upstream)
        plan.windows[upstream] = (start, end)
        if plan.kind == "forward" and upstream not in plan.given_up:
            self._planned[plan.scope, upstream] = end

    def _cancelled(self, body: Any) -> None:
        plan = self.plans[body.batch_id]
        ensure(not plan.cancelled, "G2 a batch is cancelled twice")
        if plan.leased and plan.is_ordered:
            read = {u for upstreams in plan.required.values() for u in upstreams}
            ensure(self._pending(plan).isdisjoint(read), "G2 a leased batch was cancelled")
        plan.cancelled = not plan.leased or not plan.is_ordered
        for upstream in self._pending(plan) if plan.kind == "forward" else ():
            self._give_up(plan, upstream)

    def _pending(self, plan: PlanTruth) -> set[str]:
        return plan.fresh - plan.advanced - plan.given_up

    def _give_up(self, plan: PlanTruth, upstream: str) -> None:
        start, _ = plan.windows[upstream]
        self._planned[plan.scope, upstream] = start - 1
        plan.given_up.add(upstream)

    def _paused(self, body: Any) -> None:
        self._take_out(body, for_good=False)
        self.paused.add(body.pipeline)

    def _removed(self, body: Any) -> None:
        self._take_out(body, for_good=True)
        self.registry.pop(body.pipeline)
        self.paused.discard(body.pipeline)
        self._refreshed(body)

    def _refreshed(self, body: Any) -> None:
        """What the pipeline loads from now on replaces its targets."""
        for write in self._writes[body.pipeline]:
            self.sinks[body.pipeline, write].through.clear()

    def _take_out(self, body: Any, *, for_good: bool) -> None:
        name = body.pipeline
        for batch_id, plan in self.plans.items():
            status = self.status.get((batch_id, name))
            has_part = name in plan.required or name in plan.debts
            is_left = has_part and (status != "SUCCESS" or (for_good and self._pending(plan)))
            if is_left and not plan.cancelled:
                self._leave(batch_id, plan, body, for_good=for_good)

    def _leave(self, batch_id: str, plan: PlanTruth, body: Any, *, for_good: bool) -> None:
        name, pending = body.pipeline, self._pending(plan)
        alone = {u for u in pending if plan.readers(u) == [name]}
        freed = set(body.released.get(batch_id, ()))
        plan.required.pop(name, None)
        plan.debts.discard(name)
        if for_good:
            self._abandoned.add((plan.seq, name))
        elif (batch_id, name) in self.status:
            ensure(not freed, f"G2 windows that {name} has begun are given up")
            plan.debts.add(name)
            if alone:
                plan.required[name] = tuple(alone)
        if plan.kind != "forward":
            plan.cancelled = not plan.required and not plan.debts
            return
        ensure(freed <= alone, f"G2 {freed - alone} of {batch_id} is given up although it is read")
        for upstream in freed:
            self._give_up(plan, upstream)
        if not self._pending(plan) and not plan.advanced and not plan.debts:
            plan.cancelled = True

    def _leased(self, body: Any) -> None:
        plan, pipeline = self.plans[body.batch_id], body.pipeline
        ensure(not plan.cancelled, "G2 a cancelled batch was leased")
        ensure(pipeline in plan.required or pipeline in plan.debts, f"G4 {pipeline} has no part")
        ensure(pipeline not in self.paused, f"G4 {pipeline} is paused")
        epoch = self._epochs.get(pipeline, 0)
        ensure(body.epoch > epoch, f"G8 lease with epoch {body.epoch} after {epoch}")
        ensure(self.status.get((body.batch_id, pipeline)) != "SUCCESS", "G8 SUCCESS is final")
        for batch_id, other in self.plans.items() if plan.is_ordered else ():
            asked = other.is_ordered and (pipeline in other.required or pipeline in other.debts)
            if other.seq < plan.seq and asked and not other.cancelled:
                finished = self.status.get((batch_id, pipeline)) == "SUCCESS"
                ensure(finished, f"G7 {pipeline} leased {plan.seq} before {other.seq} is finished")
        plan.leased = True
        self._epochs[pipeline] = body.epoch
        if not body.is_external:
            self._holders[pipeline, body.epoch] = self._actor
        self.status[body.batch_id, pipeline] = "RUNNING"

    def _fence(self, body: Any) -> None:
        newest = self._epochs.get(body.pipeline, 0)
        ensure(body.epoch == newest, f"G8 {body.kind} of epoch {body.epoch}, newest is {newest}")
        holder = self._holders.get((body.pipeline, newest), self._actor)
        ensure(self._actor == holder, f"G8 {body.kind} by {self._actor}, the lease is {holder}'s")
        status = self.status.get((body.batch_id, body.pipeline))
        ensure(status == "RUNNING", f"G8 {body.kind} of a run that is {status}")

    def _sink_done(self, body: Any) -> None:
        self._fence(body)
        if (self.plans[body.batch_id].seq, body.pipeline) in self._abandoned:
            return
        self._applied(body.batch_id, body.pipeline, [body.sink.write_name], "G3 SINK_DONE")

    def _succeeded(self, body: Any) -> None:
        self._fence(body)
        if (self.plans[body.batch_id].seq, body.pipeline) not in self._abandoned:
            self._applied(body.batch_id, body.pipeline, self._writes[body.pipeline], "G3 SUCCESS")
        self.status[body.batch_id, body.pipeline] = "SUCCESS"

    def _applied(self, batch_id: str, pipeline: str, writes: Iterable[str], what: str) -> None:
        seq = self.plans[batch_id].seq
        for write in writes:
            there = seq in self.sinks[pipeline, write].batches
            ensure(there, f"{what}, but {pipeline}/{write} does not hold batch {seq}")

    def _failed(self, body: Any) -> None:
        self._fence(body)
        self.status[body.batch_id, body.pipeline] = "FAILED"

    def _advanced(self, body: Any) -> None:
        plan = self.plans[body.batch_id]
        ensure(plan.kind == "forward", f"G5 a {plan.kind} moves a watermark")
        for upstream, version in body.upstreams.items():
            ensure(upstream not in plan.given_up, f"G4 {upstream} was given up")
            key = (plan.scope, upstream)
            before = self.committed.get(key, -1)
            ensure(upstream not in plan.deferred, f"G2 {upstream} advances, its end is not frozen")
            ensure(plan.steps.get(upstream) == version, f"G4 {upstream} leaps")
            start, end = plan.windows[upstream]
            ensure(end >= before, f"G5 {upstream} moves from {before} to {end}")
            ensure(start == before + 1, f"G4 {upstream} leaps")
            readers = plan.readers(upstream)
            ensure(bool(readers), f"G4 {upstream} advances although nobody reads it")
            for pipeline in readers:
                self._applied(body.batch_id, pipeline, self._writes[pipeline], f"G4 {upstream}")
            ensure(upstream not in plan.advanced, f"G5 {upstream} advances twice")
            self.committed[key] = end
            plan.advanced.add(upstream)

    def lagging(self) -> list[str]:
        """G10: what an undisturbed run would have reached and this one has not."""
        late = []
        for pipeline, (scope, upstreams) in self.registry.items():
            for upstream in upstreams:
                latest = self.latest[upstream]
                if self.committed.get((scope, upstream), -1) != latest:
                    late.append(f"{scope}:{upstream} is not at {latest}")
                late += [
                    f"{pipeline}/{write} does not hold {upstream} to {latest}"
                    for write in self._writes[pipeline]
                    if self.sinks[pipeline, write].through.get(upstream, -1) != latest
                ]
        return late
