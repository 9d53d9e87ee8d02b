"""One spelling of the names and paths of tables."""

from __future__ import annotations

import posixpath


def table_name(path: str) -> str:
    """One spelling of the name or path of a table."""
    is_name = "/" not in path
    return path if is_name else path.rstrip("/") if "://" in path else posixpath.normpath(path)


def is_inside(place: str, table: str) -> bool:
    """Whether a read of a place gets rows of a table: `out/*.csv` is read of what `out` holds."""
    return place == table or ("/" in place and place.startswith(f"{table.rstrip('/')}/"))
