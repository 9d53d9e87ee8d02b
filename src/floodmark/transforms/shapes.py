"""Shapes: pivot, unpivot, lists into rows, structs into columns."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from floodmark.transforms import faults, sql
from floodmark.transforms.columns import has_value
from floodmark.transforms.params import Name, Names, Params, Scalar
from floodmark.transforms.registry import Example, Table, transform
from floodmark.transforms.relation import Built, Column, Output, Relation, kept, ref


class PivotParams(Params):
    """From rows to columns."""

    by: Names = Field(description="Columns that identify a row of the result.")
    column: Name = Field(description="The column whose values become columns.")
    values: list[Scalar] = Field(
        description="These values; rows with others count for nothing.", min_length=1
    )
    of: Name | None = Field(None, description="The column that fills them; not needed for count.")
    function: Literal["sum", "avg", "min", "max", "count"] = Field(
        "sum", description="What several rows become."
    )
    prefix: str = Field("", description="Before the names of the new columns.")

    @model_validator(mode="after")
    def _of_what(self) -> PivotParams:
        if self.of is None and self.function != "count":
            raise ValueError(f"of is missing: {self.function} of which column")
        return self


@transform(
    example=Example(
        params={"by": ["shop"], "column": "year", "values": [2025, 2026], "of": "amount"},
        given=Table(
            {"shop": "string", "year": "int", "amount": "int"},
            [("a", 2025, 5), ("a", 2026, 7), ("a", 2026, 1), ("b", 2024, 9)],
        ),
        gives=Table(
            {"shop": "string", "2025": "bigint", "2026": "bigint"}, [("a", 5, 8), ("b", None, None)]
        ),
    )
)
def pivot(input: Relation, params: PivotParams) -> Built:
    """Make columns of the values of a column.

    The values are named, so that the columns of the result do not depend on the rows.
    """
    keys, column = input.some(params.by), input.column(params.column)
    of = input.column(params.of) if params.of else None
    outputs = [_pivoted(column, value, of, params) for value in params.values]
    group = [key.sql for key in keys]
    return input.built([*input.kept(keys), *outputs], rows=[*keys, column], group_by=group)


def _pivoted(column: Column, value: Any, of: Column | None, params: PivotParams) -> Output:
    taken = sql.case([(has_value(column, value), of.sql if of else sql.literal(1))])
    name = params.prefix + _name_of(value)
    return Output(name, sql.func(params.function.upper(), taken))


def _name_of(value: Any) -> str:
    words = {None: "null", True: "true", False: "false"}
    return words[value] if value is None or isinstance(value, bool) else str(value)


class UnpivotParams(Params):
    """From columns to rows."""

    columns: Names = Field(description="The columns that become rows; of types that go together.")
    name_into: Name = Field("name", description="The column that gets the old column's name.")
    value_into: Name = Field("value", description="The column that gets the value.")
    drop_nulls: bool = Field(default=False, description="Leave out rows whose value is NULL.")


@transform(
    example=Example(
        params={"columns": ["q1", "q2"], "name_into": "quarter", "value_into": "amount"},
        given=Table({"shop": "string", "q1": "int", "q2": "int"}, [("a", 5, None)]),
        gives=Table(
            {"shop": "string", "quarter": "string", "amount": "int"},
            [("a", "q1", 5), ("a", "q2", None)],
        ),
    )
)
def unpivot(input: Relation, params: UnpivotParams) -> Built:
    """Make one row of every column named; the other columns stay beside each."""
    columns, names = input.some(params.columns), (params.name_into, params.value_into)
    rest = input.except_for(column.name for column in columns)
    pairs = [sql.struct({"n": sql.literal(c.name), "v": c.sql}) for c in columns]
    each = sql.several(sql.func("INLINE", sql.func("ARRAY", *pairs)), names)
    query: sql.Query = sql.add_item(sql.select(((c.name, c.sql) for c in rest), input.name), each)
    if params.drop_nulls:
        query = _without_nulls(query, [*(c.name for c in rest), *names])
    kind = columns[0].type if len({column.type for column in columns}) == 1 else None
    sources = tuple(map(ref, columns))
    outputs = [
        *input.kept(rest),
        Output(names[0], sql.literal(""), "string", sources=()),
        Output(names[1], sql.literal(""), kind, columns[0].fields, sources),
    ]
    return input.built(outputs, query, rows=columns if params.drop_nulls else ())


def _without_nulls(query: sql.Query, names: list[str]) -> sql.Query:
    there = sql.not_null(sql.column(names[-1]))
    return sql.select(((n, sql.column(n)) for n in names), sql.nested(query, "_all"), where=there)


class ExplodeParams(Params):
    """Which list."""

    column: Name = Field(description="A column with lists.")
    into: Name | None = Field(
        None, description="The column that gets the element; without it, the same."
    )
    position_into: Name | None = Field(
        None, description="A column for the position of the element, from 0."
    )
    keep_empty: bool = Field(
        default=False, description="Keep a row, with NULL, where the list is empty or NULL."
    )


@transform(
    example=Example(
        params={"column": "tags", "into": "tag", "keep_empty": True},
        given=Table({"id": "int", "tags": "array<string>"}, [(1, ["x", "y"]), (2, []), (3, None)]),
        gives=Table(
            {"id": "int", "tags": "array<string>", "tag": "string"},
            [(1, ["x", "y"], "x"), (1, ["x", "y"], "y"), (2, [], None), (3, None, None)],
        ),
    )
)
def explode_list_column(input: Relation, params: ExplodeParams) -> Built:
    """One row per element of a list; rows without elements go unless `keep_empty` is said."""
    column = input.column(params.column, "array")
    into = params.into or column.name
    rest = input.except_for([into])
    kind = column.type[len("array<") : -1] if column.type else None
    element = Output(into, column.sql, kind, column.fields, (ref(column),))
    names = [params.position_into, into] if params.position_into else [into]
    call = ("POSEXPLODE" if params.position_into else "EXPLODE") + ("_OUTER" * params.keep_empty)
    each = sql.several(sql.func(call, column.sql), [name for name in names if name])
    query = sql.add_item(sql.select(((c.name, c.sql) for c in rest), input.name), each)
    where = [Output(params.position_into, column.sql, "int")] if params.position_into else []
    return input.built([*input.kept(rest), *where, element], query, rows=[column])


class UnpackParams(Params):
    """Which struct."""

    column: Name = Field(description="A column with structs.")
    fields: Names | None = Field(None, description="The fields to take; without it, all.")
    prefix: str = Field("", description="Before the names of the new columns.")
    keep: bool = Field(default=False, description="Keep the struct beside them.")


@transform(
    example=Example(
        params={"column": "address", "prefix": "address_"},
        given=Table(
            {"id": "int", "address": "struct<city:string,zip:int>"},
            [(1, ("Ulm", 89073)), (2, None)],
        ),
        gives=Table(
            {"id": "int", "address_city": "string", "address_zip": "int"},
            [(1, "Ulm", 89073), (2, None, None)],
        ),
    )
)
def unpack_struct(input: Relation, params: UnpackParams) -> Built:
    """Make columns of the fields of a struct, in its place; all NULL where it is NULL."""
    column = input.column(params.column, "struct")
    if column.type is None:
        raise faults.NotYetKnownError(f'the fields of "{column.name}"')
    inside = Relation(column.fields, name=f'the struct "{column.name}"')
    wanted = inside.some(params.fields) if params.fields else list(column.fields)
    unpacked = [_unpacked(column, field, params.prefix) for field in wanted]
    outputs: list[Output] = []
    for each in input.columns:
        outputs += [kept(each)] if each is not column or params.keep else []
        outputs += unpacked if each is column else []
    return input.built(outputs)


def _unpacked(column: Column, field: Column, prefix: str) -> Output:
    value = sql.field_of(column.sql, field.name)
    return Output(prefix + field.name, value, field.type, field.fields, (ref(column),))
