"""The state of a control store: a frozen value, folded from the journal (control/rules/folding.py)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from operator import attrgetter
from typing import Any, Literal

from floodmark.model.file_marks import AnyMark
from floodmark.model.marks import TimeMark
from floodmark.model.query import Query, TimeQuery, WindowKind
from floodmark.model.upstream import DEFAULT_OPTIONS, UpstreamOptions
from floodmark.model.window import NOTHING_PROCESSED, Window

RunStatus = Literal["RUNNING", "SUCCESS", "FAILED"]
OnLostTarget = Literal["rebuild", "accept"]
BatchStatus = Literal["PENDING", "FAILED", "COMPLETED", "CANCELLED", "NOOP"]
Fallback = Literal["any_success"]
"""What lets an upstream advance that no registered pipeline reads: weaker, so it has to be said."""
BatchKind = Literal["forward", "seed", "backfill", "replay"]
"""forward: moves the watermark. seed: brings one pipeline to the watermark. backfill, replay: a
range again, at the user's wish; outside the order of the others, with receipts of their own."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A registered pipeline: who must succeed before an upstream may advance."""

    name: str
    scope: str
    upstreams: tuple[str, ...]
    definition_hash: str
    updated_at: datetime
    is_paused: bool = False
    options: Mapping[str, UpstreamOptions] = field(default_factory=dict)
    """What it says about its upstreams; those without options are not in it."""
    lookups: tuple[str, ...] = ()
    """Tables that its batches freeze for it; they neither hold a batch nor trigger one."""

    def options_of(self, upstream: str) -> UpstreamOptions:
        return self.options.get(upstream, DEFAULT_OPTIONS)


@dataclass(frozen=True, slots=True)
class Mark:
    """The committed watermark of an upstream in a scope."""

    scope: str
    upstream: str
    version: int
    table_id: str
    feed_enabled: bool
    """Whether the change feed was on at `version`: the log may no longer tell."""
    schema_fingerprint: str
    batch_id: str
    advanced_at: datetime
    advanced_by: str
    query: Query | None = None
    mark: AnyMark | None = None
    """Where the upstream stands, if it has no versions: `version` counts windows."""

    @property
    def kind(self) -> WindowKind:
        """What the windows of the upstream are measured by."""
        return "version" if self.query is None else self.query.kind

    @property
    def has_versions(self) -> bool:
        """Whether `version` is one of a table."""
        return self.query is None

    @property
    def options(self) -> UpstreamOptions | None:
        """How the upstream was read, as options say it; None by versions."""
        if self.query is None:
            return None
        return UpstreamOptions(time_column=self.query.column, format=self.query.format)

    @property
    def column(self) -> str | None:
        """The column by which it was read; None by versions."""
        return None if self.query is None else self.query.column

    @property
    def shown_version(self) -> int:
        """The version as it is published: -1 where versions do not apply."""
        return self.version if self.query is None else -1

    @property
    def shown_mark(self) -> str | None:
        """The mark as it is published: typed JSON."""
        return None if self.mark is None else self.mark.encoded()

    @property
    def number(self) -> int:
        """Where the upstream stands in the numbers of `Window.span`."""
        if isinstance(self.query, TimeQuery) and isinstance(self.mark, TimeMark):
            return self.mark.number
        return self.version

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from floodmark.model.stored import mark_schema

        return mark_schema(handler)


@dataclass(frozen=True, slots=True)
class Advance:
    """When and by whom an upstream of a batch was advanced."""

    at: datetime
    by: str


@dataclass(frozen=True, slots=True)
class TableName:
    """A name of a catalog, and the table it stood for when it was resolved."""

    name: str
    path: str
    table_id: str
    is_managed: bool = False
    """Whether only the catalog knows the newest commits: the table is asked for and read by name."""


