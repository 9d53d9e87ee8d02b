"""Columns: choosing, naming, deriving, casting, filling, mapping, hashing."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from floodmark.transforms import faults, sql
from floodmark.transforms.params import Name, Names, Params, Scalar, Sql, SqlType
from floodmark.transforms.registry import Example, Table, transform
from floodmark.transforms.relation import Built, Column, Output, Relation, kept

TEXTS = ("string", "char", "varchar")
_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
_TIMES = ("timestamp", "timestamp_ntz")


class SelectParams(Params):
    """Which columns, in which order."""

    shorthand: ClassVar[str] = "columns"
    columns: Names = Field(description="The columns to keep, in this order.")


@transform(
    example=Example(
        params=["amount", "id"],
        given=Table({"id": "int", "name": "string", "amount": "int"}, [(1, "ann", 5)]),
        gives=Table({"amount": "int", "id": "int"}, [(5, 1)]),
    )
)
def select(input: Relation, params: SelectParams) -> Built:
    """Keep some columns, in the order given."""
    return input.built(input.kept(input.column(name) for name in params.columns))


class RenameParams(Params):
    """Old and new names."""

    columns: dict[Name, Name] = Field(description="Old name: new name.", min_length=1)


@transform(
    example=Example(
        params={"columns": {"Order ID": "order_id"}},
        given=Table({"Order ID": "int", "amount": "int"}, [(1, 5)]),
        gives=Table({"order_id": "int", "amount": "int"}, [(1, 5)]),
    )
)
def rename(input: Relation, params: RenameParams) -> Built:
    """Give columns other names; they stay where they are. Two columns may swap their names."""
    new = {input.column(old).name: name for old, name in params.columns.items()}
    return input.built([kept(column, new.get(column.name)) for column in input.columns])


class DropParams(Params):
    """Which columns go."""

    shorthand: ClassVar[str] = "columns"
    columns: Names = Field(description="The columns to remove.")
    missing: Literal["fail", "ignore"] = Field(
        "fail", description="What to do about a column that is not there."
    )


@transform(
    example=Example(
        params=["secret"],
        given=Table({"id": "int", "secret": "string"}, [(1, "x")]),
        gives=Table({"id": "int"}, [(1,)]),
    )
)
def drop(input: Relation, params: DropParams) -> Built:
    """Remove columns; at least one must be left."""
    if params.missing == "fail":
        input.some(params.columns)
    return input.built(input.kept(input.except_for(params.columns)))


class DeriveParams(Params):
    """New columns."""

    columns: dict[Name, Sql] = Field(description="Name: expression.", min_length=1)


@transform(
    example=Example(
        params={"columns": {"vat": "amount * 0.2", "amount": "amount + 1"}},
        given=Table({"id": "int", "amount": "decimal(6,1)"}, [(1, Decimal("5.0")), (2, None)]),
        gives=Table(
            {"id": "int", "amount": "decimal(7,1)", "vat": "decimal(8,2)"},
            [(1, Decimal("6.0"), Decimal("1.00")), (2, None, None)],
        ),
    )
)
def derive_columns(input: Relation, params: DeriveParams) -> Built:
    """Add columns, or replace them in their place, by expressions in Spark's SQL.

    Every expression sees the columns as they come in: one that builds on another needs a step of
    its own.
    """
    outputs = [
        Output(name, input.expression(text, f"columns.{name}"))
        for name, text in params.columns.items()
    ]
    return input.built(input.with_outputs(outputs))


class CastParams(Params):
    """New types."""

    columns: dict[Name, SqlType] = Field(description="Column: type.", min_length=1)
    on_error: Literal["fail", "null"] = Field(
        "fail", description="What becomes of a value that does not fit: the run fails, or NULL."
    )


@transform(
    example=Example(
        params={"columns": {"amount": "decimal(12,2)", "day": "date"}, "on_error": "null"},
        given=Table({"amount": "string", "day": "string"}, [("5.1", "2026-01-31"), ("?", None)]),
        gives=Table(
            {"amount": "decimal(12,2)", "day": "date"},
            [(Decimal("5.10"), dt.date(2026, 1, 31)), (None, None)],
        ),
    )
)
def cast_columns(input: Relation, params: CastParams) -> Built:
    """Change the types of columns."""
    outputs = []
    for name, kind in params.columns.items():
        column = input.column(name)
        value = sql.cast_to(column.sql, kind, on_error=params.on_error)
        outputs.append(Output(column.name, value, kind))
    return input.built(input.with_outputs(outputs))


class FillParams(Params):
    """What to put in the place of NULL."""

    columns: dict[Name, Scalar] = Field(description="Column: value.", min_length=1)


@transform(
    example=Example(
        params={"columns": {"amount": 0, "note": "none"}},
        given=Table({"amount": "int", "note": "string"}, [(None, "x"), (5, None)]),
        gives=Table({"amount": "int", "note": "string"}, [(0, "x"), (5, "none")]),
    )
)
def fill_nulls(input: Relation, params: FillParams) -> Built:
    """Put a value where a column is NULL; the column keeps its type. NaN and '' are not NULL."""
    outputs = [_filled(input.column(name), value) for name, value in params.columns.items()]
    return input.built(input.with_outputs(outputs))


def _filled(column: Column, value: Any) -> Output:
    if column.kind and not _fits(value, column.kind):
        raise faults.fault(
            "FM-TRANSFORM-004",
            f'column "{column.name}" cannot hold the value that should fill it',
            found=f"{value!r} for the type {column.type}",
            column=column.name,
        )
    new = sql.literal(value)
    new = sql.cast_to(new, column.type) if column.type else new
    return Output(column.name, sql.func("COALESCE", column.sql, new), column.type)


def _fits(value: Any, kind: str) -> bool:
    """Whether a value can stand in a column of this kind without being misread.

    Dates and times may be text, as they are in a project's file.
    """
    if isinstance(value, str) and kind in ("date", *_TIMES):
        return _is_moment(value, kind)
    kinds: tuple[tuple[type | tuple[type, ...], Sequence[str]], ...] = (
        (bool, ("boolean",)),
        (int, _NUMBERS),
        ((float, Decimal), ("float", "double", "decimal")),
        (str, TEXTS),
        (dt.datetime, _TIMES),
        (dt.date, ("date", *_TIMES)),
    )
    return next((kind in allowed for type_, allowed in kinds if isinstance(value, type_)), False)


def _is_moment(text: str, kind: str) -> bool:
    read = dt.date.fromisoformat if kind == "date" else dt.datetime.fromisoformat
    try:
        return bool(read(text))
    except ValueError:
        return False


class CaseBranch(Params):
    """One branch: a condition and what it gives."""

    when: Sql = Field(description="A condition.")
    then: Scalar = Field(None, description="The value if it is true.")
    then_sql: Sql | None = Field(None, description="The same as an expression.")


class CaseParams(Params):
    """Conditions in order."""

    into: Name = Field(description="The column that gets the result.")
    cases: list[CaseBranch] = Field(
        description="Mappings with `when` and `then` (a value) or `then_sql`.", min_length=1
    )
    otherwise: Scalar = Field(None, description="The value if no condition is true.")
    otherwise_sql: Sql | None = Field(None, description="The same as an expression.")


@transform(
    example=Example(
        params={
            "into": "size",
            "cases": [
                {"when": "amount >= 100", "then": "large"},
                {"when": "amount >= 0", "then": "small"},
            ],
            "otherwise": "unknown",
        },
        given=Table({"amount": "int"}, [(150,), (5,), (-1,), (None,)]),
        gives=Table(
            {"amount": "int", "size": "string"},
            [(150, "large"), (5, "small"), (-1, "unknown"), (None, "unknown")],
        ),
    )
)
def case_when(input: Relation, params: CaseParams) -> Built:
    """The value of the first condition that is true; NULL is not true."""
    branches = []
    for number, case in enumerate(params.cases):
        key = f"cases[{number}]"
        then = _value(input, case.then, case.then_sql, f"{key}.then_sql")
        branches.append((input.expression(case.when, f"{key}.when"), then))
    otherwise = _value(input, params.otherwise, params.otherwise_sql, "otherwise_sql")
    output = Output(params.into, sql.case(branches, otherwise))
    return input.built(input.with_outputs([output]))


def _value(input: Relation, value: Any, text: str | None, key: str) -> sql.Expr:
    return sql.literal(value) if text is None else input.expression(text, key)


class MappingParams(Params):
    """A column and what its values become."""

    column: Name = Field(description="The column to look up.")
    mapping: dict[Scalar, Scalar] = Field(
        description="Old value: new value. A key that is text is compared with the value as text.",
        min_length=1,
    )
    into: Name | None = Field(
        None, description="The column that gets the result; without it, the same."
    )
    default: Scalar = Field(None, description="For values that are not in the mapping.")
    keep_unmapped: bool = Field(default=False, description="Keep such values as they are instead.")

    @model_validator(mode="after")
    def _one_of_two(self) -> MappingParams:
        if self.keep_unmapped and self.default is not None:
            raise ValueError("default and keep_unmapped exclude one another")
        return self


@transform(
    example=Example(
        params={"column": "code", "mapping": {"de": "Germany", "fr": "France"}, "into": "country"},
        given=Table({"code": "string"}, [("de",), ("xx",), (None,)]),
        gives=Table(
            {"code": "string", "country": "string"}, [("de", "Germany"), ("xx", None), (None, None)]
        ),
    )
)
def dict_based_mapping(input: Relation, params: MappingParams) -> Built:
    """Replace values by a mapping; a key `null` in it stands for NULL."""
    column = input.column(params.column)
    branches = [(has_value(column, k), sql.literal(v)) for k, v in params.mapping.items()]
    otherwise = _unmapped(column, params) if params.keep_unmapped else sql.literal(params.default)
    output = Output(params.into or column.name, sql.case(branches, otherwise))
    return input.built(input.with_outputs([output]))


def has_value(column: Column, key: Any) -> sql.Expr:
    """Whether a column has a value, NULL too; compared as text where one of the two is text."""
    value, is_text = column.sql, column.kind in TEXTS
    if isinstance(key, str) and not is_text:
        value = sql.cast_to(value, "string")
    elif is_text and key is not None and not isinstance(key, str):
        key = str(key).lower() if isinstance(key, bool) else str(key)
    return sql.same(value, sql.literal(key), nulls_match=True)


def _unmapped(column: Column, params: MappingParams) -> sql.Expr:
    """The value itself; as text if the mapping gives text."""
    gives_text = any(isinstance(value, str) for value in params.mapping.values())
    return (
        sql.cast_to(column.sql, "string") if gives_text and column.kind not in TEXTS else column.sql
    )


class HashParams(Params):
    """What to hash and how."""

    columns: Names = Field(description="The columns to hash together, in this order.")
    into: Name = Field(description="The column that gets the hash.")
    algorithm: Literal["sha256", "sha512", "md5", "xxhash64"] = Field(
        "sha256", description="xxhash64 gives a bigint, the others hexadecimal text."
    )


@transform(
    example=Example(
        params={"columns": ["name", "city"], "into": "key", "algorithm": "md5"},
        given=Table({"name": "string", "city": "string"}, [("ann", "x"), ("ann", None)]),
        gives=Table(
            {"name": "string", "city": "string", "key": "string"},
            [
                ("ann", "x", "9d03cd140a7112435eef38d9798b9d61"),
                ("ann", None, "0d91a01898ba4d94a40d18a3b7efeaa7"),
            ],
        ),
    )
)
def hash_columns(input: Relation, params: HashParams) -> Built:
    """One hash of several columns.

    What is hashed is, for each column, the length of its text, a colon and the text, or `-` for
    NULL: so NULL differs from the empty text, and ("a", "bc") from ("ab", "c").
    """
    text = row_text(input.some(params.columns))
    calls = {
        "sha256": lambda: sql.func("SHA2", text, sql.literal(256)),
        "sha512": lambda: sql.func("SHA2", text, sql.literal(512)),
        "md5": lambda: sql.func("MD5", text),
        "xxhash64": lambda: sql.func("XXHASH64", text),
    }
    kind = "bigint" if params.algorithm == "xxhash64" else "string"
    output = Output(params.into, calls[params.algorithm](), kind)
    return input.built(input.with_outputs([output]))


def row_text(columns: Sequence[Column]) -> sql.Expr:
    """One text for the values of a row that no other values have."""
    return (
        sql.func("CONCAT", *map(_part_text, columns))
        if len(columns) > 1
        else _part_text(columns[0])
    )


def _part_text(column: Column) -> sql.Expr:
    is_binary = column.kind == "binary"
    text = sql.func("BASE64", column.sql) if is_binary else sql.cast_to(column.sql, "string")
    length = sql.cast_to(sql.func("LENGTH", text), "string")
    part = sql.func("CONCAT", length, sql.literal(":"), text.copy())
    return sql.func("COALESCE", part, sql.literal("-"))
