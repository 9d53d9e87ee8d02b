"""Requests that a control store cannot fulfil, and what to do instead."""

from __future__ import annotations

from floodmark.errors import ControlError
from floodmark.model.state import PlannedBatch


def no_store(control: str) -> ControlError:
    return ControlError(
        "FM-CONTROL-001",
        "there is no control store",
        where=control,
        state="nothing was read or written",
        next="floodmark run creates one with the first batch; if there was one, check the path; if it"
        " was lost: floodmark state rebuild --from-targets TARGET...",
    )


def cannot_cancel(batch: PlannedBatch) -> ControlError:
    return ControlError(
        "FM-CONTROL-012",
        f"batch {batch.batch_id} can no longer be cancelled",
        found=f"leased by {', '.join(batch.runs)}",
        state="nothing was changed; a batch that somebody may be running only goes forward",
        next=f"floodmark retry {batch.batch_id}",
    )
