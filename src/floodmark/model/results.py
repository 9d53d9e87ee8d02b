"""What the public functions return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from floodmark.model import durations, shown
from floodmark.model.file_marks import AnyMark, any_mark
from floodmark.model.state import BatchKind, BatchStatus, Fallback, PlannedBatch, RunStatus
from floodmark.model.window import Caution, Window, WindowKind


@dataclass(frozen=True, slots=True, repr=False)
class Batch:
    """A batch as the user sees it."""

    batch_id: str | None
    """None where nothing was journaled: a preview, or no news."""
    seq: int | None
    scope: str
    status: BatchStatus
    windows: tuple[Window, ...]
    pipelines: tuple[str, ...]
    """The pipelines that must succeed, in the order of their registration."""
    reused: bool = False
    """True where an open batch was found instead of planning a new one."""
    unplanned: tuple[str, ...] = ()
    """Requested upstreams that wait until the open batch is finished."""
    kind: BatchKind = "forward"
    fallback: Fallback | None = None
    """What lets an upstream advance that no registered pipeline reads, if it was said."""
    seeds: tuple[str, ...] = ()
    """Pipelines that are first brought to where the batch starts, each by a seed batch."""
    unresolved: tuple[str, ...] = ()
    """Catalog names that a preview could not look at without Spark: they may have news."""
    after: tuple[str, ...] = ()
    """Pipelines of this plan that write what is read here: planned again when they have run."""
    lookups: tuple[Window, ...] = ()
    """Tables that the batch freezes to be looked up, each at its version."""

    def window(self, upstream: str) -> Window:
        """The window of an upstream; raises KeyError if the batch has none."""
        for window in self.windows:
            if window.upstream == upstream:
                return window
        raise KeyError(upstream)

    @property
    def _title(self) -> str:
        name = f"{self.batch_id}, number {self.seq}" if self.batch_id else "not journaled"
        return f"Batch {name} ({self.kind}, scope {self.scope}): {self.status}"

    def __repr__(self) -> str:
        windows = shown.several(
            f"{window.upstream} {_range(window)}" for window in self.windows if window.has_news
        )
        pipelines = shown.several(self.pipelines)
        return shown.lines(
            self._title,
            windows or "no news",
            pipelines and f"pipelines: {pipelines}",
        )

    def _repr_html_(self) -> str:
        rows = [
            (window.upstream, window.method, _range(window), window.status, window.reason)
            for window in self.windows
        ]
        return shown.html_table(
            self._title, ("upstream", "method", "window", "status", "reason"), rows
        )


def _range(window: Window) -> str:
    """A window as people say it: versions, both included, or what it says about itself."""
    if not window.has_news:
        return "no news"
    if window.kind != "version":
        return f"by {window.kind}"
    return f"{window.start} to {window.end} by {window.method}"


def batch_view(batch: PlannedBatch, *, reused: bool, unplanned: tuple[str, ...] = ()) -> Batch:
    """A journaled batch as the user sees it."""
    return Batch(
        batch_id=batch.batch_id,
        seq=batch.seq,
        scope=batch.scope,
        status=batch.status,
        windows=tuple(batch.shown_window(upstream) for upstream in batch.windows),
        pipelines=tuple(dict.fromkeys((*batch.required, *batch.aside))),
        reused=reused,
        unplanned=unplanned,
        kind=batch.kind,
        fallback=batch.fallback,
        lookups=tuple(batch.lookups.values()),
    )


@dataclass(frozen=True, slots=True)
class Metrics:
    """What a pipeline's function may return about itself; None leaves what floodmark knows."""

    rows_read: int | None = None
    rows_written: int | None = None
    metrics: Mapping[str, object] = field(default_factory=dict)


ALREADY_APPLIED = "already_applied"
"""The metric that names the writes an earlier attempt had committed; they were not repeated."""


TIES = "ties."
"""Before the name of a write: how many keys had several rows with an equal claim to be the newest."""
TIE_EXAMPLE = "tie_example."
"""Before the name of a write: one of those keys, unless a column of the project is sensitive."""
NULL_COLUMNS = "null_columns."
"""Before the name of a write: the columns of its target that the rows did not have."""
LEFT_OUT = "rows_left_out."
"""Before the name of a write: how many of its rows the target did not take."""


@dataclass(frozen=True, slots=True, repr=False)
class RunResult:
    """What became of one pipeline of one batch."""

    pipeline: str
    batch_id: str
    status: RunStatus
    rows_read: int | None
    """Rows the windows hold, from the log; None where it does not tell, never a guess."""
    rows_written: int | None
    metrics: Mapping[str, str]
    run_id: str
    duration_seconds: float
    retries: int = 0
    error: str | None = None
    is_repeat: bool = False
    """True where the pipeline had succeeded before and its function was not called again."""
    story: str | None = None
    """Where the report of the run is, once there are reports."""

    @property
    def _title(self) -> str:
        length = durations.shown(self.duration_seconds)
        return f"RunResult {self.pipeline} of {self.batch_id}: {self.status} in {length}"

    @property
    def _rows(self) -> str:
        read, written = shown.count(self.rows_read, "row"), shown.count(self.rows_written, "row")
        return f"{read} read, {written} written"

    def __repr__(self) -> str:
        repeated = "it had succeeded before, nothing was called again"
        return shown.lines(
            self._title, self._rows, self.error or (repeated if self.is_repeat else "")
        )

    def _repr_html_(self) -> str:
        known = {"rows": self._rows, "run": self.run_id, **self.metrics, "error": self.error}
        rows = [(name, value) for name, value in known.items() if value is not None]
        return shown.html_table(self._title, ("", ""), rows)


