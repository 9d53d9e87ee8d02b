"""The kinds of values that settings have: names, paths, durations, choices, lists of columns."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    WithJsonSchema,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from floodmark.config.text.places import KeyPath, choices
from floodmark.model import durations
from floodmark.model.names import PIPELINE_NAME, PIPELINE_NAME_RULE

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_TABLE = re.compile(r"[A-Za-z_][\w$]{0,127}(\.[A-Za-z_][\w$]{0,127}){0,2}")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+):/")
_STORES = ("file", "s3", "s3a", "abfs", "abfss", "az", "azure", "adl", "gs", "gcs")
"""Where tables can be: the schemes that delta-rs and Spark both know."""
_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")

FUNCTION_RULE = "module.path:name, for example jobs.daily:process"


def refused(
    title: str, allowed: str, *, code: str = "FM-CONFIG-004", at: KeyPath = ()
) -> PydanticCustomError:
    """The error of a validator; `at` leads from the value to the part that is wrong."""
    context = {"title": title, "allowed": allowed, "code": code, "at": at}
    return PydanticCustomError("refused", "{title}", context)


class Settings(BaseModel):
    """What every model is: no unknown keys, no guessing at kinds, no changes afterwards."""

    # Strict: a number where text belongs is a mistake to be shown, not to be guessed at. Deferred:
    # built once, inside the project, instead of once for every model it is part of.
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


@dataclass(frozen=True)
class OneOf:
    """One of some words; older spellings of a word are taken for it."""

    words: tuple[str, ...]
    spellings: tuple[tuple[str, str], ...] = ()

    def __get_pydantic_core_schema__(self, _: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._checked, handler(str))

    def __get_pydantic_json_schema__(
        self, _: CoreSchema, __: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"type": "string", "enum": [*self.words, *dict(self.spellings)]}

    def _checked(self, value: object) -> object:
        word = dict(self.spellings).get(value, value) if isinstance(value, str) else value
        if word not in self.words:
            raise refused(
                f"not one of the choices: {str(value)[:60]}", choices(list(self.words), str(value))
            )
        return word


def one_of(*words: str, **spellings: str) -> OneOf:
    """The words of a choice; `old="word"` accepts an older spelling."""
    return OneOf(words, tuple(spellings.items()))


def _name(value: str) -> str:
    if not PIPELINE_NAME.fullmatch(value):
        raise refused("not a name", PIPELINE_NAME_RULE)
    return value


def _identifier(value: str) -> str:
    if not _IDENTIFIER.fullmatch(value):
        raise refused("not a schema name", "letters, digits and _, not beginning with a digit")
    return value


def _table_name(value: str) -> str:
    if not _TABLE.fullmatch(value):
        raise refused("not a table name", "table, schema.table or catalog.schema.table")
    return value


def _path(value: str) -> str:
    if not value.strip():
        raise refused("the path is empty", "a path or URI")
    if any(ord(character) < 32 or ord(character) == 127 for character in value):
        raise refused("the path has a control character", "a path or URI without them")
    scheme = _SCHEME.match(value)
    if scheme and scheme[1].lower() not in _STORES:
        known = choices(list(_STORES), scheme[1])
        raise refused(f'unknown scheme "{scheme[1]}"', f"a path, or a URI with one of {known}")
    return value


def _function(value: str) -> str:
    if not _FUNCTION.fullmatch(value):
        raise refused("not a function", FUNCTION_RULE)
    return value


def _module(value: str) -> str:
    if not _MODULE.fullmatch(value):
        raise refused("not a module", "module.path, for example plugins.weather")
    return value


def _text(value: str) -> str:
    if not value.strip():
        raise refused("the text is empty", "text")
    return value


def _sql(value: str) -> str:
    if not value.strip():
        raise refused("the SQL is empty", "a statement")
    if "\0" in value:
        raise refused("the SQL has a NUL character", "text without it")
    return value


def duration(shortest: str, longest: str) -> BeforeValidator:
    """Durations within these bounds, kept as they are written."""

    def check(value: object) -> object:
        try:
            seconds = durations.seconds_of(value if isinstance(value, str) else "")
        except ValueError:
            raise refused("not a duration", durations.ALLOWED) from None
        if not durations.seconds_of(shortest) <= seconds <= durations.seconds_of(longest):
            raise refused("the duration is out of range", f"{shortest} to {longest}")
        return value

    return BeforeValidator(check)


def number(lowest: int, highest: int) -> AfterValidator:
    """Whole numbers within these bounds."""

    def check(value: int) -> int:
        if not lowest <= value <= highest:
            raise refused("the number is out of range", f"{lowest} to {highest}")
        return value

    return AfterValidator(check)


def _port(value: object) -> object:
    # A port that comes from ${env:...} is text.
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value


def _span(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    try:
        durations.seconds_of(value if isinstance(value, str) else "")
    except ValueError:
        allowed = f"{durations.ALLOWED}; or a whole number for a cursor that counts"
        raise refused("not a span", allowed) from None
    return value


def _baseline(value: object) -> object:
    is_version = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    if not is_version and value != "latest":
        raise refused("not a baseline", "a version from 0 up, or latest")
    return value


def _time_baseline(value: object) -> object:
    """A version, `latest`, or text that may be a time; whether it fits is seen with its column."""
    return value if isinstance(value, str) and value[:1].isdigit() else _baseline(value)


def _mark(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise refused("not a value of a cursor", "a number or text, such as 2026-01-31")
    return value


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _columns(value: list[str]) -> list[str]:
    if not value:
        raise refused("no column is named", "at least one column")
    for position, column in enumerate(value):
        if not column.strip() or "\0" in column:
            raise refused("not a column", "the name of a column", at=(position,))
        if column in value[:position]:
            title = f"column {column} is there twice"
            raise refused(title, "each column once", code="FM-CONFIG-005", at=(position,))
    return value


def _column(value: str) -> str:
    if not value.strip() or "\0" in value:
        raise refused("not a column", "the name of a column")
    return value


_ONE_OR_MORE = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
_NUMBER_OR_TEXT = {"anyOf": [{"type": "number"}, {"type": "string"}]}

Name = Annotated[str, AfterValidator(_name)]
Identifier = Annotated[str, AfterValidator(_identifier)]
TableName = Annotated[str, AfterValidator(_table_name)]
TablePath = Annotated[str, AfterValidator(_path)]
FunctionName = Annotated[str, AfterValidator(_function)]
ModuleName = Annotated[str, AfterValidator(_module)]
Text = Annotated[str, AfterValidator(_text)]
Sql = Annotated[str, AfterValidator(_sql)]
Column = Annotated[str, AfterValidator(_column)]
Columns = Annotated[
    list[str], BeforeValidator(_as_list), AfterValidator(_columns), WithJsonSchema(_ONE_OR_MORE)
]
Texts = Annotated[
    list[Text], BeforeValidator(_as_list), Field(min_length=1), WithJsonSchema(_ONE_OR_MORE)
]
Names = Annotated[list[Name], BeforeValidator(_as_list), WithJsonSchema(_ONE_OR_MORE)]
Port = Annotated[
    int, BeforeValidator(_port), number(1, 65_535), WithJsonSchema({"type": ["integer", "string"]})
]
Span = Annotated[Any, BeforeValidator(_span), WithJsonSchema({"type": ["integer", "string"]})]
Baseline = Annotated[
    Any,
    BeforeValidator(_baseline),
    WithJsonSchema({"anyOf": [{"type": "integer"}, {"const": "latest"}]}),
]
TimeBaseline = Annotated[
    Any, BeforeValidator(_time_baseline), WithJsonSchema({"type": ["integer", "string"]})
]
Mark = Annotated[Any, BeforeValidator(_mark), WithJsonSchema(_NUMBER_OR_TEXT)]
Timeout = Annotated[str, duration("10ms", "30d")]
Wait = Annotated[str, duration("0s", "1d")]
