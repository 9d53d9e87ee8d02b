"""The judge of the simulator: what really happened, kept apart from the fold.

It sees every commit of the journal and every commit of a sink, in the order they land, and raises
Violation at the first one that breaks a guarantee (G1 to G8). It shares no code with the fold, so
that a mistake there cannot excuse itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.support.rows import (
    SinkTruth,
    Span,
    Way,
    first_run,
    given_by,
    span_of,
    value_of,
    way_of,
)

from floodmark.control.events.bodies import Event
from floodmark.model.window import Window


class Violation(Exception):
    """A guarantee does not hold; the first word names it."""


def ensure(holds: bool, text: str) -> None:
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
    ways: dict[tuple[str, str], list[Way]] = field(default_factory=dict)
    """(pipeline, upstream) -> how it was planned to be read, then how that was amended."""
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

    def may_have_read(self, pipeline: str, ways: Mapping[str, Way]) -> bool:
        """Whether a run has read what it had to, before an amendment or after it."""
        same = ways.keys() == set(self.reads[pipeline])
        return same and all(way in self.ways[pipeline, u] for u, way in ways.items())

    def planned_ways(self, pipeline: str) -> dict[str, Way]:
        return {u: self.ways[pipeline, u][0] for u in self.reads[pipeline]}

    def is_first_run(self, pipeline: str, ways: Mapping[str, Way]) -> bool:
        """Whether everything was read up to the ends of the batch, as to rebuild a target."""
        wanted = {u: first_run(self.ways[pipeline, u]) for u in self.reads[pipeline]}
        return ways == wanted

    def readers_ever(self, upstream: str) -> list[str]:
        return [p for p, upstreams in self.reads.items() if upstream in upstreams]

    def readers(self, upstream: str) -> list[str]:
        return [p for p, upstreams in self.required.items() if upstream in upstreams]


class Truth:
    """What has happened so far. `writes` gives names and targets of the writes of each pipeline,
    `lost` through which version the changes of an upstream are gone.
    """

    def __init__(
        self,
        writes: dict[str, dict[str, str]],
        latest: Mapping[str, int],
        lost: Mapping[str, int],
        moment_of: Callable[[str, int], int],
    ) -> None:
        self.latest = latest
        self._lost = lost
        self._moment_of = moment_of
        self.registry: dict[str, tuple[str, tuple[str, ...]]] = {}
        self.paused: set[str] = set()
        self.plans: dict[str, PlanTruth] = {}
        self.committed: dict[tuple[str, str], int] = {}
        self.status: dict[tuple[str, str], str] = {}
        self.sinks = {
            (p, name): SinkTruth(target)
            for p, own in writes.items()
            for name, target in own.items()
        }
        self._writes = writes
        self._planned: dict[tuple[str, str], int] = {}
        self._epochs: dict[str, int] = {}
        self._holders: dict[tuple[str, int], str] = {}
        self._actor = ""
        self._batch_seq = 0
        self._has_id = False
        self._op_ids: set[str] = set()
        self._by_seq: dict[int, PlanTruth] = {}
        self._abandoned: set[tuple[int, str]] = set()
        """(batch, pipeline) that ended with the removal of the pipeline: its targets are its own."""
        self._misread: dict[tuple[str, str, str], Mapping[str, int]] = {}
        """(batch, pipeline, write) -> the rows it took that are not those of the log."""
        self._accepted: dict[tuple[str, str, str], bool] = {}
        """(batch, pipeline, upstream) -> whether the last amendment takes the rows as they are read."""
        self._see: dict[str, Callable[[Any], None]] = {
            "REGISTER": self._registered,
            "PLAN": self._planned_batch,
            "CANCEL": self._cancelled,
            "PAUSE": self._paused,
            "RESUME": lambda body: self.paused.discard(body.pipeline),
            "REMOVE": self._removed,
            "RENAME": self._renamed,
            "REFRESH": self._refreshed,
            "RESET": self._reset,
            "AMEND": self._amended,
            "TARGET": self._target_settled,
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
            self._has_id |= event.kind == "CREATE"
            ensure(self._has_id, "journal: the store is used before it has an id")
            see = self._see.get(event.kind)
            self._actor = event.actor
            if see:
                see(event.body)

    def compacted(self) -> None:
        """Older events were folded; whoever lost an answer can no longer find it by its op id."""
        self._op_ids.clear()

    def read(self, batch_id: str, pipeline: str, window: Window) -> None:
        """A run reads a window of its batch."""
        plan, upstream, way = self.plans[batch_id], window.upstream, way_of(window)
        is_frozen = upstream not in plan.deferred
        ensure(is_frozen, f"G2 {pipeline} read {upstream} before its end was frozen")
        expected = plan.ways[pipeline, upstream][-1]
        rebuilds = any(self.sinks[pipeline, write].rebuilds for write in self._writes[pipeline])
        is_right = way == expected or (rebuilds and way == first_run(plan.ways[pipeline, upstream]))
        ensure(is_right, f"G6 {pipeline} read {upstream} {way}, planned was {expected}")

    def written(
        self,
        pipeline: str,
        write: str,
        seq: int,
        ways: Mapping[str, Way],
        moment: int = 0,
        *,
        replaces: bool = False,
    ) -> None:
        """A sink has committed the rows of a batch."""
        where, sink = f"{pipeline}/{write}, batch {seq}", self.sinks[pipeline, write]
        is_left = (seq, pipeline) in self._abandoned
        if replaces:
            self._replaced(where, sink, is_left=is_left)
        if is_left:
            return
        plan = self._by_seq[seq]
        ensure(replaces or seq not in sink.there, f"G3 {where}: applied twice")
        given_up = plan.cancelled and plan.is_ordered
        ensure(not given_up, f"G2 {where}: the batch was cancelled")
        # A rebuild replaces also where a runner that was left behind has come before it.
        if (sink.rebuilds or replaces) and plan.is_ordered:
            is_alone = replaces or not sink.holds_rows()
            is_right = is_alone and plan.is_first_run(pipeline, ways)
            ensure(is_right, f"G3 {where}: rebuilt with {ways}, which is not everything")
            sink.rebuilds = False
            sink.forget_rows()
        else:
            ensure(plan.may_have_read(pipeline, ways), f"G6 {where}: holds {ways}")
        counted = ways if plan.is_ordered else {}
        self._in_sequence(where, sink, counted)
        sink.batches.add(seq)
        sink.there[seq] = (moment, {u: given_by(way) for u, way in counted.items()})
        if plan.is_ordered and sink.lacks():
            sink.over_a_loss.add(seq)
        elif plan.is_ordered:
            sink.losses = []

    def _replaced(self, where: str, sink: SinkTruth, *, is_left: bool) -> None:
        """A rebuild takes every row of a target away: it may only have held rows of that write."""
        for key, other in self.sinks.items():
            if other.target == sink.target and (other is not sink or is_left):
                ensure(not other.holds_rows(), f"G3 {where}: removes rows of {'/'.join(key)}")

    def _in_sequence(self, where: str, sink: SinkTruth, ways: Mapping[str, Way]) -> None:
        for upstream, way in ways.items():
            (start, end), through = way[0], sink.through.get(upstream, -1)
            again = set(range(start, min(through, end) + 1)) - sink.missing.get(upstream, set())
            ensure(not again, f"G3 {where}: {upstream} {again} is there already")
            if start <= end:
                ensure(start <= through + 1, f"G7 {where}: {upstream} misses {through + 1}")
            sink.add(upstream, way)

    def dropped(self, target: str, moment: int) -> None:
        """Somebody took all rows of a target away."""
        for sink in self._sinks_of(target):
            sink.lose_all(moment)

    def restored(self, target: str, moment: int, kept: int) -> None:
        """Somebody took all rows away that were committed after the moment `kept`."""
        for sink in self._sinks_of(target):
            sink.lose_since(moment, kept)

    def _sinks_of(self, target: str) -> list[SinkTruth]:
        return [sink for sink in self.sinks.values() if sink.target == target]

    def may_be_named(self, pipeline: str, new_name: str) -> None:
        """Somebody is about to give a pipeline another name, with the same writes."""
        if new_name not in self._writes:
            self._writes[new_name] = self._writes[pipeline]
            for write, target in self._writes[pipeline].items():
                self.sinks[new_name, write] = SinkTruth(target)

    def has_losses(self) -> bool:
        return any(sink.losses for sink in self.sinks.values())

    def _registered(self, body: Any) -> None:
        self.registry[body.pipeline] = (body.scope, body.upstreams)

    def _planned_batch(self, body: Any) -> None:
        ensure(body.batch_seq > self._batch_seq, f"G7 batch number {body.batch_seq} is reused")
        ensure(body.batch_id not in self.plans, "G2 a batch is planned again")
        windows = {w.upstream: span_of(w) for w in body.windows}
        required = dict(body.required)
        plan = PlanTruth(body.batch_seq, body.scope, windows, required, body.batch_kind)
        plan.fresh = {w.upstream for w in body.windows if w.after < w.through}
        plan.deferred = {w.upstream for w in body.windows if w.deferred}
        plan.steps = {w.upstream: w.through for w in body.windows}
        plan.reads = dict(required)
        planned_ways = {w.upstream: way_of(w) for w in body.windows}
        plan.ways = {(p, u): [planned_ways[u]] for p, own in required.items() for u in own}
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
        for pipeline in plan.readers_ever(upstream):
            plan.ways[pipeline, upstream] = [way_of(body.window)]
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

    def _is_open(self, batch_id: str, plan: PlanTruth) -> bool:
        owed = plan.debts if plan.kind == "forward" else {*plan.required, *plan.debts}
        is_owed = any(self.status.get((batch_id, p)) != "SUCCESS" for p in owed)
        return is_owed or (plan.kind == "forward" and bool(self._pending(plan)))

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
            self.sinks[body.pipeline, write].start_again()

    def _renamed(self, body: Any) -> None:
        """The pipeline goes on in its targets; a later one of the old name begins anew."""
        old, new = body.pipeline, body.new_name
        ensure(new not in self._epochs and new not in self.registry, f"G8 {new} was there before")
        for batch_id, plan in self.plans.items():
            has_part = not plan.cancelled and (old in plan.required or old in plan.debts)
            is_open = has_part and self._is_open(batch_id, plan)
            ensure(not is_open, f"G4 {old} is renamed under batch {plan.seq}")
            if old in plan.reads:
                self._abandoned.add((plan.seq, old))
        self.registry[new] = self.registry.pop(old)
        if old in self.paused:
            self.paused.remove(old)
            self.paused.add(new)
        for write, target in self._writes[old].items():
            self.sinks[new, write] = self.sinks[old, write]
            self.sinks[old, write] = SinkTruth(target)

    def _reset(self, body: Any) -> None:
        """Whoever stood at the mark, or beyond its new place, stands at the new one."""
        key, upstream = (body.scope, body.upstream), body.upstream
        version = body.version if body.mark is None else value_of(body.mark)
        for plan in self.plans.values():
            is_open = plan.scope == body.scope and plan.kind == "forward" and not plan.cancelled
            is_held = is_open and upstream in self._pending(plan)
            ensure(not is_held, f"G2 the mark of {upstream} moves under batch {plan.seq}")
        line = min(version, self.committed.get(key, -1))
        for pipeline, (scope, upstreams) in self.registry.items():
            for write in self._writes[pipeline] if scope == body.scope else ():
                sink = self.sinks[pipeline, write]
                is_known = upstream in upstreams or upstream in sink.through
                if is_known and sink.through.get(upstream, -1) >= line:
                    sink.move(upstream, version)
        self.committed[key] = self._planned[key] = version

    def _amended(self, body: Any) -> None:
        """A range is read in another way; only what is gone may be declared lost."""
        self._fence(body)
        plan, upstream, way = self.plans[body.batch_id], body.window.upstream, way_of(body.window)
        ways = plan.ways.get((body.pipeline, upstream))
        ensure(ways is not None, f"G2 {body.pipeline} does not read {upstream}")
        ensure(way[0] == plan.windows[upstream], f"G2 {upstream} is amended to {way[0]}")
        gone = set(range(way[0][0], way[0][1] + 1)) - set(given_by(way))
        is_gone = max(gone, default=-1) <= self._lost.get(upstream, -1)
        ensure(is_gone, f"G2 {upstream} {gone} is declared lost although it is there")
        self._accepted[body.batch_id, body.pipeline, upstream] = body.window.as_read
        if ways is not None:
            ways.append(way)

    def _target_settled(self, body: Any) -> None:
        """An operator decided about rows that somebody took away."""
        self._fence(body)
        plan, found = self.plans[body.batch_id], body.sink
        self._misread.pop((body.batch_id, body.pipeline, found.write_name), None)
        sink = self.sinks[body.pipeline, found.write_name]
        # A pipeline that took over a name, or a table, may be asked about what others lost there.
        was_hurt = any(each.was_hurt for each in self._sinks_of(sink.target))
        ensure(was_hurt, f"G3 {body.pipeline}/{found.write_name} has lost nothing")
        if not plan.is_ordered:
            ensure(found.settled == "accept", "G3 a replay would put the target back to its end")
        if not plan.is_ordered or (plan.seq, body.pipeline) in self._abandoned:
            return
        # Where no table was found, nothing of ours can be in one that comes later.
        seen = self._moment_of(found.table_id, found.version) if found.table_id else None
        sink.losses = [at for at in sink.losses if seen is not None and at > seen]
        sink.rebuilds = sink.awaits_record = found.settled == "rebuild"
        sink.over_a_loss.clear()
        if found.settled == "accept":
            sink.declare()

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
        heirs = {u: self._debtors(batch_id, plan, u) for u in alone}
        begun = {u for u in freed if heirs.get(u)}
        ensure(not begun, f"G2 {begun} of {batch_id} is given up, and {heirs} have begun it")
        if for_good:
            self._abandoned.add((plan.seq, name))
        elif (batch_id, name) in self.status:
            ensure(not freed, f"G2 windows that {name} has begun are given up")
            plan.debts.add(name)
            if alone:
                plan.required[name] = tuple(alone)
        if name not in plan.required:
            for upstream, debtors in heirs.items():
                for debtor in debtors:
                    plan.required[debtor] = (*plan.required.get(debtor, ()), upstream)
        if plan.kind != "forward":
            plan.cancelled = not plan.required and not plan.debts
            return
        ensure(freed <= alone, f"G2 {freed - alone} of {batch_id} is given up although it is read")
        for upstream in freed:
            self._give_up(plan, upstream)
        if not self._pending(plan) and not plan.advanced and not plan.debts:
            plan.cancelled = True

    def _debtors(self, batch_id: str, plan: PlanTruth, upstream: str) -> list[str]:
        """Who has begun to process an upstream of a batch, and was paused."""
        owing = [p for p in plan.debts if self.status.get((batch_id, p)) != "SUCCESS"]
        return [p for p in owing if upstream in plan.reads[p]]

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
        write, seq = body.sink.write_name, self.plans[body.batch_id].seq
        key = (body.batch_id, body.pipeline, write)
        forgotten = self._misread.get(key, {}).keys() - body.sink.misread.keys()
        ensure(not forgotten, f"G6 {body.pipeline}/{write} took other rows, and that is forgotten")
        self._misread[key] = body.sink.misread
        self._applied(body.batch_id, body.pipeline, [write], "G3 SINK_DONE")
        sink = self.sinks[body.pipeline, write]
        if self.plans[body.batch_id].is_ordered:
            sink.awaits_record = False
        ensure(
            seq not in sink.over_a_loss,
            f"G3 {body.pipeline}/{write} goes on over a loss nobody settled",
        )

    def _succeeded(self, body: Any) -> None:
        self._fence(body)
        if (self.plans[body.batch_id].seq, body.pipeline) not in self._abandoned:
            self._applied(body.batch_id, body.pipeline, self._writes[body.pipeline], "G3 SUCCESS")
            self._all_accepted(body.batch_id, body.pipeline)
        self.status[body.batch_id, body.pipeline] = "SUCCESS"

    def _all_accepted(self, batch_id: str, pipeline: str) -> None:
        for write in self._writes[pipeline]:
            for upstream, rows in self._misread.get((batch_id, pipeline, write), {}).items():
                is_accepted = self._accepted.get((batch_id, pipeline, upstream), False)
                ensure(
                    is_accepted, f"G6 {pipeline}/{write} took {rows} rows of {upstream}: unaccepted"
                )

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
            for write in self._writes[pipeline]:
                sink = self.sinks[pipeline, write]
                if sink.losses or sink.rebuilds:
                    late.append(f"{pipeline}/{write} lost rows")
                else:
                    ensure(not sink.lacks(), f"G3 {pipeline}/{write} lacks {sink.missing}")
        return late
