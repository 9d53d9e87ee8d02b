"""What a pipeline's function gets: exact inputs, and writes that happen exactly once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from floodmark import failpoints
from floodmark.control.events import Amended, SinkWritten, TargetSettled
from floodmark.deltalog import DeltaLog, Storage, absolute, is_delta_table
from floodmark.errors import ConfigError, RunError, SinkError
from floodmark.model import (
    DEFAULT_OPTIONS,
    DELTA,
    AnyMark,
    Changes,
    Deletes,
    Missing,
    OnLostTarget,
    PlannedBatch,
    Receipt,
    SinkDone,
    State,
    UpstreamOptions,
    Window,
    WriteMode,
    WriteResult,
    WriteSpec,
    again_app_id,
    commit_metadata,
    forward_app_id,
    marks_of,
    metadata_of,
)
from floodmark.model.arguments import checks_call
from floodmark.model.copying import replace
from floodmark.model.names import connection_of, is_catalog_name
from floodmark.run.databases import NO_DATABASES, Databases
from floodmark.run.edges import Edges
from floodmark.run.engine import Engine
from floodmark.run.landed import (
    ROWS_CHANGED,
    Landed,
    landed_before,
    rows_gone,
    whole_window,
)
from floodmark.run.landing import Attempt, Landing, attempt_in_force, has_files
from floodmark.run.leases import Lease
from floodmark.run.lost_targets import (
    OtherPass,
    awaits_rebuild,
    first_run_windows,
    generation,
    refuse_partial_rebuild,
    refuse_rebuild_again,
)
from floodmark.run.stages import Stages
from floodmark.sinks import RecoverableSink, Sink, loss_of, refuse_harm
from floodmark.sinks.delta import NO_CATALOG, TargetNames, last_write
from floodmark.sources import written_with_other_rows
from floodmark.sources.delta import rows_by_log

if TYPE_CHECKING:
    from floodmark.sources import Readers
    from floodmark.transforms import Step

    DataFrame = Any  # of whichever engine

W = TypeVar("W", bound=Window)

_EARLIER_STAND = "this call did nothing; earlier writes of this run stand and are not repeated"

NameOf = Callable[[str], str]
"""Turns a name as the user writes it into the stored one."""

Notes = Mapping[str, str]
"""What a commit of floodmark's own tells beside its batch."""


class Count(Protocol):
    """How many rows of a window were read; see `sources.counts.RowCount`."""

    @property
    def window(self) -> Window: ...
    def misread(self) -> int | None: ...
    def recounted(self) -> int | None: ...


