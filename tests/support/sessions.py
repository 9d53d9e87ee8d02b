"""Settings of Spark for tests over a handful of rows."""

from __future__ import annotations

SMALL = {
    "spark.driver.memory": "2g",
    # A task costs more than its rows: a tenth less for stories of sinks with half as many tasks.
    "spark.sql.files.minPartitionNum": "1",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "1",
}
"""How much, never how: whatever decides on the way of a query (adaptive execution, generated code)
is as users have it. With code generation off, no test saw that functions of users hung (SPARK-58241).
"""
