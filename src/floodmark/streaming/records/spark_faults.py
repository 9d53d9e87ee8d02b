"""What an error of Spark means for a stream, by the Java classes behind it and Spark's condition.

passing  the same offsets may be read later: brokers that do not answer, connections, lost executors
lasting  somebody has to mend something: records that are gone, rights, settings, queries
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from floodmark.engines.faults import java_classes, java_errors, spark_condition
from floodmark.errors import FloodmarkError, StreamError
from floodmark.next_steps import command

Result = TypeVar("Result")

_PASSING = frozenset(
    (
        "org.apache.kafka.common.errors.RetriableException",
        "java.util.concurrent.TimeoutException",
        "java.io.IOException",
        # Another writer of a Delta table was faster: the same batch fits behind it.
        "io.delta.exceptions.DeltaConcurrentModificationException",
    )
)
_LASTING = frozenset(
    (
        # A login or certificate that a broker refuses; one that goes away is another class.
        "org.apache.kafka.common.errors.AuthenticationException",
        "org.apache.kafka.common.errors.AuthorizationException",
        # Kafka calls it retriable, for clients that may begin elsewhere.
        "org.apache.kafka.common.errors.OffsetOutOfRangeException",
        "org.apache.kafka.clients.consumer.OffsetOutOfRangeException",
    )
)
_WITHOUT_A_CAUSE = "org.apache.spark.SparkException"
"""All there is behind a job whose executors were lost."""
_DATA_LOSS = "KAFKA_DATA_LOSS"
_SEES_NO_VALUES = ("org.apache.kafka.", "java.net.", "io.delta.exceptions.Concurrent")


def may_pass(error: BaseException) -> bool:
    """Whether the same may succeed later; what is not known is not tried again."""
    chain = list(java_classes(error))
    every = frozenset(name for classes in chain for name in classes)
    if every & _LASTING or spark_condition(error).startswith(_DATA_LOSS):
        return False
    is_bare = bool(chain) and all(classes[0] == _WITHOUT_A_CAUSE for classes in chain)
    return is_bare or bool(every & _PASSING)


def asked(called: str, act: Callable[[], Result]) -> Result:
    """What a job of Spark gives for a stream; raises FM-STREAM-026."""
    try:
        return act()
    # Whatever Spark throws is told as one of ours; its class says whether it may pass.
    except Exception as error:
        raise unread(called, error) from error


def unread(stream: str, error: BaseException) -> StreamError:
    """FM-STREAM-026: whether records are gone is told by the brokers at the next start."""
    state = "nothing of the batch was written; the stored offsets stand where they stood"
    return _told(stream, error, "records of a batch could not be read from Kafka", state)


def ended(stream: str, error: BaseException) -> StreamError:
    """FM-STREAM-026 for a query that ended by itself."""
    state = "what is committed stays; a batch that was under way is repeated"
    return _told(stream, error, "Spark ended the query of a stream", state)


def said_of_query(error: BaseException) -> str:
    """The class of an error and its first line, bounded; of a query that has seen no record yet."""
    return f"{type(error).__name__}: {_first_line(str(error))}"


def said_of_job(error: BaseException) -> str:
    """What kind of error ended a job: classes, and the condition by which Spark knows it.

    Text of a job may show values of the records that it worked on, and any of them may be sensitive.
    Clients of Kafka and connections see no values: theirs is kept, bounded.
    """
    if isinstance(error, FloodmarkError):
        return error.in_one_line()
    named = type(error).__name__
    if condition := spark_condition(error):
        named = f"{named} [{condition}]"
    causes = list(java_errors(error))
    for kind, message in causes:
        if kind.startswith(_SEES_NO_VALUES):
            return f"{named}: {kind}: {_first_line(message)}"
    return f"{named}: {causes[-1][0]}" if causes else named


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:500] if lines else ""


def _told(stream: str, error: BaseException, title: str, state: str) -> StreamError:
    return StreamError(
        "FM-STREAM-026",
        title,
        stream=stream,
        found=said_of_job(error),
        state=state,
        next=command("stream", "run", stream),
        retryable=may_pass(error),
    )
