"""Protocols that are wrong in one point each: the simulator must catch every one of them.

A mutant replaces small production functions for a while. Where a rule is kept twice, by the writer
that decides and by the fold that checks, both are broken; otherwise the fold would refuse the
event and the mutant would show nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import count
from typing import Any
from unittest.mock import patch

from tests.support.world import SimLog, SimSink

from floodmark.control import operations, resetting
from floodmark.control.events.bodies import (
    Advanced,
    Body,
    Cancelled,
    Event,
    Frozen,
    Leased,
    Planned,
    Renamed,
    Reset,
    Succeeded,
)
from floodmark.control.journal import journal
from floodmark.control.rules import folding as fold
from floodmark.control.rules import pipelines, plans, runs, snapshots
from floodmark.control.rules.folding import RULES, Rule
from floodmark.control.upkeep import upkeep
from floodmark.coordinator import planning, running, store
from floodmark.finalize import held
from floodmark.model.receipt import WriteResult, forward_app_id
from floodmark.model.results import Finalized, Metrics
from floodmark.model.state import PlannedBatch, State
from floodmark.model.times import with_end
from floodmark.model.upstream import DEFAULT_OPTIONS
from floodmark.model.window import TimeWindow, VersionWindow, Window
from floodmark.model.write import WriteSpec
from floodmark.plan import planner, seeds
from floodmark.plan.windows import next_window as next_window_as_it_is
from floodmark.run import deferred, leases, lost_ranges, runner, writes
from floodmark.run.deferred import freeze_ends
from floodmark.sinks.delta.target import DeltaTarget
from floodmark.sources import LookSpec

Patch = tuple[Any, str, Any]
"""Where, which attribute, what instead."""

MUTANTS: dict[str, Callable[[], list[Patch]]] = {}


class Mutation:
    """A mutant at work, and which of its parts have run.

    A mutant names code of the product by its place, as a failpoint does: code that was renamed, or
    is called in another way, would leave a mutant that changes nothing, or one that is caught for
    its own fault.
    """

    def __init__(self) -> None:
        self.runs: dict[str, int] = {}
        """How often each part has run."""

    def idle(self) -> list[str]:
        """The parts that have never run."""
        return [part for part, count in self.runs.items() if not count]

    def counted(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, counted as a part of the mutant."""
        self.runs[part] = 0

        def run(*arguments: Any, **keywords: Any) -> Any:
            self.runs[part] += 1
            return function(*arguments, **keywords)

        return run

    def counted_rules(self, changed: Mapping[type[Any], Rule]) -> Mapping[type[Any], Rule]:
        """The rules of the fold, of which those that are not the product's are counted."""
        return {body: self._counted_rule(body, rule) for body, rule in changed.items()}

    def _counted_rule(self, body: type[Any], rule: Rule) -> Rule:
        before = fold.RULES[body]
        check, effect = rule
        if check is not before.check:
            check = self.counted(f"check of {body.__name__}", check)
        if effect is not before.effect:
            effect = self.counted(f"effect of {body.__name__}", effect)
        return Rule(check, effect)


@contextmanager
def mutated(name: str) -> Iterator[Mutation]:
    """The protocol with one mutant in it, until the context is left."""
    mutation = Mutation()
    with ExitStack() as stack:
        for where, attribute, instead in MUTANTS[name]():
            if attribute == "RULES":
                counted: Any = mutation.counted_rules(instead)
            else:
                counted = mutation.counted(f"{where.__name__}.{attribute}", instead)
            stack.enter_context(patch.object(where, attribute, counted))
        yield mutation


def as_it_is(where: Any, attribute: str) -> Any:
    """The product's own code at a place that a mutant names."""
    return getattr(where, attribute)


def mutant(function: Callable[[], list[Patch]]) -> Callable[[], list[Patch]]:
    MUTANTS[function.__name__] = function
    return function


def nothing(*_: Any) -> None:
    """A check that never objects."""


def rules(**changed: Rule) -> Patch:
    """The fold with other rules, by the name of the event."""
    by_name = {body.__name__: body for body in RULES}
    return fold, "RULES", {**RULES, **{by_name[name]: rule for name, rule in changed.items()}}


