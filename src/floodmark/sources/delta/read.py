"""The Delta source on Spark: frozen windows as frames, exactly."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from floodmark.deltalog import Storage
from floodmark.engines.faults import conditions
from floodmark.errors import SourceError
from floodmark.model import CHANGE_COLUMNS, NOTHING_PROCESSED, Settlement, TableFacts, VersionWindow
from floodmark.model.names import is_catalog_name, quoted, short_hash
from floodmark.sources.delta import proof
from floodmark.sources.delta.delta_rs import streamed_changes, streamed_version
from floodmark.sources.delta.log import TableLog, log_of
from floodmark.sources.delta.loss import resolved_count, resolved_loss
from floodmark.sources.delta.old_versions import (
    feed_of,
    feed_of_any_age,
    version_of,
    whole_of_any_age,
)
from floodmark.sources.delta.spool import Spool
from floodmark.sources.faults import schema_moved
from floodmark.sources.frames import as_inserts, refuse_hidden_files
from floodmark.sources.row_counts import rows_in
from floodmark.sources.source import SparkAccess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_NO_FEED = "DELTA_MISSING_CHANGE_DATA"
_OTHER_SCHEMA = "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE"
_TYPE, _VERSION, _TIMESTAMP = CHANGE_COLUMNS


class DeltaSource:
    """Reads windows of Delta tables by path or URI, of those that a catalog manages by name;
    changes no setting of the session.
    """

    def __init__(
        self,
        spark: SparkSession,
        storage_options: Mapping[str, str] | None = None,
        spool_folder: str | None = None,
    ) -> None:
        self._spark = spark
        self._storage = Storage(storage_options)
        self._spool = Spool(self._storage, spool_folder)

    def check(self, window: VersionWindow) -> TableFacts:
        """See `KindSource.check`; also FM-SOURCE-005 if the session would hide missing files."""
        facts = proof.prove_readable(self._log(window), window)
        refuse_hidden_files(self._spark, window)
        return facts

    def read(self, window: VersionWindow) -> DataFrame:
        """The table's columns at the window's end, then the three change columns.

        The window is checked again first. Building the frame reads no data file: a file that is
        gone shows when the frame is executed, see `lost_files`. Each call gives a new frame of the
        same rows.
        """
        self.check(window)
        at, first = window.snapshot_version, window.feed_start
        if not window.has_news or (at is None and first is None):
            return self._empty(self._schema(window, window.end), with_changes=True)
        if at is None:
            return self._feed(window)
        return self._snapshot(window, at) if first is None else self._both(window, at)

    def resolved(self, window: VersionWindow, choice: Settlement) -> VersionWindow | None:
        """See `Resolver.resolved`."""
        log = self._log(window)
        amended = resolved_loss(log, window, choice)
        by_count = resolved_count(
            log, amended or window, choice, lambda given: rows_in(self.read(given))
        )
        return by_count or amended

    def table(self, window: VersionWindow, at_version: int) -> DataFrame:
        """The whole upstream as of `at_version`; -1 gives it empty, with the window's schema."""
        self.check(window)
        if at_version == NOTHING_PROCESSED:
            return self._empty(self._schema(window, window.end), with_changes=False)
        # Proves that the version can be reached; versionAsOf alone would say so less clearly.
        self._log(window).snapshot_size(at_version)
        return self._as_of(window, at_version)

    def _snapshot(self, window: VersionWindow, version: int) -> DataFrame:
        at = self._committed_at(window, version)
        return as_inserts(self._as_of(window, version), version, at)

    def _both(self, window: VersionWindow, version: int) -> DataFrame:
        """The whole table at a version, then the changes after it; both have one schema."""
        return self._snapshot(window, version).unionByName(self._feed(window))

    def _feed(self, window: VersionWindow) -> DataFrame:
        from pyspark.errors import PySparkException

        schema, log = self._schema(window, window.end), self._log(window)
        by_name = is_catalog_name(window.place)
        if proof.is_overtaken(log, log.facts(), window):
            if by_name:
                raise schema_moved(window, f"a later version {proof.LATER_CHANGES}")
            return self._feed_by_delta_rs(window, schema)
        first = window.feed_start or 0
        try:
            frame = feed_of_any_age(
                self._spark,
                lambda spark: feed_of(spark, window.place, first, window.end),
                lambda: proof.prove_files(log, window),
            )
        except PySparkException as error:
            raise _retold(window, error) from error
        if frame is None:
            if by_name:
                raise proof.too_old(window)
            return self._feed_by_delta_rs(window, schema)
        # The feed always has the newest schema of the table: columns of later versions go.
        return frame.select(*map(quoted, (*schema.names, *CHANGE_COLUMNS)))

    def _feed_by_delta_rs(self, window: VersionWindow, schema: StructType) -> DataFrame:
        rows = streamed_changes(window, self._storage)
        name = _spool_name(window, f"changes {window.feed_start}", window.end)
        return self._spool.frame(self._spark, name, rows, _with_change_columns(schema))

    def _as_of(self, window: VersionWindow, version: int) -> DataFrame:
        place = window.place
        frame = whole_of_any_age(
            self._spark,
            lambda spark: version_of(spark, place, version),
            lambda: proof.prove_version_files(self._log(window), window, version),
        )
        if frame is not None:
            return frame
        if is_catalog_name(place):
            raise proof.too_old(window)
        rows = streamed_version(window, version, self._storage)
        name = _spool_name(window, "whole", version)
        return self._spool.frame(self._spark, name, rows, self._schema(window, version))

    def _empty(self, schema: StructType, *, with_changes: bool) -> DataFrame:
        schema = _with_change_columns(schema) if with_changes else schema
        return self._spark.createDataFrame([], schema)

    def _schema(self, window: VersionWindow, version: int) -> StructType:
        from pyspark.sql.types import StructType

        text = proof.schema_text(self._log(window), window, version)
        return StructType.fromJson(_without_metadata(json.loads(text)))

    def _committed_at(self, window: VersionWindow, version: int) -> datetime | None:
        """The commit time from the log; from the plan where that commit file is cleaned away."""
        try:
            return self._log(window).versions(version, version)[0].committed_at
        except SourceError as error:
            if error.code != "FM-SOURCE-002":
                raise
            return window.end_at if version == window.end else None

    def _log(self, window: VersionWindow) -> TableLog:
        return log_of(window.place, self._storage, self._spark)


