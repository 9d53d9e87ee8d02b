"""Formats of plug-ins: the frames they give are checked before anybody uses them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from floodmark.config.plugins import FileFormat, Plugins, guarded, origin_of
from floodmark.errors import SourceError
from floodmark.model.names import quoted
from floodmark.next_steps import THEN_RETRY
from floodmark.sources.files import ReadWith

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MAX_FILES = 5


def reading_with(name: str, upstream: str, plugins: Plugins) -> ReadWith:
    """What reads files in the format of a plug-in, which is looked up when there is work to do.

    Raises FM-CONFIG-013 then if there is none of that name, FM-SOURCE-045 if it fails.
    """

    def read(
        spark: SparkSession, paths: list[str], options: Mapping[str, Any], ddl: str | None
    ) -> DataFrame:
        function = plugins.find(FileFormat, name).read
        where = f"{upstream}: {_shown(paths)}"
        frame = called(function, (spark, paths, dict(options)), where)
        return with_columns(frame, ddl, function, where)

    return read


def called(function: Any, arguments: tuple[Any, ...], where: str) -> Any:
    """What a function of a plug-in gives; whatever it raises becomes FM-SOURCE-045."""

    def failure(found: str) -> SourceError:
        return failed("raised an error", function, where, found, "a frame")

    return guarded(function, arguments, failure)


def with_columns(frame: Any, ddl: str | None, function: Any, where: str) -> DataFrame:
    """The frame in the order of the declared columns; raises FM-SOURCE-045 for another one."""
    from pyspark.sql import DataFrame

    if not isinstance(frame, DataFrame):
        raise failed("gave no frame", function, where, f"a {type(frame).__name__}", "a DataFrame")
    if ddl is None:
        return frame
    declared = _kinds(frame.sparkSession.createDataFrame([], ddl))
    actual = _kinds(frame)
    if actual != declared:
        other = dict(actual.items() - declared.items()), dict(declared.items() - actual.items())
        raise failed("gave other columns", function, where, *map(_listed, other))
    return frame.select(*map(quoted, declared))


def _kinds(frame: DataFrame) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in frame.schema.fields}


def _listed(columns: dict[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in sorted(columns.items())) or "none of these"


def _shown(paths: list[str]) -> str:
    more = len(paths) - MAX_FILES
    return ", ".join(paths[:MAX_FILES]) + (f" and {more:,} more" if more > 0 else "")


def failed(what: str, function: Any, where: str, found: str, allowed: str) -> SourceError:
    """A function of a plug-in did not do what it is for (FM-SOURCE-045)."""
    return SourceError(
        "FM-SOURCE-045",
        f"{origin_of(function)} {what}",
        where=where,
        found=found,
        allowed=allowed,
        state="nothing was written; the committed watermark stays",
        next="correct the function or its input, " + THEN_RETRY,
    )
