"""Which tables of a query give it rows of their own, and which only columns or a choice of rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations

from sqlglot import exp

from floodmark.transforms.sql.building import Expr
from floodmark.transforms.sql.reading import statement_of

MAX_TABLES = 8
"""Of more than that, every combination would take too long to try."""


def tables_adding_rows(
    text: str, own: Collection[str], others: Collection[str]
) -> frozenset[str] | None:
    """Those of `others` to whose rows a query owes some of its own, though `own` has none.

    A join of `own` with another table adds none: `FROM own LEFT JOIN other`. `FROM other LEFT JOIN
    own`, a union, `EXCEPT` and `NOT EXISTS` do. Names in lower case, as those that come back. None
    where sqlglot cannot read the query.
    """
    parsed = statement_of(text)
    if not isinstance(parsed, exp.Query | exp.Table):
        return None
    names = sorted(set(others))
    if len(names) > MAX_TABLES:
        is_fed = _may_have_rows(parsed, _Filled(frozenset({*own, *names}), frozenset(names)))
        return frozenset(names) if is_fed else frozenset()
    given = frozenset({*own, *names})
    fed = {
        filled: _may_have_rows(parsed, _Filled(given, frozenset(filled)))
        for size in range(len(names) + 1)
        for filled in combinations(names, size)
    }
    adding = (
        name
        for name in names
        if any(
            fed[filled] and not fed[tuple(each for each in filled if each != name)]
            for filled in fed
            if name in filled
        )
    )
    return frozenset(adding)


@dataclass(frozen=True)
class _Filled:
    """Some tables that have rows, while the others that are given have none."""

    given: frozenset[str]
    filled: frozenset[str]
    queries: Mapping[str, bool] = field(default_factory=dict)
    """Queries of WITH, and whether they may have rows."""

    def query(self, name: str, *, has_rows: bool) -> _Filled:
        return replace(self, queries={**self.queries, name: has_rows})


def _may_have_rows(node: Expr, tables: _Filled) -> bool:
    """Whether a query or table may have rows. A constant and a table that is not given have."""
    tables = _with_queries_of(node, tables)
    if isinstance(node, exp.Table):
        return _joined(_is_filled(node, tables), node, tables)
    if isinstance(node, exp.Subquery):
        return _joined(_may_have_rows(node.this, tables), node, tables)
    if isinstance(node, exp.SetOperation):
        first, second = _may_have_rows(node.this, tables), _may_have_rows(node.expression, tables)
        if isinstance(node, exp.Intersect):
            return first and second
        return first if isinstance(node, exp.Except) else first or second
    if isinstance(node, exp.Select):
        return _selected(node, tables)
    is_wrapped = isinstance(node, exp.Paren | exp.Lateral) and isinstance(node.this, exp.Query)
    return _may_have_rows(node.this, tables) if is_wrapped else True


def _with_queries_of(node: Expr, tables: _Filled) -> _Filled:
    clause = node.args.get("with_")
    for query in clause.expressions if clause is not None else ():
        name = query.alias.lower()
        # One that names itself has what it begins with, or nothing.
        rows = _may_have_rows(query.this, tables.query(name, has_rows=False))
        tables = tables.query(name, has_rows=rows)
    return tables


def _is_filled(table: exp.Table, tables: _Filled) -> bool:
    name = table.name.lower()
    if len(table.parts) > 1:
        return True
    if name in tables.queries:
        return tables.queries[name]
    return name in tables.filled or name not in tables.given


def _selected(node: exp.Select, tables: _Filled) -> bool:
    source, where = node.args.get("from_"), node.args.get("where")
    rows = source is None or _may_have_rows(source.this, tables)
    needed = _required(where.this) if where is not None else iter(())
    return _joined(rows, node, tables) and all(_may_have_rows(each, tables) for each in needed)


def _joined(rows: bool, node: Expr, tables: _Filled) -> bool:  # noqa: FBT001
    for join in node.args.get("joins") or ():
        rows = _after(join, rows, _may_have_rows(join.this, tables))
    return rows


def _after(join: exp.Join, first: bool, second: bool) -> bool:  # noqa: FBT001
    side, kind = join.side.upper(), join.kind.upper()
    if kind == "ANTI":
        return first
    if side == "FULL":
        return first or second
    if kind != "SEMI" and side in ("LEFT", "RIGHT"):
        return second if side == "RIGHT" else first
    return first and second


def _required(condition: Expr) -> Iterator[Expr]:
    """The queries that must have rows for a condition to hold: EXISTS and IN, joined by AND."""
    for part in condition.flatten() if isinstance(condition, exp.And) else (condition,):
        inner = part.unnest()
        if isinstance(inner, exp.And):
            yield from _required(inner)
        elif isinstance(inner, exp.Exists):
            yield inner.this
        elif isinstance(inner, exp.In) and inner.args.get("query") is not None:
            yield inner.args["query"]
