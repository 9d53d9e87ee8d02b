"""The upkeep of a control store: names and marks, tables, files, exports and rebuilds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta
from typing import TYPE_CHECKING, get_args

from floodmark.control import all_events, operations, refuse_odd_name
from floodmark.control.events import Body, Event, Reset
from floodmark.control.published import Projector
from floodmark.coordinator.operating import Operating
from floodmark.coordinator.store import Store
from floodmark.deltalog import absolute
from floodmark.model import (
    DEFAULT_SCOPE,
    Finding,
    Mark,
    State,
    StoreContent,
    TimeMark,
    TimeType,
    Upkeep,
    UpstreamOptions,
    settled_through,
)
from floodmark.model.arguments import checks_arguments
from floodmark.model.names import connection_of
from floodmark.plan import times
from floodmark.plan.refusals import type_unknown
from floodmark.run.edges import Edges
from floodmark.run.landing import LandingFolder

if TYPE_CHECKING:
    from floodmark.report import Sample

_LOOKS = 5
"""How often an export looks at a store that is being written, before it gives up."""


@checks_arguments
class Admin:
    """What is done to a control store and to what it knows, apart from the daily work."""

    def __init__(self, store: Store, operating: Operating) -> None:
        self._store = store
        self._operating = operating

    def rename(self, pipeline: str, new_name: str) -> None:
        """Give a pipeline another name; it goes on where it stands, with receipts of that name.

        What it has to know about rows near the marks of databases goes with it.
        """
        refuse_odd_name(new_name)
        edges = Edges(self._store.control, self._store.storage)

        def decide(state: State, _: str | None) -> list[Body]:
            bodies = operations.renaming(state, pipeline, new_name)
            # Before the commit, and again if another one came first: no batch is open at either time.
            edges.follow(pipeline, new_name)
            return bodies

        self._operating.operate(decide)
        edges.forget(pipeline)

    def refresh(self, pipeline: str) -> None:
        """Let one pipeline load everything again: its next batch is a seed of the whole tables.

        The watermarks and the other pipelines of its scope stay. The function sees snapshots; an
        append has to say `allow_full=True`, or better overwrite.
        """
        self._operating.operate(lambda state, _: operations.refreshing(state, pipeline))

    def rebuild_tables(self) -> bool:
        """Write the published tables anew; whether every event since the beginning was at hand."""
        from floodmark.control.rebuild import rebuild_tables

        is_complete = rebuild_tables(self._store.reader(), self._store.control, self._store.storage)
        self._store.register_tables()
        return is_complete

    def upkeep(
        self,
        retain: float | str = "7d",
        *,
        allow_short: bool = False,
        keep_rows: float | str | None = None,
    ) -> Upkeep:
        """Fold the journal, join small files, remove what nobody needs; says what it did.

        Files that were replaced stay for `retain` (seconds, or text such as "30d"), at least an
        hour unless `allow_short`. `keep_rows` moves rows of `watermarks`, `pipeline_checkpoints`
        and `history` that are older, and whose batch is finished and was not touched since, to
        tables of the same names under `<control>/archive`; without it every row stays. State and
        guarantees stay as they are. Killed anywhere it leaves a sound store; called again, it does
        what is left. Raises FM-CONTROL-001 if there is no store, FM-CONTROL-031 if the archive is
        another store's, FM-CONTROL-032 if it cannot be written, FM-CONTROL-033 if it has lost rows.
        """
        from floodmark.control.upkeep import SAFE_SECONDS, keep_up, refuse_short
        from floodmark.model.durations import seconds_of
        from floodmark.sources.files import FileLists

        seconds = seconds_of(retain) if isinstance(retain, str) else float(retain)
        refuse_short(seconds, 0.0 if allow_short else SAFE_SECONDS)
        kept = seconds_of(keep_rows) if isinstance(keep_rows, str) else keep_rows
        state = self._store.reader().state()
        now = self._store.clock.now()
        done = keep_up(
            self._store.delta_log,
            self._store.projector,
            state,
            seconds,
            now,
            keep_rows_seconds=kept,
        )
        lists = FileLists(self._store.control, self._store.storage)
        lists.sweep(self._store.reader().state().every_mark(), now - timedelta(seconds=seconds))
        self._store.register_tables()
        return done

    def reset(
        self,
        upstream: str,
        *,
        scope: str = DEFAULT_SCOPE,
        to_version: int | None = None,
        to: str | date | None = None,
    ) -> None:
        """Put a watermark elsewhere: marks only, rows and receipts in targets stay.

        The next plan starts after `to_version`; of an upstream without versions after the value
        `to` (ISO text, date or datetime; a day counts to its end). With neither nothing counts as
        processed. Going back processes rows again, going on leaves a gap that `gaps` shows. Called
        twice, the second call changes nothing. Raises FM-CONTROL-023 while a batch holds it.
        """
        from floodmark.control.resetting import decide_reset

        body = self.planned_reset(upstream, scope=scope, to_version=to_version, to=to)
        self._store.existing().commit(lambda state: decide_reset(state, body))
        self._store.publish()

    def planned_reset(
        self,
        upstream: str,
        *,
        scope: str = DEFAULT_SCOPE,
        to_version: int | None = None,
        to: str | date | None = None,
    ) -> Reset:
        """What `reset` would journal; changes nothing and raises as it does."""
        from floodmark.control import resetting

        name, state = self._store.names.stored(upstream), self._store.reader().state()
        resetting.refuse_unknown(state, name, scope)
        if to is None:
            resetting.refuse_version(state, name, scope, to_version)
            return resetting.reset_of(
                name, scope, to_version, lambda: self._store.prober().log(name)
            )
        options = resetting.time_options(state, name, scope, to_version)
        readers = [pipeline.name for pipeline in state.pipelines_in(scope)]
        probe = self._store.prober().of(readers).probe_again(name, -1, None, options)
        mark = state.marks.get((scope, name))
        times.refuse_other_way(name, mark, probe.query)
        kind = self._time_type(name, scope, mark, options)
        limit = settled_through(kind, self._store.clock.now(), options.settle_seconds)
        return resetting.reset_to_value(name, scope, to, probe, limit)

    def _time_type(
        self, upstream: str, scope: str, mark: Mark | None, options: UpstreamOptions
    ) -> TimeType:
        """The type of a time column; raises FM-PLAN-021 where only Spark could look."""
        if mark is not None and isinstance(mark.mark, TimeMark):
            return mark.mark.type
        found = self._store.look_for_report(scope, upstream, None, options)
        kinds: tuple[TimeType, ...] = get_args(TimeType)
        for kind in kinds:
            if found is not None and found.type == kind:
                return kind
        raise type_unknown(upstream)

    def export_state(self, file: str) -> StoreContent:
        """Write every event into one text file, and say what is in it.

        The edges of databases and the lists of files that the next windows go by are in it too; the
        rows that open batches have put aside are not, and the result says so. Raises FM-CONFIG-007
        if the file is there already, FM-CONTROL-025 if the store does not stand still.
        """
        from floodmark.control import transfer

        events, files = self._at_rest()
        content = transfer.export_text(events, self._store.clock.now(), files)
        transfer.write_export(absolute(file), content, self._store.storage)
        left = LandingFolder(self._store.control, self._store.storage).batches_with_rows(
            self._store.state()
        )
        told = transfer.content_of(self._store.control, events, self._store.state())
        return replace(told, not_restored=tuple(map(transfer.not_carried, left)))

    def _at_rest(self) -> tuple[Sequence[Event], dict[str, bytes]]:
        """Every event, and the files that go with that state of the store."""
        from floodmark.control import transfer
        from floodmark.sources.files import FileLists

        lists, edges = (
            FileLists(self._store.control, self._store.storage),
            Edges(self._store.control, self._store.storage),
        )
        for _ in range(_LOOKS):
            events = all_events(self._store.reader(), self._store.control, self._store.storage)
            state = self._store.state()
            named = [*lists.named(state.every_mark()), *edges.files_of(state.pipelines)]
            try:
                files = {
                    path: self._store.storage.read(f"{self._store.control}/{path}")
                    for path in named
                }
            except FileNotFoundError:  # a run has removed it: then there are newer events
                continue
            if self._store.state().seq == state.seq == events[-1].seq:
                return events, files
        raise transfer.not_at_rest(self._store.control)

    def import_state(self, file: str) -> StoreContent:
        """Make the store that a file holds, under its old control id, in an empty place.

        Raises FM-CONTROL-021 if there is a store, FM-CONTROL-022 if the file is no whole export.
        The store it was exported from must not be used any more.
        """
        from floodmark.control import transfer

        export = transfer.read_export(absolute(file), self._store.storage)
        transfer.refuse_existing(
            self._store.delta_log, Projector(self._store.control, self._store.storage)
        )
        for path, content in export.files.items():
            self._store.storage.write(f"{self._store.control}/{path}", content)
        return self._filled(export.events)

    def rebuild_from_targets(
        self,
        targets: Sequence[str],
        pipelines: Mapping[str, tuple[str, Sequence[str]]] | None = None,
    ) -> StoreContent:
        """Restore a lost store from the commits of its targets; says what could not be restored.

        `pipelines` gives scope and upstreams of pipelines that are known from elsewhere. Raises
        FM-CONTROL-021 if there is a store, FM-CONTROL-024 if the targets are not of one store.
        """
        from floodmark.control import recovery, transfer

        transfer.refuse_existing(
            self._store.delta_log, Projector(self._store.control, self._store.storage)
        )
        names = [t if connection_of(t) else self._store.names.stored(t) for t in targets]
        known = {
            name: recovery.Known(scope, tuple(self._known_names(upstreams)))
            for name, (scope, upstreams) in (pipelines or {}).items()
        }
        found = recovery.gather(names, known, self._store.storage, self._store.databases.ledger)
        now = self._store.clock.now()
        body, missing = recovery.rebuilt(found, names, self._store.storage, self._store.actor, now)
        content = self._filled(
            [Event(1, body, self._store.outside.ids.operation(), self._store.actor, now)]
        )
        return replace(content, not_restored=tuple(missing))

    def _known_names(self, upstreams: Sequence[str]) -> list[str]:
        """The stored names, without those of a catalog that cannot be asked now."""
        if self._store.spark is not None:
            self._store.names.learn(upstreams, journals=False)
        return [self._store.names.stored(u) for u in upstreams if self._store.names.is_resolved(u)]

    def _filled(self, events: Sequence[Event]) -> StoreContent:
        from floodmark.control import transfer

        transfer.fill(
            self._store.delta_log, Projector(self._store.control, self._store.storage), events
        )
        self.rebuild_tables()
        return transfer.content_of(self._store.control, events, self._store.state())

    def metrics(self, stuck_after_seconds: float = 86_400.0) -> tuple[Sample, ...]:
        """The numbers for monitoring (docs/reference/metrics.md); reads the store anew."""
        from floodmark.report import measure

        return measure(
            self._store.reader(),
            self._store.control,
            self._store.storage,
            now=self._store.clock.now(),
            is_gone=self._store.outside.process.is_gone,
            stuck_after_seconds=stuck_after_seconds,
            look=self._store.look_for_report,
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

        reader = self._store.reader_or_empty()
        store = examine_store(reader, self._store.control, self._store.storage)
        findings = [*examine_machine(), *store]
        if not store[0].ok:
            return findings  # a store that cannot be read tells nothing of the rest
        if reader.state().control_id:
            findings += examine_tables(reader, self._store.control, self._store.storage)
        state, lags = (
            reader.state(),
            lag_of(
                reader, self._store.storage, self._store.clock.now(), self._store.look_for_report
            ),
        )
        names = [self._store.names.stored(u) for u in upstreams] + [u for _, u in state.marks]
        written = {self._store.names.stored(table) for table in to_come}
        for name in dict.fromkeys(names):
            marks = [mark for mark in state.marks.values() if mark.upstream == name]
            behind = [lag for lag in lags if lag.upstream == name]
            findings += examine_upstream(
                name, marks, behind, state, self._store.storage, may_come=name in written
            )
        for sink in {sink.target: sink for sink in state.sinks.values()}.values():
            findings += examine_target(
                sink, state, self._store.storage, self._store.databases.ledger, self._store.base
            )
        return findings
