"""The rules of the protocol: for each event what must hold before it, and what it does."""

from __future__ import annotations

from floodmark.control.rules.folding import Apply, apply, fold
from floodmark.control.rules.parts import is_paused
from floodmark.control.rules.runs import check_fence, earlier_unfinished, running_elsewhere

__all__ = [
    "Apply",
    "apply",
    "check_fence",
    "earlier_unfinished",
    "fold",
    "is_paused",
    "running_elsewhere",
]
