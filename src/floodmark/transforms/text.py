"""Text: cleaning, splitting, replacing."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from floodmark.transforms import sql
from floodmark.transforms.columns import TEXTS
from floodmark.transforms.params import Name, Names, Params
from floodmark.transforms.registry import Example, Table, transform
from floodmark.transforms.relation import Built, Column, Output, Relation

_CASES = {"lower": "LOWER", "upper": "UPPER", "title": "INITCAP"}


class CleanParams(Params):
    """What to clean away; done in the order of these keys."""

    columns: Names = Field(description="Columns with text.")
    trim: bool = Field(
        default=True, description="Remove white space at both ends, tabs and line ends too."
    )
    collapse_spaces: bool = Field(
        default=False, description="Make one space of white space inside."
    )
    case: Literal["lower", "upper", "title"] | None = Field(None, description="Change the case.")
    empty_to_null: bool = Field(default=False, description="Make NULL of what is empty then.")


@transform(
    example=Example(
        params={
            "columns": ["name"],
            "collapse_spaces": True,
            "case": "title",
            "empty_to_null": True,
        },
        given=Table({"name": "string"}, [("  ann \t LEE\n",), ("  ",), (None,)]),
        gives=Table({"name": "string"}, [("Ann Lee",), (None,), (None,)]),
    )
)
def clean_text(input: Relation, params: CleanParams) -> Built:
    """Trim text, and on request even out its spaces and its case."""
    columns = input.some(params.columns, *TEXTS)
    outputs = [Output(column.name, _cleaned(column, params), "string") for column in columns]
    return input.built(input.with_outputs(outputs))


def _cleaned(column: Column, params: CleanParams) -> sql.Expr:
    value = column.sql
    if params.trim:
        value = _replaced(value, r"^\s+|\s+\z", "")
    if params.collapse_spaces:
        value = _replaced(value, r"\s+", " ")
    if params.case:
        value = sql.func(_CASES[params.case], value)
    return sql.func("NULLIF", value, sql.literal("")) if params.empty_to_null else value


def _replaced(value: sql.Expr, pattern: str, replacement: str) -> sql.Expr:
    return sql.func("REGEXP_REPLACE", value, sql.literal(pattern), sql.literal(replacement))


class SplitParams(Params):
    """Where to split and which part to take."""

    column: Name = Field(description="A column with text.")
    delimiter: str = Field(description="What is between the parts; plain text.", min_length=1)
    part: int = Field(description="Which part: 1 is the first, -1 the last.")
    into: Name = Field(description="The column that gets the part.")

    @model_validator(mode="after")
    def _part_is_one(self) -> SplitParams:
        if self.part == 0:
            raise ValueError("part counts from 1, or from -1 at the end")
        return self


@transform(
    example=Example(
        params={"column": "mail", "delimiter": "@", "part": 2, "into": "domain"},
        given=Table({"mail": "string"}, [("ann@example.org",), ("nobody",), (None,)]),
        gives=Table(
            {"mail": "string", "domain": "string"},
            [("ann@example.org", "example.org"), ("nobody", ""), (None, None)],
        ),
    )
)
def split_part(input: Relation, params: SplitParams) -> Built:
    """One part of a text; '' where there are fewer parts, NULL for NULL."""
    column = input.column(params.column, *TEXTS)
    value = sql.func(
        "SPLIT_PART", column.sql, sql.literal(params.delimiter), sql.literal(params.part)
    )
    return input.built(input.with_outputs([Output(params.into, value, "string")]))


class RegexParams(Params):
    """What to look for and what to put there."""

    column: Name = Field(description="A column with text.")
    pattern: str = Field(description="A regular expression as Java takes it.", min_length=1)
    replacement: str = Field("", description="What to put there; $1 is the first group.")
    into: Name | None = Field(
        None, description="The column that gets the result; without it, the same."
    )


@transform(
    example=Example(
        params={"column": "phone", "pattern": "[^0-9+]", "into": "number"},
        given=Table({"phone": "string"}, [("+49 (30) 1-2",), (None,)]),
        gives=Table(
            {"phone": "string", "number": "string"}, [("+49 (30) 1-2", "+493012"), (None, None)]
        ),
    )
)
def regex_replace(input: Relation, params: RegexParams) -> Built:
    """Replace every match of a regular expression."""
    column = input.column(params.column, *TEXTS)
    value = _replaced(column.sql, params.pattern, params.replacement)
    return input.built(input.with_outputs([Output(params.into or column.name, value, "string")]))
