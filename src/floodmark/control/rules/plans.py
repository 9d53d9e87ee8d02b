"""PLAN, CANCEL: which ranges a batch may have."""

from __future__ import annotations

from floodmark.control.events.bodies import (
    Cancelled,
    Event,
    Planned,
)
from floodmark.control.rules.parts import located, with_batch
from floodmark.model import NOTHING_PROCESSED, Mark, PlannedBatch, State, Window
from floodmark.model.copying import replace

_OTHER_MARKS = "its marks are not of what is committed"


def check_planned(state: State, body: Planned) -> str | None:
    check = {"forward": _check_forward, "seed": _check_seed}.get(body.batch_kind, _check_again)
    return _check_batch_number(state, body) or check(state, body)


def _check_forward(state: State, body: Planned) -> str | None:
    problem = _check_required(state, body)
    if problem:
        return problem
    for window in body.windows:
        problem = check_window(state, body.scope, window)
        if problem:
            return f"{window.upstream}: {problem}"
    return _check_seeded(state, body)


def _check_batch_number(state: State, body: Planned) -> str | None:
    if body.batch_seq != state.batch_seq + 1:
        return f"batch number {body.batch_seq} does not follow {state.batch_seq}"
    if body.batch_id in state.batches:
        return "the batch id is taken"
    if not any(window.has_news for window in body.windows):
        return "no upstream has news"
    return None


def check_window(state: State, scope: str, window: Window) -> str | None:
    """G1: ranges of one upstream are disjoint and leave no gap; NOOP stands at the mark."""
    mark = state.marks.get((scope, window.upstream))
    if (scope, window.upstream) in state.open_windows:
        return "it has an open window already"
    if window.versions < 0:
        return "the window ends before it starts"
    begins = {p.options_of(window.upstream).first_after for p in state.pipelines_in(scope)}
    begins = {mark.version} if mark else {*begins, NOTHING_PROCESSED}
    if mark and window.reload and mark.table_id != window.table_id:
        begins = {NOTHING_PROCESSED}
    elif mark and mark.table_id != window.table_id:
        return f"table id {window.table_id} is not {mark.table_id}, which was processed before"
    if window.after not in begins:
        return f"the window starts after {window.after}, the watermark is {max(begins)}"
    return _check_marks(window, None if window.reload else mark) or _check_step(
        state, scope, window, mark
    )


def _check_marks(window: Window, mark: Mark | None) -> str | None:
    """An upstream goes on by the same query, from the very mark it stands at if it has one."""
    if mark and mark.query != window.query:
        return f"it was processed by {mark.kind}, not by this {window.kind}"
    if mark and mark.mark != window.after_mark:
        return f"the window starts after {window.start_mark}, the watermark is {mark.shown_mark}"
    if window.deferred and window.through_mark is not None:
        return "an end cannot be both deferred and known"
    if not window.has_news and (window.deferred or window.through_mark != window.after_mark):
        return "a window without news stands at the mark"
    return None


def _check_step(state: State, scope: str, window: Window, mark: Mark | None) -> str | None:
    """One window is one step; the first begins at the beginning or at a baseline that was said."""
    if window.covers_one_step and window.versions > 1:
        return "a window without versions is one step"
    if mark or window.after_mark is None or window.reload:
        return None
    readers = [p.options_of(window.upstream) for p in state.pipelines_in(scope)]
    begins = [options.first_mark(window.after_mark) for options in readers]
    return None if window.after_mark in begins else f"nobody said to start at {window.start_mark}"


def _check_required(state: State, body: Planned) -> str | None:
    if body.required != state.required_pipelines(body.scope, body.windows):
        return "the required pipelines are not those that are registered"
    planned = {window.upstream for window in body.windows}
    for pipeline, upstreams in body.required.items():
        unplanned = [u for u in upstreams if u not in planned]
        if unplanned:
            return f"pipeline {pipeline} also reads {unplanned[0]}, which is not in the batch"
    return None


def _check_seeded(state: State, body: Planned) -> str | None:
    """G4: a pipeline is listed for a window only if it has processed, or has to, all before it."""
    after = {window.upstream: window.after for window in body.windows}
    reloads = {window.upstream for window in body.windows if window.reload}
    for pipeline, upstreams in body.required.items():
        for upstream in upstreams:
            # Nobody has processed anything of a table that took the place of another.
            if upstream in reloads:
                continue
            if state.will_have_processed(pipeline, upstream) != after[upstream]:
                return f"pipeline {pipeline} has not processed {upstream} up to the window"
    return None


