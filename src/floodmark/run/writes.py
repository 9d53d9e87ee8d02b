"""The writes of one pass: exactly once, by receipts, with what targets have lost settled first."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from floodmark import failpoints
from floodmark.control.events import Amended, SinkWritten, TargetSettled
from floodmark.deltalog import absolute, is_delta_table
from floodmark.errors import RunError, SinkError
from floodmark.model import (
    DELTA,
    OnLostTarget,
    Receipt,
    SinkDone,
    State,
    Window,
    WriteResult,
    WriteSpec,
    again_app_id,
    commit_metadata,
    forward_app_id,
)
from floodmark.model.copying import replace
from floodmark.model.names import connection_of, is_catalog_name
from floodmark.model.write_rules import replaced_anew
from floodmark.next_steps import then_retry
from floodmark.run.databases import Databases
from floodmark.run.engine import Engine
from floodmark.run.landing import has_files
from floodmark.run.leases import Lease
from floodmark.run.lost_targets import (
    OtherPass,
    awaits_rebuild,
    generation,
    refuse_partial_rebuild,
    refuse_rebuild_again,
)
from floodmark.run.reads import Reads
from floodmark.run.stages import Stages
from floodmark.sinks import RecoverableSink, Sink, loss_of, refuse_harm
from floodmark.sinks.delta import TargetNames, last_write
from floodmark.sources import written_with_other_rows

Notes = Mapping[str, str]
"""What a commit of floodmark's own tells beside its batch."""


ASKED_ANEW = "the operator asked to load everything anew"


class Count(Protocol):
    """How many rows of a window were read; see `sources.counts.RowCount`."""

    @property
    def window(self) -> Window: ...
    def misread(self) -> int | None: ...
    def recounted(self) -> int | None: ...


