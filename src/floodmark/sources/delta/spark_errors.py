"""What errors of Spark and Delta are about, by their conditions, never by their text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_LOST_FILES = "FAILED_READ_FILE.FILE_NOT_EXIST"


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
    from py4j.protocol import Py4JError

    try:
        return error.getCondition()
    except Py4JError:
        return None  # a Java error that is not Spark's has no such method
