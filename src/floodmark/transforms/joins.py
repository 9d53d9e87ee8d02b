"""Several frames: join and union."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from floodmark.errors import TransformError
from floodmark.model import CHANGE_COLUMNS
from floodmark.transforms import faults, sql
from floodmark.transforms.params import Name, Names, Params
from floodmark.transforms.registry import Example, Table, transform
from floodmark.transforms.relation import Built, Column, Output, Relation, ref

_LEFT, _RIGHT = "_left", "_right"
_FAMILIES: dict[str, str | None] = {
    **dict.fromkeys(
        ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal"), "number"
    ),
    **dict.fromkeys(("string", "char", "varchar"), "text"),
    **dict.fromkeys(("date", "timestamp", "timestamp_ntz"), "time"),
    "void": None,
}
"""Kinds that compare with one another without a cast that can fail."""

Pair = tuple[Column, Column]


def _pairs(value: object) -> object:
    names = [value] if isinstance(value, str) else value
    return {name: name for name in names} if isinstance(names, list) else names


class JoinParams(Params):
    """With what, on what, how."""

    other: Name = Field(alias="with", description="The node to join with.")
    on: Annotated[dict[Name, Name], BeforeValidator(_pairs), Field(min_length=1)] = Field(
        description="Columns that are equal: a list of names, or left name: right name."
    )
    how: Literal["inner", "left", "right", "full", "semi", "anti"] = Field(
        "inner",
        description="semi keeps rows that have a partner, anti those that have none.",
    )
    columns: Names | None = Field(
        None, description="The columns to take from the other node; without it, all."
    )
    suffix: str | None = Field(
        None, description="Added to columns of the other node whose name is taken."
    )
    nulls_match: bool = Field(default=False, description="Whether NULL equals NULL.")

    @model_validator(mode="before")
    @classmethod
    def _on_is_a_word(cls, value: Any) -> Any:
        """YAML 1.1 reads the key `on` as true."""
        if isinstance(value, dict) and True in value and "on" not in value:
            return {"on" if key is True else key: each for key, each in value.items()}
        return value


@transform(
    example=Example(
        params={"with": "customers", "on": {"customer": "id"}, "how": "left", "columns": ["name"]},
        given=Table({"order": "int", "customer": "int"}, [(1, 7), (2, 8), (3, None)]),
        others={"customers": Table({"id": "int", "name": "string"}, [(7, "ann"), (9, "bob")])},
        gives=Table(
            {"order": "int", "customer": "int", "name": "string"},
            [(1, 7, "ann"), (2, 8, None), (3, None, None)],
        ),
    )
)
def join(input: Relation, params: JoinParams) -> Built:
    """Put rows of another node beside those with the same keys.

    The result has all columns of the input, then those of the other node; keys that have the same
    name on both sides are there once. Another name that both have is refused unless `suffix` is
    given.
    """
    other = input.other(params.other)
    pairs = [(input.column(left), other.column(right)) for left, right in params.on.items()]
    for pair in pairs:
        _require_alike(*pair)
    outputs = list(_outputs(input, other, pairs, params))
    query = sql.select(((o.name, o.value) for o in outputs), sql.table(input.name, _LEFT))
    on = sql.all_of(
        sql.same(_at(left, _LEFT), _at(right, _RIGHT), nulls_match=params.nulls_match)
        for left, right in pairs
    )
    query = sql.joined(query, sql.table(other.name, _RIGHT), on, params.how)
    return input.built(outputs, query, rows=[column for pair in pairs for column in pair])


def _outputs(
    input: Relation, other: Relation, pairs: Sequence[Pair], params: JoinParams
) -> Iterator[Output]:
    merged = {
        left.name: right
        for left, right in pairs
        if input.has(right.name) and input.column(right.name) is left
    }
    for column in input.columns:
        yield _left_output(column, merged.get(column.name), params.how)
    if params.how in ("semi", "anti"):
        return
    gone = {right.name for right in merged.values()}
    wanted = other.some(params.columns) if params.columns else list(other.columns)
    for column in wanted:
        if column.name not in gone:
            yield _right_output(input, column, params)


def _left_output(column: Column, partner: Column | None, how: str) -> Output:
    """A column of the left; a key that is there once has the value of the side that has a row."""
    mine = _at(column, _LEFT)
    if partner is None or how not in ("right", "full"):
        return Output(column.name, mine, column.type, column.fields, (ref(column),))
    theirs = _at(partner, _RIGHT)
    value = theirs if how == "right" else sql.func("COALESCE", mine, theirs)
    return Output(column.name, value, _common(column, partner), (), (ref(column), ref(partner)))


def _right_output(input: Relation, column: Column, params: JoinParams) -> Output:
    name = column.name
    if input.has(name):
        if params.suffix is None:
            raise _taken(name, params.other)
        name += params.suffix
    return Output(name, _at(column, _RIGHT), column.type, column.fields, (ref(column),))


def _at(column: Column, side: str) -> sql.Expr:
    return sql.column(column.name, side)


def _common(left: Column, right: Column) -> str | None:
    return left.type if left.type == right.type else None


def _require_alike(left: Column, right: Column) -> None:
    """Refuse what Spark would cast in silence, and fail at a row that does not fit."""
    kinds = [_FAMILIES.get(column.kind or "void", column.kind) for column in (left, right)]
    if None not in kinds and kinds[0] != kinds[1]:
        raise faults.fault(
            "FM-TRANSFORM-004",
            f'"{left.name}" of {left.frame} and "{right.name}" of {right.frame} have types that '
            "do not go together",
            found=f"{left.type} and {right.type}",
            column=left.name,
            next="cast one of them in a step before this one (cast_columns)",
        )


def _taken(name: str, other: str) -> TransformError:
    return faults.fault(
        "FM-TRANSFORM-005",
        f'both input and {other} have a column "{name}"',
        column=name,
        next='give suffix, name the columns you want in "columns", or join on it',
    )


class UnionParams(Params):
    """With what."""

    others: Names = Field(alias="with", description="The nodes whose rows to add.")
    missing: Literal["fail", "null"] = Field(
        "fail", description="What to do about columns that not all have: refuse, or NULL."
    )
    distinct: bool = Field(default=False, description="Whether equal rows become one.")


@transform(
    example=Example(
        params={"with": ["web"], "missing": "null"},
        given=Table({"id": "int", "shop": "string"}, [(1, "x")]),
        others={"web": Table({"url": "string", "id": "int"}, [("/a", 2)])},
        gives=Table(
            {"id": "int", "shop": "string", "url": "string"}, [(1, "x", None), (2, None, "/a")]
        ),
    )
)
def union(input: Relation, params: UnionParams) -> Built:
    """Put the rows of several nodes below one another, columns by name.

    Change columns stay, so that a write below knows the deletes of each. Where a step has dropped
    those of the node, only the rows that are left are taken of the others.
    """
    frames = [input, *(input.other(name) for name in params.others)]
    names = list(_all_names(frames, params.missing))
    outputs = [_stacked(frames, name) for name in names]
    queries = [
        sql.select(_aligned(frame, names), frame.name, where=_kept(input, frame))
        for frame in frames
    ]
    return input.built(outputs, sql.stacked(queries, distinct=params.distinct))


def _kept(input: Relation, frame: Relation) -> sql.Expr | None:
    """Which rows to take where the result cannot say of a row that it is a delete."""
    kind = CHANGE_COLUMNS[0]
    if frame is input or input.has(kind) or not frame.has(kind):
        return None
    return sql.expression(f"{kind} IN ('insert', 'update_postimage')")


def _all_names(frames: Sequence[Relation], missing: str) -> Iterator[str]:
    first = frames[0]
    yield from first.names
    seen = (
        {name.lower() for name in first.names} if not first.is_case_sensitive else set(first.names)
    )
    for frame in frames[1:]:
        extra = [
            n
            for n in frame.names
            if (n if first.is_case_sensitive else n.lower()) not in seen
            and n not in CHANGE_COLUMNS  # a step before this one has dropped those of the node
        ]
        lacking = [name for name in first.names if not frame.has(name)]
        if missing == "fail" and (extra or lacking):
            raise _uneven(first.name, frame.name, lacking, extra)
        seen.update(n if first.is_case_sensitive else n.lower() for n in extra)
        yield from extra


def _uneven(first: str, other: str, lacking: list[str], extra: list[str]) -> TransformError:
    parts = [f"only in {first}: {faults.listed(lacking)}"] if lacking else []
    parts += [f"only in {other}: {faults.listed(extra)}"] if extra else []
    return faults.fault(
        "FM-TRANSFORM-003",
        f"{first} and {other} have different columns",
        found="; ".join(parts),
        column=(lacking or extra)[0],
        next='say missing: "null", or bring them into line in steps before this one',
    )


def _typed(frames: Sequence[Relation], name: str) -> list[Column]:
    return [frame.column(name) for frame in frames if frame.has(name)]


def _stacked(frames: Sequence[Relation], name: str) -> Output:
    found = _typed(frames, name)
    for column in found[1:]:
        _require_alike(found[0], column)
    kind = found[0].type if len({column.type for column in found}) == 1 else None
    return Output(name, found[0].sql, kind, found[0].fields, tuple(map(ref, found)))


def _aligned(frame: Relation, names: Sequence[str]) -> Iterator[tuple[str, sql.Expr]]:
    for name in names:
        if frame.has(name):
            yield name, frame.column(name).sql
        else:
            yield name, sql.literal(None)
