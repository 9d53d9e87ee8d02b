"""The edge of a window: which rows the next one reads again, and has to leave out.

A window reads from `low - overlap`, so it meets rows of the windows before. What was applied is
remembered by identity: the values of the keys with the cursor, or the whole row where there are no
keys. Equal rows without keys count: three of them, two applied, leaves one.

A row below `high - overlap` that arrives later is not seen by any window: that is what the overlap
is for.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Edge:
    """The identities of the applied rows that the next window may meet, with their numbers."""

    applied: Mapping[str, int] = field(default_factory=dict)

    def encoded(self) -> str:
        """JSON text for the journal."""
        return json.dumps(dict(sorted(self.applied.items())), separators=(",", ":"))


def decoded(text: str) -> Edge:
    """The edge of a stored text; raises ValueError if it is none."""
    said = json.loads(text)
    if not isinstance(said, dict):
        raise ValueError(f"not an edge: {text[:200]!r}")  # noqa: TRY004 - the text is wrong, not its type
    return Edge({str(identity): int(count) for identity, count in said.items()})


@dataclass(frozen=True, slots=True)
class Identity:
    """What makes two rows one and the same."""

    cursor: str
    keys: tuple[str, ...] = ()

    def of(self, row: Row) -> str:
        """32 hexadecimal digits; equal for equal values of equal types."""
        names = (*self.keys, self.cursor) if self.keys else sorted(row)
        text = json.dumps([[name, *_typed(row[name])] for name in names], separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def fresh(rows: Iterable[Row], edge: Edge, identity: Identity) -> list[Row]:
    """The rows that no window before has applied, in their order.

    With keys a row of the edge is left out however often it comes.
    """
    left = Counter(edge.applied)
    kept = []
    for row in rows:
        name = identity.of(row)
        if left[name] > 0 and identity.keys:
            continue
        if left[name] > 0:
            left[name] -= 1
        else:
            kept.append(row)
    return kept


def next_edge(rows: Iterable[Row], identity: Identity, is_near: Callable[[Any], bool]) -> Edge:
    """The edge that a window leaves behind, of all rows it read.

    `is_near` tells of a cursor value whether the next window reads it again: `>= high - overlap`.
    Rows without a cursor value are read again by every window that reads them at all.
    """
    near = (row for row in rows if row[identity.cursor] is None or is_near(row[identity.cursor]))
    return Edge(Counter(identity.of(row) for row in near))


def _typed(value: Any) -> Sequence[Any]:
    """A value for JSON, with its type: 1, 1.0, "1" and True are four."""
    if value is None or isinstance(value, bool | str | int):
        return type(value).__name__, value
    if isinstance(value, bytes):
        return "bytes", value.hex()
    if isinstance(value, list | tuple):
        return "list", [_typed(part) for part in value]
    if isinstance(value, Mapping):
        return "map", [[_typed(key), _typed(value[key])] for key in sorted(value, key=str)]
    if hasattr(value, "isoformat"):
        return type(value).__name__, value.isoformat()
    return type(value).__name__, str(value)
