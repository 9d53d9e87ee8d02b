"""Where the columns of a step come from, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple


class ColumnRef(NamedTuple):
    """A column of one of the frames a step reads."""

    frame: str
    """`input`, or the name of another node."""
    column: str


@dataclass(frozen=True, slots=True)
class Lineage:
    """What a step's output columns are made of.

    With level `column`, `columns` has every output column in order. With level `table` only the
    frames that were read are known, and `note` says why.
    """

    level: Literal["column", "table"]
    columns: Mapping[str, tuple[ColumnRef, ...]] = field(default_factory=dict)
    rows: tuple[ColumnRef, ...] = ()
    """Columns that decide which rows there are and in what order, not what is in them."""
    frames: tuple[str, ...] = ()
    """Every frame that was read."""
    note: str | None = None
