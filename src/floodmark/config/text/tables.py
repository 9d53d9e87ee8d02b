"""One spelling of the names and paths of tables."""

from __future__ import annotations

import posixpath
from urllib.parse import unquote, urlsplit


def table_name(path: str, root: str | None = None) -> str:
    """One spelling of the name or path of a table; with `root`, paths below it are relative to it.

    >>> table_name("/shop/lake/../lake/x/", "/shop"), table_name("file:///shop/lake/x", "/shop")
    ('lake/x', 'lake/x')
    """
    if "/" not in path:
        return path
    if path.startswith("file:"):
        path = unquote(urlsplit(path).path)
    if "://" in path:
        return path.rstrip("/")
    name = posixpath.normpath(path)
    return name.removeprefix(f"{root}/") if root is not None and root != "/" else name


def is_inside(place: str, table: str) -> bool:
    """Whether a read of a place gets rows of a table: `out/*.csv` is read of what `out` holds."""
    return place == table or ("/" in place and place.startswith(f"{table.rstrip('/')}/"))
