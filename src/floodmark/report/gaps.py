"""Gaps: versions of an upstream that a pipeline never processed, although it is past them.

Computed from the events one by one, without the fold's rules, as `verify` does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from floodmark.control import ControlReader, all_events
from floodmark.control.events import Event
from floodmark.deltalog import Storage
from floodmark.model import NOTHING_PROCESSED, AnyMark, Gap, TimeMark, TimeType, Window, numbered


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
    marks: tuple[AnyMark | None, AnyMark | None] | None = None
    """Set where nothing is numbered."""

    def as_gap(self, scope: str, upstream: str, pipelines: Iterable[str]) -> Gap:
        names = tuple(sorted(pipelines))
        gap = Gap(scope, upstream, self.start, self.end, self.reason, names)
        if self.type is None and self.marks is None:
            return gap
        after, through = self.marks or (None, None)
        if self.type is not None:
            after, through = (numbered(self.type, n) for n in (self.start - 1, self.end))
        return gap.between(after, through)


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
            self.marks[mark.scope, mark.upstream] = mark.number
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
                span = window.span()
                if span is None:
                    is_ordered = plan.kind in ("forward", "seed")
                    self._processed_unnumbered(key, window, event, is_ordered=is_ordered)
                else:
                    self._processed(key, window, span, event)

    def _processed(self, key: _Key, window: Window, span: tuple[int, int], event: Event) -> None:
        if not window.has_news:
            return
        if window.reload:  # another table: its versions begin anew
            self.missing[key] = []
        self._fill(key, *span)
        if window.method == "lost":
            end = window.end if window.feed_after_version is None else window.feed_after_version
            self.missing[key].append(_Missing(window.start, end, _accepted(event)))

    def _processed_unnumbered(
        self, key: _Key, window: Window, event: Event, *, is_ordered: bool
    ) -> None:
        """Where nothing is numbered, what was given up comes back only with everything."""
        if window.has_news and window.method == "lost":
            lost = _Missing(-1, -1, _accepted(event), marks=window.lost_marks)
            self.missing[key].append(lost)
        elif window.has_news and window.is_first and is_ordered:
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
                self.marks[plan.scope, upstream] = window.end_number if window else version

    def _reset(self, body: Any, event: Event) -> None:
        before = self.marks.pop((body.scope, body.upstream), NOTHING_PROCESSED)
        if body.version == NOTHING_PROCESSED:
            return
        time = body.mark if isinstance(body.mark, TimeMark) else None
        after = body.version if time is None else time.number
        self.marks[body.scope, body.upstream] = after
        # Where nothing was processed yet, a reset says where to begin.
        if before == NOTHING_PROCESSED or after <= before:
            return
        kind = None if time is None else time.type
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


def _place(found: tuple[tuple[str, str, _Missing], list[str]]) -> tuple[str, str, int, int]:
    (scope, upstream, gap), _ = found
    return scope, upstream, gap.start, gap.end
