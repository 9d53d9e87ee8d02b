"""What a node writes."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from floodmark.config.project.reads import Format
from floodmark.config.text.fields import (
    Column,
    Columns,
    Name,
    Settings,
    Sql,
    TableName,
    Text,
    one_of,
)

MODES = ("append", "overwrite", "replace_where", "merge")


class AuditSettings(Settings):
    """Columns that say when a row came and when it changed."""

    created_at: Column | None = Field(
        default=None, description="Set once, when the row is inserted."
    )
    updated_at: Column | None = Field(default=None, description="Set whenever the row is written.")


class MergeSettings(Settings):
    """How rows find their place in the target by key."""

    keys: Columns = Field(description="The columns that identify a row.")
    strategy: Annotated[str, one_of("upsert", "append_only", "delete_match")] = Field(
        default="upsert",
        description="Update and insert; insert what is not there; or delete what is matched.",
    )
    sequence_by: Column | None = Field(
        default=None, description="A row replaces another only if this is not smaller."
    )
    deletes: Annotated[str, one_of("apply", "soft", "ignore")] = Field(
        default="apply", description="What deletes of the change feed do."
    )
    missing: Annotated[str | None, one_of("delete", "keep")] = Field(
        default=None, description="What becomes of rows that a snapshot no longer has."
    )
    audit: AuditSettings | None = Field(default=None, description="Columns kept by floodmark.")


_PROPERTIES = {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}
TableProperties = Annotated[dict[str, Any], WithJsonSchema(_PROPERTIES)]


class WriteOptions(Settings):
    """How the target is laid out, applied when it is created and kept."""

    cluster_by: Columns | None = Field(default=None, description="Liquid clustering.")
    partition_by: Columns | None = Field(default=None, description="Folders by value.")
    zorder_by: Columns | None = Field(default=None, description="Order inside files, by OPTIMIZE.")
    optimize_write: bool | None = Field(default=None, description="Fewer, larger files.")
    table_properties: TableProperties = Field(
        default_factory=dict, description="Properties of the Delta table."
    )
    writer: dict[str, Any] = Field(
        default_factory=dict, description="Options of the writer, as Spark takes them."
    )


class WriteSettings(Settings):
    """Where the rows of a node go, and how."""

    connection: Name | None = Field(
        default=None,
        description="A name under `connections`; else paths start at the project's folder.",
    )
    format: Format | None = Field(
        default=None,
        description="`delta`, a file format, `sql` or a dialect; else by the connection.",
    )
    path: Text | None = Field(default=None, description="Below the connection's root.")
    table: Text | None = Field(default=None, description="A table of the database or the catalog.")
    mode: Annotated[str | None, one_of(*MODES)] = Field(
        default=None,
        description="What becomes of rows already there; `merge` where `merge` is given.",
    )
    replace_where: Sql | None = Field(
        default=None, description="The rows that mode `replace_where` replaces, as a condition."
    )
    allow_partial: bool = Field(
        default=False,
        description="Modes `overwrite` and `replace_where` may get only what is new of a read.",
    )
    allow_single_writer: bool = Field(
        default=False,
        description="Spark may write to S3: nothing else writes to this table meanwhile.",
    )
    merge: MergeSettings | None = Field(default=None, description="How mode `merge` merges.")
    changes: Annotated[str | None, one_of("latest", "log", "handled")] = Field(
        default=None,
        description="What updates and deletes of a change feed become, unless merged.",
    )
    keys: Columns | None = Field(default=None, description="For `changes: latest`.")
    first_run_query: Sql | None = Field(
        default=None,
        description="Read instead of the query, and written as OVERWRITE, on the first run.",
    )
    register_table: TableName | None = Field(
        default=None, description="The name under which Spark's catalog shows the target."
    )
    on_schema_change: Annotated[str, one_of("fail", "add_columns")] = Field(
        default="fail", description="What a frame with other columns than the target does."
    )
    options: WriteOptions = Field(default=WriteOptions(), description="The layout of the target.")

    @property
    def write_mode(self) -> str:
        """The mode, said or implied by `merge`; empty if neither is there."""
        return self.mode or ("merge" if self.merge else "")

    @property
    def target(self) -> str:
        """What is written, as it is named in the file."""
        return self.path or self.table or ""