def unchecked(*bodies: type[Any]) -> Patch:
    """The fold without the checks of some events."""
    return rules(**{b.__name__: Rule(nothing, RULES[b].effect) for b in bodies})


# The journal --------------------------------------------------------------------------------------


@mutant
def append_without_compare_and_swap() -> list[Patch]:
    def land(self: SimLog, events: Sequence[Event], _: int) -> None:
        first = self.last_seq() + 1
        numbered = [replace(event, seq=first + i) for i, event in enumerate(events)]
        original(self, numbered, len(self._commits))

    original = SimLog.land
    return [(SimLog, "land", land)]


@mutant
def no_look_up_after_a_lost_answer() -> list[Patch]:
    def has_landed(self: journal.Journal, _: str) -> bool:
        self._catch_up()
        return False

    return [(journal.Journal, "_has_landed", has_landed)]


@mutant
def store_that_somebody_else_has_made_gets_no_id() -> list[Patch]:
    return [(store.Store, "_first_event", lambda *_: [])]


@mutant
def compaction_forgets_epochs() -> list[Patch]:
    def snapshot_of(*arguments: Any) -> Any:
        return replace(original(*arguments), epochs={})

    original = snapshots.snapshot_of
    return [(upkeep, "snapshot_of", snapshot_of)]


@mutant
def compaction_forgets_open_batches() -> list[Patch]:
    def snapshot_of(*arguments: Any) -> Any:
        kept = original(*arguments)
        return replace(kept, batches=tuple(b for b in kept.batches if not b.is_open))

    original = snapshots.snapshot_of
    return [(upkeep, "snapshot_of", snapshot_of)]


# Planning -----------------------------------------------------------------------------------------


@mutant
def plans_again_while_a_batch_is_open() -> list[Patch]:
    return [(planner, "open_batch", nothing), (plans, "check_window", nothing)]


def shifted_start(by: int) -> list[Patch]:
    def next_window(*arguments: Any) -> Window:
        window = original(*arguments)
        is_room = window.after >= 0 and window.versions > by
        return replace(window, after=window.after + by) if is_room else window

    original = next_window_as_it_is
    return [
        (planner, "next_window", next_window),
        (plans, "check_window", nothing),
        *unseeded(),
    ]


@mutant
def window_starts_one_too_late() -> list[Patch]:
    return shifted_start(1)


@mutant
def window_starts_one_too_early() -> list[Patch]:
    return shifted_start(-1)


def unseeded() -> list[Patch]:
    """Nobody looks whether a pipeline stands where its window starts."""
    return [(planner, "refuse_latecomers", nothing), (plans, "_check_seeded", nothing)]


@mutant
def latecomer_is_listed() -> list[Patch]:
    return [(seeds, "is_behind", lambda *_: False), *unseeded()]


@mutant
def seeded_once_is_seeded_for_ever() -> list[Patch]:
    """A newcomer gets what is committed; what advances while it waits is not its business."""

    def is_behind(state: State, pipeline: Any, upstream: str) -> bool:
        return state.processed_through(pipeline.name, upstream) < 0 and original(
            state, pipeline, upstream
        )

    original = seeds.is_behind
    return [(seeds, "is_behind", is_behind), *unseeded()]


@mutant
def seed_can_be_cancelled_under_a_later_batch() -> list[Patch]:
    def check_cancelled(state: State, body: Cancelled) -> str | None:
        batch = state.batches[body.batch_id]
        return None if batch.can_be_cancelled and not batch.is_cancelled else "leased"

    return [rules(Cancelled=Rule(check_cancelled, RULES[Cancelled].effect))]


@mutant
def refresh_in_the_middle_of_a_batch() -> list[Patch]:
    return [(operations, "refuse_debts", nothing), (pipelines, "_check_free", nothing)]