@dataclass(frozen=True, slots=True)
class Held:
    """An upstream that a finalize did not advance, and why."""

    upstream: str
    reason: str
    waiting_for: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Finalized:
    """What a finalize did."""

    batch_id: str
    advanced: tuple[str, ...]
    held: tuple[Held, ...]


@dataclass(frozen=True, slots=True, repr=False)
class Lag:
    """How far an upstream's watermark is behind the upstream."""

    scope: str
    upstream: str
    latest: int | None
    committed: int | None
    versions_behind: int | None
    seconds_behind: float | None
    held_by: tuple[str, ...]
    reason: str | None = None
    """Why the upstream is held or could not be looked at."""
    kind: WindowKind = "version"
    latest_mark: str | None = None
    """The newest value there is, of an upstream without versions; then `latest` is None."""
    committed_mark: str | None = None
    warning: Caution | None = None
    """What was seen beside the news."""

    @property
    def newest(self) -> int | AnyMark | None:
        """The newest version or value there is, as far as that is known."""
        return self.latest if self.kind == "version" else any_mark(self.latest_mark)

    @property
    def reached(self) -> int | AnyMark | None:
        """The version or value through which the upstream is committed."""
        return self.committed if self.kind == "version" else any_mark(self.committed_mark)

    @property
    def is_known(self) -> bool:
        """Whether the upstream could be looked at."""
        has_versions = self.kind != "version" or self.versions_behind is not None
        return has_versions and (self.seconds_behind is not None or self.latest_mark is not None)

    @property
    def _behind(self) -> str:
        if self.versions_behind is not None:
            return f"{shown.count(self.versions_behind, 'version')} behind"
        return "behind" if self.seconds_behind else "up to date" if self.is_known else "unknown"

    def __repr__(self) -> str:
        committed = self.committed if self.kind == "version" else self.committed_mark
        latest = self.latest if self.kind == "version" else self.latest_mark
        since = f", for {durations.shown(self.seconds_behind)}" if self.seconds_behind else ""
        held = f"held by {shown.several(self.held_by)}" if self.held_by else ""
        return shown.lines(
            f"Lag of {self.upstream} (scope {self.scope}): {self._behind}",
            f"committed {committed}, latest {latest}{since}",
            ": ".join(filter(None, (held, self.reason or ""))),
        )

    def _repr_html_(self) -> str:
        header = ("scope", "upstream", "committed", "latest", "behind", "held by", "reason")
        committed = self.committed if self.kind == "version" else self.committed_mark
        latest = self.latest if self.kind == "version" else self.latest_mark
        held = shown.several(self.held_by)
        row = (self.scope, self.upstream, committed, latest, self._behind, held, self.reason)
        return shown.html_table("Lag", header, [row])


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The committed watermark of an upstream, for people and scripts."""

    scope: str
    upstream: str
    version: int
    table_id: str
    batch_id: str
    advanced_at: datetime
    mark: str | None = None
    """Where an upstream without versions stands; `version` is -1 then."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of `verify` or `doctor`."""

    name: str
    ok: bool
    text: str
    next: str | None = None


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What an upkeep did."""

    folded_events: int
    """Events of the journal that became one; 0 if there was nothing to fold."""
    joined: Mapping[str, int]
    """Published table -> how many small files were joined."""
    removed_files: int
    removed_bytes: int
    removed_heartbeats: int
    history_events: int
    """Every event up to this number is in `history`, or in its archive."""
    archived: Mapping[str, int] = field(default_factory=dict)
    """Published table -> how many old rows were moved to the archive."""


@dataclass(frozen=True, slots=True)
class StoreContent:
    """What a store, or an export of one, holds."""

    control: str
    control_id: str
    events: int
    batches: int
    """The number of the newest batch."""
    pipelines: tuple[str, ...]
    watermarks: int
    open_batches: tuple[str, ...]
    is_complete: bool
    """Whether every event since the beginning is there."""
    not_restored: tuple[str, ...] = ()
    """What a store that was rebuilt from its targets does not know."""


@dataclass(frozen=True, slots=True)
class Stuck:
    """An open batch that will not move by itself."""

    batch_id: str
    scope: str
    pipelines: tuple[str, ...]
    text: str
    next: str


@dataclass(frozen=True, slots=True)
class Gap:
    """Versions of an upstream that were never processed in a scope, although later ones were."""

    scope: str
    upstream: str
    start: int
    end: int
    """Inclusive at both ends; -1 where versions do not apply."""
    reason: str
    pipelines: tuple[str, ...]
    """Who has not seen them."""
    start_mark: str | None = None
    """Of an upstream without versions: where the gap begins, excluded, as typed JSON."""
    end_mark: str | None = None
    """Where it ends, included."""

    def between(self, after: AnyMark | None, through: AnyMark | None) -> Gap:
        """The gap between two marks, of an upstream without versions."""
        first, last = (None if mark is None else mark.encoded() for mark in (after, through))
        return replace(self, start=-1, end=-1, start_mark=first, end_mark=last)

    @property
    def marks(self) -> tuple[AnyMark | None, AnyMark | None]:
        """Both marks as values."""
        return any_mark(self.start_mark), any_mark(self.end_mark)


def good(name: str, text: str) -> Finding:
    return Finding(name, ok=True, text=text)


def bad(name: str, text: str, next: str | None = None) -> Finding:
    return Finding(name, ok=False, text=text, next=next)
