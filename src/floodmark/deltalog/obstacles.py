"""What the owners of a lake set on a table of ours, and delta-rs does not write against."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from floodmark.deltalog.delta_rs import is_lost_race
from floodmark.deltalog.log import DeltaLog
from floodmark.deltalog.storage import Storage
from floodmark.next_steps import Next, joined, statement

RETENTION_RULE = "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration"
"""Whether Delta refuses versions by age, to read and to restore; what does not know it ignores it."""
SURELY_READ = timedelta(days=6)
"""Younger than the age at which Delta refuses a version of a table that says nothing about it."""
_RETENTION = "delta.deletedFileRetentionDuration"
OUR_WRITER_VERSION = 2
"""Of every table that we create; delta-rs names no feature for it."""
_OURS = frozenset(("appendOnly", "invariants"))
"""What that version means, in the words of later ones."""
_STAYS = frozenset(("checkpointProtection", "clustering"))
"""What Delta does not drop. It puts the first in the place of every feature that readers have to
know, for a day at least."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why no attempt to commit can succeed, and what takes it away."""

    is_append_only: bool
    """Else the protocol was raised."""
    found: str
    allowed: str
    statements: tuple[Next, ...]
    """What helps, for Spark, in this order; empty where nothing does."""

    @property
    def remedy(self) -> Next:
        """The statements in one line."""
        return joined(self.statements, "; ")

    def next_step(self, otherwise: str) -> Next:
        """What to do, as an error says it; `otherwise` where Delta does not take it back."""
        if self.statements:
            return "with Spark: " + self.remedy
        return Next("Delta does not take that back: ", otherwise)


def restore_command(path: str, storage: Storage, version: int) -> str:
    """What brings a table back to a version, for Spark; it refuses one by its age alone, files or no files."""
    log = DeltaLog(path, storage)
    (commit,) = log.versions(version, version)
    back = f"RESTORE TABLE delta.`{path}` TO VERSION AS OF {version}"
    is_young = datetime.now(UTC) - commit.committed_at < SURELY_READ
    if is_young and _RETENTION not in log.facts().properties:
        return back
    return f"SET {RETENTION_RULE} = false; {back}"


def may_hinder(table: Any) -> bool:
    """Whether a commit that replaces rows may meet an obstacle; `table` is a handle of delta-rs."""
    is_append_only = table.metadata().configuration.get("delta.appendOnly", "").lower() == "true"
    return bool(is_append_only or table.protocol().min_writer_version > OUR_WRITER_VERSION)


def obstacle(table: Any, path: str, error: BaseException, *, rewrites: bool) -> Obstacle | None:
    """What stopped a commit; None if only another writer came first, or it is neither of the two.

    `table` is a handle of delta-rs, `rewrites` whether rows were to be replaced or removed.
    """
    if is_lost_race(error):
        return None
    if rewrites and table.metadata().configuration.get("delta.appendOnly", "").lower() == "true":
        return Obstacle(
            is_append_only=True,
            found="delta.appendOnly = true",
            allowed="a table whose rows may be put together and replaced",
            statements=(
                statement(f"ALTER TABLE delta.`{path}` UNSET TBLPROPERTIES ('delta.appendOnly')"),
            ),
        )
    protocol = table.protocol()
    if protocol.min_writer_version <= OUR_WRITER_VERSION:
        return None
    every = {*(protocol.writer_features or ()), *(protocol.reader_features or ())}
    # Others depend on domainMetadata, so it can only be dropped behind them.
    features = sorted(every - _OURS, key=lambda name: (name == "domainMetadata", name))
    stays = bool(_STAYS.union(protocol.reader_features or ()) & {*features})
    drops = (statement(f"ALTER TABLE delta.`{path}` DROP FEATURE {name}") for name in features)
    return Obstacle(
        is_append_only=False,
        found=f"writer version {protocol.min_writer_version}, {', '.join(features) or 'no features'};"
        f" {str(error)[:300]}",
        allowed=f"writer version {OUR_WRITER_VERSION}, as floodmark creates its tables",
        statements=() if stays else tuple(drops),
    )
