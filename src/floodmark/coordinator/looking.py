"""Looking: nothing here changes anything."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from floodmark.control import all_events
from floodmark.control.events import Event
from floodmark.coordinator.store import Store
from floodmark.model import (
    Batch,
    Checkpoint,
    Finding,
    Gap,
    Lag,
    PlannedBatch,
    State,
    Stuck,
    batch_view,
)

if TYPE_CHECKING:
    from floodmark.report import Sample


class Looking(Store):
    """The part of the coordinator that only looks."""

    def state_if_any(self) -> State | None:
        """The newest state, None if there is no store; an outage is still an error."""
        return self._reader().state() if self._has_store() else None

    def current_plan(self, scope: str | None = None) -> tuple[Batch, ...]:
        """The open batches, oldest first."""
        return tuple(batch_view(b, reused=True) for b in self.state().open_batches(scope))

    def checkpoints(self, upstreams: Iterable[str] | None = None) -> tuple[Checkpoint, ...]:
        """The committed watermarks, of all upstreams or of some."""
        names = None if upstreams is None else {self.names.stored(u) for u in upstreams}
        marks = self.state().marks.values()
        return tuple(
            Checkpoint(
                scope=m.scope,
                upstream=m.upstream,
                version=m.shown_version,
                table_id=m.table_id,
                batch_id=m.batch_id,
                advanced_at=m.advanced_at,
                mark=m.shown_mark,
            )
            for m in marks
            if names is None or m.upstream in names
        )

    def frozen_set(self, batch_id: str) -> dict[str, int]:
        """The versions at which a batch sees its upstreams; -1 for one without versions."""
        batch = self._batch(batch_id)
        frozen = {**batch.windows, **batch.lookups}
        return {upstream: window.end_version for upstream, window in frozen.items()}

    def status(self, batch_id: str | None = None) -> tuple[PlannedBatch, ...]:
        """The open batches and the newest finished ones, newest first; or one batch."""
        state = self.state()
        if batch_id is not None:
            return (self._batch(batch_id),)
        return tuple(sorted(state.batches.values(), key=lambda b: b.seq, reverse=True))

    def lag(self) -> tuple[Lag, ...]:
        """How far each upstream is behind, worst first, and what holds it."""
        from floodmark.report import lag_of

        return lag_of(self._reader(), self.storage, self._clock.now(), self._look_for_report)

    def stuck(self, after: float | str = "1d") -> tuple[Stuck, ...]:
        """Open batches that will not move by themselves: open for longer than `after`, or left
        RUNNING by a process of this host that is gone.
        """
        from floodmark.model.durations import seconds_of
        from floodmark.report import stuck_batches

        seconds = seconds_of(after) if isinstance(after, str) else float(after)
        return stuck_batches(self.state(), self._clock.now(), self.outside.process.is_gone, seconds)

    def failures(self) -> dict[str, int]:
        """How often each pipeline failed since it last succeeded; only those that did."""
        from floodmark.report import failures_in_a_row

        return failures_in_a_row(self.state())

    def metrics(self, stuck_after_seconds: float = 86_400.0) -> tuple[Sample, ...]:
        """The numbers for monitoring (docs/reference/metrics.md); reads the store anew."""
        from floodmark.report import measure

        return measure(
            self._reader(),
            self.control,
            self.storage,
            now=self._clock.now(),
            is_gone=self.outside.process.is_gone,
            stuck_after_seconds=stuck_after_seconds,
            look=self._look_for_report,
        )

    def history(self, limit: int | None = None) -> list[Event]:
        """What happened, oldest first: every event, also those folded out of the journal."""
        events = all_events(self._reader(), self.control, self.storage)
        return events[-limit:] if limit else events

    def gaps(self) -> tuple[Gap, ...]:
        """Versions that a pipeline never processed although it is past them; empty if none."""
        from floodmark.report import gaps_of

        return gaps_of(self._reader(), self.control, self.storage)

    def verify(self) -> list[Finding]:
        """Check the guarantees on the journal, the sinks and the published tables."""
        from floodmark.report import verify_store

        return verify_store(
            self._reader(), self.control, self.storage, self.databases.ledger, self.base
        )

    def doctor(self, upstreams: Iterable[str] = (), to_come: Iterable[str] = ()) -> list[Finding]:
        """Look for what will hurt: the machine, the store, the upstreams. Changes nothing.

        `upstreams` are asked for only once the store could be read. Those in `to_come` are tables
        that pipelines write: before their first run they need not be there.
        """
        from floodmark.engines.environment import examine_machine
        from floodmark.report import (
            examine_store,
            examine_tables,
            examine_target,
            examine_upstream,
            lag_of,
        )

        reader = self._reader_or_empty()
        store = examine_store(reader, self.control, self.storage)
        findings = [*examine_machine(), *store]
        if not store[0].ok:
            return findings  # a store that cannot be read tells nothing of the rest
        if reader.state().control_id:
            findings += examine_tables(reader, self.control, self.storage)
        state, lags = (
            reader.state(),
            lag_of(reader, self.storage, self._clock.now(), self._look_for_report),
        )
        names = [self.names.stored(u) for u in upstreams] + [u for _, u in state.marks]
        written = {self.names.stored(table) for table in to_come}
        for name in dict.fromkeys(names):
            marks = [mark for mark in state.marks.values() if mark.upstream == name]
            behind = [lag for lag in lags if lag.upstream == name]
            findings += examine_upstream(
                name, marks, behind, state, self.storage, may_come=name in written
            )
        for sink in {sink.target: sink for sink in state.sinks.values()}.values():
            findings += examine_target(sink, state, self.storage, self.databases.ledger, self.base)
        return findings
