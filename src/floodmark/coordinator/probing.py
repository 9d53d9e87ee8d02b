"""Looking at upstreams: what is new in them. Planning decides on the answers, and asks nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from floodmark.deltalog import DeltaLog, Storage, is_delta_table
from floodmark.errors import PlanError
from floodmark.model import (
    AnyMark,
    Clock,
    Mark,
    Probe,
    QueryWindow,
    TimeFacts,
    UpstreamOptions,
    Window,
    start_of,
)
from floodmark.model.names import is_of_project
from floodmark.plan import lookups, times
from floodmark.run.engine import spark_engine
from floodmark.sources import LookSpec, Scratch
from floodmark.sources.delta import TableLog, log_of, probe_between, probe_delta
from floodmark.sources.time import probe_place, probe_time

if TYPE_CHECKING:
    from floodmark.sources import Readers


class Prober(Protocol):
    """Looks at upstreams, by their stored names. "Could not look" is an error, never "no news"."""

    def of(self, pipelines: Iterable[str]) -> Prober:
        """The same for a look on behalf of these pipelines: by what they say about their reads."""

    def has_table(self, path: str) -> bool:
        """Whether a Delta table is at a path."""

    def table_id(self, path: str) -> str:
        """The id of the Delta table at a path."""

    def log(self, upstream: str) -> TableLog:
        """The log of an upstream that has versions."""

    def probe(
        self,
        upstream: str,
        mark: Mark | None,
        options: UpstreamOptions,
        max_versions: int | None = None,
    ) -> Probe:
        """What is new after a watermark."""

    def probe_again(
        self, upstream: str, after: int, mark: Mark | None, options: UpstreamOptions
    ) -> Probe:
        """What a pipeline that has processed `after` needs to reach the watermark."""

    def look(
        self, upstream: str, start: AnyMark | None, options: UpstreamOptions
    ) -> TimeFacts | None:
        """What is new after a mark of an upstream without versions; None if only a run can tell."""

    def frozen_lookup(self, upstream: str) -> Window:
        """A table to be looked up, whole, as it is now; FM-PLAN-032 for one that is absent."""


@dataclass(frozen=True)
class UpstreamProber:
    """Looks at the upstreams themselves."""

    storage: Storage
    spark: Any
    """The session where there is one: some tables and columns only Spark can look into."""
    readers: Readers
    clock: Clock
    place: Callable[[str], str]
    """Where the table of a stored name is."""
    scratch: Scratch | None = None
    """Where that goes which a look has to keep; None: beside the control store, for a run."""

    def of(self, pipelines: Iterable[str]) -> UpstreamProber:
        """See `Prober.of`."""
        from floodmark.sources import first_of

        return replace(self, readers=first_of(self.readers, pipelines))

    def has_table(self, path: str) -> bool:
        """See `Prober.has_table`."""
        return is_delta_table(path, self.storage)

    def table_id(self, path: str) -> str:
        """See `Prober.table_id`."""
        return DeltaLog(path, self.storage).facts().table_id

    def log(self, upstream: str) -> TableLog:
        """See `Prober.log`."""
        return log_of(self.place(upstream), self.storage, self.spark)

    def probe(
        self,
        upstream: str,
        mark: Mark | None,
        options: UpstreamOptions,
        max_versions: int | None = None,
    ) -> Probe:
        """See `Prober.probe`."""
        if options.has_versions:
            path = self.place(upstream)
            return probe_delta(path, mark, max_versions, self.storage, options, spark=self.spark)
        probe = _as_recorded(self._probe_time(upstream, start_of(mark, options), options), mark)
        if mark is not None and mark.table_id != probe.facts.table_id:
            return self._probe_time(upstream, start_of(None, options), options)
        return probe

    def probe_again(
        self, upstream: str, after: int, mark: Mark | None, options: UpstreamOptions
    ) -> Probe:
        """See `Prober.probe_again`."""
        if options.is_by_reader:
            return _as_recorded(self._facts_of_reader(upstream, options), mark)
        path = self.place(upstream)
        if not options.has_versions:
            return probe_place(path, options, self.storage)
        return probe_between(path, after, mark, self.storage, self.spark)

    def look(
        self, upstream: str, start: AnyMark | None, options: UpstreamOptions
    ) -> TimeFacts | None:
        """See `Prober.look`."""
        return self._probe_time(upstream, start, options).time

    def frozen_lookup(self, upstream: str) -> Window:
        """See `Prober.frozen_lookup`; a table without rows gets a warning."""
        if is_of_project(upstream):
            return self._frozen_rows(upstream)
        log = self.log(upstream)
        try:
            facts = log.facts()
        except PlanError as error:
            if error.code not in lookups.ABSENT:
                raise
            raise lookups.absent(upstream, error) from error
        return lookups.frozen(upstream, facts, log.snapshot_size(facts.latest_version))

    def _frozen_rows(self, upstream: str) -> Window:
        """Files by their list, a web API by its answer; a database is read when a batch needs it."""
        from floodmark.sources import reader_of

        reader = reader_of(self.readers, upstream)

        def look(standing: QueryWindow) -> TimeFacts | None:
            return reader.look(standing, self._spec())

        return lookups.frozen_rows(upstream, reader.facts(), look)

    def _probe_time(self, upstream: str, start: AnyMark | None, options: UpstreamOptions) -> Probe:
        """What is new after a mark; where only Spark can look, a session that is at hand is asked."""
        if options.is_by_reader:
            return self._look_by_reader(upstream, start, options)
        path, now = self.place(upstream), self.clock.now()
        probe = probe_time(path, start, options, now, self.storage)
        if probe.time is not None or self.spark is None:
            return probe
        window = replace(times.standing_window(path, probe, None), after_mark=start)
        source = spark_engine(self.spark, self.storage, self.readers).source()
        return replace(probe, time=source.look(window, LookSpec(now, options.settle_seconds)))

    def _look_by_reader(
        self, upstream: str, start: AnyMark | None, options: UpstreamOptions
    ) -> Probe:
        from floodmark.sources import reader_of

        probe = self._facts_of_reader(upstream, options)
        standing = times.standing_window(upstream, probe, None)
        # Only a first window starts at nothing, or at a baseline.
        is_first = start is None or start == options.first_mark(start)
        step = standing.after if is_first else standing.after + 1
        window = replace(standing, after_mark=start, after=step)
        reader = reader_of(self.readers, upstream)
        return replace(probe, time=reader.look(window, self._spec()))

    def _spec(self) -> LookSpec:
        return LookSpec(self.clock.now(), spark=self.spark, scratch=self.scratch)

    def _facts_of_reader(self, upstream: str, options: UpstreamOptions) -> Probe:
        from floodmark.sources import reader_of

        return Probe(reader_of(self.readers, upstream).facts(), query=options.as_query())


def _as_recorded(probe: Probe, mark: Mark | None) -> Probe:
    """The probe of an upstream by what it was recorded as, where that was its name alone."""
    if mark is None or mark.table_id != mark.upstream:
        return probe
    return replace(probe, facts=replace(probe.facts, table_id=mark.table_id))