@mutant
def paused_pipeline_forgets_what_it_has_begun() -> list[Patch]:
    def without(batch: PlannedBatch, body: Any, *, for_good: bool) -> PlannedBatch:
        del for_good
        left: PlannedBatch = original(batch, body, for_good=True)
        return left

    original = as_it_is(pipelines, "_without")
    return [(pipelines, "_without", without)]


@mutant
def pause_gives_up_windows_that_were_begun() -> list[Patch]:
    def unread_without(state: State, pipeline: str, *, for_good: bool) -> Any:
        del for_good
        return original(state, pipeline, for_good=True)

    original = pipelines.unread_without
    return [
        (pipelines, "unread_without", unread_without),
        (operations, "unread_without", unread_without),
    ]


@mutant
def removed_pipeline_still_counts() -> list[Patch]:
    def to_leave(state: State, pipeline: str, *, for_good: bool) -> Any:
        del for_good
        return state.batches_owed_by(pipeline)

    return [(pipelines, "_to_leave", to_leave)]


@mutant
def replay_uses_the_forward_receipt() -> list[Patch]:
    def again_app_id(control_id: str, pipeline: str, write_name: str, *_: str) -> str:
        return forward_app_id(control_id, pipeline, write_name)

    return [(writes, "again_app_id", again_app_id)]


@mutant
def seed_moves_the_watermark() -> list[Patch]:
    def is_pending(self: PlannedBatch, upstream: str) -> bool:
        window = self.windows.get(upstream)
        is_fresh = window is not None and window.has_news and upstream not in self.released
        return is_fresh and upstream not in self.advanced and not self.is_cancelled

    def check_advanced(state: State, body: Advanced) -> str | None:
        batch = state.batches.get(body.batch_id)
        return None if batch and all(batch.is_pending(u) for u in body.upstreams) else "no"

    return [
        (PlannedBatch, "is_pending", is_pending),
        rules(Advanced=Rule(check_advanced, RULES[Advanced].effect)),
    ]


@mutant
def reset_leaves_the_pipelines_where_they_are() -> list[Patch]:
    def reset(state: State, event: Event) -> State:
        return replace(original.effect(state, event), seeded_through=state.seeded_through)

    original = RULES[Reset]
    return [rules(Reset=Rule(original.check, reset))]


@mutant
def reset_takes_newcomers_along() -> list[Patch]:
    def reset(state: State, event: Event) -> State:
        body: Reset = event.body  # type: ignore[assignment]
        readers = [p.name for p in state.pipelines_in(body.scope) if body.upstream in p.upstreams]
        moved = {(name, body.upstream): body.version for name in readers}
        after = original.effect(state, event)
        return replace(after, seeded_through={**after.seeded_through, **moved})

    original = RULES[Reset]
    return [rules(Reset=Rule(original.check, reset))]


@mutant
def values_beyond_the_mark_are_processed_again() -> list[Patch]:
    return [(TimeWindow, "is_committed_span", lambda *_: True)]


@mutant
def reset_under_an_open_batch() -> list[Patch]:
    return [(resetting, "decide_reset", lambda _, body: [body]), unchecked(Reset)]


def renamed_without(part: str) -> list[Patch]:
    def renamed(state: State, event: Event) -> State:
        return replace(original.effect(state, event), **{part: getattr(state, part)})

    original = RULES[Renamed]
    return [rules(Renamed=Rule(original.check, renamed))]


@mutant
def renamed_pipeline_starts_again() -> list[Patch]:
    return renamed_without("seeded_through")


@mutant
def renamed_pipeline_forgets_its_targets() -> list[Patch]:
    return renamed_without("sinks")


@mutant
def renamed_in_the_middle_of_a_batch() -> list[Patch]:
    return [(operations, "refuse_debts", nothing), unchecked(Renamed)]


@mutant
def plan_that_was_shown_is_journaled_over_an_end_that_has_moved() -> list[Patch]:
    """Nobody decides again on the newer state, nor looks again at what has moved."""

    def commit_plan(journal: Any, plan: Any, probes: Any) -> Any:
        result, bodies = plan(journal.state(), probes)

        def decide(state: State) -> list[Body]:
            numbers = count(state.batch_seq + 1)
            return [
                replace(body, batch_seq=next(numbers)) if isinstance(body, Planned) else body
                for body in bodies
            ]

        return journal.commit(decide), result

    return [
        (planning, "commit_plan", commit_plan),
        (plans, "check_window", nothing),
        (plans, "_check_seeded", nothing),
    ]


