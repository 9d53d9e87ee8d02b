"""The published tables: their columns, and how state and events become their rows.

This is the one place where ranges turn inclusive at both ends, and where the words of the store
become the words of the contract (docs/reference/control-tables.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from floodmark.control import columns
from floodmark.control.events.bodies import Event, Paused, Removed, encode
from floodmark.model import PlannedBatch, Run, State

_TIME = pa.timestamp("us", "UTC")

WATERMARKS = pa.schema(
    [
        ("batch_id", pa.string()),
        ("table_name", pa.string()),
        ("start_version", pa.int64()),
        ("end_version", pa.int64()),
        ("last_processed_version", pa.int64()),
        ("latest_available_version", pa.int64()),
        ("start_ts", _TIME),
        ("end_ts", _TIME),
        ("cdf_enabled", pa.bool_()),
        ("update_ts", _TIME),
        ("updated_by", pa.string()),
        ("status", pa.string()),
        ("error_message", pa.string()),
        ("notes", pa.string()),
        ("scope", pa.string()),
        ("batch_seq", pa.int64()),
        ("batch_kind", pa.string()),
        ("batch_date", pa.date32()),
        ("kind", pa.string()),
        ("method", pa.string()),
        ("start_mark", pa.string()),
        ("end_mark", pa.string()),
        ("upstream_id", pa.string()),
        ("schema_fingerprint", pa.string()),
        ("rows_read", pa.int64()),
        ("duration_seconds", pa.float64()),
        ("retries", pa.int64()),
    ]
)

COMMITTED_WATERMARKS = pa.schema(
    [
        ("table_name", pa.string()),
        ("last_committed_version", pa.int64()),
        ("commit_ts", _TIME),
        ("updated_by", pa.string()),
        ("scope", pa.string()),
        ("last_committed_mark", pa.string()),
        ("upstream_id", pa.string()),
        ("batch_id", pa.string()),
    ]
)

PIPELINE_CHECKPOINTS = pa.schema(
    [
        ("pipeline_name", pa.string()),
        ("batch_id", pa.string()),
        ("processed_ts", _TIME),
        ("status", pa.string()),
        ("rows_read", pa.int64()),
        ("rows_written", pa.int64()),
        ("metrics", pa.map_(pa.string(), pa.string())),
        ("error_message", pa.string()),
        ("run_id", pa.string()),
        ("epoch", pa.int64()),
        ("scope", pa.string()),
        ("started_ts", _TIME),
        ("duration_seconds", pa.float64()),
        ("retries", pa.int64()),
    ]
)

PIPELINE_REGISTRY = pa.schema(
    [
        ("pipeline_name", pa.string()),
        ("upstream_tables", pa.list_(pa.string())),
        ("scope", pa.string()),
        ("definition_hash", pa.string()),
        ("paused", pa.bool_()),
        ("updated_ts", _TIME),
    ]
)

HISTORY = pa.schema(
    [
        ("seq", pa.int64()),
        ("kind", pa.string()),
        ("key", pa.string()),
        ("payload", pa.string()),
        ("op_id", pa.string()),
        ("actor", pa.string()),
        ("at", _TIME),
        ("run_id", pa.string()),
        ("batch_id", pa.string()),
        ("pipeline_name", pa.string()),
        ("status", pa.string()),
        ("duration_seconds", pa.float64()),
        ("records", pa.int64()),
        ("error_message", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """A published table and how it is kept."""

    name: str
    schema: pa.Schema
    partition_by: tuple[str, ...] = ()
    grows_by: str | None = None
    """The column, never NULL, in whose order rows come in; None if each commit replaces all."""

    def of(self, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        """Rows as Arrow data of this table's types."""
        return columns.table_of(rows, self.schema)

    def aligned(self, rows: pa.Table) -> pa.Table:
        """Rows of a table that an older version made: columns that it does not have are NULL."""
        for field in self.schema:
            if field.name not in rows.column_names:
                missing = columns.column_of([None] * rows.num_rows, field.type)
                rows = rows.append_column(field, missing)
        return rows.select(self.schema.names).cast(self.schema)


TABLES = (
    PublishedTable("watermarks", WATERMARKS, ("batch_date",), grows_by="batch_date"),
    PublishedTable("committed_watermarks", COMMITTED_WATERMARKS),
    PublishedTable("pipeline_checkpoints", PIPELINE_CHECKPOINTS, grows_by="processed_ts"),
    PublishedTable("pipeline_registry", PIPELINE_REGISTRY),
    PublishedTable("history", HISTORY, grows_by="seq"),
)
"""In the order they are refreshed: `history` last, so that what it holds is published."""


