"""One run of one pipeline, from lease to SUCCESS."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from floodmark import failpoints
from floodmark.control import ControlStore, PulseFactory
from floodmark.control.events import Failed, Succeeded
from floodmark.errors import MAX_TEXT, FencedError, FloodmarkError, RunError, SourceError
from floodmark.model import (
    ALREADY_APPLIED,
    LEFT_OUT,
    NULL_COLUMNS,
    TIE_EXAMPLE,
    TIES,
    Clock,
    Ids,
    Metrics,
    OnLostTarget,
    RunResult,
    Settlement,
    Window,
)
from floodmark.model import Run as RunRecord
from floodmark.model.arguments import fits
from floodmark.next_steps import BATCH, command, filled, then_retry
from floodmark.run.context import NodePipeline, Pass, Run
from floodmark.run.databases import NO_DATABASES, Databases
from floodmark.run.deferred import freeze_ends
from floodmark.run.edges import Edges
from floodmark.run.engine import Engine
from floodmark.run.landing import LandingFolder
from floodmark.run.landings import Landings
from floodmark.run.leases import Lease, Leases
from floodmark.run.limits import (
    NO_LIMITS,
    Limits,
    SparkJobs,
    TookTooLong,
    call_within,
    in_short,
)
from floodmark.run.lookups import FreezeLookup, prove_lookups, settle_lost_lookups
from floodmark.run.lost_ranges import settle_lost_ranges
from floodmark.run.lost_targets import MAX_PASSES, OtherPass, too_many_passes
from floodmark.run.reads import NameOf, Reads
from floodmark.run.stages import Stages
from floodmark.run.writes import Writes
from floodmark.secrecy import masked
from floodmark.sinks.delta import NO_CATALOG, TargetNames

if TYPE_CHECKING:
    from floodmark.sources import Readers

MAX_METRICS = 200

PipelineFunction = Callable[[Mapping[str, Any], Run], Any] | NodePipeline
"""What runs for a batch: a function of the user, or the nodes of a file."""


@dataclass(frozen=True)
class Runner:
    """Runs pipelines of planned batches; everything it needs is handed in."""

    store: ControlStore
    office: Leases
    pulse: PulseFactory
    """Starts the signs of life of a run: run id and ttl in, an entered context out."""
    clock: Clock
    ids: Ids
    stages: Stages
    name_of: NameOf
    on_lease: Callable[[], None]
    """Called once the lease is journaled, to publish the RUNNING row."""
    landing: LandingFolder
    """Where rows are put aside that must not be read twice."""
    on_lost_target: OnLostTarget | None = None
    """The way forward that the operator chose for targets that lost rows."""
    on_lost_range: Settlement | None = None
    """The way forward that the operator chose for ranges that upstreams have lost."""
    targets: TargetNames = NO_CATALOG
    """The catalog of the session, for targets that are given by name."""
    loads_anew: bool = False
    """Whether first runs of nodes replace what their targets hold."""
    rebuilds_anew: bool = False
    """Whether a batch that goes on from others rebuilds all targets: its full refresh."""
    readers: Readers = field(default_factory=dict)
    """What reads upstreams of databases."""
    databases: Databases = NO_DATABASES
    """The databases that a write may name."""
    freeze_lookup: FreezeLookup | None = None
    """How a table that is looked up stands now."""

    def run(
        self,
        pipeline: str,
        batch_id: str,
        function: PipelineFunction,
        engine: Engine,
        limits: Limits = NO_LIMITS,
    ) -> RunResult:
        """Run a pipeline for a batch; after SUCCESS the stored result comes back instead.

        1 lease, 2 check sources, 3 read, 4 call the function, which writes, 5 record SUCCESS.
        An error is recorded as FAILED and raised again; calling this again is the retry.
        """
        run_id = self.ids.run(self.clock.now())
        record = self.office.acquire(pipeline, batch_id, run_id)
        if record.status == "SUCCESS":
            return result_of(record, is_repeat=True)
        failpoints.reached("run.after_lease")
        with self.pulse(record.run_id, record.ttl_seconds) as pulse:
            self.on_lease()
            self.stages.started(record)
            return self._run_leased(Lease(self.store, record, pulse), function, engine, limits)

    def _run_leased(
        self, lease: Lease, function: PipelineFunction, engine: Engine, limits: Limits
    ) -> RunResult:
        jobs = SparkJobs(engine.spark, lease.run.run_id)
        databases = self.databases.of_one_run()

        def let_go() -> None:
            lease.give_up("this process has given the run up")
            in_short(jobs.cancel, databases.cancel)

        def work() -> RunResult:
            return jobs.during(lambda: self._execute(lease, function, engine, databases))

        # The boundary where whatever a user's function raises is recorded, then raised again.
        try:
            return call_within(limits, work, let_go)
        except FencedError:
            raise
        except TookTooLong as late:
            return self._too_late(lease, late)
        except (KeyboardInterrupt, SystemExit) as error:
            self._fail(lease, f"interrupted: {type(error).__name__}")
            raise
        except Exception as error:
            failure = _lost_file(lease, error) if engine.is_lost_file(error) else error
            if isinstance(failure, FloodmarkError) and failure.next:
                failure.next = filled(failure.next, BATCH, lease.run.batch_id)
            self._fail(lease, error_text(failure))
            if isinstance(error, FloodmarkError) and error.hides_cause:
                # Looked at already; a traceback would show what is behind it.
                failure.__context__ = None
                raise failure from None
            if failure is error:
                raise
            raise failure from error

    def _execute(
        self, lease: Lease, function: PipelineFunction, engine: Engine, databases: Databases
    ) -> RunResult:
        """Call the function, once as a rule; see `run.lost_targets` for the exception."""
        source = engine.source()
        freeze_ends(lease.ensure_held(), lease.run, source, self.clock.now, lease.record)
        if self.on_lost_range is not None:
            settle_lost_lookups(lease, engine, self.on_lost_range, self.freeze_lookup)
            settle_lost_ranges(lease, engine, self.on_lost_range, self._edges)
        anew: set[str] = set()
        written: set[str] = set()
        for number in range(MAX_PASSES):
            run = self._pass(lease, engine, databases, anew, rebuilds=number % 2 == 1)
            inputs = self._read(run.reads, engine)
            try:
                if isinstance(function, NodePipeline):
                    returned = metrics_of(run, function.run_nodes(inputs, run))
                else:
                    returned = metrics_of(run, function(inputs, Run(run)))
            except OtherPass:
                continue
            finally:
                written |= _written_by(run)
            if not run.writes.needs_other_pass:
                run.writes.refuse_unfinished()
                return self._succeed(lease, run, returned, written)
        raise too_many_passes(lease.run.pipeline, lease.run.batch_id)

    @property
    def _edges(self) -> Edges:
        return Edges(self.landing.control, self.landing.storage)

    def _pass(
        self, lease: Lease, engine: Engine, databases: Databases, anew: set[str], *, rebuilds: bool
    ) -> Pass:
        state = lease.ensure_held()
        known = state.pipelines.get(lease.run.pipeline)
        options = known.options if known else {}
        reads = Reads(
            batch=state.batches[lease.run.batch_id],
            pipeline=lease.run.pipeline,
            engine=engine,
            name_of=self.name_of,
            storage=self.landing.storage,
            rebuilds_from=options if rebuilds else None,
            options=options,
            loads_anew=self.loads_anew,
            readers=self.readers,
            lookups=known.lookups if known else None,
            accepts_lost_rows=self.on_lost_range is not None,
        )
        writes = Writes(
            reads,
            engine,
            lease,
            state.control_id,
            targets=self.targets,
            databases=databases,
            stages=self.stages,
            on_lost_target=self.on_lost_target,
            # A batch that begins at the beginning brings everything by itself.
            anew=anew if self.rebuilds_anew and not reads.begins else None,
        )
        landings = Landings(reads, writes, engine, lease, self.landing)
        return Pass(lease.run.run_id, reads, writes, landings)

    def _read(self, reads: Reads, engine: Engine) -> Mapping[str, Any]:
        source = engine.source()
        for window in reads.windows:
            source.check(window)
        prove_lookups(reads, source)
        failpoints.reached("run.after_source_check")
        # Rows of a database are put aside by the node that reads them, before anybody sees them.
        plain = [window for window in reads.windows if not window.is_landed]
        frames = {window.upstream: source.read(window) for window in plain}
        failpoints.reached("run.after_read")
        return Inputs(frames, self.name_of)

    def _succeed(
        self, lease: Lease, run: Pass, returned: Metrics, written: Collection[str]
    ) -> RunResult:
        body = Succeeded(
            batch_id=lease.run.batch_id,
            pipeline=lease.run.pipeline,
            epoch=lease.run.epoch,
            rows_read=_first(returned.rows_read, rows_in(run.reads.windows)),
            rows_written=_first(returned.rows_written, rows_out(run)),
            metrics=_stored_metrics(run, returned, written),
        )
        state = lease.record(lambda _: body)
        failpoints.reached("run.after_success")
        if run.batch.is_ordered:
            self._edges.sweep(run.pipeline, run.reads.windows)
        result = result_of(state.batches[body.batch_id].runs[body.pipeline])
        self.stages.succeeded(lease.run, result)
        return result

    def _too_late(self, lease: Lease, late: TookTooLong) -> RunResult:
        """Record the timeout and raise it; a SUCCESS that came first stands."""
        error = _timed_out(lease, late)
        self._fail(lease, error_text(error))
        run = self.store.state().batches[lease.run.batch_id].runs[lease.run.pipeline]
        if (run.epoch, run.status) == (lease.run.epoch, "SUCCESS"):
            return result_of(run)
        raise error

    def _fail(self, lease: Lease, text: str) -> None:
        run = lease.run
        try:
            lease.record_failure(lambda _: Failed(run.batch_id, run.pipeline, run.epoch, text))
        except FencedError:  # the run that took over has the word now; the error still goes up
            return
        self.stages.failed(run, text)


class Inputs(dict[str, Any]):
    """The frames of a run by upstream, under the name as registered or as stored."""

    def __init__(self, frames: Mapping[str, Any], name_of: NameOf) -> None:
        super().__init__(frames)
        self._name_of = name_of

    def __missing__(self, name: str) -> Any:
        stored = self._name_of(name)
        if stored != name and stored in self:
            return self[stored]
        raise RunError(
            "FM-RUN-003",
            f"the run has no input {name}",
            allowed=", ".join(self),
            state="nothing was written by this step; earlier writes of this run stand",
            next="use one of the upstreams the pipeline is registered for",
        )


_COUNTED = tuple[int | None, int | None, Mapping[str, object] | None]
_MAX_COUNT = 2**63 - 1
"""What the columns of the published tables hold."""


def metrics_of(run: Pass, returned: Any) -> Metrics:
    """What the function says about itself: a mapping, fm.Metrics, (rows read, rows written, metrics),
    or nothing.
    """
    if returned is None:
        return Metrics()
    if isinstance(returned, Mapping):
        return Metrics(metrics=returned)
    counted = returned
    if isinstance(returned, Metrics):
        counted = (returned.rows_read, returned.rows_written, returned.metrics)
    if isinstance(counted, tuple) and len(counted) == 3 and fits(counted, _COUNTED):
        read, written = (None if count is None else int(count) for count in counted[:2])
        if all(count is None or 0 <= count <= _MAX_COUNT for count in (read, written)):
            return Metrics(read, written, counted[2] or {})
    raise RunError(
        "FM-RUN-002",
        f"the function of pipeline {run.pipeline} returned {_described(returned)}",
        where=f"batch {run.batch.batch_id}",
        allowed="None, a mapping of metrics, fm.Metrics, or a tuple (rows read, rows written, metrics);"
        " rows are whole numbers from 0 on, or None",
        state="what it wrote with run.write stands and is not repeated by a retry",
        next="correct the function, " + then_retry(run.batch.batch_id),
    )


def _described(returned: Any) -> str:
    """The type of what came back, and of its parts: values may be rows."""
    if isinstance(returned, Metrics):
        returned_counts = returned.rows_read, returned.rows_written, returned.metrics
        return f"Metrics of {_types(returned_counts)}"
    if isinstance(returned, tuple) and len(returned) <= 3:
        return f"a tuple of {_types(returned)}"
    return type(returned).__name__


def _types(values: tuple[Any, ...]) -> str:
    kinds = (
        f"{type(value).__name__} {value:.6g}"
        if isinstance(value, int | float)
        else type(value).__name__
        for value in values
    )
    return ", ".join(kinds) or "nothing"


def stored_metrics(returned: Mapping[Any, object]) -> dict[str, str]:
    """Metrics as they are stored: cut to what a row can bear."""
    kept = list(returned.items())[:MAX_METRICS]
    return {text_of(name)[:200]: text_of(value)[:MAX_TEXT] for name, value in kept}


def text_of(value: object) -> str:
    """A value of others as text, whatever its own code does."""
    try:
        text = str(value)
    # The boundary to code of users: what cannot be shown is no reason to lose a run.
    except Exception as error:  # noqa: BLE001
        text = f"<{type(value).__name__} without a text: {type(error).__name__}>"
    return masked(text)


def _written_by(run: Pass) -> set[str]:
    """The writes that a pass has made itself; the next pass finds them by their receipts."""
    return {name for name, result in run.writes.results.items() if not result.already_applied}


def _stored_metrics(run: Pass, returned: Metrics, written: Collection[str]) -> dict[str, str]:
    """The function's metrics, and what an earlier attempt had done: not what this one has `written`."""
    metrics = stored_metrics(returned.metrics)
    metrics |= _write_notes(run)
    earlier = [
        name
        for name, result in run.writes.results.items()
        if result.already_applied and name not in written
    ]
    return {**metrics, ALREADY_APPLIED: ", ".join(earlier)[:MAX_TEXT]} if earlier else metrics


