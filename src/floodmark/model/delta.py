"""What a Delta log says about a table: facts, without Spark and without judgement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from floodmark.next_steps import Next, statement

ChangeKind = Literal["insert", "update", "delete"]

HIDDEN_COMMITS = frozenset(("catalogManaged", "catalogOwned-preview", "catalogOwned"))
"""Reader features of tables whose newest commits are not in the log folder."""
READABLE_FEATURES = frozenset(
    (
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantShredding",
        "variantShredding-preview",
        "variantType",
        "variantType-preview",
    )
)
"""Reader features that the log reader and the oldest supported Delta understand."""
NEWEST_READER_VERSION = 3
NO_COLUMNS = '{"type":"struct","fields":[]}'
"""The schema of a log that has not been given one: Delta Live Tables writes it with version 1."""


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A table as its log shows it at `latest_version`."""

    path: str
    table_id: str
    latest_version: int
    latest_at: datetime
    """Commit time of `latest_version`."""
    earliest_version: int
    """The oldest version whose commit file, and those of all later versions, are still there."""
    feed_enabled: bool
    """Whether delta.enableChangeDataFeed is on at `latest_version`."""
    schema_json: str
    """The schema at `latest_version`, as Delta and Spark write it."""
    schema_fingerprint: str
    partition_columns: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    min_reader_version: int = 1
    reader_features: tuple[str, ...] = ()

    @property
    def has_column_mapping(self) -> bool:
        """Whether columns are known by ids; reader version 2 has it without naming the feature."""
        return self.properties.get("delta.columnMapping.mode", "none").lower() != "none"


@dataclass(frozen=True, slots=True)
class VersionFacts:
    """One commit of a table."""

    version: int
    committed_at: datetime
    operation: str
    """As Delta names it: WRITE, MERGE, DELETE, OPTIMIZE, RESTORE ...; empty where unknown."""
    kinds: frozenset[ChangeKind]
    """The kinds of change the change feed shows for this version; empty for OPTIMIZE and the like."""
    bytes: int
    """Bytes a change-feed read of this version touches."""
    rows: int | None
    """Rows the change feed has for this version; None where the log does not tell."""
    feed_enabled: bool | None = None
    """Set where this commit writes the table's metadata: the feed flag from here on."""
    schema_fingerprint: str | None = None
    """Set where this commit writes the table's metadata: the schema from here on."""
    table_id: str | None = None
    """Set where this commit writes the table's metadata."""
    schema_json: str | None = None
    """Set where this commit writes the table's metadata."""
    transactions: Mapping[str, int] = field(default_factory=dict)
    """Transaction ids this commit sets: app id -> version."""
    metrics: Mapping[str, str] = field(default_factory=dict)
    """Delta's operationMetrics."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """Delta's operationParameters, those that are not null, as text."""
    user_metadata: str | None = None


@dataclass(frozen=True, slots=True)
class SnapshotSize:
    """The size of a whole table at one version."""

    files: int
    bytes: int
    rows: int | None
    """None where a file has no row count in its statistics."""


def unreadable_features(facts: TableFacts) -> set[str]:
    """What a reader of the table has to understand and floodmark does not."""
    unknown = set(facts.reader_features) - READABLE_FEATURES
    if facts.min_reader_version > NEWEST_READER_VERSION:
        unknown.add(f"reader version {facts.min_reader_version}")
    return unknown


def enable_feed_command(path: str) -> Next:
    """The statement that switches a table's change feed on."""
    escaped = path.replace("`", "``")
    return statement(
        f"ALTER TABLE delta.`{escaped}` SET TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    )
