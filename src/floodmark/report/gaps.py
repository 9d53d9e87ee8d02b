"""Gaps: versions of an upstream that a pipeline never processed, although it is past them.

Computed from the events one by one, without the fold's rules, as `verify` does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from floodmark.control import ControlReader
from floodmark.control.events import Event
from floodmark.control.history import all_events
from floodmark.deltalog import Storage
from floodmark.model.marks import TimeType, decoded, numbered
from floodmark.model.results import Gap
from floodmark.model.window import NO_VERSION, NOTHING_PROCESSED, Window, WindowKind


def gaps_of(reader: ControlReader, control: str, storage: Storage) -> tuple[Gap, ...]:
    """Every gap, by scope and upstream; empty if nothing is missing."""
    return find_gaps(all_events(reader, control, storage))


def find_gaps(events: Iterable[Event]) -> tuple[Gap, ...]:
    """The gaps that a history leaves."""
    search = _Search()
    for event in events:
        search.take(event)
    return tuple(search.found())


class _Missing(NamedTuple):
    start: int
    end: int
    reason: str
    type: TimeType | None = None
    """Set where the numbers are those of marks, see `TimeMark.number`."""
    marks: tuple[str | None, str | None] | None = None
    """Set where nothing is numbered: cursors and files."""

    def as_gap(self, scope: str, upstream: str, pipelines: Iterable[str]) -> Gap:
        names = tuple(sorted(pipelines))
        if self.type is None and self.marks is None:
            return Gap(scope, upstream, self.start, self.end, self.reason, names)
        marks = self.marks
        if self.type is not None:
            first, last = (numbered(self.type, n).encoded() for n in (self.start - 1, self.end))
            marks = first, last
        return Gap(scope, upstream, NO_VERSION, NO_VERSION, self.reason, names, *(marks or ()))


_BEFORE_ALL = -(2**63)
UNNUMBERED: tuple[WindowKind, ...] = ("cursor", "files")
"""Kinds of windows whose marks are not counted here."""


_Key = tuple[str, str, str]
"""(scope, upstream, pipeline)."""


@dataclass
class _Plan:
    scope: str
    kind: str
    windows: dict[str, Window]
    required: dict[str, tuple[str, ...]]
    amended: dict[tuple[str, str], Window] = field(default_factory=dict)
    """(pipeline, upstream) -> how that pipeline read it instead."""

    def read(self, pipeline: str, upstream: str) -> Window:
        return self.amended.get((pipeline, upstream), self.windows[upstream])


class _Search:
    """What is missing after each event."""

    def __init__(self) -> None:
        self.plans: dict[str, _Plan] = {}
        self.readers: dict[str, tuple[str, tuple[str, ...]]] = {}
        """pipeline -> its scope and upstreams."""
        self.marks: dict[tuple[str, str], int] = {}
        """Versions, or the numbers of marks."""
        self.missing: dict[_Key, list[_Missing]] = defaultdict(list)

    def take(self, event: Event) -> None:
        handler = getattr(self, f"_{event.kind.lower()}", None)
        if handler:
            handler(event.body, event)

    def found(self) -> Iterator[Gap]:
        pipelines: dict[tuple[str, str, _Missing], list[str]] = defaultdict(list)
        for (scope, upstream, pipeline), gaps in self.missing.items():
            for gap in gaps:
                pipelines[scope, upstream, gap].append(pipeline)
        for (scope, upstream, gap), names in sorted(pipelines.items(), key=_place):
            yield gap.as_gap(scope, upstream, names)

    # Who reads what -------------------------------------------------------------------------------

    def _register(self, body: Any, _: Event) -> None:
        self.readers[body.pipeline] = (body.scope, tuple(body.upstreams))

    def _remove(self, body: Any, _: Event) -> None:
        self.readers.pop(body.pipeline, None)
        for key in [key for key in self.missing if key[2] == body.pipeline]:
            del self.missing[key]

    def _rename(self, body: Any, _: Event) -> None:
        self.readers[body.new_name] = self.readers.pop(body.pipeline, ("", ()))
        for scope, upstream, pipeline in list(self.missing):
            if pipeline == body.pipeline:
                gaps = self.missing.pop((scope, upstream, pipeline))
                self.missing[scope, upstream, body.new_name] = gaps

    def _snapshot(self, body: Any, _: Event) -> None:
        for pipeline in body.pipelines:
            self.readers[pipeline.name] = (pipeline.scope, tuple(pipeline.upstreams))
        for mark in body.marks:
            self.marks[mark.scope, mark.upstream] = _stand(
                mark.version, mark.mark if mark.kind == "time" else None
            )
        for batch in body.batches:
            self.plans[batch.batch_id] = _Plan(
                batch.scope, batch.kind, dict(batch.windows), dict(batch.required)
            )

    def _rebuild(self, body: Any, event: Event) -> None:
        self._snapshot(body.state, event)

    # What is read ---------------------------------------------------------------------------------

    def _plan(self, body: Any, _: Event) -> None:
        windows = {window.upstream: window for window in body.windows}
        self.plans[body.batch_id] = _Plan(body.scope, body.batch_kind, windows, dict(body.required))

    def _amend(self, body: Any, _: Event) -> None:
        plan = self.plans.get(body.batch_id)
        if plan:
            plan.amended[body.pipeline, body.window.upstream] = body.window

    def _success(self, body: Any, event: Event) -> None:
        plan = self.plans.get(body.batch_id)
        if plan is None:
            return
        for upstream in plan.required.get(body.pipeline, ()):
            if upstream in plan.windows:
                key = (plan.scope, upstream, body.pipeline)
                window = plan.read(body.pipeline, upstream)
                if window.kind in UNNUMBERED:
                    is_ordered = plan.kind in ("forward", "seed")
                    self._processed_unnumbered(key, window, event, is_ordered=is_ordered)
                else:
                    self._processed(key, window, event)

    def _processed(self, key: _Key, window: Window, event: Event) -> None:
        if not window.has_news:
            return
        if window.reload:  # another table: its versions begin anew
            self.missing[key] = []
        self._fill(key, *_span(window))
        if window.method == "lost":
            end = window.end if window.feed_after_version is None else window.feed_after_version
            self.missing[key].append(_Missing(window.start, end, _accepted(event)))

    def _processed_unnumbered(
        self, key: _Key, window: Window, event: Event, *, is_ordered: bool
    ) -> None:
        """Cursors and files: what was given up comes back only with everything."""
        if window.has_news and window.method == "lost":
            # Of a cursor all that follows the mark was read, but no late rows before it.
            is_cursor = window.kind == "cursor"
            ends = (None, window.start_mark) if is_cursor else (window.start_mark, window.end_mark)
            lost = _Missing(NO_VERSION, NO_VERSION, _accepted(event), marks=ends)
            self.missing[key].append(lost)
        elif window.has_news and window.after_version == NOTHING_PROCESSED and is_ordered:
            self.missing.pop(key, None)

    def _freeze(self, body: Any, _: Event) -> None:
        plan = self.plans.get(body.batch_id)
        if plan:
            plan.windows[body.window.upstream] = body.window

    def _advance(self, body: Any, _: Event) -> None:
        plan = self.plans.get(body.batch_id)
        if plan:
            for upstream, version in body.upstreams.items():
                window = plan.windows.get(upstream)
                is_time = window is not None and window.kind == "time"
                mark = window.end_mark if window and is_time else None
                self.marks[plan.scope, upstream] = _stand(version, mark)

    def _reset(self, body: Any, event: Event) -> None:
        before = self.marks.pop((body.scope, body.upstream), NOTHING_PROCESSED)
        if body.version == NOTHING_PROCESSED:
            return
        after = self.marks[body.scope, body.upstream] = _stand(body.version, body.mark)
        # Where nothing was processed yet, a reset says where to begin.
        if before == NOTHING_PROCESSED or after <= before:
            return
        kind = None if body.mark is None else decoded(body.mark).type
        reason = f"skipped by a reset of {event.actor} at {event.at:%Y-%m-%d %H:%M} UTC"
        for pipeline, (scope, upstreams) in self.readers.items():
            if scope == body.scope and body.upstream in upstreams:
                key = (body.scope, body.upstream, pipeline)
                self.missing[key].append(_Missing(before + 1, after, reason, kind))

    def _fill(self, key: _Key, start: int, end: int) -> None:
        """Take a range out of what is missing."""
        left: list[_Missing] = []
        for gap in self.missing.pop(key, []):
            if gap.start < start:
                left.append(gap._replace(end=min(gap.end, start - 1)))
            if gap.end > end:
                left.append(gap._replace(start=max(gap.start, end + 1)))
        if left:
            self.missing[key] = left


def _accepted(event: Event) -> str:
    return f"lost, and the loss was accepted in {event.batch_id}"


def _stand(version: int, mark: str | None) -> int:
    return version if mark is None else decoded(mark).number


def _span(window: Window) -> tuple[int, int]:
    """What a window covers, inclusive, in versions or in numbers of marks."""
    if window.kind != "time":
        return window.start if window.snapshot_version is None else 0, window.end
    start = _BEFORE_ALL if window.start_mark is None else decoded(window.start_mark).number + 1
    return start, _BEFORE_ALL if window.end_mark is None else decoded(window.end_mark).number


def _place(found: tuple[tuple[str, str, _Missing], list[str]]) -> tuple[str, str, int, int]:
    (scope, upstream, gap), _ = found
    return scope, upstream, gap.start, gap.end