def source(access: SparkAccess) -> DeltaSource:
    """See `sources.kinds`."""
    return DeltaSource(access.spark, access.storage.options, access.spool_folder)


def _retold(window: VersionWindow, error: Exception) -> Exception:
    """Delta's refusal of a range as ours; what is not about the range stays as it is."""
    for condition in conditions(error):
        if condition.startswith(_NO_FEED):
            return proof.feed_missing(window, condition)
        if condition.startswith(_OTHER_SCHEMA):
            return schema_moved(window, condition)
    return error


def _spool_name(window: VersionWindow, what: str, version: int) -> str:
    """One name for the same rows; tables that were copied share an id, not a place."""
    return short_hash("|".join((window.place, window.table_id, what, str(version))))


def _with_change_columns(schema: StructType) -> StructType:
    from pyspark.sql.types import StructType

    whole = StructType(list(schema.fields))
    whole = whole.add(_TYPE, "string").add(_VERSION, "long")
    return whole.add(_TIMESTAMP, "timestamp")


def _without_metadata(data_type: Any) -> Any:
    """A schema as a reader sees it: without column-mapping ids and other notes of the table."""
    if isinstance(data_type, list):
        return [_without_metadata(part) for part in data_type]
    if not isinstance(data_type, dict):
        return data_type
    cleaned = {key: _without_metadata(value) for key, value in data_type.items()}
    return {**cleaned, "metadata": {}} if "metadata" in data_type else cleaned
