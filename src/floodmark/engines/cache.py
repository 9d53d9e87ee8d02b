"""Where floodmark keeps what it can make or fetch again."""

from __future__ import annotations

import os
from pathlib import Path


def cache_dir() -> Path:
    """`$XDG_CACHE_HOME/floodmark`, else `~/.cache/floodmark`; not created here."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "floodmark"
