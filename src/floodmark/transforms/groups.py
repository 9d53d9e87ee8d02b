"""Groups of rows: aggregates and window functions."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field, model_validator

from floodmark.transforms import faults, sql
from floodmark.transforms.ordering import ordering
from floodmark.transforms.params import Name, Names, Order, Params, Sql
from floodmark.transforms.registry import Example, Table, transform
from floodmark.transforms.relation import Built, Output, Relation


class AggregateParams(Params):
    """By what, and what of each group."""

    by: Names | None = Field(
        None, description="Columns that make the groups; without them, one group of all rows."
    )
    columns: dict[Name, Sql] = Field(
        description="Name: expression with an aggregate function.", min_length=1
    )


@transform(
    example=Example(
        params={"by": ["shop"], "columns": {"orders": "count(*)", "total": "sum(amount)"}},
        given=Table({"shop": "string", "amount": "int"}, [("a", 5), ("a", None), (None, 1)]),
        gives=Table(
            {"shop": "string", "orders": "bigint", "total": "bigint"}, [("a", 2, 5), (None, 1, 1)]
        ),
    )
)
def aggregate(input: Relation, params: AggregateParams) -> Built:
    """One row per group; NULL is a group of its own. Without `by` there is always one row."""
    keys = input.some(params.by or ())
    outputs = [_measure(input, name, text) for name, text in params.columns.items()]
    order = [key.sql for key in keys]
    return input.built([*input.kept(keys), *outputs], rows=keys, group_by=order)


def _measure(input: Relation, name: str, text: str) -> Output:
    value = input.expression(text, f"columns.{name}")
    if not sql.may_aggregate(value):
        raise faults.fault(
            "FM-TRANSFORM-006",
            f"columns.{name} has no aggregate function",
            found=text[:200],
            allowed="an expression such as sum(amount), count(*), max(day)",
        )
    return Output(name, value)


class WindowParams(Params):
    """Which rows are seen together, in which order, and what is calculated."""

    columns: dict[Name, Sql] = Field(
        description="Name: one call such as row_number(), sum(amount) or lag(amount, 1).",
        min_length=1,
    )
    partition_by: Names | None = Field(
        None, description="Columns whose rows are seen together; without them, all rows."
    )
    order_by: Order | None = Field(
        None,
        description="The order, as in `sort`; it should tell all rows apart, or a second run may differ.",
    )
    rows: list[int | None] | None = Field(
        None,
        description="How many rows before and after are seen, for example [2, 0]; null is all. "
        "Without it: all up to the current one and its equals if there is an order, else all.",
        min_length=2,
        max_length=2,
    )

    @model_validator(mode="after")
    def _rows_need_an_order(self) -> WindowParams:
        if self.rows is not None and self.order_by is None:
            raise ValueError("rows needs order_by")
        if any(count is not None and count < 0 for count in self.rows or ()):
            raise ValueError("rows counts from 0 up")
        return self


@transform(
    example=Example(
        params={
            "columns": {"number": "row_number()", "so_far": "sum(amount)"},
            "partition_by": ["shop"],
            "order_by": ["day"],
        },
        given=Table(
            {"shop": "string", "day": "int", "amount": "int"},
            [("a", 1, 5), ("a", 2, 7), ("b", 1, None)],
        ),
        gives=Table(
            {"shop": "string", "day": "int", "amount": "int", "number": "int", "so_far": "bigint"},
            [("a", 1, 5, 1, 5), ("a", 2, 7, 2, 12), ("b", 1, None, 1, None)],
        ),
    )
)
def window_calculation(input: Relation, params: WindowParams) -> Built:
    """Numbers, ranks, neighbours and running totals: a column calculated over related rows."""
    keys = input.some(params.partition_by or ())
    parts = ordering(input, params.order_by or ())
    names = tuple(ordered.name for ordered, _ in parts)
    frame = _frame(params.rows)
    outputs = []
    for name, text in params.columns.items():
        call = input.call(text, f"columns.{name}")
        order = [part.copy() for _, part in parts]
        value = sql.over(call, [key.sql for key in keys], order, frame)
        seen = [input.column(each) for each in names]
        sources = dict.fromkeys([*input.sources(call), *input.refs([*keys, *seen])])
        outputs.append(Output(name, value, sources=tuple(sources)))
    return input.built(input.with_outputs(outputs))


def _frame(rows: Sequence[int | None] | None) -> tuple[int | None, int | None] | None:
    return (rows[0], rows[1]) if rows else None