def _check_seed(state: State, body: Planned) -> str | None:
    """A seed brings one pipeline, which owes nothing else, from where it stands to the watermark."""
    name = next(iter(body.required), "")
    pipeline = state.pipelines.get(name)
    if pipeline is None or len(body.required) != 1 or pipeline.is_paused:
        return "a seed is for one pipeline that takes part"
    if (pipeline.scope, pipeline.upstreams) != (body.scope, body.required[name]):
        return f"pipeline {name} is registered otherwise"
    if state.batches_owed_by(name):
        return f"pipeline {name} has to finish another batch first"
    if {window.upstream for window in body.windows} != set(pipeline.upstreams):
        return f"the windows are not the upstreams of {name}"
    for window in body.windows:
        problem = check_seed_window(state, body.scope, name, window)
        if problem:
            return f"{window.upstream}: {problem}"
    return None


def check_seed_window(state: State, scope: str, pipeline: str, window: Window) -> str | None:
    """From what the pipeline has processed to the watermark, while nothing moves that."""
    mark = state.marks.get((scope, window.upstream))
    committed = mark.version if mark else state.processed_through(pipeline, window.upstream)
    if (scope, window.upstream) in state.open_windows:
        return "a window is open there: its end would be missed"
    if window.after != state.processed_through(pipeline, window.upstream):
        return f"the window starts after {window.after}, not where the pipeline stands"
    if window.through != committed:
        return f"the window ends at {window.through}, the watermark is {committed}"
    if mark and mark.table_id != window.table_id:
        return f"table id {window.table_id} is not {mark.table_id}, which was processed before"
    return _check_seed_marks(state, pipeline, window, mark) if mark else None


def _check_seed_marks(state: State, pipeline: str, window: Window, mark: Mark) -> str | None:
    begin = state.mark_of(pipeline, window.upstream, mark.mark)
    expected = (mark.query, begin, mark.mark)
    found = (window.query, window.after_mark, window.through_mark)
    return None if found == expected else "its marks are not those of the pipeline and the scope"


def _check_again(state: State, body: Planned) -> str | None:
    """A backfill or replay covers only what is committed, for pipelines of the scope."""
    planned = {window.upstream for window in body.windows}
    for name, upstreams in body.required.items():
        pipeline = state.pipelines.get(name)
        if pipeline is None or pipeline.scope != body.scope or pipeline.is_paused:
            return f"pipeline {name} takes no part in scope {body.scope}"
        if not set(upstreams) <= planned:
            return f"not every upstream of {name} is in the batch"
    if not body.required:
        return "no pipeline is asked for"
    for window in body.windows:
        mark = state.marks.get((body.scope, window.upstream))
        problem = _check_committed(window, mark)
        if problem is None and body.batch_kind == "backfill" and mark:
            problem = None if window.is_range_of(mark) else _OTHER_MARKS
        if problem:
            return f"{window.upstream}: {problem}"
    return None


def _check_committed(window: Window, mark: Mark | None) -> str | None:
    if window.has_news and (mark is None or window.through > mark.version):
        return "only what is committed can be processed again"
    if mark and mark.table_id != window.table_id:
        return f"table id {window.table_id} is not {mark.table_id}"
    if mark and window.has_news and not window.is_committed_span(mark):
        return _OTHER_MARKS
    return None


def planned(state: State, event: Event) -> State:
    body: Planned = event.body  # type: ignore[assignment]
    batch = PlannedBatch(
        batch_id=body.batch_id,
        seq=body.batch_seq,
        scope=body.scope,
        planned_at=event.at,
        planned_by=event.actor,
        windows={window.upstream: located(state, window) for window in body.windows},
        required=body.required,
        kind=body.batch_kind,
        allows=body.allows,
        fallback=body.fallback,
        lookups={window.upstream: located(state, window) for window in body.lookups},
    )
    fresh = [w.upstream for w in body.windows if w.has_news] if batch.kind == "forward" else []
    opened = {(body.scope, upstream): body.batch_id for upstream in fresh}
    return replace(
        with_batch(state, batch),
        batch_seq=body.batch_seq,
        open_windows={**state.open_windows, **opened},
    )


def check_cancelled(state: State, body: Cancelled) -> str | None:
    batch = state.batches.get(body.batch_id)
    if batch is None or batch.is_cancelled:
        return "there is no such open batch"
    if not batch.can_be_cancelled:
        return "a runner has leased the batch; from then on it only goes forward"
    if batch.kind == "seed":
        later = [b for b in state.batches_owed_by(next(iter(batch.required))) if b.seq > batch.seq]
        return f"batch {later[0].batch_id} starts where this one ends" if later else None
    return None


def cancelled(state: State, event: Event) -> State:
    batch = state.batches[event.body.key]
    if batch.runs and batch.is_ordered:
        # Only what nobody reads is given up; who has begun the batch still has to finish it.
        given_up = replace(batch, released=batch.released | set(batch.pending_upstreams()))
    else:
        given_up = replace(batch, is_cancelled=True)
    kept = {k: b for k, b in state.open_windows.items() if b != batch.batch_id}
    return replace(with_batch(state, given_up), open_windows=kept)
