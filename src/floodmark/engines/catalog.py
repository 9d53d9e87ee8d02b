"""The published control tables in a Spark catalog: `gold.watermarks` and its sisters."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

from floodmark.errors import ControlError
from floodmark.model.names import quoted

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
    Raises ControlError FM-CONTROL-015 if the catalog refuses, or knows other tables by these names.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    # A local catalog lives as long as its session, so once per session is enough.
    done = (id(spark), control, schema)
    if done in _registered:
        return
    try:
        spark.sql(f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}")
        for table in CONTROL_TABLES:
            _register(spark, f"{quoted(schema)}.{quoted(table)}", f"{control}/{table}")
    except (PySparkException, Py4JError) as error:
        raise _not_registered(schema, f"{type(error).__name__}: {error}") from error
    _registered.add(done)


def _register(spark: SparkSession, name: str, path: str) -> None:
    location = path.replace("\\", "\\\\").replace("'", "\\'")
    spark.sql(f"CREATE TABLE IF NOT EXISTS {name} USING delta LOCATION '{location}'")
    known = spark.sql(f"DESCRIBE TABLE EXTENDED {name}").where("col_name = 'Location'").collect()
    if known and not _is_place(known[0]["data_type"], path):
        raise _not_registered(name, f"{name} is the table at {known[0]['data_type']}, not {path}")


def _is_place(location: str, path: str) -> bool:
    """Whether a catalog's location is that path; it shows local ones as escaped `file:` URIs."""
    plain = location.removeprefix("file://").removeprefix("file:")
    return path in (location, plain, unquote(plain))


def _not_registered(where: str, found: str) -> ControlError:
    return ControlError(
        "FM-CONTROL-015",
        "the published tables cannot be registered in the catalog",
        where=where,
        found=found,
        state="the journal and the tables are complete; only the catalog does not name them",
        next="give fm.Coordinator another schema=, or read the tables by path",
    )
