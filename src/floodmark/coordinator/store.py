"""What every part of a coordinator shares: its control store, and how that is published."""

from __future__ import annotations

import getpass
import logging
import os
import sys
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from floodmark.control.delta import DeltaEventLog
from floodmark.control.events import Created
from floodmark.control.heartbeats import FileHeartbeats, Heartbeats, Pulse
from floodmark.control.history import past_batch
from floodmark.control.journal import EventLog, Journal
from floodmark.control.projections import Projector
from floodmark.control.refusals import no_store
from floodmark.control.turns import turn
from floodmark.control.upkeep import compact_if_due
from floodmark.coordinator.names import Names
from floodmark.deltalog import DeltaLog, Storage, absolute, is_delta_table
from floodmark.engines.catalog import is_in_memory, register_again
from floodmark.errors import ControlError, FloodmarkError, PlanError
from floodmark.model.clock import Clock, SystemClock
from floodmark.model.names import is_of_project, is_of_source
from floodmark.model.plan import PlanRequest, Probe, TimeFacts
from floodmark.model.state import (
    Holder,
    Mark,
    PlannedBatch,
    State,
)
from floodmark.model.times import start_of
from floodmark.model.upstream import (
    UpstreamOptions,
)
from floodmark.model.window import CURSOR_FORMATS, Query, Window
from floodmark.model.write import WriteSpec
from floodmark.plan import lookups, planner, times
from floodmark.run.databases import NO_DATABASES, Databases
from floodmark.run.engine import Engine, spark_engine
from floodmark.run.leases import (
    DEFAULT_TTL_SECONDS,
    LeaseOffice,
    is_proven_dead,
    known_batch,
    this_process,
)
from floodmark.sources.keeping import only_looking
from floodmark.sources.logs import log_of
from floodmark.sources.probe import probe_between, probe_delta
from floodmark.sources.times import probe_place, probe_time

if TYPE_CHECKING:
    from floodmark.sources.cursors import Readers

log = logging.getLogger("floodmark")

_BY_READER = (*CURSOR_FORMATS, "files")
"""Formats of upstreams that only a project knows how to read."""


