"""Windows of whole answers on Spark."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from floodmark.model import NOTHING_PROCESSED, AnswerMark, AnswerWindow, Settlement, TableFacts
from floodmark.sources.frames import with_change_columns
from floodmark.sources.http.probe import AnswerReader
from floodmark.sources.source import Readers, SparkAccess, reader_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class AnswerSource:
    """Reads windows of whole answers through Spark."""

    def __init__(self, spark: SparkSession, readers: Readers) -> None:
        self._spark = spark
        self._readers = readers

    def check(self, window: AnswerWindow) -> TableFacts:
        """Prove that the answer of the window is there as it was planned (FM-SOURCE-053)."""
        reader = self._reader(window)
        reader.readable(window, _answer_of(window))
        return reader.facts()

    def resolved(self, window: AnswerWindow, choice: Settlement) -> AnswerWindow | None:
        """snapshot: the answer as it is now. accept: without it."""
        reader, answer = self._reader(window), _answer_of(window)
        if window.method == "lost" or answer is None or not reader.is_gone(answer):
            return None
        name = f"the answer of {answer.text}"
        if choice == "accept":
            reason = f"{name}: not as planned; left out, the loss was accepted"
            return replace(window, method="lost", reason=reason, bytes=None)
        amended = replace(window, method="snapshot", reason=f"{name}: read as now, as asked for")
        reader.readable(amended, answer)
        return amended if window.method != "snapshot" else None

    def read(self, window: AnswerWindow) -> DataFrame:
        """The records of the window's answer, then the three change columns."""
        mark = self._reader(window).readable(window, _answer_of(window))
        return with_change_columns(self._records(window, mark), window)

    def table(self, window: AnswerWindow, at_version: int) -> DataFrame:
        """The records of the answer at one side of the window."""
        if at_version == NOTHING_PROCESSED:
            return self._records(window, None)
        is_end = at_version == window.through
        mark = window.through_mark if is_end else window.after_mark
        return self._records(window, self._reader(window).readable(window, mark))

    def _records(self, window: AnswerWindow, mark: AnswerMark | None) -> DataFrame:
        """Those of an answer; of none no rows, with their columns.

        Raises FM-SOURCE-042 where nothing tells the columns.
        """
        reader = self._reader(window)
        if mark is not None:
            return reader.answers.frame(self._spark, mark, reader.ddl)
        example = window.through_mark if reader.ddl is None else None
        return reader.answers.frame(self._spark, example or AnswerMark("", 0), reader.ddl).limit(0)

    def _reader(self, window: AnswerWindow) -> AnswerReader:
        reader = reader_of(self._readers, window.upstream)
        if not isinstance(reader, AnswerReader):
            raise TypeError(f"{window.upstream}: a {type(reader).__name__} reads no whole answers")
        return reader


def source(access: SparkAccess) -> AnswerSource:
    """See `sources.kinds`."""
    return AnswerSource(access.spark, access.readers)


def _answer_of(window: AnswerWindow) -> AnswerMark | None:
    """The answer of a window, if it has a new one."""
    return None if window.through_mark == window.after_mark else window.through_mark
