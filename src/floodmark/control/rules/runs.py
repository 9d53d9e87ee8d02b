"""LEASE, FREEZE, AMEND, SINK_DONE, TARGET, SUCCESS, FAILED: who may run, and record what."""

from __future__ import annotations

from floodmark.control.events.bodies import (
    Amended,
    Event,
    Failed,
    Frozen,
    Leased,
    SinkWritten,
    Succeeded,
    TargetSettled,
)
from floodmark.control.rules.parts import (
    is_paused,
    strictly_after,
    with_batch,
    with_progress,
    with_run,
)
from floodmark.model import PlannedBatch, Run, State, Window
from floodmark.model.copying import replace


def check_leased(state: State, body: Leased) -> str | None:
    batch = state.batches.get(body.batch_id)
    if batch is None or batch.is_cancelled or not batch.upstreams_of(body.pipeline):
        return "the batch does not ask for this pipeline"
    if body.epoch != state.epochs.get(body.pipeline, 0) + 1:
        return f"epoch {body.epoch} does not follow {state.epochs.get(body.pipeline, 0)}"
    run = batch.runs.get(body.pipeline)
    if run and run.status == "SUCCESS":
        return "the pipeline has succeeded for this batch; that is final"
    if run and run.status == "RUNNING" and run.run_id != body.replaces:
        return f"run {run.run_id} holds the lease"
    return _check_turn(state, batch, body.pipeline)


def _check_turn(state: State, batch: PlannedBatch, pipeline: str) -> str | None:
    if is_paused(state, pipeline):
        return "the pipeline is paused"
    earlier = earlier_unfinished(state, batch, pipeline)
    if earlier:
        return f"batch {earlier.batch_id} comes first"
    other = running_elsewhere(state, batch, pipeline)
    return f"the pipeline is running for batch {other.batch_id}" if other else None


def earlier_unfinished(state: State, batch: PlannedBatch, pipeline: str) -> PlannedBatch | None:
    """G7: the oldest batch before this one that the pipeline still has to finish."""
    for other in state.batches_owed_by(pipeline) if batch.is_ordered else ():
        if other.is_ordered and other.seq < batch.seq:
            return other
    return None


def running_elsewhere(state: State, batch: PlannedBatch, pipeline: str) -> PlannedBatch | None:
    """A batch outside the order of this one that the pipeline is running for: they would mix."""
    for other in state.batches_owed_by(pipeline):
        run = other.runs.get(pipeline)
        is_apart = not (other.is_ordered and batch.is_ordered) and other.batch_id != batch.batch_id
        if is_apart and run and run.status == "RUNNING":
            return other
    return None


def leased(state: State, event: Event) -> State:
    body: Leased = event.body  # type: ignore[assignment]
    before = state.batches[body.batch_id].runs.get(body.pipeline)
    run = Run(
        pipeline=body.pipeline,
        batch_id=body.batch_id,
        run_id=body.run_id,
        epoch=body.epoch,
        holder=body.holder,
        ttl_seconds=body.ttl_seconds,
        status="RUNNING",
        started_at=event.at,
        changed_at=strictly_after(before, event.at),
        retries=before.retries + 1 if before else 0,
        is_external=body.is_external,
        sinks=before.sinks if before else {},
    )
    epochs = {**state.epochs, body.pipeline: body.epoch}
    return with_run(state, run, epochs=epochs)


def check_fence(state: State, batch_id: str, pipeline: str, epoch: int) -> str | None:
    """G8: only the newest lease may record anything, and only while it runs."""
    batch = state.batches.get(batch_id)
    run = batch.runs.get(pipeline) if batch else None
    if run is None:
        return "there is no such run"
    newest = state.epochs.get(pipeline, 0)  # of any batch: one may have been left by a removal
    if epoch != newest or epoch != run.epoch:
        return f"epoch {epoch} was replaced by epoch {newest}"
    if run.status != "RUNNING":
        return f"the run is {run.status}"
    return None


def check_run_event(
    state: State, body: SinkWritten | TargetSettled | Succeeded | Failed
) -> str | None:
    return check_fence(state, body.batch_id, body.pipeline, body.epoch)


def check_succeeded(state: State, body: Succeeded) -> str | None:
    """Nothing can have been read of a window whose end nobody has frozen, and rows that are not
    those which the log promised have to be accepted.
    """
    batch = state.batches.get(body.batch_id)
    for upstream in batch.upstreams_of(body.pipeline) if batch else ():
        if batch and batch.windows[upstream].deferred:
            return f"the end of {upstream} is not frozen"
    run = batch.runs.get(body.pipeline) if batch else None
    for sink in run.sinks.values() if batch and run else ():
        if not batch.accepts(body.pipeline, sink.misread):  # type: ignore[union-attr]
            return f"the write {sink.write_name} took rows that nobody has accepted"
    return check_run_event(state, body)


