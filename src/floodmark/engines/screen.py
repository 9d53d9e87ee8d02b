"""What Spark writes on a screen that is ours: nothing that an error of floodmark says better."""

from __future__ import annotations

import logging
import os
import signal
import threading
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SILENT = logging.CRITICAL + 1
_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Loggers of pyspark that write each failed query to standard error, as one line of JSON of many
kilobytes; the error itself is raised all the same."""
_CANCEL_SECONDS = 3.0
_AGAIN_SECONDS = 0.05


def keep_quiet() -> None:
    """Leave failed queries to whoever catches their errors, unless more logs are asked for."""
    if logging.getLogger("floodmark").isEnabledFor(logging.DEBUG):
        return
    from pyspark.logger import PySparkLogger

    for name in _LOGGERS:
        PySparkLogger.getLogger(name).setLevel(_SILENT)


def cancel_on_interrupt(spark: SparkSession) -> None:
    """Let Ctrl-C cancel the jobs of a session from another thread.

    pyspark's own handler cancels them from the thread that is just waiting for an answer of the
    JVM, on the same connection: that fails, and prints tracebacks.
    """
    if threading.current_thread() is not threading.main_thread():
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        if _swallows(frame):
            threading.Timer(_AGAIN_SECONDS, os.kill, (os.getpid(), number)).start()
            return
        canceller = threading.Thread(target=_cancel, args=(spark,), daemon=True)
        canceller.start()
        canceller.join(_CANCEL_SECONDS)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)


def _swallows(frame: FrameType | None) -> bool:
    """Whether an exception here would be told and forgotten: while an object is cleared away, as
    py4j does all the time.
    """
    while frame is not None:
        if frame.f_code.co_name in ("__del__", "_garbage_collect_object"):
            return True
        frame = frame.f_back
    return False


def _cancel(spark: Any) -> None:
    # A JVM that is gone, or is just ending, has no jobs: nothing is left to be said.
    try:
        spark.sparkContext.cancelAllJobs()
    except Exception:
        logging.getLogger("floodmark").debug("jobs could not be cancelled", exc_info=True)
