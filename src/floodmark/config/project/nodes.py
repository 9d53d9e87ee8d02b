"""Nodes: read, transform, expect, write."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import (
    Field,
    GetJsonSchemaHandler,
    WithJsonSchema,
    model_serializer,
    model_validator,
)

from floodmark.config.project.reads import ReadSettings
from floodmark.config.project.writes import WriteSettings
from floodmark.config.text.fields import (
    FUNCTION_RULE,
    Column,
    Columns,
    FunctionName,
    Name,
    Names,
    Settings,
    Sql,
    Text,
    one_of,
    refused,
)
from floodmark.config.text.places import choices

if TYPE_CHECKING:
    from pydantic_core import CoreSchema

TRANSFORMS = (
    "filter_rows", "derive_columns", "cast_columns", "clean_text", "split_part", "case_when",
    "extract_date_parts", "date_add", "date_trunc", "date_diff", "convert_timezone", "join",
    "union", "pivot", "unpivot", "explode_list_column", "deduplicate", "window_calculation",
    "dict_based_mapping", "regex_replace", "validate_and_flag", "unpack_struct", "hash_columns",
    "select", "rename", "drop", "fill_nulls", "sort", "limit", "sample", "aggregate",
)  # fmt: skip
"""The named transforms that come with floodmark."""
STEP_RULE = "one step: the name of a transform with its parameters, sql or python"
CHECKS = ("not_null", "unique", "accepted_values", "range", "regex", "row_count", "check")

_STEP_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")


class PythonStep(Settings):
    """A function of the project over frames."""

    function: FunctionName = Field(description="module.path:name of the function.")
    params: dict[str, Any] = Field(default_factory=dict, description="Handed to the function.")


class Step(Settings):
    """One step of a transform: a named transform with its parameters, SQL, or Python."""

    name: str
    params: Any = None
    sql: Sql | None = None
    python: PythonStep | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_mapping(cls, value: Any) -> Any:
        """From `{name: parameters}` as it is written in a file."""
        if isinstance(value, Step):
            return {name: getattr(value, name) for name in cls.model_fields}
        if isinstance(value, str):
            value = {value: {}}
        if not isinstance(value, dict) or len(value) != 1:
            raise refused("not a step", STEP_RULE)
        ((name, params),) = value.items()
        return {"name": name, **_step(str(name), params)}

    @model_serializer
    def _as_mapping(self) -> dict[str, Any]:
        """As it is written in a file."""
        if self.python is not None:
            return {"python": self.python.model_dump(exclude_defaults=True)}
        return {self.name: self.sql if self.sql is not None else self.params}

    @classmethod
    def __get_pydantic_json_schema__(
        cls, _: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """As it is written in a file: the name of the step is the key."""
        python = handler(PythonStep.__pydantic_core_schema__)
        known = {name: {"description": "A named transform."} for name in TRANSFORMS}
        steps = {
            **known,
            "sql": {"type": "string", "description": "A statement over input."},
            "python": {"anyOf": [{"type": "string"}, python], "description": "module.path:name"},
        }
        mapping = {"type": "object", "properties": steps, "minProperties": 1, "maxProperties": 1}
        return {"anyOf": [{"type": "string"}, mapping], "description": STEP_RULE}

    @property
    def inputs(self) -> tuple[str, ...]:
        """What a join or union takes beside the node's own rows; nodes among them come first."""
        other = self.params.get("with") if isinstance(self.params, dict) else None
        names = [other] if isinstance(other, str) else other
        return tuple(n for n in names if isinstance(n, str)) if isinstance(names, list) else ()


def _step(name: str, params: Any) -> dict[str, Any]:
    if name == "sql":
        if not isinstance(params, str):
            raise refused("not SQL", "a statement over input", at=(name,))
        return {"sql": params}
    if name == "python":
        return {"python": _python(params)}
    if not _STEP_NAME.fullmatch(name):
        raise refused("not a step", STEP_RULE)
    return {"params": {} if params is None else params}


def _python(params: Any) -> Any:
    if isinstance(params, str):
        return {"function": params}
    if not isinstance(params, dict | PythonStep):
        raise refused("not a function", FUNCTION_RULE, at=("python",))
    return params


