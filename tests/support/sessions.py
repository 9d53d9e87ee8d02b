"""Settings of Spark for tests over a handful of rows."""

from __future__ import annotations

SMALL = {
    "spark.driver.memory": "2g",
    # Compiling a query takes longer than running it over a handful of rows.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Planning each stage again by what the one before it wrote pays for itself on large data.
    "spark.sql.adaptive.enabled": "false",
    # A task costs more than its rows: a tenth less for stories of sinks with half as many tasks.
    "spark.sql.files.minPartitionNum": "1",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "1",
}
