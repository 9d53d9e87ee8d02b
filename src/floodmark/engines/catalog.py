"""The published control tables in a Spark catalog: `gold.watermarks` and its sisters."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONTROL_TABLES = (
    "watermarks",
    "committed_watermarks",
    "pipeline_checkpoints",
    "pipeline_registry",
    "history",
)

_registered: set[tuple[int, str, str]] = set()


def register_control_tables(spark: SparkSession, control: str, schema: str) -> None:
    """Make the published tables known to the session's catalog as external tables.

    Does nothing where they are known already; only the catalog is touched, never the tables.
    """
    # A local catalog lives as long as its session, so once per session is enough.
    done = (id(spark), control, schema)
    if done in _registered:
        return
    spark.sql(f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}")
    for table in CONTROL_TABLES:
        location = f"{control}/{table}".replace("\\", "\\\\").replace("'", "\\'")
        spark.sql(
            f"CREATE TABLE IF NOT EXISTS {quoted(schema)}.{quoted(table)} "
            f"USING delta LOCATION '{location}'"
        )
    _registered.add(done)


def quoted(name: str) -> str:
    """A name as one Spark identifier."""
    return "`" + name.replace("`", "``") + "`"
