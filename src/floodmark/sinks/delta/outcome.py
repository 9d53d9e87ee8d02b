"""What a commit of the target says about a write."""

from __future__ import annotations

from collections.abc import Mapping

from floodmark.model import VersionFacts, WriteResult

_WRITE_ROWS = ("numOutputRows", "num_added_rows")
_COPIED_ROWS = ("numCopiedRows", "num_copied_rows")
_MERGE_ROWS = (
    ("numTargetRowsInserted", "num_target_rows_inserted"),
    ("numTargetRowsUpdated", "num_target_rows_updated"),
    ("numTargetRowsDeleted", "num_target_rows_deleted"),
)


def rows_written(commit: VersionFacts) -> int | None:
    """Rows a commit inserted, updated and deleted, by its own metrics; None where they do not tell.

    The names are Delta's for Spark and delta-rs's own.
    """
    if commit.operation == "MERGE":
        counts = [_metric(commit.metrics, names) for names in _MERGE_ROWS]
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None
    written = _metric(commit.metrics, _WRITE_ROWS)
    # A replaced part of a file takes its other rows along: they were not written by us.
    copied = _metric(commit.metrics, _COPIED_ROWS) or 0
    return None if written is None else written - copied


def result_of(
    target: str,
    table_id: str,
    commit: VersionFacts,
    *,
    already_applied: bool,
    notes: Mapping[str, str] | None = None,
) -> WriteResult:
    """The result that the commit with our receipt stands for."""
    return WriteResult(
        target=target,
        table_id=table_id,
        version=commit.version,
        rows_written=rows_written(commit),
        already_applied=already_applied,
        metrics={**commit.metrics, **(notes or {})},
    )


def _metric(metrics: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    for name in names:
        text = metrics.get(name, "")
        if text.isascii() and text.isdigit():
            return int(text)
    return None
