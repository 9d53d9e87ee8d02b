"""The log of a table as its catalog tells it, through Spark: for tables whose newest commits are
not in the log folder.

It answers the questions of `DeltaLog` with DESCRIBE DETAIL, DESCRIBE HISTORY and reads of a
version that fetch no rows. Where the history says less than the log, it says "not known", or the
more cautious of two answers: a change feed of which it is not certain counts as off, a commit of an
operation that it does not know as one of every kind.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from floodmark.deltalog import absolute, fingerprint
from floodmark.engines.catalog import identifier
from floodmark.errors import SourceError
from floodmark.model import ChangeKind, SnapshotSize, TableFacts, VersionFacts
from floodmark.next_steps import command
from floodmark.sources.delta.old_versions import version_of, whole_of_any_age
from floodmark.sources.delta.proof import WIDENING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")

_FEED = "delta.enableChangeDataFeed"
_EVERY_KIND: frozenset[ChangeKind] = frozenset(get_args(ChangeKind))
_KINDS: Mapping[str, frozenset[ChangeKind]] = {
    "UPDATE": frozenset(("update",)),
    "DELETE": frozenset(("delete",)),
    "TRUNCATE": frozenset(("delete",)),
    "CREATE TABLE AS SELECT": frozenset(("insert",)),
    **dict.fromkeys(
        (
            "OPTIMIZE",
            "VACUUM START",
            "VACUUM END",
            "CREATE TABLE",
            "SET TBLPROPERTIES",
            "UNSET TBLPROPERTIES",
            "ADD COLUMNS",
            "CHANGE COLUMN",
            "RENAME COLUMN",
            "DROP COLUMNS",
            "ADD CONSTRAINT",
            "DROP CONSTRAINT",
            "SET TBLPROPERTIES",
            "UPGRADE PROTOCOL",
            "ADD FEATURE",
            "CLUSTER BY",
        ),
        frozenset(),
    ),
}
_MERGE_KINDS: Mapping[str, ChangeKind] = {
    "numTargetRowsInserted": "insert",
    "numTargetRowsUpdated": "update",
    "numTargetRowsDeleted": "delete",
}
_WRITE_PROPERTIES = ("RESTORE", "REPLACE", "CLONE", "CREATE")
"""Parts of the names of operations that write every property of the table."""


class CatalogLog:
    """What a catalog says about one table, as of the moment it is asked first.

    Raises FM-SOURCE-001 beyond the newest version, FM-SOURCE-002 where a version can no longer be
    reached, FM-SOURCE-009 (a retry may help) where the catalog does not answer.
    """

    def __init__(self, spark: SparkSession, name: str) -> None:
        self._spark = spark
        self._name = name
        self._schemas: dict[int, str] = {}

    def facts(self) -> TableFacts:
        """The table at its newest version."""
        detail, newest = self._detail, self._commits[-1]
        version = int(newest["version"])
        schema_json = self._schema(version)
        properties = {str(k): str(v) for k, v in (detail["properties"] or {}).items()}
        return TableFacts(
            path=absolute(str(detail["location"])),
            table_id=str(detail["id"]),
            latest_version=version,
            latest_at=_instant(newest["timestamp"]),
            earliest_version=self._earliest,
            feed_enabled=properties.get(_FEED, "").lower() == "true",
            schema_json=schema_json,
            schema_fingerprint=fingerprint(schema_json),
            partition_columns=tuple(detail["partitionColumns"] or ()),
            properties=properties,
            min_reader_version=int(detail["minReaderVersion"]),
            # Spark reads the table, so it knows the features; these decide which ranges can be.
            reader_features=tuple(WIDENING & set(detail.get("tableFeatures") or ())),
        )

    def versions(self, first: int, last: int) -> list[VersionFacts]:
        """See `DeltaLog.versions`; bytes and rows are those of the commit's own metrics."""
        if first > last:
            return []
        self._check(first, last)
        before = self._schema(first - 1) if first > self._earliest else None
        changed = self._changed_schemas(first, last, before)
        commits = [c for c in self._commits if first <= c["version"] <= last]
        return [self._version(commit, changed.get(int(commit["version"]))) for commit in commits]

    def snapshot_size(self, version: int) -> SnapshotSize:
        """See `DeltaLog.snapshot_size`; how many rows is not known."""
        self._check(version, version, needs_commit=False)
        frame = self._as_of(version)
        files = self._answer(lambda: len(frame.inputFiles()))
        return SnapshotSize(files, bytes=int(self._detail["sizeInBytes"] or 0), rows=None)

    def schema_at(self, version: int) -> tuple[str, str]:
        """See `DeltaLog.schema_at`."""
        self._check(version, version, needs_commit=False)
        text = self._schema(version)
        return text, fingerprint(text)

    def feed_enabled_at(self, version: int) -> bool:
        """Whether the change feed is on at a version, as far as the history can prove it."""
        touched = [commit for commit in self._commits if _may_set_feed(commit)]
        before = [commit for commit in touched if int(commit["version"]) <= version]
        if len(before) == len(touched):  # it is what it is now
            return self.facts().feed_enabled
        return bool(before) and _said_of_feed(before[-1]) is True

    def lost_snapshot_files(self, version: int) -> list[str]:  # noqa: ARG002 a door
        """Not looked for: which files a version has is the catalog's business; a read will tell."""
        return []

    def lost_feed_files(self, first: int, last: int) -> list[str]:  # noqa: ARG002 a door
        """Not looked for, see `lost_snapshot_files`."""
        return []

    @cached_property
    def _detail(self) -> dict[str, Any]:
        rows = self._answer(lambda: self._sql("DESCRIBE DETAIL {}").collect())
        return dict(rows[0].asDict())

    @cached_property
    def _commits(self) -> list[dict[str, Any]]:
        """The commits that the history has, oldest first."""
        rows = self._answer(lambda: self._sql("DESCRIBE HISTORY {}").collect())
        return sorted((row.asDict() for row in rows), key=lambda commit: int(commit["version"]))

    @property
    def _earliest(self) -> int:
        """The oldest version from which on the history has no hole."""
        found = [int(commit["version"]) for commit in self._commits]
        earliest = found[-1]
        for version in reversed(found):
            if version < earliest - 1:
                break
            earliest = version
        return earliest

    def _version(self, commit: Mapping[str, Any], schema_json: str | None) -> VersionFacts:
        metrics = _texts(commit["operationMetrics"])
        version = int(commit["version"])
        flag = self.feed_enabled_at(version) if _may_set_feed(commit) else None
        return VersionFacts(
            version=version,
            committed_at=_instant(commit["timestamp"]),
            operation=str(commit["operation"] or ""),
            kinds=_kinds(commit, metrics),
            bytes=int(metrics.get("numOutputBytes", "0")),
            rows=None,
            feed_enabled=flag,
            schema_json=schema_json,
            schema_fingerprint=fingerprint(schema_json) if schema_json else None,
            metrics=metrics,
            parameters=_texts(commit["operationParameters"]),
            user_metadata=commit["userMetadata"],
        )

    def _changed_schemas(self, first: int, last: int, before: str | None) -> dict[int, str]:
        """The versions of a range that have another schema than the one before, by halving it."""
        if first > last or (before is not None and self._schema(last) == before):
            return {}
        if first == last:
            return {first: self._schema(first)}
        middle = (first + last) // 2
        left = self._changed_schemas(first, middle, before)
        return left | self._changed_schemas(middle + 1, last, self._schema(middle))

    def _schema(self, version: int) -> str:
        if version not in self._schemas:
            frame = self._as_of(version)
            self._schemas[version] = self._answer(lambda: str(frame.schema.json()))
        return self._schemas[version]

    def _as_of(self, version: int) -> DataFrame:
        """A version of any age: it is asked for its columns and files, never for rows."""

        def ask() -> DataFrame:
            frame = whole_of_any_age(
                self._spark, lambda spark: version_of(spark, self._name, version), lambda: None
            )
            if frame is None:
                raise self._gone(
                    f"version {version} is older than delta.deletedFileRetentionDuration"
                )
            return frame

        return self._answer(ask)

    def _sql(self, statement: str) -> DataFrame:
        return self._spark.sql(statement.format(identifier(self._name)))

    def _check(self, first: int, last: int, *, needs_commit: bool = True) -> None:
        latest = int(self._commits[-1]["version"])
        if last > latest:
            raise SourceError(
                "FM-SOURCE-001",
                "the range reaches beyond the table",
                where=self._name,
                found=f"versions through {latest}",
                allowed=f"a table that reaches version {last}",
                state="nothing was read",
                next=command("lag"),
            )
        if needs_commit and first < self._earliest:
            raise self._gone(f"the history begins at version {self._earliest}")

    def _answer(self, ask: Callable[[], T]) -> T:
        from pyspark.errors import PySparkException

        from floodmark.engines.faults import engine_errors

        try:
            return ask()
        except PySparkException as error:
            condition = str(error.getCondition() or type(error).__name__)
            if condition.startswith(("DELTA_VERSION", "DELTA_TIMESTAMP", "DELTA_TRUNCATED")):
                raise self._gone(f"{condition}: {error}"[:300]) from error
            raise self._silent(f"{condition}: {error}"[:500]) from error
        except engine_errors() as error:
            raise self._silent(f"{type(error).__name__}: {error}"[:500]) from error

    def _gone(self, found: str) -> SourceError:
        return SourceError(
            "FM-SOURCE-002",
            "part of the range is gone from the history",
            where=self._name,
            found=found,
            allowed="every version of the range",
            state="nothing was read",
            next=command("gaps"),
        )

    def _silent(self, found: str) -> SourceError:
        return SourceError(
            "FM-SOURCE-009",
            "the table's catalog could not be asked",
            where=self._name,
            found=found,
            state="nothing was read",
            next="mend what is said above, then run the same command again",
            retryable=True,
        )


