"""Settings of Spark for tests over a handful of rows."""

from __future__ import annotations

QUICK = {
    # Compiling a query takes longer than running it over a handful of rows.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Planning each stage again by what the one before it wrote pays for itself on large data.
    "spark.sql.adaptive.enabled": "false",
}
AS_USERS = {
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.adaptive.enabled": "true",
}
"""What decides on the way of a query, as users have it: for tests that are marked `as_users`, and for
all with `--full`. Everywhere it would cost two thirds more time; nowhere, a hang of functions of
users over Parquet stayed unseen (SPARK-58241)."""
SMALL = {
    "spark.driver.memory": "2g",
    # A task costs more than its rows: a tenth less for stories of sinks with half as many tasks.
    "spark.sql.files.minPartitionNum": "1",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "1",
    **QUICK,
}