class Run:
    """One run of a pipeline, as its function sees it."""

    def __init__(
        self,
        *,
        batch: PlannedBatch,
        pipeline: str,
        control_id: str,
        engine: Engine,
        lease: Lease,
        name_of: NameOf,
        on_lost_target: OnLostTarget | None = None,
        rebuilds_from: Mapping[str, UpstreamOptions] | None = None,
        targets: TargetNames = NO_CATALOG,
        landing: Landing | None = None,
        options: Mapping[str, UpstreamOptions] | None = None,
        databases: Databases = NO_DATABASES,
        loads_anew: bool = False,
        readers: Readers | None = None,
        stages: Stages = Stages(),  # noqa: B008  a frozen value
        lookups: Collection[str] | None = None,
        accepts_lost_rows: bool = False,
    ) -> None:
        self.batch = batch
        self.pipeline = pipeline
        self.run_id = lease.run.run_id
        self.spark = engine.spark
        self.windows: tuple[Window, ...] = tuple(
            batch.window_for(pipeline, upstream) for upstream in batch.upstreams_of(pipeline)
        )
        frozen = batch.lookups_of(pipeline)
        self.lookups: Mapping[str, Window] = {
            name: window for name, window in frozen.items() if lookups is None or name in lookups
        }
        """What the batch has frozen for the pipeline to look up, whole."""
        self._spans = {w.upstream: (w.start, w.end) for w in self.windows}
        self._marks = marks_of(self.windows)
        if rebuilds_from is not None:
            self.windows = first_run_windows(self.windows, rebuilds_from)
        self._rebuilds = rebuilds_from is not None
        self._landing = landing
        self._stages = stages
        self.readers = readers or {}
        """What reads upstreams of databases."""
        self.loads_anew = loads_anew
        """Whether first runs replace what their targets hold, also what others wrote."""
        self._options = options or {}
        self._on_lost_target = on_lost_target
        self.accepts_lost_rows = accepts_lost_rows
        """Whether rows of this batch that are gone, landed or committed, are made once more."""
        self.needs_other_pass = False
        """Whether a write has to be made in a pass of the other kind; see `run.lost_targets`."""
        self._sinks: Mapping[str, SinkDone] = {}
        self._seen_seq = -1
        self._guard = threading.Lock()
        self._under_way: set[str] = set()
        self._turns: dict[str, threading.Lock] = {}
        self._left_behind: frozenset[str] = frozenset()
        self.writes: dict[str, WriteResult] = {}
        self.aside: set[str] = set()
        """The writes among them that hold rows set aside by checks."""
        self._unfinished: dict[str, WriteSpec] = {}
        """Writes that raised and were not repeated with success."""
        self._control_id = control_id
        self._engine = engine
        self._lease = lease
        self._name_of = name_of
        self._targets = targets
        self._databases = databases

    @checks_call("run", _EARLIER_STAND)
    def write(
        self,
        frame: DataFrame,
        target: str,
        *,
        mode: WriteMode,
        keys: Iterable[str] = (),
        name: str | None = None,
        changes: Changes | None = None,
        missing: Missing | None = None,
        deletes: Deletes = "apply",
        sequence_by: str | None = None,
        allow_full: bool = False,
        allow_partial: bool = False,
        partition_by: Iterable[str] = (),
        replace_where: str | None = None,
        upstreams: str | Iterable[str] | None = None,
        allow_single_writer: bool = False,
    ) -> WriteResult:
        """Write a frame to a Delta table, or one of PostgreSQL, exactly once for this batch.

        A target with a slash is a path or URI, `<connection>:<table>` a table of a database of the
        project, another one a name of the session's catalog; the first write creates the table. The rows and their receipt are one commit. If an
        earlier attempt of this run already wrote it, nothing is written and the earlier result
        comes back. Two writes of one run need two names; the default is the target as it is
        written. `upstreams` are those that the rows come from, where they are not all that the
        pipeline reads: the rules for snapshots and changes then look at these alone.
        `allow_single_writer` says that nothing else writes to a target on S3 meanwhile. See
        docs/guides/coordinator.md for the options.
        """
        spec = WriteSpec(
            target=target,
            mode=mode,
            name=name or "",
            keys=(keys,) if isinstance(keys, str) else tuple(keys),
            changes=changes,
            missing=missing,
            deletes=deletes,
            sequence_by=sequence_by,
            allow_full=allow_full,
            allow_partial=allow_partial,
            partition_by=tuple(partition_by),
            replace_where=replace_where,
            allow_single_writer=allow_single_writer,
        )
        if upstreams is None:
            return self.write_spec(spec, lambda: frame)
        named = [upstreams] if isinstance(upstreams, str) else upstreams
        return self.write_spec(spec, lambda: frame, [self.window(name) for name in named])

    def write_spec(
        self,
        spec: WriteSpec,
        make: Callable[[], Any],
        windows: Sequence[Window] | None = None,
        counts: Sequence[Count] = (),
    ) -> WriteResult:
        """The same for a write that is a value; `make` is called only if the rows are not there yet.

        `windows` are those that the rows come from, where that is not all of the run's. `counts`
        tell how many rows the write has read of them: FM-SOURCE-065 if the log promised others.
        """
        given = self.windows if windows is None else tuple(windows)
        return self._write_once(make, spec, given, counts)

    def check_spec(
        self, spec: WriteSpec, make: Callable[[], Any], windows: Sequence[Window]
    ) -> None:
        """Raise what the rules refuse of such a write, and write nothing.

        For a write that follows another one: its refusal comes before either is made. A target that
        is lost, or waits for a rebuild, is left to the write itself.
        """
        state = self._lease.ensure_held()
        self._see(state)
        spec, _ = self._located(spec)
        refuse_harm(spec, self.batch, state)
        receipt, sink = self._found(spec, tuple(windows))
        if awaits_rebuild(self._sinks.get(receipt.app_id)) != self._rebuilds:
            return
        if self._on_lost_target is not None and loss_of(sink, receipt) is not None:
            return
        if sink.committed(receipt) is None:
            sink.check(make(), receipt)

    # For pipelines of nodes -----------------------------------------------------------------------

    @property
    def rebuilds(self) -> bool:
        """Whether this pass writes lost targets anew, from the windows of a first run."""
        return self._rebuilds

    def read(self, window: Window) -> Any:
        """The rows of any window, proven readable first."""
        return self._engine.source().read(window)

    def stored_name(self, name: str) -> str:
        """The name under which an upstream or lookup is stored."""
        return self._name_of(name)

    def transformed(
        self, steps: Sequence[Step], frame: Any, others: Mapping[str, Any], root: Path
    ) -> Any:
        """A frame after the steps of a node, in the engine of the run."""
        return self._engine.transformed(steps, frame, others, root)

    def is_empty(self, spec: WriteSpec) -> bool:
        """Whether the target of a write is not there, or has no rows; reads its log only.

        Raises what the write itself would raise if the target cannot be looked at.
        """
        self._see(self._lease.ensure_held())
        spec, _ = self._located(spec)
        if connection_of(spec.target) is not None:
            return self._databases.is_empty(spec.target)
        storage = self._landing.storage if self._landing else Storage()
        if spec.format != DELTA:
            return not has_files(spec.target, storage)
        if not is_delta_table(spec.target, storage):
            return True
        log = self.log_of(spec.target)
        size = log.snapshot_size(log.facts().latest_version)
        return size.files == 0 or size.rows == 0

    def rows_by_log(self, window: Window) -> int | None:
        """How many rows the log of a table says that a window has; None where it does not say."""
        storage = self._landing.storage if self._landing else Storage()
        return rows_by_log(window, storage, self.spark)

    def take_as_read(self, upstream: str, planned: int, rows: int) -> None:
        """Journal that the operator takes the rows of a table as they are read, for this batch.

        `planned` and `rows` are those of the table beside its news: how many are news stays.
        """

        def amended(state: State) -> Amended:
            run, batch = self._lease.run, state.batches[self.batch.batch_id]
            lookups = batch.lookups_of(self.pipeline)
            window = lookups.get(upstream) or batch.window_for(self.pipeline, upstream)
            taken = replace(window, rows=planned).taken_as_read(rows)
            return Amended(run.batch_id, run.pipeline, run.epoch, replace(taken, rows=window.rows))

        self._lease.record(amended)

    def first_window(self, window: W) -> W | None:
        """The window as a first run would have it; None if it is that already."""
        if not self.batch.is_ordered or self._rebuilds:
            return None
        first = window.as_first_run(self._options.get(window.upstream, DEFAULT_OPTIONS))
        is_same = (first.after, first.after_mark) == (window.after, window.after_mark)
        return None if is_same else first

    def baseline_of(self, window: Window) -> AnyMark | None:
        """The mark before which the pipeline reads nothing of an upstream without versions."""
        options = self._options.get(window.upstream)
        end = window.through_mark
        return options.first_mark(end) if options is not None and end is not None else None

    def wrote_before(self, name: str) -> bool:
        """Whether an earlier batch of the pipeline made a write of this name."""
        ours = forward_app_id(self._control_id, self.pipeline, name)[:-1]
        sinks = self._lease.ensure_held().sinks
        known = [sink.first_seq for app_id, sink in sinks.items() if app_id.startswith(ours)]
        return any(seq is None or seq < self.batch.seq for seq in known)

    def path_of(self, target: str) -> str:
        """The absolute path of a target that is given by path."""
        return absolute(target, self._name_of("."))

    def log_of(self, path: str) -> DeltaLog:
        """The log of a table."""
        return DeltaLog(path, self._landing.storage if self._landing else Storage())

    def has_table(self, target: str) -> bool:
        """Whether there is a Delta table at a target that is given by path."""
        storage = self._landing.storage if self._landing else Storage()
        return is_delta_table(self.path_of(target), storage)

    def land(
        self,
        name: str,
        make: Callable[[], Any],
        windows: Sequence[Window],
        readers: Sequence[WriteSpec],
    ) -> WriteResult:
        """Put rows aside, once for all attempts of this batch; the table is removed with the batch.

        It binds later attempts as soon as one of the writes that read it is committed; until then
        every attempt makes it anew, so that what was corrected takes effect.
        """
        if self._landing is None:
            raise ValueError("this run has no place for landing")
        self._see(self._lease.ensure_held())
        write_name = f"{name}.{'rebuild' if self._rebuilds else 'landing'}"
        folder = self._landing.folder(self.batch.batch_id, self.pipeline, write_name)
        earlier = self._landing.numbers(folder)
        is_binding = bool(earlier) and any(self._is_committed(spec) for spec in readers)
        receipt = self._landed(write_name)
        for number in reversed(earlier) if is_binding else ():
            sink = self._landing_sink(folder, number, windows)
            found = landed_before(f"{folder}/{number}", partial(sink.committed, receipt))
            if found is not None and self._serves(found):
                return found.result
            if found is not None:
                break  # the rows of an earlier attempt are not those that were taken
        sink = self._landing_sink(folder, max(earlier, default=0) + 1, windows)
        landed = sink.write(make(), receipt)
        failpoints.reached("landing.after_write")
        return landed

    def land_once(
        self,
        name: str,
        way: str,
        version: str,
        make: Callable[[], Any],
        *,
        readers: Sequence[WriteSpec],
        bounds: Callable[[], str] = str,
    ) -> WriteResult:
        """Put rows aside that cannot be read again, once for all attempts of this batch.

        `way` and `version` tell what is read: see `landing.attempt_in_force`. `bounds` are decided
        by the attempt that reads, and kept in the commit of its rows: see `bounds_of`.
        """
        if self._landing is None:
            raise ValueError("this run has no place for landing")
        self._see(self._lease.ensure_held())

        def is_taken() -> bool:
            return any(self._is_committed(spec) for spec in readers)

        # Nodes that read one upstream side by side get the rows of one attempt.
        with self._turn(name):
            found = dict(self._complete_attempts(name))
            chosen = attempt_in_force(list(found), way, version, is_taken)
            if chosen is not None and self._serves(found[chosen], is_taken):
                return found[chosen].result
            last = max((attempt.number for attempt in self._attempts(name)), default=0)
            once = self._attempted(name, Attempt(last + 1, way, version), {"bounds": bounds()})
            landed = once.write(make)
        failpoints.reached("landing.after_write")
        return landed

    def _attempts(self, name: str) -> list[Attempt]:
        """All attempts of this batch to put rows aside under a name, complete or not."""
        if self._landing is None:
            return []
        folder = self._landing.folder(self.batch.batch_id, self.pipeline, name)
        return [Attempt.of(each) for each in self._landing.names(folder)]

    def _complete_attempts(self, name: str) -> Iterator[tuple[Attempt, Landed]]:
        for attempt in self._attempts(name):
            once = self._attempted(name, attempt)
            found = landed_before(self._attempt_path(name, attempt), once.committed)
            if found is not None:
                yield attempt, found

    def _attempted(self, name: str, attempt: Attempt, notes: Notes | None = None) -> _Once:
        write_name = f"{name}.{attempt.folder}"
        return self._once(self._attempt_path(name, attempt), write_name, notes=notes)

    def _attempt_path(self, name: str, attempt: Attempt) -> str:
        assert self._landing is not None  # noqa: S101  (whoever attempts has a place)
        folder = self._landing.folder(self.batch.batch_id, self.pipeline, name)
        return f"{folder}/{attempt.folder}"

    def _serves(self, found: Landed, is_taken: Callable[[], bool] = lambda: True) -> bool:
        """Whether landed rows can be read; those that are gone are landed anew.

        Raises FM-RUN-012 if a write has taken them, and the operator has not accepted their loss.
        """
        proves = self.accepts_lost_rows
        why = found.loss(self.log_of(found.path), proves_files=proves)
        if why and is_taken() and not proves:
            raise rows_gone(self.pipeline, self.batch.batch_id, found.path, why)
        return not why

    def landed_version(self, landed: WriteResult) -> int:
        """The version at which landed rows are read: others may have put them together since."""
        found = Landed(landed.target, landed)
        version = found.readable_version(self.log_of(landed.target))
        if version is None:
            raise rows_gone(self.pipeline, self.batch.batch_id, found.path, ROWS_CHANGED)
        return version

    def _turn(self, name: str) -> threading.Lock:
        with self._guard:
            return self._turns.setdefault(name, threading.Lock())

    def bounds_of(self, landed: WriteResult) -> str | None:
        """The bounds that were kept with landed rows; None of rows that an older version landed."""
        (commit,) = self.log_of(landed.target).versions(landed.version, landed.version)
        return metadata_of(commit.user_metadata).get("bounds") or None

    def has_landed(self, name: str, way: str, version: str) -> bool:
        """Whether an attempt of this batch has begun to put these rows aside."""
        return any(attempt.reads(way, version) for attempt in self._attempts(name))

    def keep_edge(self, upstream: str, step: int, name: str, make: Callable[[], Any]) -> None:
        """Keep what the window after a step of an upstream has to know; see `run.edges`.

        One that others have changed since is written anew: nobody has read it yet.
        """
        path = self._edges.path(self.pipeline, upstream, step)
        once = self._once(path, name, "overwrite")
        found = landed_before(path, once.committed)
        if found is not None and not found.loss(self.log_of(path), proves_files=True):
            return
        if found is not None:
            self._edges.storage.delete_dir(path)
        once.write(make)

    def edge(self, upstream: str, step: int) -> Any:
        """The rows of the edge of a step as it was left; None if there is none."""
        edges = self._edges
        version = edges.version(self.pipeline, upstream, step)
        path = edges.path(self.pipeline, upstream, step)
        return None if version is None else self._kept_rows(path, version)

    def landed_rows(self, landed: WriteResult) -> Any:
        """Rows that were put aside, at whatever age."""
        return self._kept_rows(landed.target, self.landed_version(landed))

    def _kept_rows(self, path: str, version: int) -> Any:
        window = whole_window(path, self.log_of(path), version, "kept by floodmark")
        return self._engine.source().table(window, version)

    @property
    def _edges(self) -> Edges:
        if self._landing is None:
            raise ValueError("this run has no place for edges")
        return Edges(self._landing.control, self._landing.storage)

    def _once(
        self, path: str, name: str, mode: WriteMode = "append", notes: Notes | None = None
    ) -> _Once:
        spec = WriteSpec(
            path,
            mode,
            name,
            changes="handled",
            allow_partial=mode == "overwrite",
            allow_single_writer=True,  # a table of this run's own, under its lease
        )
        receipt = self._receipt(WriteSpec("", mode, name), notes)
        return _Once(self._engine.sink(spec, (), None), receipt)

    def _landing_sink(self, folder: str, number: int, windows: Sequence[Window]) -> Sink:
        spec = WriteSpec(
            f"{folder}/{number}",
            "append",
            "landing",
            changes="handled",
            allow_single_writer=True,  # a table of this attempt's own, under its lease
        )
        return self._engine.sink(spec, tuple(windows), None)

    def _landed(self, write_name: str) -> Receipt:
        return self._receipt(WriteSpec("", "append", write_name))

    def _is_committed(self, spec: WriteSpec) -> bool:
        """Whether an attempt of this batch has made a write; a target that is lost has none."""
        spec, _ = self._located(spec)
        receipt, sink = self._found(spec, self.windows)
        if self._on_lost_target is not None and loss_of(sink, receipt) is not None:
            return False
        return sink.committed(receipt) is not None

    @checks_call("run", _EARLIER_STAND)
    def table(self, name: str, at: Literal["end", "before"] = "end") -> Any:
        """The whole upstream, without change columns, at the batch's frozen version.

        `at="before"` gives it as it was just before the window: a join of changes needs one side
        of each. Raises FM-RUN-003 for an upstream that the pipeline is not registered for.
        """
        if at not in ("end", "before"):
            raise ConfigError(
                "FM-CONFIG-007",
                f"run.table has no at={at!r}",
                allowed="end, before",
                state="nothing was read",
                next="correct the call",
            )
        window = self.window(name)
        version = window.through if at == "end" else window.after
        return self._engine.source().table(window, version)

    @checks_call("run", _EARLIER_STAND)
    def window(self, name: str) -> Window:
        """The window of an upstream or lookup, by the name as registered or as stored."""
        stored = self._name_of(name)
        for window in (*self.windows, *self.lookups.values()):
            if window.upstream in (name, stored):
                return window
        raise RunError(
            "FM-RUN-003",
            f"pipeline {self.pipeline} does not read {name}",
            where=f"batch {self.batch.batch_id}",
            allowed=", ".join(window.upstream for window in self.windows),
            state="nothing was read; earlier writes of this run stand and are not repeated",
            next=f"register {name} as an upstream of {self.pipeline}",
        )

    def _write_once(
        self,
        make: Callable[[], Any],
        spec: WriteSpec,
        windows: tuple[Window, ...],
        counts: Sequence[Count],
    ) -> WriteResult:
        """1 fence, 2 target and name, 3 receipt, 4 look or write, 5 compare and record."""
        begun = spec.name or spec.target
        self._unfinished.setdefault(begun, spec)
        if self.writes:
            failpoints.reached("sink.between_sinks")
        state = self._lease.ensure_held()
        self._see(state)
        self._left_behind = state.left_behind_by(self.pipeline)
        spec, is_registered = self._located(spec)
        if spec.name in self.writes:
            del self._unfinished[begun]
            raise _same_name(spec)
        with self._alone(spec):
            refuse_harm(spec, self.batch, state)
            self._check_sources({w.upstream: w for w in (*self.windows, *windows)}.values())
            receipt, sink = self._place(spec, windows)
            result = sink.committed(receipt) or self._write_new(sink, make, receipt)
            if spec.table and not is_registered:
                self._targets.register(spec.table, spec.target, spec.format, dict(spec.writer))
            elif spec.table and spec.format != DELTA:
                self._targets.refresh(spec.table)
            failpoints.reached("run.before_done")
            misread = self._misread(spec, counts, receipt, result)
            self._record(spec, receipt, result, misread)
            failpoints.reached("run.after_done")
            self._refuse_misread(spec, misread)
            self.writes[spec.name] = result
            self._stages.wrote(self._lease.run, spec.name, result)
            if spec.is_aside:
                self.aside.add(spec.name)
        del self._unfinished[begun]
        return result

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

    def _see(self, state: State) -> None:
        """Remember the writes of a state, unless another thread of the run has seen a newer one."""
        with self._guard:
            if state.seq >= self._seen_seq:
                self._sinks, self._seen_seq = state.sinks, state.seq

    def _located(self, spec: WriteSpec) -> tuple[WriteSpec, bool]:
        """The write with its target's path and its own name; and whether a catalog knows both."""
        if connection_of(spec.target) is not None:
            return replace(spec, name=spec.name or spec.target), True
        if not is_catalog_name(spec.target):
            path = absolute(spec.target, self._name_of("."))
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
        relative = path.removeprefix(f"{self._name_of('.')}/")
        ours = forward_app_id(self._control_id, self.pipeline, "")[:-2]
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
        if self._on_lost_target is None or not isinstance(sink, RecoverableSink):
            return receipt, sink
        loss = sink.loss(receipt)
        if loss is None:
            return receipt, sink
        if self._on_lost_target == "rebuild":
            refuse_rebuild_again(self.batch, spec.target)
            held = self._lease.ensure_held()
            refuse_partial_rebuild(held, self.batch, self.pipeline, spec.target)
        done = sink.resolved(self._on_lost_target, receipt, self._app_id(spec, next_one=True))
        done = replace(done, write_name=spec.name)
        run = self._lease.run
        body = TargetSettled(run.batch_id, run.pipeline, run.epoch, done, loss.title)
        self._see(self._lease.record(lambda _: body))
        return self._found(spec, windows)

    def _found(self, spec: WriteSpec, windows: tuple[Window, ...]) -> tuple[Receipt, Sink]:
        receipt = self._receipt(spec)
        previous = self._sinks.get(receipt.app_id) or self._left_in_order(spec)
        if self._databases.writes(spec):
            storage = self._landing.storage if self._landing else Storage()
            return receipt, self._databases.sink(spec, windows, previous, storage)
        return receipt, self._engine.sink(spec, windows, previous)

    def _left_in_order(self, spec: WriteSpec) -> SinkDone | None:
        """For a backfill or replay: what the batches in order have left in its target.

        None while that waits for its rebuild, which brings everything that a backfill could.
        """
        if self.batch.is_ordered:
            return None
        known = self._sinks.get(self._app_id_in_order(spec))
        return None if awaits_rebuild(known) else known

    def _write_new(self, sink: Sink, make: Callable[[], Any], receipt: Receipt) -> WriteResult:
        if awaits_rebuild(self._sinks.get(receipt.app_id)) != self._rebuilds:
            self.needs_other_pass = True
            raise OtherPass
        return sink.write(make(), receipt)

    def _check_sources(self, windows: Iterable[Window]) -> None:
        """Prove the feed windows again: frames are read only now, and Spark tolerates holes."""
        source = self._engine.source()
        for window in windows:
            if window.has_news and window.feed_start is not None:
                source.check(window)

    def refuse_unfinished_writes(self) -> None:
        """Raise FM-RUN-006 if a write failed and the function went on as if it had not."""
        for spec in self._unfinished.values():
            raise RunError(
                "FM-RUN-006",
                f"the write {spec.name} failed, and the function went on without it",
                where=f"pipeline {self.pipeline}, batch {self.batch.batch_id}, {spec.target}",
                allowed="every write that was begun succeeds, or the function raises",
                state="other writes of this run stand and are not repeated; nothing advances",
                next=f"let the error through, then: floodmark retry {self.batch.batch_id}",
            )

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
        if self.batch.accepts(self.pipeline, misread):
            return
        upstream, rows = next(iter(misread.items()))
        window = self.batch.window_for(self.pipeline, upstream)
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
            batch_id=self.batch.batch_id,
            misread=misread,
        )
        run = self._lease.run
        self._lease.record(lambda _: SinkWritten(run.batch_id, run.pipeline, run.epoch, done))

    def _receipt(self, spec: WriteSpec, notes: Notes | None = None) -> Receipt:
        return Receipt(
            app_id=self._app_id(spec),
            seq=self.batch.seq,
            user_metadata=commit_metadata(
                self._control_id,
                self.batch.batch_id,
                self.batch.seq,
                self.pipeline,
                self._spans,
                marks=self._marks,
                scope=self.batch.scope,
                kind=self.batch.kind,
                **(notes or {}),
            ),
            left_behind=self._left_behind,
        )

    def _app_id(self, spec: WriteSpec, *, next_one: bool = False) -> str:
        if self.batch.is_ordered:
            return self._app_id_in_order(spec, next_one=next_one)
        who = (self._control_id, self.pipeline, spec.name)
        return again_app_id(*who, self.batch.kind, self.batch.batch_id)

    def _app_id_in_order(self, spec: WriteSpec, *, next_one: bool = False) -> str:
        who = (self._control_id, self.pipeline, spec.name)
        newest = generation(self._sinks, lambda number: forward_app_id(*who, number))
        return forward_app_id(*who, newest + next_one)


@dataclass(frozen=True, slots=True)
class _Once:
    """A write of floodmark's own, into its control store."""

    sink: Sink
    receipt: Receipt

    def committed(self) -> WriteResult | None:
        return self.sink.committed(self.receipt)

    def write(self, make: Callable[[], Any]) -> WriteResult:
        return self.committed() or self.sink.write(make(), self.receipt)


def _same_name(spec: WriteSpec) -> SinkError:
    return SinkError(
        "FM-SINK-006",
        f"the run writes {spec.name} twice",
        where=spec.target,
        allowed="one write of a name in a run: its receipt has room for one",
        state="the first write stands and is not repeated; the second wrote nothing",
        next='give the second write another name: run.write(..., name="...")',
    )
