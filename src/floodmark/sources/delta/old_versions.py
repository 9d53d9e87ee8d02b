"""Reads of versions that Delta refuses for their age alone.

Delta refuses to read a version, other than the newest, that is older than the table's
`delta.deletedFileRetentionDuration` (7 days by default): VACUUM may have removed its files. It
does not look whether it has. floodmark looks at every file first, and then reads such a version
in a child session in which that rule is off; the user's session keeps it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from floodmark.deltalog import RETENTION_RULE
from floodmark.engines.catalog import identifier
from floodmark.engines.faults import spark_condition
from floodmark.engines.jvm import (
    frame_by_plan,
    frame_by_rows,
    is_connect,
    session_like,
)
from floodmark.model.names import is_catalog_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TOO_OLD = "DELTA_UNSUPPORTED_TIME_TRAVEL_BEYOND_DELETED_FILE_RETENTION_DURATION"

Read = Callable[["SparkSession"], "DataFrame"]


def is_too_old(error: BaseException) -> bool:
    """Whether Delta refused a version because of its age."""
    return spark_condition(error) == _TOO_OLD


def version_of(spark: SparkSession, place: str, version: int) -> DataFrame:
    """A whole table at a version, as Delta gives it, by path or name."""
    if is_catalog_name(place):
        return spark.sql(f"SELECT * FROM {identifier(place)} VERSION AS OF {int(version)}")
    return spark.read.format("delta").option("versionAsOf", version).load(place)


def feed_of(spark: SparkSession, place: str, first: int, last: int) -> DataFrame:
    """The change feed of an inclusive range, as Delta gives it, by path or name."""
    reader = spark.read.format("delta").option("readChangeFeed", "true")
    reader = reader.option("startingVersion", first).option("endingVersion", last)
    if is_catalog_name(place):
        return reader.table(identifier(place))
    return reader.load(place)


def whole_of_any_age(
    spark: SparkSession, read: Read, prove: Callable[[], object]
) -> DataFrame | None:
    """What `read` gives of a whole version, whatever its age; None if Spark refuses it still.

    `prove` is called before the rule is switched off, and raises if a file is gone.
    """
    return _of_any_age(spark, read, prove, frame_by_plan)


def feed_of_any_age(
    spark: SparkSession, read: Read, prove: Callable[[], object]
) -> DataFrame | None:
    """The same for a change feed, whose versions Delta looks up again when it is executed."""
    return _of_any_age(spark, read, prove, frame_by_rows)


def _of_any_age(
    spark: SparkSession,
    read: Read,
    prove: Callable[[], object],
    handed_over: Callable[[SparkSession, DataFrame], DataFrame],
) -> DataFrame | None:
    from pyspark.errors import PySparkException

    try:
        return read(spark)
    except PySparkException as error:
        if not is_too_old(error):
            raise
    prove()
    if is_connect(spark):
        return None
    try:
        return handed_over(spark, read(without_retention_rule(spark)))
    except PySparkException as error:
        if not is_too_old(error):
            raise
        return None


def without_retention_rule(spark: SparkSession) -> SparkSession:
    """A child session in which Delta does not refuse a version by its age."""
    child = session_like(spark, {RETENTION_RULE: "false"})
    catalog, database = spark.catalog.currentCatalog(), spark.catalog.currentDatabase()
    if (catalog, database) != (child.catalog.currentCatalog(), child.catalog.currentDatabase()):
        child.catalog.setCurrentCatalog(catalog)
        child.catalog.setCurrentDatabase(database)
    return child
