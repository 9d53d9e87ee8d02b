"""The catalog of a Spark session: what its names stand for, and the published control tables in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
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

CATALOG_MANAGED = frozenset(("catalogManaged", "catalogOwned-preview", "catalogOwned"))
"""Table features under which the newest commits are not in the log folder."""
_NOT_FOUND = (
    "TABLE_OR_VIEW_NOT_FOUND",
    "SCHEMA_NOT_FOUND",
    "DELTA_TABLE_NOT_FOUND",
    "DELTA_MISSING_DELTA_TABLE",
)

_registered: set[tuple[int, str, str]] = set()


@dataclass(frozen=True, slots=True)
class Described:
    """What a catalog says about a name; `silent` means that it did not answer."""

    what: Literal["delta", "missing", "other", "silent"]
    found: str
    """What it stands for, or why that is not known; for people."""
    location: str = ""
    table_id: str = ""
    features: frozenset[str] = frozenset()
    format: str = "delta"

    @property
    def managed_by(self) -> str | None:
        """The feature under which only the catalog knows the newest commits; None without."""
        return min(CATALOG_MANAGED & self.features, default=None)


def identifier(name: str) -> str:
    """A name of a catalog for SQL: its parts, quoted.

    >>> identifier("shop.orders")
    '`shop`.`orders`'
    """
    return ".".join(quoted(part) for part in name.split("."))


def describe(spark: SparkSession, name: str) -> Described:
    """What a name stands for in the session's catalog; reads no data, raises nothing of Spark's."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        detail = spark.sql(f"DESCRIBE DETAIL {identifier(name)}").collect()[0].asDict()
    except PySparkException as error:
        return _not_described(str(error.getCondition() or type(error).__name__), str(error))
    except (Py4JError, ValueError) as error:  # ValueError: an empty part, as in "shop."
        return Described("silent", f"{type(error).__name__}: {error}"[:500])
    kind = str(detail["format"]).lower()
    if kind != "delta":
        place = str(detail["location"] or "")
        return Described("other", f"a table of format {kind}", place, format=kind)
    features = frozenset(detail.get("tableFeatures") or ())
    return Described("delta", name, str(detail["location"]), str(detail["id"]), features)


def _not_described(condition: str, text: str) -> Described:
    if condition.startswith(_NOT_FOUND):
        return Described("missing", condition)
    if condition.startswith("EXPECT_TABLE_NOT_VIEW"):
        return Described("other", "a view")
    return Described("silent", f"{condition}: {text}"[:500])


def schema_of(spark: SparkSession, name: str) -> str:
    """The schema of a table's name; the current one where the name has a single part."""
    schema, _, _ = name.rpartition(".")
    return schema or str(spark.catalog.currentDatabase())


def schema_location(spark: SparkSession, schema: str) -> str | None:
    """Where a schema keeps its tables; empty if the catalog does not say, None without a schema."""
    from pyspark.errors import PySparkException

    try:
        rows: list[Any] = spark.sql(f"DESCRIBE SCHEMA {identifier(schema)}").collect()
    except PySparkException as error:
        if str(error.getCondition()).startswith(_NOT_FOUND):
            return None
        raise
    return next((str(row[1]) for row in rows if str(row[0]).lower() == "location"), "")


def is_in_memory(spark: Any) -> bool:
    """Whether the session's catalog goes with the process: nobody else can read what is in it."""
    conf = getattr(spark, "conf", None)
    return conf is None or conf.get("spark.sql.catalogImplementation") == "in-memory"


def register_table(
    spark: SparkSession,
    name: str,
    path: str,
    kind: str = "delta",
    options: Mapping[str, str] | None = None,
) -> None:
    """Make a table, or a folder of files, that exists known by a name, unless it is known already.

    Creates an empty table if there is none at `path`: the caller has looked.
    """
    said = ", ".join(f"{_literal(k)} = {_literal(v)}" for k, v in (options or {}).items())
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS {identifier(name)} USING {quoted(kind)}"
        f"{f' OPTIONS ({said})' if said else ''} LOCATION {_literal(path)}"
    )


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def register_again(spark: SparkSession, name: str, path: str) -> None:
    """Make a table known by the name it had in an earlier process: a local catalog forgets it.

    A name that is known stays as it is. Raises FM-CONTROL-015 if the catalog refuses.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        spark.sql(f"CREATE SCHEMA IF NOT EXISTS {identifier(schema_of(spark, name))}")
        register_table(spark, name, path)
    except (PySparkException, Py4JError) as error:
        raise _not_registered(name, f"{type(error).__name__}: {error}") from error


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
            _register(spark, f"{schema}.{table}", f"{control}/{table}")
    except (PySparkException, Py4JError) as error:
        raise _not_registered(schema, f"{type(error).__name__}: {error}") from error
    _registered.add(done)


def _register(spark: SparkSession, name: str, path: str) -> None:
    register_table(spark, name, path)
    described = spark.sql(f"DESCRIBE TABLE EXTENDED {identifier(name)}")
    known = described.where("col_name = 'Location'").collect()
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