@dataclass(frozen=True, slots=True)
class SinkDone:
    """A write of a run that is known to be in its target."""

    write_name: str
    app_id: str
    target: str
    table_id: str
    version: int
    rows_written: int | None
    seq: int | None = None
    """The number of the receipt that the target must show; None in stores of older versions."""
    settled: OnLostTarget | None = None
    """Set where this is no write but what was decided about a lost target, as it was found:
    `table_id` is empty where there was none.
    """
    accepted_version: int = -1
    """The version up to which the operator took the target as it was."""
    table: str | None = None
    """The name of a catalog by which the target was given; None for a path."""
    since: int | None = None
    """The number of the batch that first made this write; None in stores of older versions."""
    batch_id: str | None = None
    """The batch that the commit names; None in stores of older versions, and for a settled loss."""
    misread: Mapping[str, int] = field(default_factory=dict)
    """upstream -> the rows that the write took of it, where the log says another number."""

    @property
    def first_seq(self) -> int | None:
        """The number of the first batch that is known to have made this write."""
        return self.seq if self.since is None else self.since

    @property
    def checked_version(self) -> int:
        """Commits after this one are asked whether they took rows of ours away."""
        return max(self.version, self.accepted_version)


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lease, precisely enough to tell whether that process is dead."""

    host: str
    boot_id: str
    pid: int
    started: str


@dataclass(frozen=True, slots=True)
class Run:
    """The latest execution of one pipeline for one batch."""

    pipeline: str
    batch_id: str
    run_id: str
    epoch: int
    holder: Holder
    ttl_seconds: float
    status: RunStatus
    started_at: datetime
    changed_at: datetime
    """Strictly later than the change before it, whatever the clock says."""
    retries: int = 0
    rows_read: int | None = None
    rows_written: int | None = None
    metrics: Mapping[str, str] = field(default_factory=dict)
    error: str | None = None
    is_external: bool = False
    sinks: Mapping[str, SinkDone] = field(default_factory=dict)

    @property
    def duration_seconds(self) -> float | None:
        """How long a finished run took; None while it runs."""
        if self.status == "RUNNING":
            return None
        return max(0.0, (self.changed_at - self.started_at).total_seconds())


@dataclass(frozen=True, slots=True)
class Effort:
    """What an upstream has cost in a batch, over the pipelines that read it."""

    rows_read: int | None
    """Rows its window holds; None where that is not known. Each reader reads all of them."""
    duration_seconds: float | None
    """How long the slowest reader's newest run took; None until one has ended."""
    retries: int
    """Runs of the readers beyond the first of each."""


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """A batch as planned, and what has become of it."""

    batch_id: str
    seq: int
    scope: str
    planned_at: datetime
    planned_by: str
    windows: Mapping[str, Window]
    required: Mapping[str, tuple[str, ...]]
    """The registry copied into the plan: pipeline -> its upstreams. Only these hold the batch."""
    runs: Mapping[str, Run] = field(default_factory=dict)
    advanced: Mapping[str, Advance] = field(default_factory=dict)
    is_cancelled: bool = False
    kind: BatchKind = "forward"
    aside: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Pipelines that were paused after they had leased the batch, with all their upstreams: the
    batch does not wait for them, but each of them has to finish it before anything later."""
    released: frozenset[str] = frozenset()
    """Upstreams whose window was given up because the only pipeline that read it was taken out."""
    lookups: Mapping[str, Window] = field(default_factory=dict)
    """Tables frozen with the batch, each as a window without news at its version."""
    fallback: Fallback | None = None
    allows: tuple[str, ...] = ()
    """What the user allowed a backfill or replay to do: duplicates, stale."""
    amended: Mapping[str, Mapping[str, Window]] = field(default_factory=dict)
    """pipeline -> upstream -> the same range, read in another way because it was lost."""

    @property
    def is_ordered(self) -> bool:
        """Whether the batch has its place in the order of its pipelines' batches."""
        return self.kind in ("forward", "seed")

    def pending_upstreams(self) -> list[str]:
        """The upstreams with news that still wait: to advance, or for who has to read them."""
        return [upstream for upstream in self.windows if self.is_pending(upstream)]

    def is_pending(self, upstream: str) -> bool:
        """Whether an upstream of the batch has news and still waits."""
        window = self.windows.get(upstream)
        if window is None or not window.has_news or self.is_cancelled or upstream in self.released:
            return False
        if self.kind == "forward":
            return upstream not in self.advanced
        return bool(self.waiting_for(upstream))

    def upstreams_of(self, pipeline: str) -> tuple[str, ...]:
        """The upstreams that a run of the pipeline reads; empty if it has no part in the batch."""
        registered = self.aside.get(pipeline) or self.required.get(pipeline, ())
        if registered or self.fallback is None:
            return registered
        return tuple(upstream for upstream in self.windows if not self.readers(upstream))

    def window_for(self, pipeline: str, upstream: str) -> Window:
        """The window as the pipeline reads it: as planned, unless that was amended for it."""
        return self.amended.get(pipeline, {}).get(upstream) or self.windows[upstream]

    def lookups_of(self, pipeline: str) -> dict[str, Window]:
        """The tables that the batch has frozen, as the pipeline looks them up."""
        amended = self.amended.get(pipeline, {})
        return {**self.lookups, **{u: w for u, w in amended.items() if u not in self.windows}}

    def shown_window(self, upstream: str) -> Window:
        """The window as it is published: with every other way in which a pipeline read it."""
        window = self.windows[upstream]
        for pipeline, windows in self.amended.items():
            other = windows.get(upstream)
            if other is not None:
                method = "lost" if window.method == "lost" else other.method
                reason = f"{window.reason}; amended for {pipeline}: {other.reason}"
                window = replace(window, method=method, reason=reason)
        return window

    def accepts(self, pipeline: str, misread: Mapping[str, int]) -> bool:
        """Whether the operator has accepted the rows that a write of the pipeline took."""
        return all(self.window_for(pipeline, upstream).as_read for upstream in misread)

    def owes(self, pipeline: str) -> bool:
        """Whether the pipeline has to finish this batch, now or once it is resumed."""
        has_part = pipeline in self.required or pipeline in self.aside
        return has_part and not self.is_cancelled and not self.has_succeeded(pipeline)

    @property
    def can_be_cancelled(self) -> bool:
        """G2: whether nobody can be running what would be given up.

        Once leased, only windows that no pipeline reads can be: nothing else would ever end them.
        A backfill or replay holds nothing and can be given up whenever it is not running.
        """
        if not self.is_ordered:
            return self.is_open and all(run.status != "RUNNING" for run in self.runs.values())
        left = self.pending_upstreams()
        is_unread = bool(left) and self.fallback is None and not any(map(self.readers, left))
        return not self.runs or is_unread

    def readers(self, upstream: str) -> list[str]:
        """The required pipelines of an upstream."""
        return [p for p, upstreams in self.required.items() if upstream in upstreams]

    def effort(self, upstream: str) -> Effort:
        """What the upstream has cost so far: rows, seconds and retries."""
        runs = [run for name, run in self.runs.items() if upstream in self.upstreams_of(name)]
        durations = [run.duration_seconds for run in runs]
        return Effort(
            rows_read=self.windows[upstream].rows,
            duration_seconds=max((d for d in durations if d is not None), default=None),
            retries=sum(run.retries for run in runs),
        )

    def waiting_for(self, upstream: str) -> list[str]:
        """The required pipelines of an upstream that have not succeeded."""
        return [p for p in self.readers(upstream) if not self.has_succeeded(p)]

    def held_because(self, upstream: str) -> str | None:
        """G4: why an upstream of the batch may not advance yet; None if it may."""
        if self.windows[upstream].deferred:
            return "its end is not frozen yet: the first run of the batch does that"
        if not self.readers(upstream):
            return self._held_without_readers()
        waiting = ", ".join(self._standing(pipeline) for pipeline in self.waiting_for(upstream))
        return f"not marked as processed yet: {waiting}" if waiting else None

    def _standing(self, pipeline: str) -> str:
        """What a pipeline that holds an upstream is doing, for people."""
        run = self.runs.get(pipeline)
        words = {"FAILED": "failed", "RUNNING": "has not finished"}
        return f"{pipeline} {words.get(run.status if run else '', 'has not run')}"

    def _held_without_readers(self) -> str | None:
        if self.fallback is None:
            return "no pipeline is registered for it"
        others = [run for name, run in self.runs.items() if name not in self.required]
        if any(run.status == "SUCCESS" for run in others):
            return None
        return "no pipeline has succeeded yet; the first one lets it advance"

    def has_succeeded(self, pipeline: str) -> bool:
        run = self.runs.get(pipeline)
        return run is not None and run.status == "SUCCESS"

    def unfinished_pipelines(self) -> list[str]:
        return [p for p in dict.fromkeys((*self.required, *self.aside)) if self.owes(p)]

    @property
    def is_open(self) -> bool:
        """Whether anything of the batch is still to be done: an upstream waits, a debt is open."""
        return bool(self.pending_upstreams()) or any(self.owes(p) for p in self.aside)

    @property
    def status(self) -> BatchStatus:
        if self.is_cancelled:
            return "CANCELLED"
        if not self.pending_upstreams():
            return "COMPLETED"
        runs = [self.runs[p] for p in self.required if p in self.runs]
        return "FAILED" if any(run.status == "FAILED" for run in runs) else "PENDING"

    def window_status(self, upstream: str) -> BatchStatus:
        """The status of one row of the published `watermarks` table."""
        if not self.windows[upstream].has_news:
            return "NOOP"
        if upstream in self.advanced:
            return "COMPLETED"
        if self.is_cancelled or upstream in self.released:
            return "CANCELLED"
        if not self.is_pending(upstream):
            return "COMPLETED"
        return "FAILED" if self.failed_runs(upstream) else "PENDING"

    def failed_runs(self, upstream: str) -> list[Run]:
        """The latest runs of the upstream's required pipelines, where they failed."""
        runs = [self.runs[p] for p in self.readers(upstream) if p in self.runs]
        return [run for run in runs if run.status == "FAILED"]


