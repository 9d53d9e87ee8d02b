"""What all kinds do with Spark: change columns, times as it compares them, paths as it takes them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from floodmark.model import CHANGE_COLUMNS, TimeMark, Window, epoch_micros
from floodmark.sources.faults import hides_files

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_HIDING = ("spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles")
_TYPE, _VERSION, _TIMESTAMP = CHANGE_COLUMNS
HALF_COPIED = "._COPYING_"
"""How the names of files end that Hadoop is still copying to; Spark leaves them out."""
_GLOB = str.maketrans({character: f"\\{character}" for character in "\\*?[]{}"})


def with_change_columns(frame: DataFrame, window: Window) -> DataFrame:
    """Rows of a window without versions with the three change columns: each is an insert."""
    return as_inserts(frame, window.through, window.end_at)


def as_inserts(frame: DataFrame, version: int, at: datetime | None) -> DataFrame:
    """Rows with the three change columns: all came with one version, at one time."""
    instant = "CAST(NULL AS TIMESTAMP_LTZ)" if at is None else _instant_sql(at)
    # As text: each call of a function on columns goes to the JVM half a dozen times.
    return frame.selectExpr(
        "*", f"'insert' AS {_TYPE}", f"{version}L AS {_VERSION}", f"{instant} AS {_TIMESTAMP}"
    )


def time_literal(mark: TimeMark) -> Column:
    """A mark of time as Spark compares it."""
    from pyspark.sql import functions as fn

    return fn.expr(time_sql(mark))


def time_sql(mark: TimeMark) -> str:
    """The same as text."""
    if mark.type == "timestamp":
        return _instant_sql(mark.instant)
    return f"CAST('{mark.text}' AS {mark.type})"


def _instant_sql(at: datetime) -> str:
    """Exact, and independent of the time zones of session and process."""
    return f"timestamp_micros({epoch_micros(at)}L)"


def escaped(path: str) -> str:
    """A path as Spark's readers take it, who would see a glob in it."""
    return path.translate(_GLOB)


def refuse_hidden_files(spark: SparkSession, window: Window) -> None:
    """Raise FM-SOURCE-005 if the session would read past missing or corrupt files."""
    for setting in _HIDING:
        if str(spark.conf.get(setting, "false")).lower() == "true":
            raise hides_files(window, setting)
