"""Names of a catalog: which table they stand for, asked through Spark once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from floodmark.deltalog import absolute
from floodmark.errors import PlanError
from floodmark.model.names import quoted
from floodmark.model.state import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CATALOG_MANAGED = frozenset(("catalogManaged", "catalogOwned-preview"))
"""Table features under which the newest commits are not in the log folder."""
_NOT_FOUND = (
    "TABLE_OR_VIEW_NOT_FOUND",
    "SCHEMA_NOT_FOUND",
    "DELTA_TABLE_NOT_FOUND",
    "DELTA_MISSING_DELTA_TABLE",
)
_STATE = "nothing was journaled"


def is_catalog_name(name: str) -> bool:
    """Whether a name is that of a catalog: neither a path nor a URI.

    >>> is_catalog_name("db.orders"), is_catalog_name("./orders"), is_catalog_name("s3://lake/a")
    (True, False, False)
    """
    return "/" not in name and name not in (".", "..")


def resolve(spark: SparkSession | None, name: str) -> TableName:
    """The Delta table that a name stands for in the session's catalog; reads no data.

    Raises FM-PLAN-030 without a session or if the catalog does not answer, FM-PLAN-001 if it has no
    such table, FM-PLAN-002 if that is not a Delta table, FM-PLAN-009 if its newest commits are with
    the catalog only.
    """
    if spark is None:
        raise unresolved(name, "no Spark session is at hand")
    detail = _described(spark, name)
    if str(detail["format"]).lower() != "delta":
        raise _no_delta_table(name, f"a table of format {detail['format']}")
    managed = CATALOG_MANAGED & set(detail.get("tableFeatures") or ())
    if managed:
        raise _catalog_managed(name, min(managed))
    return TableName(name, absolute(str(detail["location"])), str(detail["id"]))


def tables_of(spark: SparkSession | None, schema: str) -> tuple[list[TableName], list[str]]:
    """The Delta tables of a schema, and the names of whatever else is there; reads no data."""
    if spark is None:
        raise unresolved(schema, "no Spark session is at hand")
    found: list[TableName] = []
    others: list[str] = []
    for name in _listed(spark, schema):
        try:
            found.append(resolve(spark, name))
        except PlanError as error:
            if error.code not in ("FM-PLAN-001", "FM-PLAN-002"):  # a view, a table that just went
                raise
            others.append(name)
    return found, others


def _listed(spark: SparkSession, schema: str) -> list[str]:
    from pyspark.errors import PySparkException

    parts = ".".join(quoted(part) for part in schema.split("."))
    try:
        rows = spark.sql(f"SHOW TABLES IN {parts}").collect()
    except PySparkException as error:
        raise _unknown(schema, str(error.getCondition() or type(error).__name__)) from error
    return sorted(f"{schema}.{row['tableName']}" for row in rows if not row["isTemporary"])


def refuse_other_table(known: TableName, found: TableName, committed: Mapping[str, int]) -> None:
    """A remembered name must stand for the same table in the same place (FM-PLAN-031).

    `committed` is the watermark of its place, by scope.
    """
    if (known.path, known.table_id) == (found.path, found.table_id):
        return
    is_moved = known.table_id == found.table_id
    raise PlanError(
        "FM-PLAN-031",
        f"{known.name} {'has moved' if is_moved else 'stands for another table now'}",
        where=known.name,
        found=f"{found.path}, table id {found.table_id}",
        allowed=f"{known.path}, table id {known.table_id}, as it was resolved first",
        state="nothing was journaled; the watermark stands at the place that was resolved first",
        next=_way_to(known, found, committed)
        if is_moved
        else f"name the table by its path, {found.path}: it is a new upstream",
    )


def _way_to(known: TableName, found: TableName, committed: Mapping[str, int]) -> str:
    steps = [
        f"c.reset({known.path!r}, scope={scope!r}) and register its pipelines with"
        f" fm.Upstream({found.path!r}, baseline={version})"
        for scope, version in committed.items()
    ]
    return "; ".join(["put the table back; or go on in the new place", *steps])


def _described(spark: SparkSession, name: str) -> dict[str, Any]:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    parts = ".".join(quoted(part) for part in name.split("."))
    try:
        return spark.sql(f"DESCRIBE DETAIL {parts}").collect()[0].asDict()
    except PySparkException as error:
        condition = str(error.getCondition() or type(error).__name__)
        if condition.startswith(_NOT_FOUND):
            raise _unknown(name, condition) from error
        if condition.startswith("EXPECT_TABLE_NOT_VIEW"):
            raise _no_delta_table(name, "a view") from error
        raise unresolved(name, f"{condition}: {error}"[:500]) from error
    except Py4JError as error:
        raise unresolved(name, f"{type(error).__name__}: {error}"[:500]) from error


def _no_delta_table(name: str, found: str) -> PlanError:
    return PlanError(
        "FM-PLAN-002",
        f"upstream {name} is not a Delta table",
        found=found,
        state=_STATE,
        next="name a Delta table",
    )


def _unknown(name: str, condition: str) -> PlanError:
    return PlanError(
        "FM-PLAN-001",
        f"upstream {name} cannot be found",
        found=f"the catalog of the session has no such table ({condition})",
        allowed="a table of the catalog, a path with a slash, or a URI",
        state=_STATE,
        next=f"check the name; for a folder in the working directory write ./{name}",
    )


def unresolved(name: str, found: str) -> PlanError:
    """The error for a name that has to be asked of a catalog, and could not be."""
    return PlanError(
        "FM-PLAN-030",
        f"the catalog name {name} is not resolved",
        found=found,
        allowed="a name that was resolved through Spark once; it is remembered from then on",
        state=_STATE,
        next=f"register it once with a session: fm.Coordinator(..., spark=spark).register(...,"
        f" [{name!r}]); or give the path of the table, for example ./{name}",
        retryable=True,
    )


def _catalog_managed(name: str, feature: str) -> PlanError:
    return PlanError(
        "FM-PLAN-009",
        f"the newest commits of {name} are with its catalog only",
        found=f"the table feature {feature}",
        allowed="tables whose log folder holds every commit",
        state=_STATE,
        next="copy the table's changes to one that is not catalog-managed, and name that",
    )
