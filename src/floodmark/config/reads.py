"""What a node reads."""

from __future__ import annotations

import re
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BeforeValidator, Field

from floodmark.config.connections import DIALECTS, canonical_type
from floodmark.config.fields import (
    Column,
    Columns,
    Mark,
    Name,
    Settings,
    Span,
    Sql,
    Text,
    one_of,
    refused,
)
from floodmark.config.upstreams import DeltaReadSettings

SQL_FORMATS = ("sql", *DIALECTS)
FILE_FORMATS = ("csv", "tsv", "json", "parquet", "text", "orc", "avro", "xml", "binary")
FORMATS = (*SQL_FORMATS, "delta", *FILE_FORMATS, "http", "kafka")

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
    new_files: Annotated[str, one_of("list", "modified")] = Field(
        default="list", description="New files are those not on the list yet, or modified since."
    )
    file_column: Column | None = Field(
        default=None, description="A column of this name tells the file of each row."
    )
    ddl: Text | None = Field(default=None, alias="schema", description="Columns and types, as DDL.")
    params: dict[str, Any] = Field(
        default_factory=dict, description="Parameters of a request to a web API."
    )
    options: dict[str, Any] = Field(
        default_factory=dict, description="Options of the reader, as Spark takes them."
    )
