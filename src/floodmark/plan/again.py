"""Backfill and replay: ranges that are processed again because the user says so.

They are batches of their own, with receipts of their own; watermarks stay where they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from floodmark.errors import PlanError, SourceError
from floodmark.model.plan import Draft, Probe
from floodmark.model.state import Mark, Pipeline, PlannedBatch, State
from floodmark.model.window import NOTHING_PROCESSED, Window
from floodmark.plan import times
from floodmark.plan.seeds import seed_window, standing_window


@dataclass(frozen=True, slots=True)
class Backfill:
    """The versions `start` to `end`, inclusive, of one upstream, for some pipelines of a scope."""

    scope: str
    upstream: str
    start: int
    end: int
    pipelines: tuple[Pipeline, ...]

    def upstreams(self) -> list[str]:
        """Every upstream that the pipelines read: each gets a frame."""
        return list(dict.fromkeys(u for pipeline in self.pipelines for u in pipeline.upstreams))

    def mark(self, state: State) -> Mark:
        """The watermark as if it stood at the end of the range; raises FM-PLAN-014."""
        mark = state.marks.get((self.scope, self.upstream))
        if mark is not None and mark.kind != "version":
            raise self._without_versions()
        if mark is None or not 0 <= self.start <= self.end <= mark.version:
            raise self._outside(mark)
        return replace(mark, version=self.end)

    def _without_versions(self) -> PlanError:
        return PlanError(
            "FM-PLAN-014",
            f"{self.upstream} has no versions that could be backfilled",
            found="it is processed by windows of time",
            allowed="an upstream with versions",
            state="nothing was planned",
            next="floodmark replay BATCH processes the window of a batch again; floodmark refresh"
            " PIPELINE everything",
        )

    def _outside(self, mark: Mark | None) -> PlanError:
        return PlanError(
            "FM-PLAN-014",
            f"versions {self.start} to {self.end} of {self.upstream} cannot be backfilled",
            found=f"the watermark of scope {self.scope} is {mark.version if mark else 'not set'}",
            allowed=f"0 <= start <= end <= {mark.version}" if mark else "what is committed",
            state="nothing was planned; what is not committed yet comes with the next batch",
            next="choose a range up to the watermark, or: floodmark run",
        )


def range_gone(error: SourceError) -> SourceError:
    """The same hole in a log, told with what somebody can do who wanted to backfill over it."""
    return SourceError(
        error.code,
        f"the range cannot be backfilled: {error.title}",
        where=error.where,
        found=error.found,
        allowed=error.allowed,
        state="nothing was planned; the watermark stays",
        next="backfill a range that the log still has, or put its files back; to load the whole table"
        " as it is now: floodmark refresh PIPELINE, then floodmark run",
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
    after = request.start - 1
    window = seed_window(request.upstream, probe, after, request.mark(state))
    if window.method != "feed" and after != NOTHING_PROCESSED:
        raise PlanError(
            "FM-PLAN-006",
            f"versions {request.start} to {request.end} of {request.upstream} cannot be read",
            found=window.reason.partition("because ")[2] or window.reason,
            allowed="a range that the change feed covers, or one from version 0 on",
            state="nothing was planned; the watermark stays",
            next=f"backfill from 0: the whole table as it was at version {request.end}",
        )
    return replace(window, reason=window.reason.replace("seed:", "backfill:"))


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
        next=f"floodmark status {batch.batch_id}",
    )
