"""Writes of a backfill or replay: rows that the target may hold already."""

from __future__ import annotations

from floodmark.errors import SinkError
from floodmark.model import PlannedBatch, State, WriteSpec
from floodmark.model.write_words import option
from floodmark.next_steps import command, then_retry

DUPLICATES, STALE = "duplicates", "stale"


def refuse_harm(
    spec: WriteSpec, batch: PlannedBatch, state: State, *, is_planned: bool = True
) -> None:
    """Raise FM-SINK-021 if the write would double rows, FM-SINK-022 if old could replace new.

    `is_planned`: whether the batch is journaled, and has to be finished or given up.
    """
    # Rows set aside carry the batch they came in, so those of a backfill can be told from earlier ones.
    if batch.is_ordered or spec.mode == "replace_where" or spec.is_aside:
        return
    if spec.mode != "merge":
        if DUPLICATES not in batch.allows:
            raise _refused(
                "FM-SINK-021",
                spec,
                batch,
                title="would write rows twice",
                found=f"mode {spec.mode}: the rows of an earlier batch are there already",
                allowed="merge by key, replace_where, or duplicates that were allowed when it was"
                " planned",
                flag="--allow-duplicates",
                is_planned=is_planned,
            )
    elif STALE not in batch.allows and not (is_newest(batch, state) or _keeps_newer(spec, batch)):
        raise _refused(
            "FM-SINK-022",
            spec,
            batch,
            title="could overwrite newer rows with older ones",
            found="the range ends before the watermark",
            allowed=f"{option(spec, 'sequence_by')} together with"
            f" {option(spec, 'deletes', 'soft')}, and {option(spec, 'missing', 'keep')} where a"
            " snapshot is read; or stale rows that were allowed",
            flag="--allow-stale",
            is_planned=is_planned,
        )


def is_newest(batch: PlannedBatch, state: State) -> bool:
    """Whether every range of the batch ends at the watermark."""
    fresh = [window for window in batch.windows.values() if window.has_news]
    marks = [state.marks.get((batch.scope, window.upstream)) for window in fresh]
    return all(
        mark is not None and window.ends_at(mark) for window, mark in zip(fresh, marks, strict=True)
    )


def _keeps_newer(spec: WriteSpec, batch: PlannedBatch) -> bool:
    # A snapshot of back then does not have the keys that came later: they are not missing.
    reads_snapshot = any(window.snapshot_version is not None for window in batch.windows.values())
    is_sequenced = spec.sequence_by is not None and spec.deletes == "soft"
    return is_sequenced and not (reads_snapshot and spec.missing == "delete")


def _refused(
    code: str,
    spec: WriteSpec,
    batch: PlannedBatch,
    *,
    title: str,
    found: str,
    allowed: str,
    flag: str,
    is_planned: bool,
) -> SinkError:
    if not is_planned:
        return SinkError(
            code,
            f"this {batch.kind} of {spec.name} {title}",
            where=spec.target,
            found=found,
            allowed=allowed,
            state="nothing was planned or written",
            next=f"change the write, or plan the {batch.kind} with {flag}",
        )
    return SinkError(
        code,
        f"this {batch.kind} of {spec.name} {title}",
        where=f"{spec.target}, batch {batch.batch_id}",
        found=found,
        allowed=allowed,
        state="nothing was written; the target and the watermarks are unchanged",
        next="change the write, "
        + then_retry(batch.batch_id)
        + "; or give this one up ("
        + command("cancel", batch.batch_id)
        + f") and plan the {batch.kind} again with {flag}",
    )
