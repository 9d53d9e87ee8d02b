"""Checks that mark rows and let them pass."""

from __future__ import annotations

from pydantic import Field

from floodmark.transforms import sql
from floodmark.transforms.params import Name, Params, Sql
from floodmark.transforms.registry import Example, Table, transform
from floodmark.transforms.relation import Built, Output, Relation


class FlagParams(Params):
    """Rules and where to write what they find."""

    rules: dict[Name, Sql] = Field(description="Name: condition that should be true.", min_length=1)
    into: Name = Field("is_valid", description="A boolean: all rules hold.")
    failed_into: Name = Field("failed_rules", description="The names of the rules that do not.")


@transform(
    example=Example(
        params={"rules": {"positive": "amount > 0", "named": "name IS NOT NULL"}},
        given=Table({"name": "string", "amount": "int"}, [("ann", 5), (None, None)]),
        gives=Table(
            {
                "name": "string",
                "amount": "int",
                "is_valid": "boolean",
                "failed_rules": "array<string>",
            },
            [("ann", 5, True, []), (None, None, False, ["positive", "named"])],
        ),
    )
)
def validate_and_flag(input: Relation, params: FlagParams) -> Built:
    """Check every row and write down which rules it breaks; no row is lost.

    A condition that is NULL counts as broken. To stop a run or set rows aside, use `expect`.
    """
    rules = {name: input.expression(text, f"rules.{name}") for name, text in params.rules.items()}
    valid = sql.all_of(
        sql.func("COALESCE", rule, sql.literal(value=False)) for rule in rules.values()
    )
    broken = [
        sql.case([(sql.is_not_true(rule.copy()), sql.literal(name))])
        for name, rule in rules.items()
    ]
    failed = sql.func("ARRAY_COMPACT", sql.func("ARRAY", *broken))
    outputs = [
        Output(params.into, valid, "boolean"),
        Output(params.failed_into, failed, "array<string>"),
    ]
    return input.built(input.with_outputs(outputs))