class Store:
    """A control store, opened when it is first needed."""

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
    ) -> None:
        self.storage = Storage(storage_options)
        self.control = absolute(control, base)
        self.base = base
        self.spark = spark
        self.databases = databases
        self.readers: Readers = {}
        self.writes: Mapping[str, Sequence[WriteSpec]] = {}
        """What a pipeline writes, by its name; of a function only its run tells."""
        """What reads upstreams of databases; a project hands it in."""
        self.actor = actor or current_user()
        self.schema = schema
        self.home_schema = schema
        """The schema of the published tables, also where they are not registered."""
        self._lease_ttl = lease_ttl
        self._clock: Clock = SystemClock()
        self._holder: Holder = this_process()
        self._is_gone: Callable[[Holder], bool] = is_proven_dead
        self._delta_log = DeltaEventLog(self.control, self.storage)
        self._log: EventLog = self._delta_log
        self._heartbeats: Heartbeats = FileHeartbeats(self.control, self.storage)
        self._projector: Projector | None = Projector(self.control, self.storage)
        self._store: Journal | None = None
        self._engine: Engine | None = None
        self._is_coalescing = False
        self._dead_runs: set[str] = set()
        self.names = Names(
            base, self.storage, lambda: self.spark, self._reader_or_empty, self._writer
        )
        self._named_again: set[str] = set()
        """Names that the session's catalog was told again."""
        self._opening = threading.RLock()
        """Threads that share a coordinator open its store once."""

    def _frozen_lookups(self, state: State, pipelines: Iterable[str]) -> tuple[Window, ...]:
        """The lookups of these pipelines, as they are now; raises FM-PLAN-032 for one that is absent."""
        known = [state.pipelines[name] for name in pipelines if name in state.pipelines]
        names = dict.fromkeys(lookup for pipeline in known for lookup in pipeline.lookups)
        return tuple(map(self.frozen_lookup, names))

    def frozen_lookup(self, name: str) -> Window:
        """A table to be looked up, whole, as it is now; with a warning if it has no rows."""
        if is_of_project(name):
            return self._frozen_rows(name)
        log = log_of(self.names.place(name), self.storage, self.spark)
        try:
            facts = log.facts()
        except PlanError as error:
            if error.code not in lookups.ABSENT:
                raise
            raise lookups.absent(name, error) from error
        size = log.snapshot_size(facts.latest_version)
        return lookups.frozen(name, facts, size)

    def _frozen_rows(self, name: str) -> Window:
        """Files by their list, a web API by its answer; a database is read when a batch needs it."""
        from floodmark.sources.cursors import reader_of

        reader, query = reader_of(self.readers, name), lookups.query_of(name)
        standing = times.standing_window(name, Probe(reader.facts(), query=query), None)
        if query.kind == "cursor":
            return replace(standing, reason="looked up: put aside once, before its first read")
        return lookups.listed(standing, reader.look(standing, self._clock.now(), self.spark))

    def _probe_between(self, upstream: str, after: int, mark: Mark | None) -> Probe:
        place = self.names.place(upstream)
        return probe_between(place, after, mark, self.storage, self.spark)

    def _probe_from(
        self, upstream: str, after: int, mark: Mark | None, options: UpstreamOptions
    ) -> Probe:
        """What a pipeline that has processed `after` needs to reach the watermark."""
        if options.format in _BY_READER:
            return _as_known(self._probe_by_reader(upstream, options), mark)
        if options.time_column is not None:
            return probe_place(self.names.place(upstream), options, self.storage)
        return self._probe_between(upstream, after, mark)

    def _probe_by_reader(self, upstream: str, options: UpstreamOptions) -> Probe:
        from floodmark.sources.cursors import reader_of

        facts = reader_of(self.readers, upstream).facts()
        return Probe(facts, query=Query(str(options.time_column), options.format or "sql"))

    def _probe_time(self, upstream: str, start: str | None, options: UpstreamOptions) -> Probe:
        """What is new after a mark; where only Spark can look, a session that is at hand is asked."""
        place, now = self.names.place(upstream), self._clock.now()
        if options.format in _BY_READER:
            return self._look_by_reader(upstream, start, options)
        probe = probe_time(place, start, options, now, self.storage)
        if probe.time is not None or self.spark is None:
            return probe
        window = replace(times.standing_window(place, probe, None), start_mark=start)
        source = spark_engine(self.spark, self.storage, self.readers).source()
        return replace(probe, time=source.look(window, now, options.settle_seconds))

    def _look_by_reader(self, upstream: str, start: str | None, options: UpstreamOptions) -> Probe:
        from floodmark.sources.cursors import reader_of

        probe = self._probe_by_reader(upstream, options)
        standing = times.standing_window(upstream, probe, None)
        # Only a first window starts at nothing, or at a baseline.
        is_first = start is None or start == options.first_mark(start)
        step = standing.after_version if is_first else standing.after_version + 1
        window = replace(standing, start_mark=start, after_version=step)
        reader = reader_of(self.readers, upstream)
        return replace(probe, time=reader.look(window, self._clock.now(), self.spark))

    def _look_time(
        self, upstream: str, start: str | None, options: UpstreamOptions
    ) -> TimeFacts | None:
        """For reports, which keep nothing; a web API or a plug-in is asked only by planning."""
        if is_of_source(upstream):
            return None
        with only_looking():
            return self._probe_time(upstream, start, options).time

    def _probe(
        self, upstream: str, mark: Mark | None, request: PlanRequest, options: UpstreamOptions
    ) -> Probe:
        if options.time_column is not None:
            probe = self._probe_time(upstream, start_of(mark, options), options)
            probe = _as_known(probe, mark)
            if mark is not None and mark.table_id != probe.facts.table_id:
                return self._probe_time(upstream, start_of(None, options), options)
            return probe
        place = self.names.place(upstream)
        limit = request.max_versions
        return probe_delta(place, mark, limit, self.storage, options, spark=self.spark)

    @contextmanager
    def coalesce(self) -> Iterator[Self]:
        """A context in which the published tables are refreshed once, at its end."""
        self._is_coalescing = True
        try:
            yield self
        finally:
            self._is_coalescing = False
            self._publish()

    def state(self) -> State:
        """The newest state; raises FM-CONTROL-001 if there is no store."""
        return self._reader().state()

    def stored_name(self, name: str) -> str:
        """The name under which an upstream is stored: the absolute path or URI.

        For a name of a catalog it is the path that the name was resolved to, for a table that
        moved the one it was first known by.
        """
        return self.names.stored(name)

    def refuse_unresolved(self, name: str) -> None:
        """Raise FM-PLAN-030 for a catalog name that nobody has resolved yet; asks no catalog."""
        self.names.refuse_unresolved(name)

    def _learn(self, names: Iterable[str], *, journals: bool) -> None:
        """Resolve the catalog names among these, and find the tables that moved."""
        self.names.learn(names, journals=journals)

    def _batch(self, batch_id: str) -> PlannedBatch:
        """A batch of any age; raises FM-CONTROL-004."""
        state = self._reader().state()
        if batch_id not in state.batches:
            past = past_batch(self.control, self.storage, batch_id)
            if past:
                return past
        return known_batch(state, batch_id)

    def _names(self, upstreams: Sequence[str], *, what: str) -> tuple[str, ...]:
        if isinstance(upstreams, str):
            upstreams = [upstreams]
        for name in upstreams:
            self.refuse_unresolved(name)
        names = tuple(self.stored_name(name) for name in upstreams)
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

    def _office(self, store: Journal) -> LeaseOffice:
        return LeaseOffice(
            store,
            self._heartbeats,
            self._clock,
            self._holder,
            self._is_gone,
            self._lease_ttl,
            self._dead_runs,
        )

    def _pulse(self, run_id: str, ttl_seconds: float) -> Pulse:
        return Pulse(self._heartbeats, run_id, ttl_seconds, self._clock)

    def _reader(self) -> Journal:
        """The store for looking; raises FM-CONTROL-001 if there is none."""
        with self._opening:
            if self._store is None:
                if self._log is self._delta_log and not self._delta_log.exists():
                    raise no_store(self.control)
                self._store = self._journal()
            return self._store

    def _has_store(self) -> bool:
        return (
            self._store is not None or self._log is not self._delta_log or self._delta_log.exists()
        )

    def _reader_or_empty(self) -> Journal:
        """The store for a preview: an empty one where none was created yet."""
        from floodmark.control.memory import MemoryEventLog

        if self._store is None and self._log is self._delta_log and not self._delta_log.exists():
            return Journal(MemoryEventLog(), actor=self.actor)
        return self._reader()

    def _writer(self) -> Journal:
        """The store for writing; created if there is none."""
        with self._opening:
            if self._store is None:
                if self._log is self._delta_log and not self._delta_log.exists():
                    self._delta_log.create()
                    sys.stderr.write(f"floodmark: created the control store {self.control}\n")
                self._store = self._journal()
                self._store.commit(
                    lambda state: [] if state.control_id else [Created(uuid.uuid4().hex)]
                )
            return self._store

    def _journal(self) -> Journal:
        observer = self._projector.observe if self._projector else None
        return Journal(self._log, actor=self.actor, clock=self._clock, observer=observer)

    def _new_batch_id(self) -> str:
        return f"batch_{self._clock.now():%Y%m%dT%H%M%S%fZ}_{os.urandom(4).hex()}"

    def _publish(self) -> None:
        """Refresh the published tables, and compact the journal if that is due.

        What was journaled stands whatever happens here: a table that cannot be refreshed lags
        behind and is warned about, it never changes the outcome of a call.
        """
        if self._projector is None or self._store is None or self._is_coalescing:
            return
        try:
            self._take_turn(self._store, "history")
            compact_if_due(self._delta_log, self._projector)
            self._register_tables()
        except ControlError as error:
            log.warning("%s", error.in_one_line())

    def _take_turn(self, store: Journal, table: str, only: tuple[str, ...] | None = None) -> None:
        """Refresh the published tables, unless whoever had the turn before did it for us.

        `table` is the last one to be refreshed: what it shows, all of them show.
        """
        if self._projector is None:
            return
        wanted = store.state().seq
        with turn(self.control) as has_waited:
            if not has_waited or self._projector.published_through(table) < wanted:
                self._projector.refresh(store.state(), only=only)

    def _register_tables(self) -> None:
        if self.spark is not None and self.schema:
            from floodmark.engines.catalog import register_control_tables

            register_control_tables(self.spark, self.control, self.schema)

    def _lake(self) -> str:
        """The folder beside the control store."""
        return self.control.rpartition("/")[0]

    def _name_tables_again(self, state: State) -> None:
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


def _as_known(probe: Probe, mark: Mark | None) -> Probe:
    """The probe of an upstream by what it was known by, where that was its name alone."""
    if mark is None or mark.table_id != mark.upstream:
        return probe
    return replace(probe, facts=replace(probe.facts, table_id=mark.table_id))


def current_user() -> str:
    """Who runs this, for the records; a container may have no name for its user."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