class ColumnSettings(Settings):
    """What is said about a column of a node."""

    sensitive: bool = Field(
        default=False,
        description="Its values are left out of errors, examples of ties and what is journaled of"
        " them. Not covered yet: cursor values, folders of partitions, rows set aside, landed rows"
        " and answers below the control store, Spark's own log; `validate`, `plan` and `run` say so.",
    )
    description: Text | None = Field(default=None, description="For people.")


class AcceptedValues(Settings):
    """Values that a column may have."""

    column: Column = Field(description="The column.")
    values: Annotated[list[Any], Field(min_length=1)] = Field(description="What is accepted.")


_BOUND = {"anyOf": [{"type": "number"}, {"type": "string"}]}
Bound = Annotated[Any, WithJsonSchema(_BOUND)]


class Range(Settings):
    """Bounds of a column, both included."""

    column: Column = Field(description="The column.")
    min: Bound = Field(default=None, description="The smallest value.")
    max: Bound = Field(default=None, description="The largest value.")


class Pattern(Settings):
    """A regular expression that a column's text matches."""

    column: Column = Field(description="The column.")
    pattern: Text = Field(description="As Java and Python both take it.")


class RowCount(Settings):
    """How many rows there may be."""

    min: int | None = Field(default=None, description="At least.")
    max: int | None = Field(default=None, description="At most.")


class Expectation(Settings):
    """One check of a node's rows before they are written."""

    not_null: Columns | None = Field(default=None, description="Columns without NULL.")
    unique: Columns | None = Field(default=None, description="Columns that identify a row.")
    accepted_values: AcceptedValues | None = Field(default=None, description="Values of a column.")
    range: Range | None = Field(default=None, description="Bounds of a column.")
    regex: Pattern | None = Field(default=None, description="A pattern for a column.")
    row_count: RowCount | None = Field(default=None, description="How many rows.")
    check: Sql | None = Field(default=None, description="A condition that holds for every row.")
    action: Annotated[str, one_of("warn", "drop", "quarantine", "fail")] = Field(
        default="fail", description="What becomes of rows that do not pass."
    )
    name: Name | None = Field(default=None, description="For reports; else the check itself.")

    @property
    def kind(self) -> str:
        """Which check it is."""
        return next(kind for kind in CHECKS if getattr(self, kind) is not None)

    @model_validator(mode="before")
    @classmethod
    def _one_check(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        found = [key for key in value if key in CHECKS]
        unknown = [key for key in value if key not in cls.model_fields]
        if len(found) != 1 and not unknown:
            raise refused("not one check", f"exactly one of {choices(list(CHECKS))}")
        return value


class NodeSettings(Settings):
    """One step of a pipeline's graph: what it reads, does, expects and writes."""

    name: Name = Field(description="Unique in the pipeline.")
    description: Text | None = Field(default=None, description="For people.")
    tags: Names = Field(default_factory=list, description="For selectors: `tag:x`.")
    depends_on: Names = Field(
        default_factory=list,
        description="Nodes of the pipeline that come first; the rows of the first are `input`.",
    )
    read: ReadSettings | None = Field(default=None, description="Where the rows come from.")
    transform: list[Step] = Field(default_factory=list, description="Steps, one after the other.")
    columns: dict[str, ColumnSettings] = Field(
        default_factory=dict, description="What is said about columns."
    )
    expect: list[Expectation] = Field(
        default_factory=list, description="Checks before anything is written."
    )
    write: WriteSettings | None = Field(default=None, description="Where the rows go.")

    def dependencies(self, known: frozenset[str]) -> Iterator[tuple[str, tuple[str | int, ...]]]:
        """The nodes that come first, each with the path of the key that says so.

        `depends_on` and `read.node` name nodes; `with` of a join or union may also name a table, so
        it counts only where a node has that name.
        """
        for position, name in enumerate(self.depends_on):
            yield name, ("depends_on", position)
        if self.read is not None and self.read.node is not None:
            yield self.read.node, ("read", "node")
        for position, step in enumerate(self.transform):
            for name in step.inputs if step.name in ("join", "union") else ():
                if name in known:
                    yield name, ("transform", position, step.name, "with")
