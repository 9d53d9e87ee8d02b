"""Requests that a control store cannot fulfil, and what to do instead."""

from __future__ import annotations

import re

from floodmark.errors import ControlError
from floodmark.model import PlannedBatch
from floodmark.next_steps import command


def no_store(control: str) -> ControlError:
    return ControlError(
        "FM-CONTROL-001",
        "there is no control store",
        where=control,
        state="nothing was read or written",
        next=command("run")
        + " creates one with the first batch; if there was one, check the path; if it"
        " was lost: " + command("state", "rebuild", "--from-targets", "TARGET..."),
    )


def cannot_cancel(batch: PlannedBatch) -> ControlError:
    return ControlError(
        "FM-CONTROL-012",
        f"batch {batch.batch_id} can no longer be cancelled",
        found=f"leased by {', '.join(batch.runs)}",
        state="nothing was changed; a batch that somebody may be running only goes forward",
        next=command("retry", batch.batch_id),
    )


# delta-rs reads `%20` and `\\` in a path as others do in a URL, refuses controls, and panics at the
# rest when it has written half of a table.
_UNFIT = re.compile(r"[\x00-\x1f\x7f\[\]^|\\]|%[0-9A-Fa-f]{2}")


def refuse_unfit_place(control: str) -> None:
    """Raise FM-CONTROL-035 for a folder on a disk in which delta-rs cannot keep tables."""
    unfit = _UNFIT.search(control) if control.startswith("/") else None
    if unfit is None:
        return
    raise ControlError(
        "FM-CONTROL-035",
        "the control store cannot be in a folder of this name",
        where=control,
        found=ascii(unfit[0]),
        allowed="a path without [ ] ^ | \\, percent escapes like %20, and control characters",
        state="nothing was read or written",
        next="rename the folder, or set control: in floodmark.yaml to another one",
    )
