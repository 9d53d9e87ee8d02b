"""Which errors of Spark are worth another attempt: real Java errors, none of them thrown."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.jvm import gateway, java

from floodmark.errors import StreamError
from floodmark.streaming.ledger.limits import WriteLimit, jobs_within
from floodmark.streaming.records.spark_faults import may_pass, unread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

KAFKA = "org.apache.kafka.common.errors"


class CarriedError(Exception):
    """As py4j carries an error of Java."""

    def __init__(self, java_exception: Any) -> None:
        super().__init__("Job aborted\n\tat somewhere")
        self.java_exception = java_exception


@pytest.mark.parametrize(
    ("kind", "passes"),
    [
        (f"{KAFKA}.TimeoutException", True),
        (f"{KAFKA}.NotLeaderOrFollowerException", True),
        (f"{KAFKA}.UnknownTopicOrPartitionException", True),
        ("java.util.concurrent.TimeoutException", True),
        ("java.net.ConnectException", True),
        ("io.delta.exceptions.ConcurrentAppendException", True),
        (f"{KAFKA}.SaslAuthenticationException", False),
        (f"{KAFKA}.TopicAuthorizationException", False),
        (f"{KAFKA}.OffsetOutOfRangeException", False),
        (f"{KAFKA}.UnsupportedVersionException", False),
        ("java.lang.IllegalStateException", False),
        ("java.lang.OutOfMemoryError", False),
    ],
)
def test_an_error_of_a_task_is_judged_by_its_class(
    spark: SparkSession, kind: str, passes: bool
) -> None:
    jvm = java(spark)
    cause = jvm.java.lang.Class.forName(
        kind, True, jvm.java.lang.Thread.currentThread().getContextClassLoader()
    )
    text = gateway(spark).new_array(jvm.java.lang.Class, 1)
    text[0] = jvm.java.lang.Class.forName("java.lang.String")
    said = gateway(spark).new_array(jvm.java.lang.Object, 1)
    said[0] = "said"
    error = cause.getConstructor(text).newInstance(said)
    aborted = jvm.org.apache.spark.SparkException("Job aborted", error)

    assert may_pass(CarriedError(aborted)) is passes


def test_a_job_whose_executors_were_lost_is_tried_again(spark: SparkSession) -> None:
    jvm = java(spark)
    aborted = CarriedError(jvm.org.apache.spark.SparkException("ExecutorLostFailure"))

    error = unread("s", aborted)

    assert (error.code, error.retryable) == ("FM-STREAM-026", True)
    assert error.found == "CarriedError: org.apache.spark.SparkException"


def test_what_a_job_says_of_a_value_is_left_out(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("4711-of-Mrs-Jones",)], "v string").selectExpr("CAST(v AS INT)")
    with pytest.raises(Exception, match="4711") as caught:
        rows.toArrow()

    found = str(unread("s", caught.value).found)

    assert "CAST_INVALID_INPUT" in found
    assert "4711" not in str(unread("s", caught.value))


def test_what_the_client_of_kafka_says_is_kept(spark: SparkSession) -> None:
    jvm = java(spark)
    silent = jvm.java.net.ConnectException("Connection refused")
    aborted = CarriedError(jvm.org.apache.spark.SparkException("Job aborted", silent))

    assert str(unread("s", aborted).found).endswith("java.net.ConnectException: Connection refused")


def test_an_error_of_python_or_of_the_query_is_not_tried_again(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="nowhere") as caught:
        spark.sql("SELECT nowhere").toArrow()

    assert not may_pass(caught.value)
    assert not may_pass(ValueError("no Java behind it"))


def test_jobs_that_do_not_end_are_cancelled_and_no_others(spark: SparkSession) -> None:
    def sleeps(batches: Any) -> Any:
        time.sleep(5)
        yield from batches

    began = time.monotonic()
    with pytest.raises(StreamError) as caught, jobs_within(spark, WriteLimit("s", "batch 1", 1.0)):
        spark.range(1_000).repartition(20).mapInArrow(sleeps, "id bigint").toArrow()

    assert (caught.value.code, caught.value.retryable) == ("FM-STREAM-055", True)
    assert time.monotonic() - began < 40
    with jobs_within(spark, WriteLimit("s", "batch 1", 60.0)):
        assert spark.range(3).count() == 3
