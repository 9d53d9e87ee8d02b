"""What Spark writes on a screen that is ours: nothing that an error of floodmark says better."""

from __future__ import annotations

import logging

_SILENT = logging.CRITICAL + 1
_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Loggers of pyspark that write each failed query to standard error, as one line of JSON of many
kilobytes; the error itself is raised all the same."""


def keep_quiet() -> None:
    """Leave failed queries to whoever catches their errors, unless more logs are asked for."""
    if logging.getLogger("floodmark").isEnabledFor(logging.DEBUG):
        return
    from pyspark.logger import PySparkLogger

    for name in _LOGGERS:
        PySparkLogger.getLogger(name).setLevel(_SILENT)