@mutant
def batch_number_is_reused_after_cancel() -> list[Patch]:
    def cancelled(state: State, event: Event) -> State:
        return replace(original.effect(state, event), batch_seq=state.batch_seq - 1)

    original = RULES[Cancelled]
    return [rules(Cancelled=Rule(original.check, cancelled))]


@mutant
def leased_batch_can_be_cancelled() -> list[Patch]:
    def cancel(self: Any, batch_id: str) -> None:
        def decide(state: State) -> list[Body]:
            batch = leases.known_batch(state, batch_id)
            return [] if batch.is_cancelled or not batch.is_open else [Cancelled(batch_id)]

        self.store.writer().commit(decide)

    return [(running.Running, "cancel", cancel), unchecked(Cancelled)]


# Running ------------------------------------------------------------------------------------------


@mutant
def batches_out_of_order() -> list[Patch]:
    return [(runs, "earlier_unfinished", nothing), (leases, "earlier_unfinished", nothing)]


@mutant
def cancelled_batch_is_run() -> list[Patch]:
    def batch_for_run(state: State, batch_id: str, pipeline: str) -> PlannedBatch:
        batch = leases.known_batch(state, batch_id)
        return batch if pipeline in batch.required else original(state, batch_id, pipeline)

    original = leases.batch_for_run
    return [
        (leases, "batch_for_run", batch_for_run),
        (running, "batch_for_run", batch_for_run),
        unchecked(Leased),
    ]


@mutant
def older_epoch_may_record() -> list[Patch]:
    def check_fence(state: State, batch_id: str, pipeline: str, _: int) -> str | None:
        batch = state.batches.get(batch_id)
        return None if batch and pipeline in batch.runs else "there is no such run"

    return [(runs, "check_fence", check_fence), (leases, "check_fence", check_fence)]


@mutant
def lease_is_taken_over_without_a_new_epoch() -> list[Patch]:
    def lease(self: Any, state: State, *arguments: Any) -> Leased:
        granted: Leased = original(self, state, *arguments)
        return replace(granted, epoch=granted.epoch - 1) if granted.replaces else granted

    original = as_it_is(leases.Leases, "_lease")
    return [(leases.Leases, "_lease", lease), unchecked(Leased)]


@mutant
def lease_of_another_is_taken_for_ours() -> list[Patch]:
    return [(leases, "_ours", lambda run, _: run)]


@mutant
def succeeded_pipeline_is_leased_again() -> list[Patch]:
    def attempt(self: Any, pipeline: str, batch_id: str, run_id: str, seen_dead: Any) -> Any:
        def decide(state: State) -> list[Body]:
            leases.batch_for_run(state, batch_id, pipeline)
            return [self._lease(state, pipeline, batch_id, run_id, seen_dead)]

        state = self.store.commit(decide)
        return state.batches[batch_id].runs[pipeline]

    return [(leases.Leases, "_try", attempt), unchecked(Leased)]


@mutant
def end_is_probed_again_at_run_time() -> list[Patch]:
    def read(self: Any, reads: Any, engine: Any) -> Any:
        latest = engine.world.latest
        reads.windows = tuple(replace(w, through=latest[w.upstream]) for w in reads.windows)
        return original(self, reads, engine)

    original = as_it_is(runner.Runner, "_read")
    return [(runner.Runner, "_read", read)]


@mutant
def second_freeze_overwrites_the_first() -> list[Patch]:
    def check_frozen(state: State, body: Frozen) -> str | None:
        return runs.check_fence(state, body.batch_id, body.pipeline, body.epoch)

    def freeze(run: Any, window: Window, _: State) -> Frozen:
        return Frozen(run.batch_id, run.pipeline, run.epoch, window)

    return [(deferred, "_freeze", freeze), rules(Frozen=Rule(check_frozen, RULES[Frozen].effect))]


