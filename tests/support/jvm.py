"""What tests ask of Spark's own JVM: the one place of theirs that reaches for pyspark's handles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def java(spark: SparkSession) -> Any:
    """The packages of the session's JVM."""
    return spark.sparkContext._jvm


def java_session(spark: SparkSession) -> Any:
    """The session as the JVM has it."""
    handle: Any = spark
    return handle._jsparkSession


def java_context(spark: SparkSession) -> Any:
    """The Spark context as the JVM has it."""
    return spark.sparkContext._jsc


def gateway(spark: SparkSession) -> Any:
    """What Python and the JVM speak through."""
    return spark.sparkContext._gateway


def java_pid(spark: SparkSession) -> int:
    """The process of the JVM."""
    return int(java(spark).java.lang.ProcessHandle.current().pid())
