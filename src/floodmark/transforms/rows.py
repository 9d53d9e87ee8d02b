"""Rows: choosing, ordering, limiting, sampling, removing doubles."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from floodmark.transforms import sql
from floodmark.transforms.columns import row_text
from floodmark.transforms.ordering import ordering, ties
from floodmark.transforms.params import Names, Order, Params, Sql
from floodmark.transforms.registry import Example, Table, transform
from floodmark.transforms.relation import Built, Relation

_PARTS = 1_000_000


class FilterParams(Params):
    """Which rows."""

    shorthand: ClassVar[str] = "condition"
    condition: Sql = Field(description="An expression that is true for the rows to keep.")


@transform(
    example=Example(
        params="amount > 0",
        given=Table({"id": "int", "amount": "int"}, [(1, 5), (2, -1), (3, None)]),
        gives=Table({"id": "int", "amount": "int"}, [(1, 5)]),
    )
)
def filter_rows(input: Relation, params: FilterParams) -> Built:
    """Keep the rows for which a condition is true; where it is NULL the row goes."""
    condition = input.expression(params.condition, "condition")
    return input.built(input.kept(), rows=[condition], where=condition)


class SortParams(Params):
    """In which order."""

    shorthand: ClassVar[str] = "by"
    by: Order = Field(
        description="Columns: `name`, `name desc`, or mappings with column, order and nulls."
    )


@transform(
    example=Example(
        params=["amount desc", "id"],
        given=Table({"id": "int", "amount": "int"}, [(1, 5), (2, None), (3, 9), (0, 5)]),
        gives=Table({"id": "int", "amount": "int"}, [(3, 9), (0, 5), (1, 5), (2, None)]),
        in_order=True,
    )
)
def sort(input: Relation, params: SortParams) -> Built:
    """Order the rows. A table has no order: what it is good for is `limit` and files."""
    parts = ordering(input, params.by)
    columns, order = [column for column, _ in parts], [part for _, part in parts]
    return input.built(input.kept(), rows=columns, order_by=order)


class LimitParams(Params):
    """How many rows."""

    shorthand: ClassVar[str] = "rows"
    rows: int = Field(description="How many rows at most.", ge=0, le=2_147_483_632)
    order_by: Order | None = Field(None, description="The first of which order, as in `sort`.")


@transform(
    example=Example(
        params={"rows": 1, "order_by": "amount desc"},
        given=Table({"id": "int", "amount": "int"}, [(1, 5), (3, 9)]),
        gives=Table({"id": "int", "amount": "int"}, [(3, 9)]),
    )
)
def limit(input: Relation, params: LimitParams) -> Built:
    """Keep the first rows. Without `order_by` any rows, and others at a second run."""
    parts = ordering(input, params.order_by or ())
    columns = [column for column, _ in parts]
    order = [part for _, part in parts] + (ties(input, columns) if parts else [])
    return input.built(input.kept(), rows=columns, order_by=order, limit=params.rows)


class SampleParams(Params):
    """How large a part."""

    fraction: float = Field(description="The part of the rows to keep, 0 to 1.", ge=0, le=1)
    by: Names | None = Field(
        None, description="Decide by these columns; without them, by the whole row."
    )
    seed: int = Field(0, description="Another number, another sample.")


@transform(
    example=Example(
        params={"fraction": 1.0, "by": ["id"]},
        given=Table({"id": "int"}, [(1,), (2,)]),
        gives=Table({"id": "int"}, [(1,), (2,)]),
    )
)
def sample(input: Relation, params: SampleParams) -> Built:
    """Keep a part of the rows, chosen by a hash of their values.

    The same rows are chosen at every run, and rows that are equal in `by` go or stay together:
    with `by: [customer_id]` all rows of a customer.
    """
    columns = input.some(params.by) if params.by else list(input.columns)
    draw = sql.func("XXHASH64", row_text(columns), sql.literal(params.seed))
    share = sql.func("PMOD", draw, sql.literal(_PARTS))
    chosen = sql.is_less(share, sql.literal(round(params.fraction * _PARTS)))
    return input.built(input.kept(), rows=columns, where=chosen)


class DeduplicateParams(Params):
    """What makes rows the same, and which of them stays."""

    shorthand: ClassVar[str] = "keys"
    keys: Names | None = Field(
        None, description="Columns that identify a row; without them, all columns."
    )
    order_by: Order | None = Field(
        None, description="The first row of this order stays, as in `sort`."
    )


@transform(
    example=Example(
        params={"keys": ["id"], "order_by": ["updated desc"]},
        given=Table({"id": "int", "updated": "int"}, [(1, 5), (1, 7), (2, None), (2, 1)]),
        gives=Table({"id": "int", "updated": "int"}, [(1, 7), (2, 1)]),
    )
)
def deduplicate(input: Relation, params: DeduplicateParams) -> Built:
    """Keep one row of those with the same keys; NULL equals NULL.

    Between rows that `order_by` does not tell apart the other columns decide, so that every run
    keeps the same row.
    """
    if params.keys is None and params.order_by is None:
        return input.built(input.kept(), rows=input.columns, distinct=True)
    keys = input.some(params.keys or input.names)
    parts = ordering(input, params.order_by or ())
    used = [column for column, _ in parts]
    order = [part for _, part in parts] + ties(input, [*keys, *used])
    number = input.fresh_name("_row")
    counted = sql.over(
        sql.func("ROW_NUMBER"), [key.sql for key in keys], order or [sql.literal(None)]
    )
    inner = sql.select([*((c.name, c.sql) for c in input.columns), (number, counted)], input.name)
    first = sql.same(sql.column(number), sql.literal(1))
    query = sql.select(
        ((n, sql.column(n)) for n in input.names), sql.nested(inner, "_numbered"), where=first
    )
    return input.built(input.kept(), query, rows=[*keys, *used])
