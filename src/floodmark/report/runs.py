"""The newest run and the newest success of each pipeline."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from floodmark.control.published import read_published
from floodmark.deltalog import Storage
from floodmark.model import Effort, Run, State

_PAST = """
SELECT pipeline_name, status, processed_ts, started_ts, duration_seconds, rows_read, rows_written,
       retries
FROM (
  SELECT *, row_number() OVER (PARTITION BY pipeline_name, status ORDER BY processed_ts DESC) AS n
  FROM t
) AS numbered
WHERE n = 1
"""

_PAST_EFFORTS = """
SELECT *
FROM (
  SELECT *, row_number() OVER (PARTITION BY scope, table_name ORDER BY batch_seq DESC) AS n
  FROM t
  WHERE status NOT IN ('NOOP', 'CANCELLED')
) AS numbered
WHERE n = 1
"""


@dataclass(frozen=True, slots=True)
class LastRun:
    """A run as far as monitoring asks; None is what is not known."""

    pipeline: str
    status: str
    changed_at: datetime
    started_at: datetime
    duration_seconds: float | None
    rows_read: int | None
    rows_written: int | None
    retries: int


@dataclass(frozen=True, slots=True)
class Track:
    """How a pipeline did lately."""

    newest: LastRun
    succeeded_at: datetime | None
    """When it last succeeded; None if it never did."""


def tracks(state: State, control: str, storage: Storage) -> dict[str, Track]:
    """The pipelines that ever ran.

    Finished batches leave the state in time; the published runs are read only for pipelines about
    which the state cannot tell.
    """
    runs = [_of(run) for batch in state.batches.values() for run in batch.runs.values()]
    known = _tracks(runs)
    unsure = [p for p in state.pipelines if p not in known or known[p].succeeded_at is None]
    if not unsure or state.batch_seq == len(state.batches):
        return known
    past = [run for run in _published(control, storage) if run.pipeline in unsure]
    return known | _tracks([*past, *(run for run in runs if run.pipeline in unsure)])


def efforts(state: State, control: str, storage: Storage) -> dict[tuple[str, str], Effort]:
    """(scope, upstream) -> what it cost in the newest batch with news of it.

    The published rows are read only for upstreams about which the state cannot tell.
    """
    known = {
        (batch.scope, upstream): batch.effort(upstream)
        for batch in sorted(state.batches.values(), key=lambda batch: batch.seq)
        for upstream in batch.windows
        if batch.window_status(upstream) not in ("NOOP", "CANCELLED")
    }
    if state.marks.keys() <= known.keys() or state.batch_seq == len(state.batches):
        return known
    rows = read_published(f"{control}/watermarks", storage, _PAST_EFFORTS)
    past = {
        # Rows of an older version do not tell.
        (r["scope"], r["table_name"]): Effort(
            r.get("rows_read"), r.get("duration_seconds"), r.get("retries") or 0
        )
        for r in (rows.to_pylist() if rows is not None else [])
    }
    return past | known


def _tracks(runs: Iterable[LastRun]) -> dict[str, Track]:
    found: dict[str, Track] = {}
    for run in sorted(runs, key=lambda run: run.changed_at):
        before = found[run.pipeline].succeeded_at if run.pipeline in found else None
        succeeded_at = run.changed_at if run.status == "SUCCESS" else before
        found[run.pipeline] = Track(run, succeeded_at)
    return found


def _of(run: Run) -> LastRun:
    return LastRun(
        pipeline=run.pipeline,
        status=run.status,
        changed_at=run.changed_at,
        started_at=run.started_at,
        duration_seconds=run.duration_seconds,
        rows_read=run.rows_read,
        rows_written=run.rows_written,
        retries=run.retries,
    )


def _published(control: str, storage: Storage) -> list[LastRun]:
    rows = read_published(f"{control}/pipeline_checkpoints", storage, _PAST)
    return [_row(row) for row in rows.to_pylist()] if rows is not None else []


def _row(row: dict[str, Any]) -> LastRun:
    return LastRun(
        pipeline=row["pipeline_name"],
        status=row["status"],
        changed_at=row["processed_ts"],
        started_at=row["started_ts"],
        duration_seconds=row["duration_seconds"],
        rows_read=row["rows_read"],
        rows_written=row["rows_written"],
        retries=row["retries"],
    )
