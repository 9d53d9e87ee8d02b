"""Orders: what users write, as parts of ORDER BY."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from floodmark.transforms import sql
from floodmark.transforms.params import OrderPart
from floodmark.transforms.relation import Column, Relation

_DIRECTED = re.compile(r"(.+?)\s+(asc|desc)(?:\s+nulls\s+(first|last))?", re.IGNORECASE | re.DOTALL)
_NO_ORDER = ("map", "variant")


def ordering(input: Relation, by: Iterable[str | OrderPart]) -> list[tuple[Column, sql.Expr]]:
    """Each column with its part of the order; raises FM-TRANSFORM-003 and 004."""
    return [_part(input, part) for part in by]


def ties(input: Relation, used: Sequence[Column]) -> list[sql.Expr]:
    """An order by every other column, so that a second run decides between equals as the first."""
    rest = input.except_for(column.name for column in used)
    return [_asc(column) for column in rest if not (column.type or "").startswith(_NO_ORDER)]


def _part(input: Relation, part: str | OrderPart) -> tuple[Column, sql.Expr]:
    wish = part if isinstance(part, OrderPart) else _read(input, part)
    column = input.column(wish.column)
    descending = wish.order == "desc"
    nulls_first = wish.nulls == "first" if wish.nulls else not descending
    return column, sql.ordered(column.sql, descending=descending, nulls_first=nulls_first)


def _read(input: Relation, text: str) -> OrderPart:
    """A name, or a name with a direction; a column that is really called so comes first."""
    directed = None if input.has(text) else _DIRECTED.fullmatch(text)
    if directed is None:
        return OrderPart(column=text, order="asc", nulls=None)
    name, order, nulls = directed.groups()
    return OrderPart.model_validate(
        {"column": name, "order": order.lower(), "nulls": nulls.lower() if nulls else None}
    )


def _asc(column: Column) -> sql.Expr:
    return sql.ordered(column.sql, descending=False, nulls_first=True)