def watermark_rows(batch: PlannedBatch) -> list[dict[str, Any]]:
    """One row for each upstream of a batch."""
    return [_watermark_row(batch, upstream) for upstream in batch.windows]


def _watermark_row(batch: PlannedBatch, upstream: str) -> dict[str, Any]:
    window = batch.shown_window(upstream)
    advance = batch.advanced.get(upstream)
    status = batch.window_status(upstream)
    failed = batch.failed_runs(upstream)
    changes = [batch.runs[p].changed_at for p in batch.readers(upstream) if p in batch.runs]
    return {
        "batch_id": batch.batch_id,
        "table_name": upstream,
        "start_version": window.start_version,
        "end_version": window.end_version,
        "last_processed_version": window.processed_version(is_completed=status == "COMPLETED"),
        "latest_available_version": window.latest_version,
        "start_ts": window.start_at,
        "end_ts": window.end_at,
        "cdf_enabled": window.feed_enabled,
        "update_ts": advance.at if advance else max([batch.planned_at, *changes]),
        "updated_by": advance.by if advance else batch.planned_by,
        "status": status,
        "error_message": failed[0].error if failed else None,
        "notes": window.reason,
        "scope": batch.scope,
        "batch_seq": batch.seq,
        "batch_kind": batch.kind,
        "batch_date": batch.planned_at.date(),
        "kind": window.kind,
        "method": window.method,
        "start_mark": window.start_mark,
        "end_mark": window.end_mark,
        "upstream_id": window.table_id,
        "schema_fingerprint": window.schema_fingerprint,
        **asdict(batch.effort(upstream)),
    }


def touched_batches(event: Event, state: State) -> frozenset[str]:
    """The batches whose rows an event changes, given the state right after it."""
    if isinstance(event.body, Paused | Removed):
        # Of a batch that ended with this event nothing tells any more that it was open before.
        return frozenset(state.batches) | set(event.body.released)
    return frozenset({event.batch_id} if event.batch_id else ())


def committed_rows(state: State) -> list[dict[str, Any]]:
    """One row for each upstream of each scope that ever advanced."""
    return [
        {
            "table_name": mark.upstream,
            "last_committed_version": mark.shown_version,
            "commit_ts": mark.advanced_at,
            "updated_by": mark.advanced_by,
            "scope": mark.scope,
            "last_committed_mark": mark.shown_mark,
            "upstream_id": mark.table_id,
            "batch_id": mark.batch_id,
        }
        for mark in state.marks.values()
    ]


def registry_rows(state: State) -> list[dict[str, Any]]:
    """One row for each registered pipeline."""
    return [
        {
            "pipeline_name": pipeline.name,
            "upstream_tables": list(pipeline.upstreams),
            "scope": pipeline.scope,
            "definition_hash": pipeline.definition_hash,
            "paused": pipeline.is_paused,
            "updated_ts": pipeline.updated_at,
        }
        for pipeline in state.pipelines.values()
    ]


RUN_EVENTS = ("LEASE", "SUCCESS", "FAILED")
"""The events that publish a row of `pipeline_checkpoints`."""


def checkpoint_row(event: Event, state: State) -> dict[str, Any] | None:
    """The row that a run's event publishes, given the state right after it."""
    run = run_of(event, state)
    if run is None or event.kind not in RUN_EVENTS:
        return None
    return {
        "pipeline_name": run.pipeline,
        "batch_id": run.batch_id,
        "processed_ts": run.changed_at,
        "status": run.status,
        "rows_read": run.rows_read,
        "rows_written": run.rows_written,
        "metrics": list(run.metrics.items()),
        "error_message": run.error,
        "run_id": run.run_id,
        "epoch": run.epoch,
        "scope": state.batches[run.batch_id].scope,
        "started_ts": run.started_at,
        "duration_seconds": run.duration_seconds,
        "retries": run.retries,
    }


def history_row(event: Event, state: State) -> dict[str, Any]:
    """The row of an event in `history`, given the state right after it."""
    run = run_of(event, state)
    return {
        "seq": event.seq,
        "kind": event.kind,
        "key": event.body.key,
        "payload": encode(event.body),
        "op_id": event.op_id,
        "actor": event.actor,
        "at": event.at,
        "run_id": run.run_id if run else None,
        "batch_id": event.batch_id,
        "pipeline_name": event.pipeline,
        "status": run.status if run else None,
        "duration_seconds": run.duration_seconds if run else None,
        "records": run.rows_written if run else None,
        "error_message": run.error if run else None,
    }


def run_of(event: Event, state: State) -> Run | None:
    """The run an event is about, as it is right after the event."""
    batch = state.batches.get(event.batch_id or "")
    return batch.runs.get(event.pipeline or "") if batch else None
