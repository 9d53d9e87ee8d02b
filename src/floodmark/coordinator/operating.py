"""What operators do: to pipelines, with ranges that are committed, to the store."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta
from typing import get_args

from floodmark.control import all_events, operations, refuse_odd_name
from floodmark.control.events import Body, Event, Planned, Reset
from floodmark.control.journal import number_events
from floodmark.control.published import Projector
from floodmark.control.rules import fold
from floodmark.coordinator.store import Store
from floodmark.deltalog import absolute
from floodmark.errors import SourceError
from floodmark.model import (
    DEFAULT_SCOPE,
    Batch,
    BatchKind,
    Draft,
    Mark,
    PlannedBatch,
    Probe,
    State,
    StoreContent,
    TimeMark,
    TimeType,
    Upkeep,
    UpstreamOptions,
    Window,
    batch_view,
    settled_through,
)
from floodmark.model.names import connection_of
from floodmark.plan import again, lookups, times
from floodmark.plan.refusals import type_unknown
from floodmark.run.edges import Edges
from floodmark.run.landing import Landing
from floodmark.sinks import refuse_harm

log = logging.getLogger("floodmark")

_LOOKS = 5
"""How often an export looks at a store that is being written, before it gives up."""


class Operating(Store):
    """The part of the coordinator for operators."""

    def pause(self, pipeline: str) -> None:
        """Take a pipeline out: open batches no longer wait for it, new ones do not ask for it.

        Refused (FM-CONTROL-006) while a run of it is alive. A batch that it had begun stays its
        debt; it finishes that first once it is resumed. Pausing twice changes nothing.
        """
        self._operate(lambda state, dead: operations.pausing(state, pipeline, dead), pipeline)

    def resume(self, pipeline: str) -> None:
        """Let a paused pipeline take part again; the next plan catches it up to the watermark."""
        self._operate(lambda state, _: operations.resuming(state, pipeline))

    def unregister(self, pipeline: str) -> None:
        """Remove a pipeline for good: nothing waits for it any more.

        Refused (FM-CONTROL-006) while a run of it is alive. Its targets stay as they are; a
        pipeline of that name that is registered later starts with everything. Twice is once.
        """
        self._operate(lambda state, dead: operations.removing(state, pipeline, dead), pipeline)

    def refuse_unknown(self, pipeline: str) -> None:
        """Raise FM-CONTROL-005 with the nearest match unless the pipeline is registered."""
        operations.known(self.state(), pipeline)

    def rename(self, pipeline: str, new_name: str) -> None:
        """Give a pipeline another name; it goes on where it stands, with receipts of that name.

        What it has to know about rows near the marks of databases goes with it.
        """
        refuse_odd_name(new_name)
        edges = Edges(self.control, self.storage)

        def decide(state: State, _: str | None) -> list[Body]:
            bodies = operations.renaming(state, pipeline, new_name)
            # Before the commit, and again if another one came first: no batch is open at either time.
            edges.follow(pipeline, new_name)
            return bodies

        self._operate(decide)
        edges.forget(pipeline)

    def refresh(self, pipeline: str) -> None:
        """Let one pipeline load everything again: its next batch is a seed of the whole tables.

        The watermarks and the other pipelines of its scope stay. The function sees snapshots; an
        append has to say `allow_full=True`, or better overwrite.
        """
        self._operate(lambda state, _: operations.refreshing(state, pipeline))

    def _operate(
        self, events: Callable[[State, str | None], list[Body]], ended: str | None = None
    ) -> None:
        """Journal what an operation means; `ended` names a pipeline that must not be running."""
        store = self._writer()
        dead = self._office(store).proven_dead(ended, store.state()) if ended else None
        store.commit(lambda state: events(state, dead))
        self._publish()

    def backfill(
        self,
        upstream: str,
        *,
        start: again.Edge,
        end: again.Edge,
        pipelines: Sequence[str],
        scope: str = DEFAULT_SCOPE,
        allow_duplicates: bool = False,
        allow_stale: bool = False,
    ) -> Batch:
        """Plan a range that is committed once more, for these pipelines; watermarks stay.

        Both ends are included: versions; of an upstream without versions values of its column, as
        text, number, date or datetime (a day means all of it, of instants in UTC).
        The batch has receipts of its own, so its runs are exactly once too. Writes must be merges,
        or it has to be said that rows may double (`allow_duplicates`) or older rows replace newer
        ones (`allow_stale`). Called twice it plans two batches.
        """
        name = self.names.stored(upstream)
        allows = _allowed(allow_duplicates, allow_stale)

        def draft(state: State) -> Draft:
            chosen = tuple(operations.known(state, pipeline) for pipeline in pipelines)
            request = again.Backfill(scope, name, start, end, chosen)
            request.refuse_strangers()
            marks = {u: state.marks.get((scope, u)) for u in request.upstreams()}
            marks[name] = request.mark(state)
            probes = {
                u: self._probe_again(
                    u,
                    -1 if mark is None else request.after(mark) if u == name else mark.version,
                    mark,
                    request.options(u),
                    pipelines,
                )
                for u, mark in marks.items()
            }
            return again.backfilling(state, request, probes)

        return self._plan_again("backfill", draft, allows)

    def _probe_again(
        self,
        upstream: str,
        after: int,
        mark: Mark | None,
        options: UpstreamOptions,
        pipelines: Iterable[str],
    ) -> Probe:
        try:
            return self._prober().of(pipelines).probe_again(upstream, after, mark, options)
        except SourceError as error:
            if error.code == "FM-SOURCE-002":
                raise again.range_gone(error) from error
            raise

    def replay(
        self,
        batch_id: str,
        *,
        pipelines: Sequence[str] | None = None,
        allow_duplicates: bool = False,
        allow_stale: bool = False,
    ) -> Batch:
        """Plan the very windows of a completed batch once more; see `backfill`."""
        allows = _allowed(allow_duplicates, allow_stale)
        batch = self._batch(batch_id)
        names = tuple(batch.required) if pipelines is None else pipelines
        return self._plan_again(
            "replay", lambda state: again.replaying(state, batch, names), allows, repeats=batch
        )

    def _plan_again(
        self,
        kind: BatchKind,
        draft: Callable[[State], Draft],
        allows: tuple[str, ...],
        repeats: PlannedBatch | None = None,
    ) -> Batch:
        batch_id = self._new_batch_id()

        def decide(state: State) -> list[Body]:
            drafted = draft(state)
            planned = Planned(
                batch_id=batch_id,
                batch_seq=state.batch_seq + 1,
                scope=drafted.scope,
                windows=drafted.windows,
                required=drafted.required,
                batch_kind=kind,
                allows=allows,
                lookups=self._lookups_again(state, drafted.required, repeats),
            )
            self._refuse_harm(state, planned)
            return [planned]

        state = self._writer().commit(decide)
        self._publish()
        return batch_view(state.batches[batch_id], reused=False)

    def _lookups_again(
        self, state: State, pipelines: Iterable[str], repeats: PlannedBatch | None
    ) -> tuple[Window, ...]:
        """The lookups as they are now; of a replay as the batch that it repeats has frozen them."""
        if repeats is None:
            return self._frozen_lookups(state, pipelines)
        chosen = [state.pipelines[name] for name in pipelines if name in state.pipelines]
        names = dict.fromkeys(name for each in chosen for name in each.lookups)
        frozen = lookups.as_frozen_by(repeats, [each.name for each in chosen], names)
        newer = [name for name in names if name not in frozen]
        if newer:
            text = ", ".join(newer)
            log.warning(
                "batch %s has not frozen %s: looked up as it is now", repeats.batch_id, text
            )
        return tuple(frozen.get(name) or self.frozen_lookup(name) for name in names)

    def _refuse_harm(self, state: State, planned: Planned) -> None:
        """Raise FM-SINK-021 or -022 for writes that are known; a run would refuse them later."""
        events = number_events(state, [planned], "", self.actor, self._clock.now())
        after = fold(events, state, self.outside.apply)
        batch = after.batches[planned.batch_id]
        for pipeline in planned.required:
            for spec in self.writes.get(pipeline, ()):
                refuse_harm(spec, batch, state, is_planned=False)

    def rebuild_tables(self) -> bool:
        """Write the published tables anew; whether every event since the beginning was at hand."""
        from floodmark.control.rebuild import rebuild_tables

        is_complete = rebuild_tables(self._reader(), self.control, self.storage)
        self._register_tables()
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
        state = self._reader().state()
        now = self._clock.now()
        done = keep_up(
            self._delta_log, self._projector, state, seconds, now, keep_rows_seconds=kept
        )
        lists = FileLists(self.control, self.storage)
        lists.sweep(self._reader().state().every_mark(), now - timedelta(seconds=seconds))
        self._register_tables()
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
        self._writer().commit(lambda state: decide_reset(state, body))
        self._publish()

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

        name, state = self.names.stored(upstream), self._reader().state()
        resetting.refuse_unknown(state, name, scope)
        if to is None:
            resetting.refuse_version(state, name, scope, to_version)
            return resetting.reset_of(name, scope, to_version, lambda: self._prober().log(name))
        options = resetting.time_options(state, name, scope, to_version)
        readers = [pipeline.name for pipeline in state.pipelines_in(scope)]
        probe = self._prober().of(readers).probe_again(name, -1, None, options)
        mark = state.marks.get((scope, name))
        times.refuse_other_way(name, mark, probe.query)
        kind = self._time_type(name, scope, mark, options)
        limit = settled_through(kind, self._clock.now(), options.settle_seconds)
        return resetting.reset_to_value(name, scope, to, probe, limit)

    def _time_type(
        self, upstream: str, scope: str, mark: Mark | None, options: UpstreamOptions
    ) -> TimeType:
        """The type of a time column; raises FM-PLAN-021 where only Spark could look."""
        if mark is not None and isinstance(mark.mark, TimeMark):
            return mark.mark.type
        found = self._look_for_report(scope, upstream, None, options)
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
        content = transfer.export_text(events, self._clock.now(), files)
        transfer.write_export(absolute(file), content, self.storage)
        left = Landing(self.control, self.storage).batches_with_rows(self.state())
        told = transfer.content_of(self.control, events, self.state())
        return replace(told, not_restored=tuple(map(transfer.not_carried, left)))

    def _at_rest(self) -> tuple[Sequence[Event], dict[str, bytes]]:
        """Every event, and the files that go with that state of the store."""
        from floodmark.control import transfer
        from floodmark.sources.files import FileLists

        lists, edges = FileLists(self.control, self.storage), Edges(self.control, self.storage)
        for _ in range(_LOOKS):
            events = all_events(self._reader(), self.control, self.storage)
            state = self.state()
            named = [*lists.named(state.every_mark()), *edges.files_of(state.pipelines)]
            try:
                files = {path: self.storage.read(f"{self.control}/{path}") for path in named}
            except FileNotFoundError:  # a run has removed it: then there are newer events
                continue
            if self.state().seq == state.seq == events[-1].seq:
                return events, files
        raise transfer.not_at_rest(self.control)

    def import_state(self, file: str) -> StoreContent:
        """Make the store that a file holds, under its old control id, in an empty place.

        Raises FM-CONTROL-021 if there is a store, FM-CONTROL-022 if the file is no whole export.
        The store it was exported from must not be used any more.
        """
        from floodmark.control import transfer

        export = transfer.read_export(absolute(file), self.storage)
        transfer.refuse_existing(self._delta_log, Projector(self.control, self.storage))
        for path, content in export.files.items():
            self.storage.write(f"{self.control}/{path}", content)
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

        transfer.refuse_existing(self._delta_log, Projector(self.control, self.storage))
        names = [t if connection_of(t) else self.names.stored(t) for t in targets]
        known = {
            name: recovery.Known(scope, tuple(self._known_names(upstreams)))
            for name, (scope, upstreams) in (pipelines or {}).items()
        }
        found = recovery.gather(names, known, self.storage, self.databases.ledger)
        now = self._clock.now()
        body, missing = recovery.rebuilt(found, names, self.storage, self.actor, now)
        content = self._filled([Event(1, body, self.outside.ids.operation(), self.actor, now)])
        return replace(content, not_restored=tuple(missing))

    def _known_names(self, upstreams: Sequence[str]) -> list[str]:
        """The stored names, without those of a catalog that cannot be asked now."""
        if self.spark is not None:
            self.names.learn(upstreams, journals=False)
        return [self.names.stored(u) for u in upstreams if self.names.is_resolved(u)]

    def _filled(self, events: Sequence[Event]) -> StoreContent:
        from floodmark.control import transfer

        transfer.fill(self._delta_log, Projector(self.control, self.storage), events)
        self.rebuild_tables()
        return transfer.content_of(self.control, events, self.state())


def _allowed(duplicates: bool, stale: bool) -> tuple[str, ...]:  # noqa: FBT001 the caller names them
    return (*(("duplicates",) if duplicates else ()), *(("stale",) if stale else ()))