def _kinds(commit: Mapping[str, Any], metrics: Mapping[str, str]) -> frozenset[ChangeKind]:
    operation = str(commit["operation"] or "")
    if operation in ("WRITE", "STREAMING UPDATE"):
        said = commit["operationParameters"] or {}
        mode = str(said.get("mode", said.get("outputMode", ""))).lower()
        return frozenset(("insert",)) if mode == "append" else frozenset(("insert", "delete"))
    if operation == "MERGE" and metrics.keys() >= _MERGE_KINDS.keys():
        return frozenset(kind for name, kind in _MERGE_KINDS.items() if metrics[name] != "0")
    return _KINDS.get(operation, _EVERY_KIND)


def _may_set_feed(commit: Mapping[str, Any]) -> bool:
    """Whether the change feed may be another one from this commit on."""
    operation = str(commit["operation"] or "")
    if "TBLPROPERTIES" in operation:
        return _said_of_feed(commit) is not None
    return any(word in operation for word in _WRITE_PROPERTIES)


def _said_of_feed(commit: Mapping[str, Any]) -> bool | None:
    """What a commit says about the change feed; None where it does not."""
    try:
        said: Any = json.loads((commit["operationParameters"] or {}).get("properties") or "{}")
    except ValueError:
        return None
    if _FEED not in said:  # a list of names where properties are unset
        return None
    is_unset = str(commit["operation"]).startswith("UNSET")
    return not is_unset and str(said[_FEED]).lower() == "true"


def _texts(values: Mapping[str, Any] | None) -> dict[str, str]:
    return {name: str(value) for name, value in (values or {}).items() if value is not None}


def _instant(at: datetime) -> datetime:
    """Spark gives instants in the time zone of the process, without saying so."""
    return at.astimezone(UTC) if at.tzinfo else datetime.fromtimestamp(at.timestamp(), UTC)