def _write_notes(run: Pass) -> dict[str, str]:
    """What somebody should know of the writes: keys that were tied, columns that were left NULL, rows that the target did not take."""
    notes = {}
    for name, result in run.writes.results.items():
        if int(result.metrics.get("ties") or 0):
            notes[f"{TIES}{name}"] = result.metrics["ties"]
            if result.metrics.get("tie_example"):
                notes[f"{TIE_EXAMPLE}{name}"] = masked(result.metrics["tie_example"])
        if result.metrics.get("null_columns") and name not in run.writes.aside:
            notes[f"{NULL_COLUMNS}{name}"] = result.metrics["null_columns"][:MAX_TEXT]
        if result.metrics.get("rows_left_out"):
            notes[f"{LEFT_OUT}{name}"] = result.metrics["rows_left_out"]
    return notes


def rows_in(windows: tuple[Window, ...]) -> int | None:
    """Rows the windows hold, from the log; None if one of them does not tell."""
    rows = [window.rows for window in windows]
    return None if None in rows else sum(r for r in rows if r is not None)


def rows_out(run: Pass) -> int | None:
    """Rows written by `run.write`, without those set aside by checks.

    None if a write does not tell, or there was none to tell.
    """
    rows = [
        each.rows_written
        for name, each in run.writes.results.items()
        if name not in run.writes.aside
    ]
    return None if not rows or None in rows else sum(r for r in rows if r is not None)