def check_frozen(state: State, body: Frozen) -> str | None:
    """G2: a deferred end is fixed once, by a run of the batch; nothing else of the window moves."""
    fenced = check_fence(state, body.batch_id, body.pipeline, body.epoch)
    if fenced:
        return fenced
    batch, window = state.batches[body.batch_id], body.window
    if window.upstream not in batch.upstreams_of(body.pipeline):
        return f"pipeline {body.pipeline} does not read {window.upstream}"
    planned = batch.windows[window.upstream]
    if not planned.deferred:
        return f"the end of {window.upstream} is frozen already"
    if window.deferred or _range(window)[:-1] != _range(planned)[:-1]:
        return "only the end that was deferred may be frozen"
    return None


def frozen(state: State, event: Event) -> State:
    body: Frozen = event.body  # type: ignore[assignment]
    batch = state.batches[body.batch_id]
    windows = {**batch.windows, body.window.upstream: body.window}
    return with_batch(state, replace(batch, windows=windows))


def check_amended(state: State, body: Amended) -> str | None:
    """G2: only the way of reading may change, and only for the run that says so."""
    fenced = check_fence(state, body.batch_id, body.pipeline, body.epoch)
    if fenced:
        return fenced
    batch, window = state.batches[body.batch_id], body.window
    pipeline = state.pipelines.get(body.pipeline)
    registered = pipeline.lookups if pipeline is not None else ()
    if window.upstream not in batch.windows and window.upstream in (*batch.lookups, *registered):
        return "a table that is looked up has no news" if window.has_news else None
    if window.upstream not in batch.upstreams_of(body.pipeline):
        return f"pipeline {body.pipeline} does not read {window.upstream}"
    planned = batch.windows[window.upstream]
    if _range(window) != _range(planned):
        return "only the way of reading may be amended"
    if window.method not in ("snapshot", "lost"):
        return f"a range cannot be amended to {window.method}"
    return None


def _range(window: Window) -> tuple[object, ...]:
    return (
        window.after,
        window.through,
        window.table_id,
        window.reload,
        window.query,
        window.after_mark,
        window.through_mark,
    )


def amended(state: State, event: Event) -> State:
    body: Amended = event.body  # type: ignore[assignment]
    batch = state.batches[body.batch_id]
    windows = {**batch.amended.get(body.pipeline, {}), body.window.upstream: body.window}
    return with_batch(state, replace(batch, amended={**batch.amended, body.pipeline: windows}))


def sink_written(state: State, event: Event) -> State:
    body: SinkWritten | TargetSettled = event.body  # type: ignore[assignment]
    run = state.batches[body.batch_id].runs[body.pipeline]
    run = replace(run, sinks={**run.sinks, body.sink.write_name: body.sink})
    sinks = {**state.sinks, body.sink.app_id: body.sink}
    return with_run(state, run, sinks=sinks)


def succeeded(state: State, event: Event) -> State:
    body: Succeeded = event.body  # type: ignore[assignment]
    run = state.batches[body.batch_id].runs[body.pipeline]
    run = replace(
        run,
        status="SUCCESS",
        changed_at=strictly_after(run, event.at),
        rows_read=body.rows_read,
        rows_written=body.rows_written,
        metrics=body.metrics,
        error=None,
    )
    return with_run(_caught_up(state, body), run)


def _caught_up(state: State, body: Succeeded) -> State:
    """What a success says at once about how far a pipeline is; a forward one waits for ADVANCE."""
    batch = state.batches[body.batch_id]
    is_at_once = batch.kind == "seed" or (batch.kind == "forward" and body.pipeline in batch.aside)
    if not is_at_once or body.pipeline not in state.pipelines:
        return state
    reached = {
        (body.pipeline, upstream): batch.windows[upstream].through
        for upstream in batch.upstreams_of(body.pipeline)
        if batch.windows[upstream].has_news
    }
    return with_progress(state, reached, {u: w.through_mark for u, w in batch.windows.items()})


def failed(state: State, event: Event) -> State:
    body: Failed = event.body  # type: ignore[assignment]
    run = state.batches[body.batch_id].runs[body.pipeline]
    changed_at = strictly_after(run, event.at)
    return with_run(state, replace(run, status="FAILED", changed_at=changed_at, error=body.error))
