"""The query of a window as a run makes it, for tests that run or show it."""

from __future__ import annotations

from floodmark.model.cursor_marks import CursorMark
from floodmark.model.query import CursorQuery
from floodmark.model.window import NOTHING_PROCESSED, CursorWindow
from floodmark.run.nodes.cursor_ranges import landed_bounds
from floodmark.sources.cursor.database import SqlReader
from floodmark.sources.cursor.jdbc import JdbcConnection
from floodmark.sources.cursor.sql.queries import SqlRelation, range_query

_PLACE = "sql://erp/orders"


def window_query(relation: SqlRelation, low: CursorMark | None, high: CursorMark) -> str:
    """The query of the rows that a window lands; without `low` the first window."""
    reader = SqlReader(_PLACE, relation, lambda: JdbcConnection("postgres"))
    after = NOTHING_PROCESSED if low is None else 1
    window = CursorWindow(
        upstream=_PLACE,
        method="query",
        after=after,
        through=after + 1,
        reason="",
        table_id=f"{_PLACE}#1",
        query=CursorQuery(str(relation.cursor), "sql"),
        after_mark=low,
        through_mark=high,
    )
    bounds = landed_bounds(
        window, reader, edge=None, baseline=None, is_first_run=low is None, is_ordered=True
    )
    return range_query(relation, bounds)
