"""Which rows of a database each read of a batch gives, decided from values alone.

    older       all rows before the landed ones, for a node that reads everything
    landed      what the planned window reads; its bounds are kept with the rows
    near        without news: what the edge at the mark tells apart

Each part begins where the one before it ends, so that a row is in exactly one of them. Where landed
rows begin depends on settings that may be edited between two attempts of a batch, so the attempt
that lands the rows decides it, and everybody else reads that decision.
"""

from __future__ import annotations

from typing import Protocol

from floodmark.model import CursorMark, CursorWindow
from floodmark.model.cursor_marks import is_after
from floodmark.sources.cursor import Beginning, Bounds


class Cursor(Protocol):
    """What the settings say about a cursor column today."""

    @property
    def includes_nulls(self) -> bool:
        """Whether rows without a cursor are read with every window."""

    def reach(self, mark: CursorMark) -> CursorMark:
        """Where a window that follows a mark begins to read: the overlap before it."""

    def typed(self, mark: CursorMark, like: CursorMark) -> CursorMark:
        """A mark as the column has it."""


def landed_bounds(
    window: CursorWindow,
    cursor: Cursor,
    *,
    edge: Beginning | None,
    baseline: CursorMark | None,
    is_first_run: bool,
    is_ordered: bool,
) -> Bounds:
    """Between which values the rows of a planned window lie.

    `edge` is where the edge before the window begins; None if the window meets no row again. An
    overlap that was made longer reaches further only once windows have read so far.
    """
    high = window.through_mark
    assert high is not None  # noqa: S101  (only windows whose end is known are read)
    has_nulls = cursor.includes_nulls and is_ordered
    if window.after_mark is None or (window.is_first and is_first_run):
        return Bounds(None, high, has_nulls=has_nulls)
    start = cursor.typed(window.after_mark, high)
    if not is_ordered or window.is_first:
        return Bounds(start, high, excludes_low=True, has_nulls=has_nulls)
    begin = Beginning(cursor.reach(start))
    if edge is not None:
        begin = _later(begin, _typed(edge, cursor, high))
    if baseline is not None:
        begin = _later(begin, Beginning(cursor.typed(baseline, high), is_excluded=True))
    return Bounds(begin.mark, high, excludes_low=begin.is_excluded, has_nulls=has_nulls)


def older_bounds(cursor: Cursor, part: Bounds, baseline: CursorMark | None) -> Bounds | None:
    """What lies before the landed rows, or those near the mark; None where nothing does."""
    if part.low is None:
        return None
    return Bounds(
        None if baseline is None else cursor.typed(baseline, part.high),
        part.low,
        excludes_low=True,
        excludes_high=not part.excludes_low,
    )


def near_bounds(cursor: Cursor, end: CursorMark, edge: Beginning | None) -> Bounds:
    """What the edge at a mark tells apart; an edge of an older version does not say where it begins."""
    begin = Beginning(cursor.reach(end)) if edge is None else _typed(edge, cursor, end)
    has_nulls = cursor.includes_nulls
    return Bounds(begin.mark, end, excludes_low=begin.is_excluded, has_nulls=has_nulls)


def edge_beginning(cursor: Cursor, landed: Bounds) -> Beginning:
    """From where on landed rows are all that were applied: where the next window begins, but not
    before they do.
    """
    reach = Beginning(cursor.reach(landed.high))
    if landed.low is None:
        return reach
    return _later(reach, Beginning(landed.low, landed.excludes_low))


def _typed(begin: Beginning, cursor: Cursor, like: CursorMark) -> Beginning:
    return Beginning(cursor.typed(begin.mark, like), begin.is_excluded)


def _later(one: Beginning, other: Beginning) -> Beginning:
    """The one that gives fewer rows."""
    if one.mark == other.mark:
        return one if one.is_excluded else other
    return one if is_after(one.mark, other.mark) else other
