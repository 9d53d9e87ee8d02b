"""What errors of Spark and Delta mean: by their conditions and Java classes, not by their text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

MAX_CAUSES = 50
"""A chain of causes that is longer goes in a circle."""
_LOST_FILES = "FAILED_READ_FILE.FILE_NOT_EXIST"


def engine_errors() -> tuple[type[Exception], ...]:
    """What an engine raises that cannot do what it was asked, or is gone."""
    from pyspark.errors import PySparkException

    return (PySparkException, *_of_the_gateway())


def _of_the_gateway() -> tuple[type[Exception], ...]:
    """None without py4j, which a client of Spark Connect does not need."""
    try:
        from py4j.protocol import Py4JError
    except ImportError:
        return ()
    return (Py4JError,)


def lost_files(error: BaseException) -> bool:
    """Whether Spark failed because data files are gone, by the conditions of its error chain."""
    return any(condition == _LOST_FILES for condition in conditions(error))


def conditions(error: BaseException) -> Iterator[str]:
    """The Spark conditions of an error, of its causes, and of the Java errors behind them."""
    seen: set[int] = set()
    pending: list[Any] = [error]
    while pending:
        current = pending.pop()
        if current is None or id(current) in seen or len(seen) > 100:
            continue
        seen.add(id(current))
        condition = _condition(current)
        if condition:
            yield condition
        pending += _behind(current)


def _behind(error: Any) -> list[Any]:
    if isinstance(error, BaseException):
        # py4j keeps the Java error as java_exception; pyspark's own classes keep it as _origin.
        java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
        return [error.__cause__, error.__context__, java]
    return [error.getCause()]


def _condition(error: Any) -> str | None:
    """Python and Java errors of Spark have the same method; others have none."""
    if isinstance(error, BaseException):
        condition = error.getCondition() if hasattr(error, "getCondition") else None
    else:
        condition = _java_condition(error)
    return condition if isinstance(condition, str) else None


def _java_condition(error: Any) -> Any:
    try:
        return error.getCondition()
    except _of_the_gateway():
        return None  # a Java error that is not Spark's has no such method


def java_errors(error: BaseException) -> Iterator[tuple[str, str]]:
    """Class and message of the Java errors behind an error of Spark, outermost first."""
    for java in _causes(error):
        yield java.getClass().getName(), str(java.getMessage())


def cause_of(error: BaseException) -> tuple[str, str]:
    """Kind and text of what went wrong first: Spark and py4j wrap it in layers of their own."""
    *_, (kind, message) = [(type(error).__name__, str(error)), *java_errors(error)]
    return kind.rpartition(".")[2], message.strip()


def java_classes(error: BaseException) -> Iterator[tuple[str, ...]]:
    """For each Java error behind an error of Spark, outermost first: its class, and those above."""
    for java in _causes(error):
        yield tuple(_lineage(java.getClass()))


def _lineage(kind: Any) -> Iterator[str]:
    while kind is not None:
        yield kind.getName()
        kind = kind.getSuperclass()


def spark_condition(error: BaseException) -> str:
    """The condition by which Spark names an error, the outermost that has one; else empty."""
    ours = getattr(error, "getCondition", None)
    if ours is not None:
        return str(ours() or "")
    conditions = (java.getCondition() for java in _causes(error) if _is_sparks(java))
    return next((str(condition) for condition in conditions if condition is not None), "")


def unread_file(error: BaseException) -> str | None:
    """The path or URI of the file that Spark could not read, if that is what an error says."""
    for java in _causes(error):
        if _is_sparks(java) and str(java.getCondition()).startswith("FAILED_READ_FILE"):
            path = java.getMessageParameters().get("path")
            return None if path is None else str(path)
    return None


def raised_texts(error: BaseException) -> Iterator[str]:
    """What `raise_error` of a plan says, if that is what an error of Spark comes from."""
    for java in _causes(error):
        if _is_sparks(java) and str(java.getCondition()) == "USER_RAISED_EXCEPTION":
            yield str(java.getMessageParameters().get("errorMessage"))


def _is_sparks(java: Any) -> bool:
    return any(method.getName() == "getCondition" for method in java.getClass().getMethods())


def sql_state(error: BaseException) -> str:
    """The SQLSTATE that a database gave with the Java errors behind an error of Spark, if any."""
    for java in _causes(error):
        if any(method.getName() == "getSQLState" for method in java.getClass().getMethods()):
            return str(java.getSQLState() or "")
    return ""


def _causes(error: BaseException) -> Iterator[Any]:
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    for _ in range(MAX_CAUSES):
        if java is None:
            return
        yield java
        java = java.getCause()
