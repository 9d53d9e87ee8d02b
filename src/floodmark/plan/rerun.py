"""Backfill and replay: ranges that are processed again because the user says so.

They are batches of their own, with receipts of their own; watermarks stay where they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date

from floodmark.errors import PlanError, SourceError
from floodmark.model import (
    NOTHING_PROCESSED,
    CursorMark,
    Draft,
    Mark,
    Pipeline,
    PlannedBatch,
    Probe,
    State,
    TimeMark,
    UpstreamOptions,
    ValueMark,
    Window,
    cursor_marks,
)
from floodmark.model.cursor_marks import is_after
from floodmark.next_steps import command
from floodmark.plan import times
from floodmark.plan.seeds import feed_gap, seed_window, standing_window

Edge = int | str | date
"""A version; of an upstream without versions a value of its column: text, a number, date or datetime."""


@dataclass(frozen=True, slots=True)
class Backfill:
    """The range `start` to `end`, both included, of one upstream, for some pipelines of a scope."""

    scope: str
    upstream: str
    start: Edge
    end: Edge
    pipelines: tuple[Pipeline, ...]

    def upstreams(self) -> list[str]:
        """Every upstream that the pipelines read: each gets a frame."""
        return list(dict.fromkeys(u for pipeline in self.pipelines for u in pipeline.upstreams))

    def options(self, upstream: str) -> UpstreamOptions:
        """How the pipelines read one of their upstreams."""
        return next(p.options_of(upstream) for p in self.pipelines if upstream in p.upstreams)

    def refuse_strangers(self) -> None:
        """Raises FM-PLAN-014 for a pipeline that does not read the upstream.

        It may have read it when the command began: a registration can come in between.
        """
        strangers = [p for p in self.pipelines if self.upstream not in p.upstreams]
        for stranger in strangers[:1]:
            raise PlanError(
                "FM-PLAN-014",
                f"{self.upstream} cannot be backfilled for pipeline {stranger.name}",
                found=f"{stranger.name} reads {', '.join(stranger.upstreams)}",
                allowed="pipelines that read the upstream",
                state="nothing was planned",
                next="leave the pipeline out, or register it with this upstream",
            )

    def mark(self, state: State) -> Mark:
        """The watermark, with versions as if it stood at the end of the range; raises FM-PLAN-014."""
        mark = state.marks.get((self.scope, self.upstream))
        if mark is not None and not mark.has_versions:
            self.values(mark)
            return mark
        first, last = self._versions(mark)
        if mark is None or not 0 <= first <= last <= mark.version:
            raise self._outside(mark)
        return replace(mark, version=last)

    def after(self, mark: Mark) -> int:
        """The number after which the range is looked for in a log."""
        return mark.version if not mark.has_versions else self._versions(mark)[0] - 1

    def _versions(self, mark: Mark | None) -> tuple[int, int]:
        if isinstance(self.start, int) and isinstance(self.end, int):
            return self.start, self.end
        raise self._refused(
            f"{self.start} to {self.end}",
            "no versions" if mark is not None else "the watermark is not set",
            f"versions 0 to {mark.version}" if mark else "what is committed",
            ("--start", "0", "--end", str(mark.version)) if mark else (),
        )

    def values(self, mark: Mark) -> tuple[CursorMark, CursorMark]:
        """The first and the last value of the range, of the type of the column; FM-PLAN-014."""
        committed = mark.mark
        if not isinstance(committed, TimeMark | ValueMark) or committed.type == "string":
            raise self._no_range(mark)
        try:
            first = cursor_marks.first_of(committed, self.start)
            last = cursor_marks.last_of(committed, self.end)
        except ValueError as error:
            raise self._no_such_values(committed, str(error)) from error
        if is_after(first, last) or is_after(last, committed):
            raise self._no_such_values(committed, f"{first.text} to {last.text}")
        return first, last

    def _no_range(self, mark: Mark) -> PlanError:
        """The error for an upstream of which no part can be told by values."""
        by_value = "its cursor holds text" if mark.mark else "no row is committed"
        return self._refused(
            f"{self.start} to {self.end}",
            "it goes by whole files or answers" if mark.kind == "files" else by_value,
            "an upstream by versions, times or numbers",
            (),
            "what a batch read once more: "
            + command("replay", "BATCH")
            + "; everything: "
            + command("run", "--full-refresh", "PIPELINE"),
        )

    def _outside(self, mark: Mark | None) -> PlanError:
        return self._refused(
            f"versions {self.start} to {self.end}",
            f"the watermark of scope {self.scope} is {mark.version if mark else 'not set'}",
            f"0 <= start <= end <= {mark.version}" if mark else "what is committed",
            (),
        )

    def _no_such_values(self, committed: CursorMark, found: str) -> PlanError:
        form = "ISO values of a" if isinstance(committed, TimeMark) else "values of type"
        return self._refused(
            f"{self.start} to {self.end}",
            f"{found}; committed is what goes through {committed.text}",
            f"from <= to <= {committed.text}, {form} {committed.type}",
            ("--from", _example(committed), "--to", committed.text),
        )

    def _refused(
        self, what: str, found: str, allowed: str, options: Sequence[str], way: str | None = None
    ) -> PlanError:
        way = command("backfill", self.upstream, *options) if options else way
        return PlanError(
            "FM-PLAN-014",
            f"{what} of {self.upstream} cannot be backfilled",
            found=found,
            allowed=allowed or None,
            state="nothing was planned; what is not committed yet comes with the next batch",
            next=way or "choose a range up to the watermark, or: " + command("run"),
        )


def _example(committed: CursorMark) -> str:
    is_time = isinstance(committed, TimeMark)
    return committed.text[: len("2026-03-01")] if is_time else committed.text


def range_gone(error: SourceError) -> SourceError:
    """The same hole in a log, told with what somebody can do who wanted to backfill over it."""
    return SourceError(
        error.code,
        f"the range cannot be backfilled: {error.title}",
        where=error.where,
        found=error.found,
        allowed=error.allowed,
        state="nothing was planned; the watermark stays",
        next="backfill a range that the log still has, or put its files back; to load the"
        " whole table as it is now: " + command("refresh", "PIPELINE") + ", then " + command("run"),
        details=error.details,
    )


def backfilling(state: State, request: Backfill, probes: Mapping[str, Probe]) -> Draft:
    """The batch of a backfill; upstreams beside the named one stand at the watermark."""
    windows = []
    for upstream in request.upstreams():
        if upstream == request.upstream:
            windows.append(_range_window(state, request, probes[upstream]))
        elif probes[upstream].query is not None:
            mark = state.marks.get((request.scope, upstream))
            windows.append(times.standing_window(upstream, probes[upstream], mark))
        else:
            version = state.committed_version(request.scope, upstream)
            windows.append(standing_window(upstream, probes[upstream], version))
    required = {pipeline.name: pipeline.upstreams for pipeline in request.pipelines}
    return Draft(request.scope, tuple(windows), required)


def _range_window(state: State, request: Backfill, probe: Probe) -> Window:
    mark = request.mark(state)
    if not mark.has_versions:
        return times.chosen(request.upstream, probe, mark, *request.values(mark))
    after = request.after(mark)
    window = seed_window(request.upstream, probe, after, mark, "backfill")
    if window.method != "feed" and after != NOTHING_PROCESSED:
        raise PlanError(
            "FM-PLAN-006",
            f"versions {request.start} to {request.end} of {request.upstream} cannot be read",
            found=feed_gap(probe, after, mark),
            allowed="a range that the change feed covers, or one from version 0 on",
            state="nothing was planned; the watermark stays",
            next=f"backfill from 0: the whole table as it was at version {request.end}",
        )
    return window


def replaying(state: State, batch: PlannedBatch, pipelines: Sequence[str]) -> Draft:
    """The same windows again, for these pipelines of the batch; raises FM-PLAN-015."""
    required = {name: batch.upstreams_of(name) for name in pipelines}
    strangers = [name for name, upstreams in required.items() if not upstreams]
    gone = [name for name in pipelines if name not in state.pipelines]
    if batch.kind != "forward" or batch.pending_upstreams() or strangers or gone:
        raise _not_replayable(batch, strangers or gone)
    wanted = {u for upstreams in required.values() for u in upstreams}
    windows = tuple(window for u, window in batch.windows.items() if u in wanted)
    return Draft(batch.scope, windows, required)


def _not_replayable(batch: PlannedBatch, pipelines: Sequence[str]) -> PlanError:
    found = f"it is a {batch.kind} and {batch.status}"
    if pipelines:
        found = f"{', '.join(pipelines)} had no part in it, or is no longer registered"
    return PlanError(
        "FM-PLAN-015",
        f"batch {batch.batch_id} cannot be replayed",
        found=found,
        allowed="a completed forward batch, for pipelines that ran in it",
        state="nothing was planned",
        next=command("status", batch.batch_id),
    )
