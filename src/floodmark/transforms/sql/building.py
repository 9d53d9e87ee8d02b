"""Building SQL: names, values, expressions and queries as values."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Literal, TypeAlias, cast

from sqlglot import exp
from sqlglot.errors import SqlglotError

Expr: TypeAlias = exp.Expr
Query: TypeAlias = exp.Query
Value: TypeAlias = bool | int | float | str | bytes | Decimal | dt.date | dt.datetime | None

DIALECT = "spark"
VERBATIM = "floodmark_verbatim"
"""Marks what users wrote: it is rendered for Spark as they wrote it."""
_JOINS = {
    "inner": (None, "INNER"),
    "left": ("LEFT", None),
    "right": ("RIGHT", None),
    "full": ("FULL", None),
    "semi": ("LEFT", "SEMI"),
    "anti": ("LEFT", "ANTI"),
}
_MAX_BIGINT = 2**63


class NotSqlError(ValueError):
    """A text is not what it should be: one expression, one query or one type."""


# Names and values


def identifier(name: str) -> exp.Identifier:
    """A name, quoted; raises NotSqlError for what no quoting can carry.

    >>> identifier("a `b`.c").sql(dialect="spark")
    '`a ``b``.c`'
    """
    if not name or "\0" in name:
        raise NotSqlError("a name is empty or has a NUL in it")
    if "${" in name:
        raise NotSqlError("a name has ${ in it, which Spark replaces before it reads the SQL")
    return exp.to_identifier(name, quoted=True)


def column(name: str, table: str | None = None) -> Expr:
    """A column by its exact name, whatever is in it."""
    return exp.Column(this=identifier(name), table=identifier(table) if table else None)


def field_of(value: Expr, name: str) -> Expr:
    """A field of a struct; never mistaken for a column of a table."""
    return exp.Dot(this=exp.paren(value, copy=False), expression=identifier(name))


def literal(value: Value) -> Expr:
    r"""A value as SQL that has the same type and value in any session.

    >>> literal("it's").sql(dialect="spark"), literal(None).sql(dialect="spark")
    ("'it\\'s'", 'NULL')
    """
    if value is None:
        return exp.null()
    if isinstance(value, bool):
        return exp.true() if value else exp.false()
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bytes):
        return exp.HexString(this=value.hex().upper())
    if isinstance(value, dt.date):
        return _moment(value)
    return _number(value)


def _text(value: str) -> Expr:
    """Spark replaces ${env:NAME} and its like anywhere in a statement, so no ${ is left whole."""
    parts = value.split("${")
    pieces = [exp.Literal.string(_piece(n, part, len(parts))) for n, part in enumerate(parts)]
    return pieces[0] if len(pieces) == 1 else func("CONCAT", *pieces)


def _piece(number: int, part: str, count: int) -> str:
    return ("{" if number else "") + part + ("$" if number < count - 1 else "")


def _moment(value: dt.date) -> Expr:
    if not isinstance(value, dt.datetime):
        return cast_to(exp.Literal.string(value.isoformat()), "date")
    kind = "timestamp_ntz" if value.tzinfo is None else "timestamp"
    return cast_to(exp.Literal.string(value.isoformat(sep=" ")), kind)


def _number(value: float | Decimal) -> Expr:
    if isinstance(value, float):
        text = repr(value) if math.isfinite(value) else str(value)
        return cast_to(exp.Literal.string(text), "double")
    if isinstance(value, Decimal) or not -_MAX_BIGINT <= value < _MAX_BIGINT:
        return cast_to(exp.Literal.string(str(value)), _decimal_type(Decimal(value)))
    # A minus sign before 2^63 is an operator on a number that is too large.
    if value < 0:
        return cast_to(exp.Literal.string(str(value)), "bigint")
    return exp.Literal.number(value)


def _decimal_type(value: Decimal) -> str:
    if not value.is_finite():
        raise NotSqlError("a decimal is not finite")
    _, digits, exponent = value.as_tuple()
    scale = max(0, -int(exponent))
    precision = max(len(digits) + max(0, int(exponent)), scale, 1)
    if precision > 38:
        raise NotSqlError("a number has more than 38 digits")
    return f"decimal({precision},{scale})"


# Expressions


def func(name: str, *arguments: Expr) -> Expr:
    """A call of one of Spark's functions."""
    return exp.func(name, *arguments, dialect=DIALECT, copy=False)


def all_of(conditions: Iterable[Expr]) -> Expr:
    """All of them hold."""
    return exp.and_(*conditions, copy=False)


def same(left: Expr, right: Expr, *, nulls_match: bool = False) -> Expr:
    """Equality; `nulls_match` makes NULL equal to NULL."""
    kind = exp.NullSafeEQ if nulls_match else exp.EQ
    return kind(this=left, expression=right)


def plus_interval(value: Expr, amount: int, unit: str) -> Expr:
    """A date or time moved by a number of units."""
    step = exp.Interval(this=exp.Literal.string(str(amount)), unit=exp.var(unit))
    return exp.Add(this=value, expression=step)


def is_less(left: Expr, right: Expr) -> Expr:
    """Left is less than right."""
    return exp.LT(this=left, expression=right)


def added(left: Expr, right: Expr) -> Expr:
    """The sum of two numbers."""
    return exp.Add(this=left, expression=right)


def extracted(part: str, value: Expr) -> Expr:
    """A part of a date or time."""
    return exp.Extract(this=exp.var(part), expression=value)


def word(text: str) -> Expr:
    """A bare word that is part of the syntax, such as the unit of a difference."""
    return exp.var(text)


def case(branches: Iterable[tuple[Expr, Expr]], otherwise: Expr | None = None) -> Expr:
    """The value of the first condition that is true."""
    ifs = [exp.If(this=when, true=then) for when, then in branches]
    return exp.Case(ifs=ifs, default=otherwise)


def is_null(value: Expr) -> Expr:
    """Whether it is NULL."""
    return exp.Is(this=value, expression=exp.null())


def not_null(value: Expr) -> Expr:
    """Whether it is not NULL."""
    return exp.Not(this=is_null(value))


def is_not_true(condition: Expr) -> Expr:
    """False and NULL alike."""
    return exp.Not(this=exp.paren(func("COALESCE", condition, exp.false()), copy=False))


def cast_to(value: Expr, type_text: str, *, on_error: Literal["fail", "null"] = "fail") -> Expr:
    """A value in another type; raises NotSqlError if there is no such type."""
    kind = data_type(type_text)
    if on_error == "null":
        return exp.TryCast(this=value, to=kind, safe=True)
    return exp.Cast(this=value, to=kind)


def data_type(text: str) -> exp.DataType:
    """A type by its name in Spark; raises NotSqlError if there is none."""
    try:
        return exp.DataType.build(text, dialect=DIALECT)
    except SqlglotError:
        raise NotSqlError(f"no type is called {text}") from None


@lru_cache(1024)
def type_name(text: str) -> str:
    """The name Spark gives a type: `integer` is `int`, `decimal(3, 1)` is `decimal(3,1)`."""
    return data_type(text).sql(dialect=DIALECT).lower().replace(", ", ",").replace(": ", ":")


def struct(fields: Mapping[str, Expr]) -> Expr:
    """A struct with these fields."""
    pairs = [part for name, value in fields.items() for part in (literal(name), value)]
    return exp.Anonymous(this="NAMED_STRUCT", expressions=pairs)


def ordered(value: Expr, *, descending: bool, nulls_first: bool) -> Expr:
    """One part of an order, with nothing left to the dialect's default."""
    return exp.Ordered(this=value, desc=descending, nulls_first=nulls_first)


def over(
    call: Expr,
    partition_by: Sequence[Expr],
    order_by: Sequence[Expr],
    rows: tuple[int | None, int | None] | None = None,
) -> Expr:
    """A window function; `rows` counts rows before and after the current one, None is all."""
    order = exp.Order(expressions=list(order_by)) if order_by else None
    spec = _rows(*rows) if rows else None
    return exp.Window(this=call, partition_by=list(partition_by), order=order, spec=spec)


def _rows(before: int | None, after: int | None) -> Expr:
    start, start_side = _edge(before, "PRECEDING")
    end, end_side = _edge(after, "FOLLOWING")
    return exp.WindowSpec(
        kind="ROWS", start=start, start_side=start_side, end=end, end_side=end_side
    )


def _edge(count: int | None, side: str) -> tuple[str | Expr, str | None]:
    if count == 0:
        return "CURRENT ROW", None
    return ("UNBOUNDED" if count is None else exp.Literal.number(count)), side


# Queries


def select(
    items: Iterable[tuple[str, Expr]],
    source: Expr | str,
    *,
    where: Expr | None = None,
    group_by: Sequence[Expr] = (),
    order_by: Sequence[Expr] = (),
    limit: int | None = None,
    distinct: bool = False,
) -> exp.Select:
    """SELECT the items by their names, from a table or another query."""
    query = exp.Select(expressions=[_named(name, value) for name, value in items])
    query = query.from_(table(source) if isinstance(source, str) else source, copy=False)
    query = query.where(where, copy=False) if where is not None else query
    query = query.group_by(*group_by, copy=False) if group_by else query
    query = query.order_by(*order_by, copy=False) if order_by else query
    query = query.limit(limit, copy=False) if limit is not None else query
    return query.distinct(copy=False) if distinct else query


def _named(name: str, value: Expr) -> Expr:
    if isinstance(value, exp.Column) and not value.args.get("table") and value.name == name:
        return value
    return exp.Alias(this=value, alias=identifier(name))


def several(value: Expr, names: Sequence[str]) -> Expr:
    """One generator that gives several columns."""
    return exp.Aliases(this=value, expressions=[identifier(name) for name in names])


def add_item(query: exp.Select, item: Expr) -> exp.Select:
    """The query with one more item, whose names are its own."""
    return query.select(item, copy=False)


def table(name: str, alias: str | None = None) -> exp.Table:
    """A frame by its name."""
    # The name in every query stays plain, for people who read them; others may be key words.
    this = exp.to_identifier(name, quoted=False) if name == "input" else identifier(name)
    return exp.Table(this=this, alias=_table_alias(alias))


def _table_alias(alias: str | None) -> Expr | None:
    return exp.TableAlias(this=identifier(alias)) if alias else None


def nested(query: Query, alias: str) -> Expr:
    """A query in the place of a table."""
    return query.subquery(identifier(alias), copy=False)


def joined(query: exp.Select, other: Expr, on: Expr, kind: str) -> exp.Select:
    """The query with a join added."""
    side, what = _JOINS[kind]
    query.append("joins", exp.Join(this=other, on=on, side=side, kind=what))
    return query


def stacked(queries: Sequence[Query], *, distinct: bool) -> Query:
    """The rows of all, columns by position."""
    return cast("Query", exp.union(*queries, distinct=distinct, copy=False))


def text_of(query: Expr, dialect: str = DIALECT) -> str:
    """The SQL; what users wrote is in Spark's dialect as they wrote it."""
    if dialect == DIALECT:
        query = query.transform(_as_written)
    return query.sql(dialect=dialect)


def _as_written(node: Expr) -> Expr:
    text = node.meta_get(VERBATIM)
    return exp.Var(this=text) if text is not None else node