@mutant
def deferred_end_is_read_before_it_is_frozen() -> list[Patch]:
    def read(self: Any, reads: Any, engine: Any) -> Any:
        source = engine.source()
        reads.windows = tuple(
            with_end(w, source.look(w, LookSpec(self.clock.now())), DEFAULT_OPTIONS)
            if w.deferred
            else w
            for w in reads.windows
        )
        return original(self, reads, engine)

    original = as_it_is(runner.Runner, "_read")
    return [(runner, "freeze_ends", nothing), (runner.Runner, "_read", read)]


@mutant
def mark_of_a_pipeline_that_is_behind_is_forgotten() -> list[Patch]:
    return [(State, "mark_of", nothing)]


@mutant
def success_before_the_writes() -> list[Patch]:
    def execute(self: Any, lease: Any, function: Any, engine: Any, databases: Any) -> Any:
        freeze_ends(lease.ensure_held(), lease.run, engine.source(), self.clock.now, lease.record)
        run = self._pass(lease, engine, databases, set(), rebuilds=False)
        inputs = self._read(run.reads, engine)
        result = self._succeed(lease, run, Metrics(), ())
        function.run_nodes(inputs, run)
        return result

    return [(runner.Runner, "_execute", execute)]


@mutant
def write_is_recorded_before_it_is_done() -> list[Patch]:
    def write(self: Any, spec: Any, make: Any, **_: Any) -> Any:
        self._lease.ensure_held()
        receipt, sink = self._place(spec, self._reads.windows)
        expected = WriteResult(spec.target, "t", 1, None, already_applied=False)
        self._record(spec, receipt, expected, {})
        self.results[spec.name] = sink.committed(receipt) or sink.write(make(), receipt)
        return self.results[spec.name]

    return [(writes.Writes, "write", write)]


@mutant
def sink_without_receipt() -> list[Patch]:
    return [(SimSink, "committed", nothing)]


@mutant
def two_writes_share_an_app_id() -> list[Patch]:
    def forward_app_id(control_id: str, pipeline: str, _: str, generation: int = 0) -> str:
        return f"floodmark/{control_id}/{pipeline}/{generation}"

    return [(writes, "forward_app_id", forward_app_id)]


@mutant
def two_pipelines_share_an_app_id() -> list[Patch]:
    def forward_app_id(control_id: str, _: str, write_name: str, generation: int = 0) -> str:
        return f"floodmark/{control_id}/{write_name}/{generation}"

    return [(writes, "forward_app_id", forward_app_id)]


@mutant
def sink_commits_over_a_concurrent_one() -> list[Patch]:
    def write(self: SimSink, frame: Any, receipt: Any) -> Any:
        seen = self._target.seen(receipt, self.windows)
        self.world.pause("sink commit {}/{} #{}", frame.pipeline, frame.write, receipt.seq)
        return self._commit(frame, receipt, seen)

    return [(SimSink, "write", write)]


@mutant
def amendment_holds_for_every_pipeline() -> list[Patch]:
    def window_for(self: PlannedBatch, _: str, upstream: str) -> Window:
        amended = [windows[upstream] for windows in self.amended.values() if upstream in windows]
        return amended[0] if amended else self.windows[upstream]

    return [(PlannedBatch, "window_for", window_for)]


@mutant
def accepted_loss_takes_the_rest_of_the_range_along() -> list[Patch]:
    def record(lease: Any, window: Window) -> None:
        original(lease, replace(VersionWindow.of(window), feed_after_version=None))

    original = as_it_is(lost_ranges, "_record")
    return [(lost_ranges, "_record", record)]


