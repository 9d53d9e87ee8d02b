"""Parameters of transforms: what every model of them shares, and the kinds of values in them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from floodmark.config.text import key_name, nearest
from floodmark.errors import TransformError
from floodmark.transforms import faults, sql

_SCALARS = (bool, int, float, str, Decimal, dt.date)


class Params(BaseModel):
    """Base of parameter models: frozen, strict, unknown keys refused."""

    # Deferred: of the models of all transforms those are built that a project names.
    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, populate_by_name=True, defer_build=True
    )

    shorthand: ClassVar[str | None] = None
    """The field that a plain value stands for: `limit: 10` is `limit: {rows: 10}`."""


def _one_or_more(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _scalar(value: Any) -> Any:
    if value is not None and not isinstance(value, _SCALARS):
        raise ValueError("allowed are texts, numbers, booleans, dates, times and null")
    return value


def _sql_type(value: str) -> str:
    try:
        return sql.type_name(value)
    except sql.NotSqlError as error:
        raise ValueError(f"{error}; for example string, int, decimal(12,2), timestamp") from None


Name = Annotated[str, Field(min_length=1)]
"""The name of a column."""
Names = Annotated[list[Name], BeforeValidator(_one_or_more), Field(min_length=1)]
"""Names of columns; one may be written without the list."""
Sql = Annotated[str, Field(min_length=1)]
"""An expression in Spark's SQL over the columns of the input."""
Scalar = Annotated[Any, AfterValidator(_scalar)]
"""A value; it becomes a literal, so nothing in it is ever read as SQL."""
SqlType = Annotated[str, AfterValidator(_sql_type)]
"""A type by its name in Spark."""


class OrderPart(Params):
    """One part of an order."""

    column: Name = Field(description="The column.")
    order: Literal["asc", "desc"] = Field("asc", description="Ascending or descending.")
    nulls: Literal["first", "last"] | None = Field(
        None, description="Where NULLs go; without it, first if ascending, last if descending."
    )


Order = Annotated[list[Name | OrderPart], BeforeValidator(_one_or_more), Field(min_length=1)]
"""Columns to order by: names, `name desc`, or mappings with column, order and nulls."""


def parse(model: type[BaseModel], raw: Any) -> BaseModel:
    """The parameters as a value; raises FM-TRANSFORM-002 that names every mistake in them."""
    short = getattr(model, "shorthand", None)
    if raw is None:
        raw = {}
    elif short and not isinstance(raw, Mapping | BaseModel):
        raw = {short: raw}
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        raise _wrong(model, error) from None


def _wrong(model: type[BaseModel], error: ValidationError) -> TransformError:
    keys = keys_of(model)
    mistakes = [_mistake(dict(mistake), keys) for mistake in error.errors()]
    return faults.wrong_parameters(
        "; ".join(dict.fromkeys(mistakes)), ", ".join(keys) or "no parameters"
    )


def _mistake(mistake: Mapping[str, Any], keys: list[str]) -> str:
    # Parts that name a branch of a union say nothing to a user.
    path = tuple(p for p in mistake["loc"] if isinstance(p, int) or not _is_branch(str(p)))
    where = key_name(path) or "it"
    if mistake["type"] == "extra_forbidden":
        close = nearest(str(mistake["loc"][-1]), keys)
        return f'unknown key "{where}"' + (f"; nearest: {close}" if close else "")
    if mistake["type"] == "missing":
        return f"{where} is missing"
    text = str(mistake["msg"]).removeprefix("Value error, ")
    return f"{where}: {text[:1].lower()}{text[1:]}"


def _is_branch(part: str) -> bool:
    return part in {"str", "OrderPart"} or part.startswith(("constrained-", "function-"))


def keys_of(model: type[BaseModel]) -> list[str]:
    """The keys as users write them."""
    return [field.alias or name for name, field in model.model_fields.items()]


def described(model: type[BaseModel]) -> Iterator[tuple[str, str, str]]:
    """Each key with its default and its description, for the documentation."""
    for name, field in model.model_fields.items():
        default = "required" if field.is_required() else _shown(field.get_default())
        yield field.alias or name, default, field.description or ""


def _shown(value: Any) -> str:
    words = {None: "none", True: "true", False: "false"}
    return words[value] if value is None or isinstance(value, bool) else str(value)
