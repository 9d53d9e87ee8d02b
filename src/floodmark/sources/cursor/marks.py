"""Marks of cursors as Spark compares them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from floodmark.model import CursorMark, TimeMark
from floodmark.model.names import quoted
from floodmark.sources.frames import time_literal

if TYPE_CHECKING:
    from pyspark.sql import Column

Side = Literal["from", "after", "through", "before"]
"""from and through include the mark."""


def compared(column: str, mark: CursorMark, side: Side = "from") -> Column:
    """The rows on one side of a mark."""
    from pyspark.sql import functions as fn

    value, other = fn.col(quoted(column)), _literal(mark)
    if side in ("from", "after"):
        return value > other if side == "after" else value >= other
    return value < other if side == "before" else value <= other


def _literal(mark: CursorMark) -> Column:
    from pyspark.sql import functions as fn

    if isinstance(mark, TimeMark):
        return time_literal(mark)
    if mark.type == "string":
        return fn.lit(mark.text)
    scale = len(mark.text.partition(".")[2])
    return fn.lit(mark.text).cast(f"decimal(38,{scale})")
