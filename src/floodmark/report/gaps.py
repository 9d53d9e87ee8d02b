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
from floodmark.model.results import Gap
from floodmark.model.window import NOTHING_PROCESSED, Window


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
        for (scope, upstream, gap), names in sorted(pipelines.items()):
            yield Gap(scope, upstream, gap.start, gap.end, gap.reason, tuple(sorted(names)))

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
            self.marks[mark.scope, mark.upstream] = mark.version
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
                self._processed(key, plan.read(body.pipeline, upstream), event)

    def _processed(self, key: _Key, window: Window, event: Event) -> None:
        if not window.has_news:
            return
        if window.reload:  # another table: its versions begin anew
            self.missing[key] = []
        whole = window.snapshot_version
        self._fill(key, window.start if whole is None else 0, window.end)
        if window.method == "lost":
            end = window.end if window.feed_after_version is None else window.feed_after_version
            reason = f"lost, and the loss was accepted in {event.batch_id}"
            self.missing[key].append(_Missing(window.start, end, reason))

    def _advance(self, body: Any, _: Event) -> None:
        plan = self.plans.get(body.batch_id)
        if plan:
            moved = {(plan.scope, upstream): v for upstream, v in body.upstreams.items()}
            self.marks.update(moved)

    def _reset(self, body: Any, event: Event) -> None:
        before = self.marks.get((body.scope, body.upstream), NOTHING_PROCESSED)
        self.marks[body.scope, body.upstream] = body.version
        # Where nothing was processed yet, a reset says where to begin.
        if before == NOTHING_PROCESSED or body.version <= before:
            return
        reason = f"skipped by a reset of {event.actor} at {event.at:%Y-%m-%d %H:%M} UTC"
        for pipeline, (scope, upstreams) in self.readers.items():
            if scope == body.scope and body.upstream in upstreams:
                key = (body.scope, body.upstream, pipeline)
                self.missing[key].append(_Missing(before + 1, body.version, reason))

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
