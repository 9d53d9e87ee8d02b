"""Errors of every target that shows its receipts."""

from __future__ import annotations

from floodmark.errors import SinkError
from floodmark.model import Receipt, batch_of
from floodmark.next_steps import BATCH, Blank, command

NOTHING_WRITTEN = "nothing was written; the target is unchanged"
_OTHER_STORE = (
    "put the copy that wrote it back, and let nobody use the other; or, if there"
    " is none, move this store away, then: "
    + command("state", "rebuild", "--from-targets", "TARGET...")
    + " with every target"
)


def batch_named(receipt: Receipt) -> str | Blank:
    """The batch of a receipt, for a command."""
    return batch_of(receipt.user_metadata) or BATCH


def holds_later(path: str, receipt: Receipt, stored: int) -> SinkError:
    """The error for a target that went on without this batch."""
    return SinkError(
        "FM-SINK-012",
        "the target already holds a later batch of this pipeline",
        where=path,
        found=f"receipt {stored} of {receipt.app_id}, and no commit with receipt {receipt.seq}",
        allowed=f"receipts up to {receipt.seq}, applied in order",
        state=NOTHING_WRITTEN,
        next=command("verify") + " shows which store wrote it; " + _OTHER_STORE,
    )


def holds_other(where: str, found: str) -> SinkError:
    """The error for a target that another control store, or another copy of it, wrote to."""
    return SinkError(
        "FM-SINK-015",
        "the target holds a batch that this control store did not write",
        where=where,
        found=found,
        allowed="writes of this pipeline by one control store, none of them forgotten",
        state=f"{NOTHING_WRITTEN}; two copies of one control store seem to be in use, or an older"
        " one was put back",
        next=_OTHER_STORE,
    )
