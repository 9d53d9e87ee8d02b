"""Keeping a control store quick and small."""

from __future__ import annotations

from floodmark.control.upkeep.retention import SAFE_SECONDS
from floodmark.control.upkeep.upkeep import keep_up, last_upkeep, refuse_short

__all__ = [
    "SAFE_SECONDS",
    "keep_up",
    "last_upkeep",
    "refuse_short",
]