_by_seq = attrgetter("seq")

ScopedUpstream = tuple[str, str]
"""(scope, upstream)."""


@dataclass(frozen=True, slots=True)
class State:
    """Everything the control plane knows, at one position of the journal."""

    control_id: str = ""
    seq: int = 0
    """Number of the last event."""
    batch_seq: int = 0
    """Number of the newest batch: one counter per store, never reused."""
    pipelines: Mapping[str, Pipeline] = field(default_factory=dict)
    marks: Mapping[ScopedUpstream, Mark] = field(default_factory=dict)
    open_windows: Mapping[ScopedUpstream, str] = field(default_factory=dict)
    """The forward batch that covers an upstream and has not advanced it."""
    open_ids: frozenset[str] = frozenset()
    """The batches in which anything is still to be done."""
    batches: Mapping[str, PlannedBatch] = field(default_factory=dict)
    """Open batches and the newest finished ones, by id, in the order of their seq."""
    epochs: Mapping[str, int] = field(default_factory=dict)
    """The newest lease epoch of each pipeline."""
    seeded_through: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """(pipeline, upstream) -> the version through which the pipeline has processed it."""
    seeded_marks: Mapping[tuple[str, str], AnyMark] = field(default_factory=dict)
    """The same as a mark, for upstreams without versions."""
    sinks: Mapping[str, SinkDone] = field(default_factory=dict)
    """app id -> the last write known to be in its target."""
    names: Mapping[str, TableName] = field(default_factory=dict)
    """Names of a catalog that were resolved."""
    places: Mapping[str, str] = field(default_factory=dict)
    """Where the tables of upstreams are that moved after they got their stored name."""

    def place_of(self, upstream: str) -> str:
        """Where the table of a stored name is."""
        return self.places.get(upstream, upstream)

    def running_on(self, upstream: str) -> Run | None:
        """A run that stands as RUNNING in a batch that has the upstream, or looks it up."""
        for batch in self.open_batches():
            if upstream in batch.windows or upstream in batch.lookups:
                for run in batch.runs.values():
                    if run.status == "RUNNING":
                        return run
        return None

    def committed_version(self, scope: str, upstream: str) -> int:
        mark = self.marks.get((scope, upstream))
        return mark.version if mark else NOTHING_PROCESSED

    def every_mark(self) -> Iterator[AnyMark]:
        """All marks that somebody may still read by: of upstreams, pipelines, and batches."""
        batches = self.batches.values()
        windows = [
            w for batch in batches for w in (*batch.windows.values(), *batch.lookups.values())
        ]
        windows += [
            w for batch in batches for each in batch.amended.values() for w in each.values()
        ]
        options = [o for pipeline in self.pipelines.values() for o in pipeline.options.values()]
        found: list[AnyMark | None] = [mark.mark for mark in self.marks.values()]
        found += [w.after_mark for w in windows] + [w.through_mark for w in windows]
        found += [*self.seeded_marks.values(), *(o.latest_mark for o in options)]
        return (mark for mark in found if mark is not None)

    def open_batches(self, scope: str | None = None) -> Iterator[PlannedBatch]:
        """Batches in which anything is still to be done, oldest first."""
        found = sorted([self.batches[i] for i in self.open_ids], key=_by_seq)
        return iter(found if scope is None else [b for b in found if b.scope == scope])

    def open_batches_of(self, pipeline: str) -> list[PlannedBatch]:
        """The open batches in which a pipeline has a part, finished or not, oldest first."""
        return [batch for batch in self.open_batches() if batch.upstreams_of(pipeline)]

    def left_behind_by(self, pipeline: str) -> frozenset[str]:
        """The batches that a pipeline of this name had begun when it was removed."""
        return frozenset(
            batch_id
            for batch_id, batch in self.batches.items()
            if pipeline in batch.runs and not batch.upstreams_of(pipeline)
        )

    def batches_owed_by(self, pipeline: str) -> list[PlannedBatch]:
        """The batches that a pipeline has to finish, oldest first."""
        return [batch for batch in self.open_batches() if batch.owes(pipeline)]

    def pipelines_in(self, scope: str) -> list[Pipeline]:
        return [p for p in self.pipelines.values() if p.scope == scope]

    def active_in(self, scope: str) -> list[Pipeline]:
        """The pipelines of a scope that are not paused."""
        return [p for p in self.pipelines_in(scope) if not p.is_paused]

    def required_pipelines(
        self, scope: str, windows: Iterable[Window]
    ) -> dict[str, tuple[str, ...]]:
        """The pipelines of the scope that read an upstream with news, with all their upstreams."""
        fresh = {window.upstream for window in windows if window.has_news}
        return {p.name: p.upstreams for p in self.active_in(scope) if fresh & set(p.upstreams)}

    def processed_through(self, pipeline: str, upstream: str) -> int:
        """The version through which a pipeline has processed an upstream, or need not."""
        known = self.pipelines.get(pipeline)
        baseline = known.options_of(upstream).first_after if known else NOTHING_PROCESSED
        return self.seeded_through.get((pipeline, upstream), baseline)

    def mark_of(self, pipeline: str, upstream: str, like: AnyMark | None) -> AnyMark | None:
        """The mark through which a pipeline has processed an upstream, or need not.

        `like` is a mark of the upstream, for the type of a baseline.
        """
        if (pipeline, upstream) in self.seeded_through:
            return self.seeded_marks.get((pipeline, upstream))
        known = self.pipelines.get(pipeline)
        return known.options_of(upstream).first_mark(like) if known and like else None

    def will_have_processed(self, pipeline: str, upstream: str) -> int:
        """The same, once the pipeline has finished the batches it has to finish."""
        ahead = [
            b.windows[upstream]
            for b in self.batches_owed_by(pipeline)
            if b.is_ordered and upstream in b.upstreams_of(pipeline)
        ]
        through = [window.through for window in ahead if window.has_news]
        return max([self.processed_through(pipeline, upstream), *through])


NOTHING_KNOWN = State()
"""What is known before the first event."""
