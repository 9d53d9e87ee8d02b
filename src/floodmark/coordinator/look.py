"""Questions that only read: nothing here changes anything, takes a lease or starts Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from floodmark.control import all_events, operations
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
from floodmark.model.arguments import checks_arguments


@checks_arguments
class Look:
    """What a control store can be asked; no call of it writes, takes a lease or starts Spark."""

    def __init__(self, store: Store, of_place: Callable[[], list[Finding]] = list) -> None:
        self._store = store
        self._of_place = of_place
        """What else `verify` has to tell: of the place where somebody works with the store."""

    def state(self) -> State:
        """The newest state; raises FM-CONTROL-001 if there is no store."""
        return self._store.state()

    def state_if_any(self) -> State | None:
        """The newest state, None if there is no store; an outage is still an error."""
        return self._store.reader().state() if self._store.exists() else None

    def current_plan(self, scope: str | None = None) -> tuple[Batch, ...]:
        """The open batches, oldest first."""
        return tuple(batch_view(b, reused=True) for b in self._store.state().open_batches(scope))

    def checkpoints(self, upstreams: Iterable[str] | None = None) -> tuple[Checkpoint, ...]:
        """The committed watermarks, of all upstreams or of some."""
        names = None if upstreams is None else {self._store.names.stored(u) for u in upstreams}
        marks = self._store.state().marks.values()
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
        batch = self._store.batch(batch_id)
        frozen = {**batch.windows, **batch.lookups}
        return {upstream: window.end_version for upstream, window in frozen.items()}

    def status(self, batch_id: str | None = None) -> tuple[PlannedBatch, ...]:
        """The open batches and the newest finished ones, newest first; or one batch."""
        state = self._store.state()
        if batch_id is not None:
            return (self._store.batch(batch_id),)
        return tuple(sorted(state.batches.values(), key=lambda b: b.seq, reverse=True))

    def lag(self) -> tuple[Lag, ...]:
        """How far each upstream is behind, worst first, and what holds it."""
        from floodmark.report import lag_of

        return lag_of(
            self._store.reader(),
            self._store.storage,
            self._store.clock.now(),
            self._store.look_for_report,
        )

    def stuck(self, after: float | str = "1d") -> tuple[Stuck, ...]:
        """Open batches that will not move by themselves: open for longer than `after`, or left
        RUNNING by a process of this host that is gone.
        """
        from floodmark.model.durations import seconds_of
        from floodmark.report import stuck_batches

        seconds = seconds_of(after) if isinstance(after, str) else float(after)
        return stuck_batches(
            self._store.state(),
            self._store.clock.now(),
            self._store.outside.process.is_gone,
            seconds,
        )

    def failures(self) -> dict[str, int]:
        """How often each pipeline failed since it last succeeded; only those that did."""
        from floodmark.report import failures_in_a_row

        return failures_in_a_row(self._store.state())

    def history(self, limit: int | None = None) -> list[Event]:
        """What happened, oldest first: every event, also those folded out of the journal."""
        events = all_events(self._store.reader(), self._store.control, self._store.storage)
        return events[-limit:] if limit else events

    def gaps(self) -> tuple[Gap, ...]:
        """Versions that a pipeline never processed although it is past them; empty if none."""
        from floodmark.report import gaps_of

        return gaps_of(self._store.reader(), self._store.control, self._store.storage)

    def verify(self) -> list[Finding]:
        """Check the guarantees on the journal, the sinks and the published tables."""
        from floodmark.report import verify_store

        store = self._store
        findings = verify_store(
            store.reader(), store.control, store.storage, store.databases.ledger, store.base
        )
        return [*self._of_place(), *findings]

    def stored_name(self, name: str) -> str:
        """The name under which an upstream is stored: the absolute path or URI.

        For a name of a catalog it is the path that the name was resolved to, for a table that
        moved the one it was first known by.
        """
        return self._store.names.stored(name)

    def refuse_unknown(self, pipeline: str) -> None:
        """Raise FM-CONTROL-005 with the nearest match unless the pipeline is registered."""
        operations.known(self.state(), pipeline)
