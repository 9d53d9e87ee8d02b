"""The queries of a window, as text: what is the newest value, and the rows up to there.

The bound is fixed before the read and stored: `low - overlap <= cursor <= high`, also with overlap
0, so that rows that tie with the last mark are seen; those already applied are removed afterwards
(`floodmark.sources.cursor.edges`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from floodmark.model import CursorMark, Overlap, StringOrder, TimeMark, ValueMark
from floodmark.model.cursor_marks import decoded, decoded_if_any, lowered
from floodmark.model.sql_names import SqlDialect, column_name, name_parts, qualified, quoted_for
from floodmark.sources.cursor.sql.literals import FINER, last_literal, literal
from floodmark.sources.cursor.sql.parameters import Parameter, bound, tokens_of, unbound

OnNullCursor = Literal["fail", "ignore", "include"]
"""fail: a row without a cursor value is an error. ignore: such rows are never read. include: they
are read with every window, and applied once."""

_BINARY = {
    "postgres": 'COLLATE "C"',
    "sqlserver": "COLLATE Latin1_General_100_BIN2",
    "mysql": "COLLATE utf8mb4_bin",
}
_ALIAS = "floodmark_source"


@dataclass(frozen=True, slots=True)
class SqlRelation:
    """What is read: a table, or the rows of a query, and the column that tells what is new."""

    dialect: SqlDialect
    cursor: str | None
    """Written as in SQL: a plain name is folded as the database folds it; None for none."""
    table: str | None = None
    query: str | None = None
    overlap: Overlap | None = None
    order: StringOrder | None = None
    """Of a cursor of strings."""
    on_null_cursor: OnNullCursor = "fail"
    first_run_query: str | None = None

    @property
    def has_cursor(self) -> bool:
        """Whether a column tells what is new."""
        return self.cursor is not None

    @property
    def column(self) -> str:
        """The quoted cursor column."""
        return quoted_for(self.dialect, column_name(self.dialect, self.cursor or ""))

    @property
    def ordered(self) -> str:
        """The cursor in the order that was declared for it."""
        if self.order == "binary" and self.dialect in _BINARY:
            return f"{self.column} {_BINARY[self.dialect]}"
        return self.column


@dataclass(frozen=True, slots=True)
class Beginning:
    """The first value of a range of rows."""

    mark: CursorMark
    is_excluded: bool = False


@dataclass(frozen=True, slots=True)
class Bounds:
    """Between which values rows are read."""

    low: CursorMark | None
    high: CursorMark
    excludes_low: bool = False
    excludes_high: bool = False
    has_nulls: bool = False
    """Whether rows without a value are read too."""

    def encoded(self) -> str:
        """The JSON text that is kept with the rows."""
        said = {
            "low": None if self.low is None else self.low.encoded(),
            "high": self.high.encoded(),
            "excludes_low": self.excludes_low,
            "excludes_high": self.excludes_high,
            "has_nulls": self.has_nulls,
        }
        return json.dumps(said, separators=(",", ":"))

    @classmethod
    def decoded(cls, text: str) -> Bounds:
        """The bounds of a stored text; raises ValueError if it is none."""
        said = json.loads(text)
        low = decoded_if_any(said.pop("low"))
        return cls(low, decoded(said.pop("high")), **said)

    def conditions(self, relation: SqlRelation) -> str:
        """The bounds as a condition."""
        within = before(relation, self.high) if self.excludes_high else through(relation, self.high)
        if self.low is not None:
            begin = after(relation, self.low) if self.excludes_low else since(relation, self.low)
            within = f"{begin} AND {within}"
        return f"({within} OR {relation.column} IS NULL)" if self.has_nulls else within


def through(relation: SqlRelation, mark: CursorMark) -> str:
    """The rows up to a mark, which stands for all values that Spark sees as this one."""
    following = _following(relation, mark)
    if following is None:
        return f"{relation.ordered} <= {literal(relation.dialect, mark)}"
    return before(relation, following)


def after(relation: SqlRelation, mark: CursorMark) -> str:
    """The rows behind a mark."""
    following = _following(relation, mark)
    if following is None:
        return f"{relation.ordered} > {literal(relation.dialect, mark)}"
    return since(relation, following)


def before(relation: SqlRelation, mark: CursorMark) -> str:
    """The rows before a mark, without it."""
    return f"{relation.ordered} < {literal(relation.dialect, mark)}"


def since(relation: SqlRelation, mark: CursorMark) -> str:
    """The rows from a mark on."""
    return f"{relation.ordered} >= {literal(relation.dialect, mark)}"


def _following(relation: SqlRelation, mark: CursorMark) -> CursorMark | None:
    """The next microsecond, where the database has values between two of them; Spark cuts those off."""
    if relation.dialect not in FINER or not isinstance(mark, TimeMark) or mark.type == "date":
        return None
    try:
        return TimeMark(mark.type, mark.value + timedelta(microseconds=1))
    except OverflowError:
        return None


def range_query(relation: SqlRelation, bounds: Bounds) -> str:
    """The rows between two values."""
    rows = _rows(relation, bounds.low, bounds.high)
    return f"SELECT * FROM {rows} WHERE {bounds.conditions(relation)}"


def everything_query(relation: SqlRelation) -> str:
    """All rows."""
    return f"SELECT * FROM {_rows(relation, None, None)}"


def oid_query(relation: SqlRelation) -> str:
    """By what PostgreSQL knows a table, whatever it is called; no row for what is no table.

    A view has none: it is made anew without its rows being others.
    """
    name = qualified("postgres", name_parts("postgres", str(relation.table)))
    text = literal("postgres", ValueMark("string", name, "binary"))
    return (
        f"SELECT c.oid FROM pg_catalog.pg_class c WHERE c.oid = to_regclass({text})"
        " AND c.relkind IN ('r', 'p')"
    )


def nothing_query(relation: SqlRelation, mark: CursorMark | None) -> str:
    """No rows; for their columns."""
    return f"SELECT * FROM {_rows(relation, mark, mark)} WHERE 1 = 0"


def oldest_query(relation: SqlRelation, bounds: Bounds) -> str:
    """The smallest value between two values; one row, one column."""
    rows = _rows(relation, bounds.low, bounds.high)
    return f"SELECT MIN({relation.ordered}) FROM {rows} WHERE {bounds.conditions(relation)}"


def probe_query(
    relation: SqlRelation, low: CursorMark | None = None, ceiling: CursorMark | None = None
) -> str:
    """The newest value, not above `ceiling`, and how many rows have none; one row, two columns."""
    start = None if low is None else lowered(low, relation.overlap)
    rows = _rows(relation, start, ceiling)
    below = f" WHERE {through(relation, ceiling)}" if ceiling else ""
    newest = f"(SELECT MAX({relation.ordered}) FROM {rows}{below})"
    nulls = f"(SELECT COUNT(*) FROM {rows} WHERE {relation.column} IS NULL)"
    from_nothing = " FROM DUAL" if relation.dialect == "oracle" else ""
    return f"SELECT {newest} AS newest, {nulls} AS nulls{from_nothing}"


def _rows(relation: SqlRelation, start: CursorMark | None, end: CursorMark | None) -> str:
    """What comes behind FROM; the first window may have a query of its own."""
    query = relation.query
    if start is None and relation.first_run_query is not None:
        query = relation.first_run_query
    if query is not None:
        return _wrapped(relation.dialect, query, start, end)
    if relation.table is None:
        raise ValueError("a relation is a table or a query")
    return qualified(relation.dialect, name_parts(relation.dialect, relation.table))


def _wrapped(
    dialect: SqlDialect, query: str, start: CursorMark | None, end: CursorMark | None
) -> str:
    values: dict[Parameter, str] = {}
    if start is not None:
        values["window_start"] = literal(dialect, start)
    if end is not None:
        values["window_end"] = last_literal(dialect, end)
    inner = bound(dialect, single_statement(dialect, query), values)
    # On a line of its own: the query may end in a comment.
    return f"(\n{inner}\n) {'' if dialect == 'oracle' else 'AS '}{_ALIAS}"


def single_statement(dialect: SqlDialect, query: str) -> str:
    """The query without the semicolon at its end; raises FM-SOURCE-030 for what cannot be nested."""
    tokens = tokens_of(dialect, query)
    while tokens and tokens[-1].text == ";":
        last = tokens.pop()
        query = query[: last.start] + query[last.end + 1 :]
    if not tokens or any(token.text == ";" for token in tokens):
        raise unbound(f"{'several statements' if tokens else 'nothing'}", "one SELECT")
    first = tokens[0].text.upper()
    allowed = {"SELECT", "("} if dialect == "sqlserver" else {"SELECT", "(", "WITH", "VALUES"}
    if first not in allowed:
        raise unbound(
            f"a query that begins with {first}", f"one that begins with {sorted(allowed)}"
        )
    return query
