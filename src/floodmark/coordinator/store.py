"""What every part of a coordinator shares: its control store, and how that is published."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from floodmark.control import (
    FileHeartbeats,
    Publisher,
    Pulse,
    TablePublisher,
    no_store,
    past_batch,
    refuse_unfit_place,
)
from floodmark.control.events import Body, Created
from floodmark.control.journal import DeltaEventLog, Journal
from floodmark.control.published import Projector
from floodmark.coordinator.names import Names
from floodmark.coordinator.outside import Outside
from floodmark.coordinator.probing import Prober, UpstreamProber
from floodmark.deltalog import DeltaLog, Storage, absolute, is_delta_table
from floodmark.engines.catalog import is_in_memory, register_again
from floodmark.errors import ControlError, FloodmarkError, PlanError
from floodmark.model import (
    AnyMark,
    Holder,
    PlannedBatch,
    State,
    TimeFacts,
    UpstreamOptions,
    Window,
    WriteSpec,
)
from floodmark.model.names import is_of_source
from floodmark.plan import planner
from floodmark.run.databases import NO_DATABASES, Databases
from floodmark.run.leases import (
    DEFAULT_TTL_SECONDS,
    Leases,
    known_batch,
)
from floodmark.run.stages import Stages
from floodmark.sources import Scratch

if TYPE_CHECKING:
    from floodmark.sources import Readers

log = logging.getLogger("floodmark")


class Store:
    """A control store, opened when it is first needed; all parts of a coordinator share one."""

    def __init__(
        self,
        control: str | os.PathLike[str],
        spark: Any = None,
        actor: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        *,
        lease_ttl: float = DEFAULT_TTL_SECONDS,
        base: str | None = None,
        schema: str | None = "gold",
        databases: Databases = NO_DATABASES,
        outside: Outside | None = None,
    ) -> None:
        self.outside = outside or Outside()
        self.storage = self.outside.storage or Storage(storage_options)
        self.control = absolute(control, base)
        if self.outside.log is None:
            refuse_unfit_place(self.control)
        self.base = base
        self.spark = spark
        self.databases = databases
        self.readers: Readers = {}
        """What reads upstreams of databases; a project hands it in."""
        self.writes: Mapping[str, Sequence[WriteSpec]] = {}
        """What a pipeline writes, by its name; of a function only its run tells."""
        self.schema = schema
        self.home_schema = schema
        """The schema of the published tables, also where they are not registered."""
        self._actor = actor
        self.lease_ttl = lease_ttl
        self.clock = self.outside.clock
        self.stages = Stages(self.outside.tell)
        self._log = self.outside.log or self.delta_log
        self._heartbeats = self.outside.heartbeats or FileHeartbeats(self.control, self.storage)
        self.publisher: Publisher = self.outside.publisher or TablePublisher(
            self.delta_log, self.projector
        )
        self._store: Journal | None = None
        self._has_begun = False
        """Whether the journal is known to have its first event; from then on nobody who opens the
        store waits for a commit that is being decided, which opens it too."""
        self._is_coalescing = False
        self._dead_runs: set[str] = set()
        self.names = Names(base, self.prober, lambda: self.spark, self.reader_or_empty, self.writer)
        self._named_again: set[str] = set()
        """Names that the session's catalog was told again."""
        self._opening = threading.RLock()
        """Threads that share a coordinator open its store once."""

    @cached_property
    def actor(self) -> str:
        """Who is journaled as the one who did it."""
        return self._actor or self.outside.process.user()

    @cached_property
    def delta_log(self) -> DeltaEventLog:
        return DeltaEventLog(self.control, self.storage)

    @cached_property
    def projector(self) -> Projector:
        return Projector(self.control, self.storage)

    @cached_property
    def _holder(self) -> Holder:
        return self.outside.process.holder()

    def prober(self, scratch: Scratch | None = None) -> Prober:
        """What looks at upstreams, with the session and the readers of this moment.

        Where nothing may be kept, what a look would keep goes to `scratch`.
        """
        return self.outside.prober or UpstreamProber(
            self.storage, self.spark, self.readers, self.clock, self.names.place, scratch
        )

    def look_for_report(
        self, scope: str, upstream: str, start: AnyMark | None, options: UpstreamOptions
    ) -> TimeFacts | None:
        """A look that keeps nothing; a web API or a plug-in is asked only by planning."""
        if is_of_source(upstream):
            return None
        known = self.reader_or_empty().known_state().pipelines_in(scope)
        prober = self.prober(Scratch()).of(pipeline.name for pipeline in known)
        return prober.look(upstream, start, options)

    def frozen_lookup(self, name: str) -> Window:
        """A table to be looked up, whole, as it is now; with a warning if it has no rows."""
        return self.prober().frozen_lookup(name)

    @contextmanager
    def coalesce(self) -> Iterator[None]:
        """A context in which the published tables are refreshed once, at its end."""
        self._is_coalescing = True
        try:
            yield
        finally:
            self._is_coalescing = False
            self.publish()

    def state(self) -> State:
        """The newest state; raises FM-CONTROL-001 if there is no store."""
        return self.reader().state()

    def refuse_unresolved(self, name: str) -> None:
        """Raise FM-PLAN-030 for a catalog name that nobody has resolved yet; asks no catalog."""
        self.names.refuse_unresolved(name)

    def batch(self, batch_id: str) -> PlannedBatch:
        """A batch of any age; raises FM-CONTROL-004."""
        state = self.reader().state()
        if batch_id not in state.batches:
            past = past_batch(self.control, self.storage, batch_id)
            if past:
                return past
        return known_batch(state, batch_id)

    def stored_names(self, upstreams: Sequence[str], *, what: str) -> tuple[str, ...]:
        if isinstance(upstreams, str):
            upstreams = [upstreams]
        for name in upstreams:
            self.names.refuse_unresolved(name)
        names = tuple(self.names.stored(name) for name in upstreams)
        if not names:
            raise PlanError(
                "FM-PLAN-004",
                f"{what} names no upstream",
                allowed="at least one",
                state="nothing was journaled",
                next="name the upstreams",
            )
        planner.refuse_repeated(names)
        return names

    def leases(self, store: Journal) -> Leases:
        return Leases(
            store,
            self._heartbeats,
            self.clock,
            self._holder,
            self.outside.process.is_gone,
            self.lease_ttl,
            self._dead_runs,
        )

    def pulse(self, run_id: str, ttl_seconds: float) -> Pulse:
        return self._heartbeats.pulse(run_id, ttl_seconds, self.clock)

    def reader(self) -> Journal:
        """The store for looking; raises FM-CONTROL-001 if there is none."""
        with self._opening:
            if self._store is None:
                if not self._log.exists():
                    raise no_store(self.control)
                self._store = self._journal()
            return self._store

    def exists(self) -> bool:
        return self._store is not None or self._log.exists()

    def reader_or_empty(self) -> Journal:
        """The store for a preview: an empty one where none was created yet."""
        from floodmark.control.journal import MemoryEventLog

        if self._store is None and not self._log.exists():
            return Journal(MemoryEventLog(), actor=self.actor, clock=self.clock)
        return self.reader()

    def writer(self) -> Journal:
        """The store for writing; created if there is none."""
        with self._opening:
            if self._store is None:
                if not self._log.exists():
                    self._log.create()
                    sys.stderr.write(f"floodmark: created the control store {self.control}\n")
                self._store = self._journal()
            if not self._has_begun:
                # Also where the log is there: its maker may have been killed right after that.
                self._store.commit(self._first_event)
                self._has_begun = True
            return self._store

    def existing(self) -> Journal:
        """The store for writing; raises FM-CONTROL-001 if there is none.

        For all that needs what a store knows. Only what freezes or registers makes one: an empty
        store in the place of a lost one would stand in the way of its restoration.
        """
        self.reader()
        return self.writer()

    def _first_event(self, state: State) -> list[Body]:
        """What makes an empty journal a store: an id that its receipts bear in every target."""
        return [] if state.seq else [Created(self.outside.ids.store())]

    def _journal(self) -> Journal:
        return Journal(
            self._log,
            actor=self.actor,
            clock=self.clock,
            op_ids=self.outside.ids.operation,
            observer=self.publisher.observe,
            chance=self.outside.chance,
            apply_one=self.outside.apply,
        )

    def new_batch_id(self) -> str:
        return self.outside.ids.batch(self.clock.now())

    def publish(self) -> None:
        """Refresh the published tables, and compact the journal if that is due.

        What was journaled stands whatever happens here: a table that cannot be refreshed lags
        behind and is warned about, it never changes the outcome of a call.
        """
        if self._store is None or self._is_coalescing:
            return
        try:
            self.publisher.publish(self._store)
            self.register_tables()
        except ControlError as error:
            log.warning("%s", error.in_one_line())

    def register_tables(self) -> None:
        if self.spark is not None and self.schema:
            from floodmark.engines.catalog import register_control_tables

            register_control_tables(self.spark, self.control, self.schema)

    def lake(self) -> str:
        """The folder beside the control store."""
        return self.control.rpartition("/")[0]

    def name_tables_again(self, state: State) -> None:
        """Tell a catalog that goes with the process the names that the store remembers.

        Only of tables that are still where they were; what a lasting catalog forgot, it was told.
        """
        if self.spark is None or not is_in_memory(self.spark):
            return
        known = {t.name: (state.place_of(t.path), t.table_id) for t in state.names.values()}
        known |= {s.table: (s.target, s.table_id) for s in state.sinks.values() if s.table}
        for name in known.keys() - self._named_again:
            path, table_id = known[name]
            try:
                if self._is_there(path, table_id):
                    register_again(self.spark, name, path)
            except FloodmarkError as error:
                log.warning("%s", error.in_one_line())
            self._named_again.add(name)

    def _is_there(self, path: str, table_id: str) -> bool:
        """Whether a table is still in its place."""
        if not is_delta_table(path, self.storage):
            return False
        return DeltaLog(path, self.storage).facts().table_id == table_id
