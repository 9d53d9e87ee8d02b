"""Names of a catalog: which table they stand for, asked through Spark once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.deltalog import absolute
from floodmark.engines.catalog import describe, identifier
from floodmark.errors import PlanError
from floodmark.model import TableName
from floodmark.next_steps import command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STATE = "nothing was journaled"


def resolve(spark: SparkSession | None, name: str) -> TableName:
    """The Delta table that a name stands for in the session's catalog; reads no data.

    Raises FM-PLAN-030 without a session or if the catalog does not answer, FM-PLAN-001 if it has no
    such table, FM-PLAN-002 if that is not a Delta table.
    """
    if spark is None:
        raise unresolved(name, "no Spark session is at hand")
    table = describe(spark, name)
    if table.what == "missing":
        raise _unknown(name, table.found)
    if table.what == "other":
        raise _no_delta_table(name, table.found)
    if table.what == "silent":
        raise unresolved(name, table.found)
    is_managed = table.managed_by is not None
    return TableName(name, absolute(table.location), table.table_id, is_managed)


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

    try:
        rows = spark.sql(f"SHOW TABLES IN {identifier(schema)}").collect()
    except PySparkException as error:
        raise _unknown(schema, str(error.getCondition() or type(error).__name__)) from error
    return sorted(f"{schema}.{row['tableName']}" for row in rows if not row["isTemporary"])


def other_table(known: TableName, found: TableName) -> PlanError:
    """The error for a remembered name that stands for another table now."""
    return PlanError(
        "FM-PLAN-031",
        f"{known.name} stands for another table now",
        where=known.name,
        found=f"{found.path}, table id {found.table_id}",
        allowed=f"{known.path}, table id {known.table_id}, as it was resolved first",
        state="nothing was journaled; the watermark stands at the table that was resolved first",
        next=f"name the table by its path, {found.path}: it is a new upstream",
    )


def being_read(upstream: str, path: str, run_id: str, batch_id: str) -> PlanError:
    """The error for a table that moved while a run stands as running on it."""
    return PlanError(
        "FM-PLAN-031",
        f"{upstream} has moved while it is being read",
        where=path,
        found=f"run {run_id} of batch {batch_id} stands as RUNNING",
        allowed="a move between two runs",
        state="nothing was journaled; the upstream is looked for in its old place",
        next="wait for the run; if its process is gone: "
        + command("retry", batch_id)
        + ", which ends it, then the same command again",
        retryable=True,
    )


def place_taken(path: str, place: str) -> PlanError:
    """The error for a path whose table moved away, and where another one stands now."""
    return PlanError(
        "FM-PLAN-031",
        f"{path} is the name of a table that moved, and another one stands there now",
        where=path,
        found=f"a Delta table; the upstream of that name is at {place}",
        allowed=f"one table for a name: watermarks and batches know the one at {place} by it",
        state=_STATE,
        next=f"move the new table elsewhere and name it by that place; the moved one is {place}",
    )


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
