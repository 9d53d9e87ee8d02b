"""The logs of tables: from their folder, or where that is not complete from their catalog."""

from __future__ import annotations

from typing import Any, Protocol

from floodmark.deltalog import DeltaLog, Storage
from floodmark.errors import PlanError
from floodmark.model import SnapshotSize, TableFacts, VersionFacts, VersionWindow, Window
from floodmark.model.names import is_catalog_name
from floodmark.next_steps import command


class TableLog(Protocol):
    """What planning and reading ask of a table's log; see `DeltaLog` for each answer."""

    def facts(self) -> TableFacts: ...
    def versions(self, first: int, last: int) -> list[VersionFacts]: ...
    def snapshot_size(self, version: int) -> SnapshotSize: ...
    def schema_at(self, version: int) -> tuple[str, str]: ...
    def feed_enabled_at(self, version: int) -> bool: ...
    def lost_snapshot_files(self, version: int) -> list[str]: ...
    def lost_feed_files(self, first: int, last: int) -> list[str]: ...


def log_of(place: str, storage: Storage, spark: Any = None) -> TableLog:
    """The log of the table at a place: a path, or the name of a table that its catalog manages.

    Raises FM-PLAN-009 for a name where there is no session to ask.
    """
    if not is_catalog_name(place):
        return DeltaLog(place, storage)
    if spark is None:
        raise needs_session(place)
    from floodmark.sources.delta.catalog_log import CatalogLog

    return CatalogLog(spark, place)


def rows_by_log(given: Window, storage: Storage, spark: Any = None) -> int | None:
    """How many rows the log of a table says that a window of versions has; None where it does not."""
    window = VersionWindow.of(given)
    log = log_of(window.place, storage, spark)
    rows: list[int | None] = []
    if window.snapshot_version is not None:
        rows.append(log.snapshot_size(window.snapshot_version).rows)
    if window.feed_start is not None:
        rows += [version.rows for version in log.versions(window.feed_start, window.end)]
    return None if None in rows else sum(number for number in rows if number is not None)


def needs_session(name: str) -> PlanError:
    """The error for a table of which only its catalog knows the newest commits."""
    return PlanError(
        "FM-PLAN-009",
        f"the newest commits of {name} are with its catalog only",
        found="no Spark session through which the catalog could be asked",
        allowed="a session of that catalog: such tables are planned through Spark",
        state="nothing was journaled",
        next="give fm.Coordinator spark=, or: " + command("run"),
    )
