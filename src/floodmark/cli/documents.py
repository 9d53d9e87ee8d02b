"""The JSON documents of the command line: their keys are a contract, they may only be added to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from floodmark.control.events import Event
    from floodmark.coordinator import Coordinator
    from floodmark.model import (
        Batch,
        Caution,
        Finalized,
        Finding,
        Gap,
        Held,
        Lag,
        PlannedBatch,
        RunResult,
        Stuck,
        Window,
    )
    from floodmark.project import BatchOutcome, PipelineOutcome, RunSummary, ScopePlan
    from floodmark.report import Sample

Document = dict[str, Any]

PLAN_FILE_VERSION = 1


def plans(scopes: Sequence[ScopePlan]) -> Document:
    """The keys of one plan directly if one scope was asked for, else a list under `plans`."""
    found = [{**plan(each.batch), "strays": list(each.strays)} for each in scopes if each.batch]
    if len(scopes) == 1 and found:
        return found[0]
    refused = [{"scope": each.scope, **each.error.as_dict()} for each in scopes if each.error]
    return {"plans": found, "refused": refused}


def plan_file(coordinator: Coordinator, scopes: Sequence[ScopePlan]) -> Document:
    """What `plan --out` writes: the frozen batches and the store they are in."""
    return {
        "schema_version": PLAN_FILE_VERSION,
        "control": coordinator.control,
        "control_id": coordinator.look.state().control_id,
        "plans": [plan(each.batch) for each in scopes if each.batch],
    }


def plan(batch: Batch) -> Document:
    return {
        "batch_id": batch.batch_id,
        "seq": batch.seq,
        "scope": batch.scope,
        "status": batch.status,
        "reused": batch.reused,
        "windows": [window(each) for each in batch.windows],
        "pipelines": list(batch.pipelines),
        "unplanned": list(batch.unplanned),
        "batch_kind": batch.kind,
        "seeds": list(batch.seeds),
        "unresolved": list(batch.unresolved),
        "after": list(batch.after),
        "lookups": [lookup(each) for each in batch.lookups],
    }


def window(each: Window, status: str | None = None) -> Document:
    return {
        "upstream": each.upstream,
        "kind": each.kind,
        "method": each.method,
        "start": each.start_version,
        "end": each.end_version,
        "status": status or each.status,
        "reason": each.reason,
        "versions": each.shown_versions,
        "bytes": each.bytes,
        "rows": each.rows,
        "start_mark": each.start_mark,
        "end_mark": each.end_mark,
        "deferred": each.deferred,
        "warning": caution(each.warning),
    }


def lookup(each: Window) -> Document:
    return {
        "table": each.upstream,
        "version": each.end_version,
        "mark": each.end_mark,
        "table_id": each.table_id,
        "warning": caution(each.warning),
    }


def caution(each: Caution | None) -> Document | None:
    return None if each is None else {"text": each.text, "next": each.next}


def run(summary: RunSummary) -> Document:
    """The flat keys tell of the whole run, `batches` of each batch; `batch_id` is the last one."""
    return {
        "batch_id": summary.batches[-1].batch.batch_id if summary.batches else None,
        "pipelines": [outcome(each) for each in summary.outcomes],
        "advanced": list(dict.fromkeys(u for b in summary.batches for u in b.advanced)),
        "held": [held(each) for each in summary.held],
        "batches": [batch_outcome(each) for each in summary.batches],
        "refused": [error.as_dict() for error in summary.refused],
        "waiting": [
            {"pipeline": each.pipeline, "waiting_for": list(each.waiting_for)}
            for each in summary.waiting
        ],
        "warnings": [{"upstream": u, **asdict(each)} for u, each in summary.cautions.items()],
    }


def batch_outcome(each: BatchOutcome) -> Document:
    return {
        "batch_id": each.batch.batch_id,
        "seq": each.batch.seq,
        "scope": each.batch.scope,
        "reused": each.batch.reused,
        "pipelines": [outcome(one) for one in each.pipelines],
        "advanced": list(each.advanced),
        "held": [held(one) for one in each.held],
    }


def outcome(each: PipelineOutcome) -> Document:
    return {
        "name": each.name,
        "status": each.status,
        "rows_read": each.rows_read,
        "rows_written": each.rows_written,
        "duration_seconds": each.duration_seconds,
        "error": each.error.as_dict() if each.error else None,
        "story": each.story,
        "batch_id": each.batch_id,
        "attempts": each.attempts,
        "ties": dict(each.ties),
        "tie_examples": dict(each.tie_examples),
        "null_columns": dict(each.null_columns),
        "rows_left_out": dict(each.rows_left_out),
    }


def held(each: Held) -> Document:
    return {
        "upstream": each.upstream,
        "waiting_for": list(each.waiting_for),
        "reason": each.reason,
    }


def finalized(outcomes: Sequence[Finalized]) -> Document:
    """The flat keys tell of all batches, `batches` of each; `batch_id` is the last one."""
    return {
        "batch_id": outcomes[-1].batch_id if outcomes else None,
        "advanced": list(dict.fromkeys(u for each in outcomes for u in each.advanced)),
        "held": [held(one) for each in outcomes for one in each.held],
        "batches": [
            {
                "batch_id": each.batch_id,
                "advanced": list(each.advanced),
                "held": [held(one) for one in each.held],
            }
            for each in outcomes
        ],
    }


def recorded(result: RunResult) -> Document:
    return {
        "pipeline": result.pipeline,
        "batch_id": result.batch_id,
        "status": result.status,
        "rows_read": result.rows_read,
        "rows_written": result.rows_written,
        "metrics": dict(result.metrics),
        "run_id": result.run_id,
        "error": result.error,
    }


def status(batches: Sequence[PlannedBatch]) -> Document:
    return {"batches": [planned(batch) for batch in batches]}


def planned(batch: PlannedBatch) -> Document:
    return {
        "batch_id": batch.batch_id,
        "seq": batch.seq,
        "scope": batch.scope,
        "status": batch.status,
        "planned_at": batch.planned_at.isoformat(),
        "planned_by": batch.planned_by,
        "windows": [window(batch.shown_window(u), batch.window_status(u)) for u in batch.windows],
        "pipelines": [_pipeline(batch, name) for name in batch.required],
        "advanced": list(batch.advanced),
        "held": [
            {
                "upstream": upstream,
                "waiting_for": batch.waiting_for(upstream),
                "reason": batch.held_because(upstream) or "ready to advance",
            }
            for upstream in batch.pending_upstreams()
        ],
    }


def _pipeline(batch: PlannedBatch, name: str) -> Document:
    found = batch.runs.get(name)
    return {
        "name": name,
        "status": found.status if found else None,
        "rows_read": found.rows_read if found else None,
        "rows_written": found.rows_written if found else None,
        "duration_seconds": found.duration_seconds if found else None,
        "error": found.error if found else None,
        "run_id": found.run_id if found else None,
        "retries": found.retries if found else 0,
    }


def lag(lags: Sequence[Lag]) -> Document:
    return {"upstreams": [{**asdict(each), "held_by": list(each.held_by)} for each in lags]}


def stuck(batches: Sequence[Stuck], failures: Mapping[str, int]) -> Document:
    return {
        "stuck": [{**asdict(each), "pipelines": list(each.pipelines)} for each in batches],
        "failures_in_a_row": dict(failures),
    }


def metrics(samples: Sequence[Sample]) -> Document:
    return {
        "metrics": [
            {
                "name": each.metric.name,
                "labels": dict(zip(each.metric.labels, each.label_values, strict=True)),
                "value": float(each.value),
            }
            for each in samples
        ]
    }


def gaps(found: Sequence[Gap]) -> Document:
    return {
        "ok": not found,
        "gaps": [{**asdict(gap), "pipelines": list(gap.pipelines)} for gap in found],
    }


def history(events: Sequence[Event]) -> Document:
    return {
        "events": [
            {
                "seq": event.seq,
                "at": event.at.isoformat(),
                "kind": event.kind,
                "batch_id": event.batch_id,
                "pipeline": event.pipeline,
                "actor": event.actor,
                "op_id": event.op_id,
            }
            for event in events
        ]
    }


def findings(found: Sequence[Finding]) -> Document:
    return {
        "ok": all(finding.ok for finding in found),
        "findings": [asdict(finding) for finding in found],
    }