def result_of(record: RunRecord, *, is_repeat: bool = False) -> RunResult:
    """A run of the state as the user sees it."""
    return RunResult(
        pipeline=record.pipeline,
        batch_id=record.batch_id,
        status=record.status,
        rows_read=record.rows_read,
        rows_written=record.rows_written,
        metrics=record.metrics,
        run_id=record.run_id,
        duration_seconds=max(0.0, (record.changed_at - record.started_at).total_seconds()),
        retries=record.retries,
        error=record.error,
        is_repeat=is_repeat,
    )


def error_text(error: BaseException) -> str:
    """The text that is stored for a failure, bounded."""
    text = text_of(error) or type(error).__name__
    return f"{type(error).__name__}: {text}"[:MAX_TEXT]


def _first(said: int | None, known: int | None) -> int | None:
    return known if said is None else said


def _timed_out(lease: Lease, late: TookTooLong) -> RunError:
    run = lease.run
    return RunError(
        "FM-RUN-007",
        f"the function of pipeline {run.pipeline} took longer than {late.timeout_seconds:g} s",
        where=f"batch {run.batch_id}, run {run.run_id}, epoch {run.epoch}",
        found="a thread cannot be killed: the function may still run, its Spark jobs and the"
        " statements of its databases are cancelled",
        state="the run is fenced and recorded as FAILED; writes that committed stand, one that was "
        "committing may land, its receipt keeps it exactly once; nothing advances",
        next="make it quicker or raise timeout, " + then_retry(run.batch_id),
        retryable=True,
    )


def _lost_file(lease: Lease, error: Exception) -> SourceError:
    run = lease.run
    return SourceError(
        "FM-SOURCE-006",
        f"data files that pipeline {run.pipeline} has to read are gone",
        where=f"batch {run.batch_id}",
        found=error_text(error)[:500],
        state="the planned windows stand; writes of this run that committed are not repeated",
        next="restore the files (VACUUM removed them?), "
        + then_retry(run.batch_id)
        + "; or go on without them: "
        + command("retry", run.batch_id, "--on-lost-range", "snapshot")
        + " (the whole table at the planned end) or accept (the loss is declared)",
    )