@mutant
def lost_range_is_read_in_another_way_without_saying_so() -> list[Patch]:
    def settle(lease: Any, engine: Any, choice: Any, _: Any) -> None:
        batch, pipeline = lease.ensure_held().batches[lease.run.batch_id], lease.run.pipeline
        for upstream in batch.upstreams_of(pipeline):
            other = engine.source().resolved(batch.window_for(pipeline, upstream), choice)
            unsaid.update({(batch.batch_id, pipeline, upstream): other} if other else {})

    def window_for(self: PlannedBatch, pipeline: str, upstream: str) -> Window:
        key = (self.batch_id, pipeline, upstream)
        return unsaid.get(key) or self.windows[upstream]

    unsaid: dict[tuple[str, str, str], Window] = {}
    return [(runner, "settle_lost_ranges", settle), (PlannedBatch, "window_for", window_for)]


@mutant
def retry_forgets_that_a_write_took_other_rows() -> list[Patch]:
    """The write is found by its receipt, and journaled as any other."""

    def misread(
        self: writes.Writes, spec: WriteSpec, counts: Any, receipt: Any, result: WriteResult
    ) -> Any:
        return {} if result.already_applied else original(self, spec, counts, receipt, result)

    original = as_it_is(writes.Writes, "_misread")
    return [(writes.Writes, "_misread", misread)]


@mutant
def run_succeeds_over_a_write_that_took_other_rows() -> list[Patch]:
    unheld = Rule(runs.check_run_event, RULES[Succeeded].effect)
    return [(writes.Writes, "_refuse_misread", nothing), rules(Succeeded=unheld)]


@mutant
def nobody_looks_whether_a_target_lost_rows() -> list[Patch]:
    return [(DeltaTarget, "loss", nothing)]


@mutant
def rebuilt_target_gets_the_rows_of_the_batch_only() -> list[Patch]:
    return [(writes, "awaits_rebuild", lambda _: False)]


@mutant
def resolved_target_keeps_its_receipts() -> list[Patch]:
    def resolved(self: SimSink, choice: Any, receipt: Any, _: str) -> Any:
        return original(self, choice, receipt, receipt.app_id)

    original = SimSink.resolved
    return [(SimSink, "resolved", resolved)]


# Finalizing ---------------------------------------------------------------------------------------


@mutant
def advances_when_any_pipeline_succeeded() -> list[Patch]:
    def held_because(self: PlannedBatch, upstream: str) -> str | None:
        readers = self.readers(upstream)
        return None if any(self.has_succeeded(p) for p in readers) else "waiting"

    return [(PlannedBatch, "held_because", held_because)]


@mutant
def advances_by_the_current_registry() -> list[Patch]:
    def ready(state: State, batch: PlannedBatch) -> dict[str, int]:
        readers = {
            u: [p.name for p in state.pipelines_in(batch.scope) if u in p.upstreams]
            for u in batch.pending_upstreams()
        }
        return {
            u: batch.windows[u].through
            for u, names in readers.items()
            if names and all(batch.has_succeeded(p) for p in names)
        }

    def advance_watermarks(store: Any, batch_id: str) -> Finalized:
        def decide(state: State) -> list[Body]:
            found = ready(state, state.batches[batch_id]) if batch_id in state.batches else {}
            return [Advanced(batch_id, found)] if found else []

        state = store.commit(decide)
        return Finalized(batch_id, (), held(state.batches[batch_id]))

    return [(running, "advance_watermarks", advance_watermarks), unchecked(Advanced)]


@mutant
def watermark_may_move_back() -> list[Patch]:
    def advance_watermarks(store: Any, batch_id: str) -> Finalized:
        def decide(state: State) -> list[Body]:
            batch = state.batches.get(batch_id)
            fresh = [u for u, w in batch.windows.items() if w.has_news] if batch else []
            found = {
                u: batch.windows[u].through
                for u in fresh
                if batch and not batch.is_cancelled and batch.held_because(u) is None
            }
            return [Advanced(batch_id, found)] if found else []

        state = store.commit(decide)
        return Finalized(batch_id, (), held(state.batches[batch_id]))

    return [(running, "advance_watermarks", advance_watermarks), unchecked(Advanced)]


@mutant
def nobody_reads_it_so_it_advances() -> list[Patch]:
    def held_because(self: PlannedBatch, upstream: str) -> str | None:
        return "waiting" if self.waiting_for(upstream) else None

    return [(PlannedBatch, "held_because", held_because)]
