"""What a node reads."""

from __future__ import annotations

import re
from typing import Annotated, Any, Self
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from floodmark.config.project.connections import DIALECTS, canonical_type
from floodmark.config.project.upstreams import DeltaReadSettings
from floodmark.config.text.fields import (
    Column,
    Columns,
    Mark,
    Name,
    Settings,
    Span,
    Sql,
    Text,
    Wait,
    number,
    one_of,
    refused,
)
from floodmark.config.text.safety import is_secret_key
from floodmark.model.ddl import columns_of

SQL_FORMATS = ("sql", *DIALECTS)
FILE_FORMATS = ("csv", "tsv", "json", "parquet", "text", "orc", "avro", "xml", "binary")
FORMATS = (*SQL_FORMATS, "delta", *FILE_FORMATS, "http", "kafka", "plugin")


def is_of_files(name: str | None) -> bool:
    """Whether a format is one of files: floodmark's own, or any other name, which a plug-in has."""
    return name in FILE_FORMATS or (name is not None and name not in FORMATS)


def _without_secrets(params: dict[str, Any]) -> dict[str, Any]:
    """What a node sends is shown with the node: secrets are the connection's."""
    for key in params:
        if is_secret_key(key):
            allowed = "secrets in params of the connection, by reference"
            raise refused(f'"{key}" is a secret', allowed, code="FM-CONFIG-011", at=(key,))
    return params


_OLD_PARAMETERS = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|/\*.*?\*/"""
    r"|(?P<old>@(?:last_load_timestamp|last_run_timestamp)\b)",
    re.DOTALL,
)


def normalised_query(query: str) -> str:
    """The query with the older spellings of the window's start; literals and comments stay.

    >>> normalised_query("SELECT '@last_load_timestamp' FROM t WHERE u > @last_load_timestamp")
    "SELECT '@last_load_timestamp' FROM t WHERE u > :window_start"
    """
    return _OLD_PARAMETERS.sub(lambda m: ":window_start" if m["old"] else m[0], query)


def _zone(name: str) -> str:
    try:
        return name if name == "UTC" else ZoneInfo(name).key
    except (ValueError, KeyError, OSError):
        raise refused("not a time zone", "UTC, or a name such as Europe/Berlin") from None


def _ddl(text: str) -> str:
    try:
        columns_of(text)
    except ValueError as error:
        raise refused(
            f"the columns cannot be read: {error}",
            "names and types, as id LONG, amount DECIMAL(12,2)",
        ) from None
    return text


Zone = Annotated[Text, AfterValidator(_zone)]
Query = Annotated[Sql, AfterValidator(normalised_query)]
Format = Annotated[Name, BeforeValidator(canonical_type)]


class IncrementalSettings(Settings):
    """How new rows are told from old ones by a column."""

    cursor: Column = Field(description="The column that grows: an update time, a sequence.")
    overlap: Span = Field(
        default=0,
        description="How far before the mark is read again: a duration, or a number to count.",
    )
    settle: Span = Field(
        default=0, description="How far the upper bound stays behind the newest value."
    )
    baseline: Mark = Field(default=None, description="A first run starts after this value.")
    keys: Columns | None = Field(
        default=None, description="What tells rows apart, so that rows read again are not doubled."
    )
    on_null_cursor: Annotated[str, one_of("fail", "skip", "include")] = Field(
        default="fail",
        description="What becomes of rows whose cursor is NULL; `include` needs keys.",
    )
    type: Annotated[str | None, one_of("integer", "decimal", "date", "timestamp", "string")] = (
        Field(
            default=None, description="The type of the cursor, where the source does not tell it."
        )
    )
    order: Annotated[str | None, one_of("binary")] = Field(
        default=None, description="The order of a text cursor; without it text is refused."
    )
    time_zone: Zone = Field(default="UTC", description="The zone of timestamps that carry none.")
    parameter: Text | None = Field(
        default=None, description="The parameter by which a web API is told where to begin."
    )


class PaginationSettings(Settings):
    """How the next page of a web API's answer is found: by one of `next`, `page` and `cursor`."""

    next: Text | None = Field(
        default=None, description="Where the answer has the next page's link; `Link`: its header."
    )
    page: Text | None = Field(default=None, description="The parameter that counts the pages.")
    first: Annotated[int, number(0, 1_000_000)] = Field(
        default=1, description="The number of the first page."
    )
    cursor: Text | None = Field(
        default=None, description="The parameter that takes the token of the next page."
    )
    token: Text | None = Field(default=None, description="Where the answer has that token.")

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        ways = [way for way in ("next", "page", "cursor") if getattr(self, way) is not None]
        if len(ways) != 1:
            raise refused("not one way to find the next page", "one of next, page and cursor")
        if (self.cursor is None) != (self.token is None):
            raise refused("cursor and token belong together", "both of them, or neither")
        return self


class PartitionSettings(Settings):
    """A read of a database by several connections at once, each a stride of a column."""

    column: Column = Field(
        description="A number, date or time that rows keep, such as their key; may be NULL."
    )
    parts: Annotated[int, number(2, 256)] = Field(description="How many connections.")


class ReadSettings(DeltaReadSettings):
    """What a node reads: a table, a query, files, a topic, a web API, or another node."""

    connection: Name | None = Field(
        default=None,
        description="A name under `connections`; else paths start at the project's folder.",
    )
    format: Format | None = Field(
        default=None,
        description="`sql` or a dialect, `delta`, a file format, `http`, `kafka`, or one of a "
        "plug-in; else what the connection's type says.",
    )
    table: Text | None = Field(default=None, description="A table of the database or the catalog.")
    path: Text | None = Field(
        default=None, description="Below the connection's root; files may be a glob."
    )
    query: Query | None = Field(
        default=None,
        description="SQL; `:window_start` and `:window_end` are bound as typed values.",
    )
    topic: Text | None = Field(default=None, description="A topic of Kafka.")
    node: Name | None = Field(
        default=None, description="Another node of the pipeline: its output of this batch."
    )
    incremental: IncrementalSettings | None = Field(
        default=None, description="Read only what is new by a cursor column."
    )
    lookup: bool = Field(
        default=False,
        description="Only joined: frozen with each batch, whole in each, never a reason to run.",
    )
    partition: PartitionSettings | None = Field(
        default=None, description="Read a database by several connections at once."
    )
    new_files: Annotated[str, one_of("list", "modified")] = Field(
        default="list", description="New files are those not on the list yet, or modified since."
    )
    settle: Wait | None = Field(
        default=None, description="Of files: one that is younger waits for the next batch."
    )
    file_column: Column | None = Field(
        default=None, description="A column of this name tells the file of each row."
    )
    ddl: Annotated[Text, AfterValidator(_ddl)] | None = Field(
        default=None, alias="schema", description="Columns and types, as DDL."
    )
    params: Annotated[dict[str, Any], AfterValidator(_without_secrets)] = Field(
        default_factory=dict, description="Parameters of a request to a web API."
    )
    records: Text | None = Field(
        default=None, description="Where the answer of a web API has its list: `data.items`."
    )
    pagination: PaginationSettings | None = Field(
        default=None, description="How a web API gives an answer in pages."
    )
    options: dict[str, Any] = Field(
        default_factory=dict, description="Options of the reader, as Spark takes them."
    )
