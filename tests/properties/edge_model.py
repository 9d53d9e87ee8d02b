"""What the edge of a window means, in plain Python: the model of `sources/sql/edge_frames.py`.

A window reads from `high - overlap` of the one before, so it meets rows that were applied. They are
known by identity: the values of the keys with the cursor, or the whole row where there are no keys.
Equal rows without keys count: three of them, two applied, leaves one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from floodmark.sources.cursor.edges import Identity

Row = Mapping[str, Any]
Edge = Counter[tuple[Any, ...]]
"""How often each identity was applied."""


def fresh(rows: Iterable[Row], edge: Edge, identity: Identity) -> list[Row]:
    """The rows that no window before has applied, in their order.

    With keys a row of the edge is left out however often it comes.
    """
    left = Counter(edge)
    kept = []
    for row in rows:
        name = _name(row, identity)
        if not left[name]:
            kept.append(row)
        elif not identity.keys:
            left[name] -= 1
    return kept


def next_edge(rows: Iterable[Row], identity: Identity, is_near: Callable[[Any], bool]) -> Edge:
    """The edge that a window leaves behind, of all rows it read.

    Rows without a cursor value are read again by every window that reads them at all.
    """
    near = (row for row in rows if row[identity.cursor] is None or is_near(row[identity.cursor]))
    return Counter(_name(row, identity) for row in near)


def _name(row: Row, identity: Identity) -> tuple[Any, ...]:
    names = (*identity.keys, identity.cursor) if identity.keys else sorted(row)
    return tuple(row[name] for name in names)
