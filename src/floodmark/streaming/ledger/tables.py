"""The tables that streams keep in their target database, as SQL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from floodmark.postgres import quoted, quoted_table

WriteMode = Literal["append", "upsert", "overwrite"]


@dataclass(frozen=True, slots=True)
class StreamTable:
    """A table of ours: its columns in order, and what a runner has to be allowed on it."""

    name: str
    columns: tuple[tuple[str, str], ...]
    key: str
    grants: str
    index: tuple[str, str] | None = None
    """A name and its columns."""

    def created(self, schema: str) -> Iterator[str]:
        """The statements that make it, or give an older one the columns it lacks."""
        table = quoted_table(schema, self.name)
        columns = ", ".join(f"{name} {kind}" for name, kind in self.columns)
        yield f"CREATE TABLE IF NOT EXISTS {table} ({columns}, PRIMARY KEY ({self.key}))"
        for name, kind in self.columns:
            yield f"ALTER TABLE {table} ADD COLUMN IF NOT EXISTS {name} {kind}"
        if self.index:
            name, on = self.index
            yield f"CREATE INDEX IF NOT EXISTS {name} ON {table} ({on})"


STREAM = StreamTable(
    "floodmark_stream",
    (
        ("stream_id", "text"),
        ("epoch", "bigint NOT NULL DEFAULT 0"),
        ("claim_id", "text"),
        ("incarnation", "bigint NOT NULL DEFAULT 1"),
        ("topic_ids", "jsonb NOT NULL DEFAULT '{}'"),
        ("start_offsets", "jsonb"),
        ("end_offsets", "jsonb"),
        ("batch_id", "bigint"),
        ("spark_batch_id", "bigint"),
        ("query_id", "text"),
        ("checkpoint_location", "text"),
        ("config_hash", "text"),
        ("event_watermark", "timestamptz"),
        ("exactly_once", "boolean NOT NULL DEFAULT true"),
        ("holder", "text"),
        ("commit_id", "text"),
        ("updated_at", "timestamptz NOT NULL DEFAULT now()"),
    ),
    "stream_id",
    "SELECT, INSERT, UPDATE",
)

TRACKER = StreamTable(
    "batch_tracker",
    (
        ("pipeline_id", "varchar(255) NOT NULL"),
        ("batch_id", "bigint NOT NULL"),
        ("processed_at", "timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP"),
        ("record_count", "bigint"),
        ("checkpoint_location", "varchar(500)"),
        ("incarnation", "bigint"),
        ("spark_batch_id", "bigint"),
        ("start_offsets", "jsonb"),
        ("end_offsets", "jsonb"),
        ("written", "bigint"),
        ("dead_lettered", "bigint"),
        ("dropped", "bigint"),
        ("duplicates", "bigint"),
        ("event_watermark", "timestamptz"),
        ("commit_id", "text"),
        ("note", "text"),
    ),
    "pipeline_id, batch_id",
    "SELECT, INSERT, DELETE",
    ("idx_batch_tracker_processed_at", "processed_at"),
)

DEAD_LETTERS = StreamTable(
    "floodmark_dead_letters",
    (
        ("letter_id", "bigint GENERATED ALWAYS AS IDENTITY"),
        ("stream_id", "text NOT NULL"),
        ("batch_id", "bigint NOT NULL"),
        ("topic", "text"),
        ("kafka_partition", "integer"),
        ("kafka_offset", "bigint"),
        ("record_key", "bytea"),
        ("record_value", "bytea"),
        ("reason", "text NOT NULL"),
        ("detail", "text NOT NULL"),
        ("column_name", "text"),
        ("event_time", "timestamptz"),
        ("created_at", "timestamptz NOT NULL DEFAULT now()"),
    ),
    "letter_id",
    "SELECT, INSERT, DELETE",
    ("idx_floodmark_dead_letters_batch", "stream_id, batch_id"),
)

OUTBOX = StreamTable(
    "floodmark_outbox",
    (
        ("message_id", "bigint GENERATED ALWAYS AS IDENTITY"),
        ("stream_id", "text NOT NULL"),
        ("batch_id", "bigint NOT NULL"),
        ("topic", "text NOT NULL"),
        ("message_key", "bytea"),
        ("message_value", "bytea"),
        ("created_at", "timestamptz NOT NULL DEFAULT now()"),
    ),
    "message_id",
    "SELECT, INSERT, DELETE",
)

# Not columns of floodmark_stream: a batch holds that row for as long as it takes.
REQUESTS = StreamTable(
    "floodmark_stream_requests",
    (
        ("stream_id", "text"),
        ("stop_claim_id", "text"),
        ("asked_by", "text"),
        ("asked_at", "timestamptz"),
        ("ended_claim_id", "text"),
        ("ended_at", "timestamptz"),
        ("runner_claim_id", "text"),
        ("runner_seen_at", "timestamptz"),
        ("runner_ended_at", "timestamptz"),
    ),
    "stream_id",
    "SELECT, INSERT, UPDATE",
)

TABLES = (STREAM, TRACKER, DEAD_LETTERS, OUTBOX, REQUESTS)


RESET = "reset to"
"""How the note of a reset begins: what was written before it may be gone."""


def written_query(schema: str) -> str:
    """Finds a row if a stream, `$1`, has written something since it began or was last reset.

    As far as the tracker remembers: what a clean-up removed is not known to be written.
    """
    of_stream = f"FROM {quoted_table(schema, TRACKER.name)} WHERE pipeline_id = $1"
    reset = f"SELECT max(batch_id) {of_stream} AND note LIKE '{RESET} %'"
    return f"SELECT 1 {of_stream} AND written > 0 AND batch_id > coalesce(({reset}), -1) LIMIT 1"


_TARGET_GRANTS: dict[WriteMode, str] = {
    "append": "INSERT",
    "upsert": "SELECT, INSERT, UPDATE",
    "overwrite": "SELECT, INSERT, DELETE",
}


def grants(
    role: str, database: str, schema: str, target: tuple[str, str], mode: WriteMode
) -> Sequence[str]:
    """All that the role of a stream has to be granted where somebody else made the tables.

    An upsert stages its rows in a temporary table, hence TEMPORARY on the database.
    """
    to = f"TO {quoted(role)}"
    schemas = ", ".join(dict.fromkeys(quoted(name) for name in (schema, target[0])))
    said = [f"GRANT USAGE ON SCHEMA {schemas} {to}"]
    said += [f"GRANT {t.grants} ON {quoted_table(schema, t.name)} {to}" for t in TABLES]
    said += [f"GRANT {_TARGET_GRANTS[mode]} ON {quoted_table(*target)} {to}"]
    if mode == "upsert":
        said += [f"GRANT TEMPORARY ON DATABASE {quoted(database)} {to}"]
    return said