class Writes:
    """Writes frames to targets, and records what is in them."""

    def __init__(
        self,
        reads: Reads,
        engine: Engine,
        lease: Lease,
        control_id: str,
        *,
        targets: TargetNames,
        databases: Databases,
        stages: Stages,
        on_lost_target: OnLostTarget | None = None,
        anew: set[str] | None = None,
    ) -> None:
        self._reads = reads
        self._engine = engine
        self._lease = lease
        self._control_id = control_id
        self._targets = targets
        self._databases = databases
        self._stages = stages
        self._on_lost_target = on_lost_target
        self._anew = anew
        """The writes whose rebuild this run has settled, if all of them are to be made anew."""
        self.results: dict[str, WriteResult] = {}
        """What was written so far, by the names of the writes."""
        self.aside: set[str] = set()
        """The writes among them that hold rows set aside by checks."""
        self.needs_other_pass = False
        """Whether a write has to be made in a pass of the other kind; see `run.lost_targets`."""
        self._unfinished: dict[str, WriteSpec] = {}
        """Writes that raised and were not repeated with success."""
        self._sinks: Mapping[str, SinkDone] = {}
        self.seen_seq = -1
        self._guard = threading.Lock()
        self._under_way: set[str] = set()
        self._left_behind: frozenset[str] = frozenset()

    def write(
        self,
        spec: WriteSpec,
        make: Callable[[], Any],
        windows: Sequence[Window] | None = None,
        counts: Sequence[Count] = (),
    ) -> WriteResult:
        """Make a write exactly once; `make` is called only if the rows are not there yet.

        `windows` are those that the rows come from, where that is not all of the run's. `counts`
        tell how many rows the write has read of them: FM-SOURCE-065 if the log promised others.
        1 fence, 2 target and name, 3 receipt, 4 look or write, 5 compare and record.
        """
        given = self._reads.windows if windows is None else tuple(windows)
        begun = spec.name or spec.target
        self._unfinished.setdefault(begun, spec)
        if self.results:
            failpoints.reached("sink.between_sinks")
        state = self._lease.ensure_held()
        self.see(state)
        self._left_behind = state.left_behind_by(self._reads.pipeline)
        spec, is_registered = self._located(spec)
        if spec.name in self.results:
            del self._unfinished[begun]
            raise _same_name(spec)
        with self._alone(spec):
            refuse_harm(spec, self._reads.batch, state)
            self._reads.check({w.upstream: w for w in (*self._reads.windows, *given)}.values())
            receipt, sink = self._place(spec, given)
            result = sink.committed(receipt)
            if result is None:
                self._refuse_other_pass(receipt)
                result = sink.write(make(), receipt)
            if spec.table and not is_registered:
                self._targets.register(spec.table, spec.target, spec.format, dict(spec.writer))
            elif spec.table and spec.format != DELTA:
                self._targets.refresh(spec.table)
            failpoints.reached("run.before_done")
            misread = self._misread(spec, counts, receipt, result)
            self._record(spec, receipt, result, misread)
            failpoints.reached("run.after_done")
            self._refuse_misread(spec, misread)
            self.results[spec.name] = result
            self._stages.wrote(self._lease.run, spec.name, result)
            if spec.is_aside:
                self.aside.add(spec.name)
        del self._unfinished[begun]
        return result

    def check(self, spec: WriteSpec, make: Callable[[], Any], windows: Sequence[Window]) -> None:
        """Raise what the rules refuse of such a write, and write nothing.

        For a write that follows another one: its refusal comes before either is made. A target that
        is lost, or waits for a rebuild, is left to the write itself.
        """
        state = self._lease.ensure_held()
        self.see(state)
        spec, _ = self._located(spec)
        refuse_harm(spec, self._reads.batch, state)
        receipt, sink = self._found(spec, tuple(windows))
        if awaits_rebuild(self._sinks.get(receipt.app_id)) != self._reads.rebuilds:
            return
        if self._settlement(receipt, spec) is not None and loss_of(sink, receipt) is not None:
            return
        if sink.committed(receipt) is None:
            sink.check(make(), receipt)

    def is_empty(self, spec: WriteSpec) -> bool:
        """Whether the target of a write is not there, or has no rows; reads its log only.

        Raises what the write itself would raise if the target cannot be looked at.
        """
        self.see(self._lease.ensure_held())
        spec, _ = self._located(spec)
        if connection_of(spec.target) is not None:
            return self._databases.is_empty(spec.target)
        storage = self._reads.storage
        if spec.format != DELTA:
            return not has_files(spec.target, storage)
        if not is_delta_table(spec.target, storage):
            return True
        log = self._reads.log_of(spec.target)
        size = log.snapshot_size(log.facts().latest_version)
        return size.files == 0 or size.rows == 0

    def wrote_before(self, name: str) -> bool:
        """Whether an earlier batch of the pipeline made a write of this name."""
        ours = forward_app_id(self._control_id, self._reads.pipeline, name)[:-1]
        sinks = self._lease.ensure_held().sinks
        known = [sink.first_seq for app_id, sink in sinks.items() if app_id.startswith(ours)]
        return any(seq is None or seq < self._reads.batch.seq for seq in known)

    def take_as_read(self, upstream: str, planned: int, rows: int) -> None:
        """Journal that the operator takes the rows of a table as they are read, for this batch.

        `planned` and `rows` are those of the table beside its news: how many are news stays.
        """
        pipeline, batch_id = self._reads.pipeline, self._reads.batch.batch_id

        def amended(state: State) -> Amended:
            run, batch = self._lease.run, state.batches[batch_id]
            lookups = batch.lookups_of(pipeline)
            window = lookups.get(upstream) or batch.window_for(pipeline, upstream)
            taken = replace(window, rows=planned).taken_as_read(rows)
            return Amended(run.batch_id, run.pipeline, run.epoch, replace(taken, rows=window.rows))

        self._lease.record(amended)

    def is_committed(self, spec: WriteSpec) -> bool:
        """Whether an attempt of this batch has made a write; a target that is lost has none."""
        spec, _ = self._located(spec)
        receipt, sink = self._found(spec, self._reads.windows)
        if self._settlement(receipt, spec) is not None and loss_of(sink, receipt) is not None:
            return False
        return sink.committed(receipt) is not None

    def refuse_unfinished(self) -> None:
        """Raise FM-RUN-006 if a write failed and the function went on as if it had not."""
        for spec in self._unfinished.values():
            raise RunError(
                "FM-RUN-006",
                f"the write {spec.name} failed, and the function went on without it",
                where=f"pipeline {self._reads.pipeline}, batch {self._reads.batch.batch_id}, {spec.target}",
                allowed="every write that was begun succeeds, or the function raises",
                state="other writes of this run stand and are not repeated; nothing advances",
                next="let the error through, " + then_retry(self._reads.batch.batch_id),
            )

    @contextmanager
    def _alone(self, spec: WriteSpec) -> Iterator[None]:
        """Keep a second write of one name out while the first is under way in another thread."""
        with self._guard:
            if spec.name in self._under_way:
                raise _same_name(spec)
            self._under_way.add(spec.name)
        try:
            yield
        finally:
            with self._guard:
                self._under_way.discard(spec.name)

    def see(self, state: State) -> None:
        """Remember the writes of a state, unless another thread of the run has seen a newer one."""
        with self._guard:
            if state.seq >= self.seen_seq:
                self._sinks, self.seen_seq = state.sinks, state.seq

    def _located(self, spec: WriteSpec) -> tuple[WriteSpec, bool]:
        """The write with its target's path and its own name; and whether a catalog knows both."""
        if connection_of(spec.target) is not None:
            return replace(spec, name=spec.name or spec.target), True
        if not is_catalog_name(spec.target):
            path = absolute(spec.target, self._reads.stored_name("."))
            spec = replace(spec, target=path, name=spec.name or self._stream(path))
            table = spec.table
            return spec, table is None or self._targets.stands_for(table, path, spec.format)
        table = spec.target
        place = self._targets.place(table, last_write(self._sinks.values(), table))
        name = spec.name or self._stream(place.path, table)
        spec = replace(spec, target=place.path, name=name, table=table)
        return spec, place.is_registered

    def _stream(self, path: str, table: str | None = None) -> str:
        """The name of a write that was given none: its target as it was written.

        A path is taken relative to the project, so that every spelling of it is one name. One
        table has one row of receipts: where the pipeline has written it by path and names it now,
        or the other way round, the first name stays.
        """
        relative = path.removeprefix(f"{self._reads.stored_name('.')}/")
        ours = forward_app_id(self._control_id, self._reads.pipeline, "")[:-2]
        known = {
            sink.write_name
            for app_id, sink in self._sinks.items()
            if app_id.startswith(ours)
            and sink.target == path
            and sink.write_name in (sink.table, relative)
        }
        spelled = table or relative
        return spelled if spelled in known or not known else min(known)

    def _place(self, spec: WriteSpec, windows: tuple[Window, ...]) -> tuple[Receipt, Sink]:
        """The receipt and the sink of a write; a lost target is settled first, if that was asked."""
        receipt, sink = self._found(spec, windows)
        if not isinstance(sink, RecoverableSink):
            return receipt, sink
        choice, why = self._settlement(receipt, spec), ""
        if self._begins_anew(spec, receipt):
            choice, why = "rebuild", ASKED_ANEW
        elif choice is not None:
            loss = sink.loss(receipt)
            why = loss.title if loss else ""
        if choice is None or not why:
            return receipt, sink
        if choice == "rebuild":
            refuse_rebuild_again(self._reads.batch, spec.target)
            held = self._lease.ensure_held()
            refuse_partial_rebuild(held, self._reads.batch, self._reads.pipeline, spec.target)
        try:
            done = sink.resolved(choice, receipt, self._app_id(spec, next_one=True))
        except SinkError as error:
            if spec.is_aside and why == ASKED_ANEW and error.code == "FM-SINK-018":
                return receipt, sink  # rows that others have set aside are there too
            raise
        done = replace(done, write_name=spec.name)
        run = self._lease.run
        body = TargetSettled(run.batch_id, run.pipeline, run.epoch, done, why)
        self.see(self._lease.record(lambda _: body))
        return self._found(spec, windows)

    def _begins_anew(self, spec: WriteSpec, receipt: Receipt) -> bool:
        """Whether the write is to replace its target, and this run has not settled that yet."""
        previous = self._sinks.get(receipt.app_id)
        if self._anew is None or spec.name in self._anew or previous is None:
            return False
        # Rows set aside follow those beside which they were: `<write>.quarantine`.
        follows = not spec.is_aside or spec.name.rpartition(".")[0] in self._anew
        if not follows or not replaced_anew(spec):
            return False
        self._anew.add(spec.name)
        return not awaits_rebuild(previous)

    def _found(self, spec: WriteSpec, windows: tuple[Window, ...]) -> tuple[Receipt, Sink]:
        receipt = self.receipt(spec)
        previous = self._sinks.get(receipt.app_id) or self._left_in_order(spec)
        if self._databases.writes(spec):
            storage = self._reads.storage
            return receipt, self._databases.sink(spec, windows, previous, storage)
        return receipt, self._engine.sink(spec, windows, previous)

    def _settlement(self, receipt: Receipt, spec: WriteSpec) -> OnLostTarget | None:
        """What becomes of a lost target: as the operator chose.

        A full refresh goes on where the write was given another target: this batch brings all rows.
        """
        known, reads = self._sinks.get(receipt.app_id), self._reads
        if self._on_lost_target is not None or known is None or known.target == spec.target:
            return self._on_lost_target
        begins = reads.batch.is_ordered and reads.begins
        return "accept" if reads.loads_anew and begins else None

    def _left_in_order(self, spec: WriteSpec) -> SinkDone | None:
        """For a backfill or replay: what the batches in order have left in its target.

        None while that waits for its rebuild, which brings everything that a backfill could.
        """
        if self._reads.batch.is_ordered:
            return None
        known = self._sinks.get(self._app_id_in_order(spec))
        return None if awaits_rebuild(known) else known

    def _refuse_other_pass(self, receipt: Receipt) -> None:
        """Raise OtherPass for a write that belongs into a pass of the other kind."""
        if awaits_rebuild(self._sinks.get(receipt.app_id)) != self._reads.rebuilds:
            self.needs_other_pass = True
            raise OtherPass

    def _misread(
        self, spec: WriteSpec, counts: Sequence[Count], receipt: Receipt, result: WriteResult
    ) -> Mapping[str, int]:
        """The rows that the write took of each upstream whose log promised another number.

        An earlier attempt has journaled it; if it ended before that, the rows are counted again.
        """
        earlier = self._lease.run.sinks.get(spec.name) if result.already_applied else None
        if earlier and (earlier.app_id, earlier.seq) == (receipt.app_id, receipt.seq):
            return earlier.misread
        misread: dict[str, int] = {}
        for count in counts:
            rows = count.recounted() if result.already_applied else count.misread()
            if rows is not None:
                misread[count.window.upstream] = rows
        return misread

    def _refuse_misread(self, spec: WriteSpec, misread: Mapping[str, int]) -> None:
        if self._reads.batch.accepts(self._reads.pipeline, misread):
            return
        upstream, rows = next(iter(misread.items()))
        window = self._reads.batch.window_for(self._reads.pipeline, upstream)
        raise written_with_other_rows(window, rows, spec.name)

    def _record(
        self, spec: WriteSpec, receipt: Receipt, result: WriteResult, misread: Mapping[str, int]
    ) -> None:
        known = self._sinks.get(receipt.app_id)
        named = known.table if known and known.target == spec.target else None
        done = SinkDone(
            write_name=spec.name,
            app_id=receipt.app_id,
            target=result.target,
            table_id=result.table_id,
            version=result.version,
            rows_written=result.rows_written,
            seq=receipt.seq,
            accepted_version=known.accepted_version if known else -1,
            # A name of files is no Delta table, which a later process could make known again.
            table=(spec.table or named) if spec.format == DELTA else None,
            since=known.first_seq if known and known.first_seq is not None else receipt.seq,
            batch_id=self._reads.batch.batch_id,
            misread=misread,
        )
        run = self._lease.run
        self._lease.record(lambda _: SinkWritten(run.batch_id, run.pipeline, run.epoch, done))

    def receipt(self, spec: WriteSpec, notes: Notes | None = None) -> Receipt:
        return Receipt(
            app_id=self._app_id(spec),
            seq=self._reads.batch.seq,
            user_metadata=commit_metadata(
                self._control_id,
                self._reads.batch.batch_id,
                self._reads.batch.seq,
                self._reads.pipeline,
                self._reads.spans,
                marks=self._reads.marks,
                scope=self._reads.batch.scope,
                kind=self._reads.batch.kind,
                **(notes or {}),
            ),
            left_behind=self._left_behind,
        )

    def _app_id(self, spec: WriteSpec, *, next_one: bool = False) -> str:
        if self._reads.batch.is_ordered:
            return self._app_id_in_order(spec, next_one=next_one)
        who = (self._control_id, self._reads.pipeline, spec.name)
        return again_app_id(*who, self._reads.batch.kind, self._reads.batch.batch_id)

    def _app_id_in_order(self, spec: WriteSpec, *, next_one: bool = False) -> str:
        who = (self._control_id, self._reads.pipeline, spec.name)
        newest = generation(self._sinks, lambda number: forward_app_id(*who, number))
        return forward_app_id(*who, newest + next_one)


def _same_name(spec: WriteSpec) -> SinkError:
    return SinkError(
        "FM-SINK-006",
        f"the run writes {spec.name} twice",
        where=spec.target,
        allowed="one write of a name in a run: its receipt has room for one",
        state="the first write stands and is not repeated; the second wrote nothing",
        next='give the second write another name: run.write(..., name="...")',
    )
