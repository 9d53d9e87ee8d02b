"""Rows of a web API: the whole answer where it is new, or what is new in it by a cursor."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from floodmark.errors import SourceError
from floodmark.model import cursor_marks
from floodmark.model.cursor_marks import CursorMark, ValueMark, is_after
from floodmark.model.delta import TableFacts
from floodmark.model.file_marks import AnswerMark
from floodmark.model.plan import TimeFacts
from floodmark.model.window import NOTHING_PROCESSED, AnswerWindow, Settlement
from floodmark.sources.cursor.read import Readers, reader_of
from floodmark.sources.cursor.rows import OnNullCursor
from floodmark.sources.http.answers import Answer, Answers
from floodmark.sources.scratch import Scratch
from floodmark.sources.time import probe as times

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PLANNED_SECONDS = 86_400.0
"""So long a run uses the answer that its plan has looked at, instead of asking once more."""


@dataclass(frozen=True)
class AnswerReader:
    """The whole answer: a window is one, told from the one before by its content."""

    upstream: str
    answers: Answers
    ddl: str | None = None
    cache_seconds: float = 0.0

    def facts(self) -> TableFacts:
        """What is known without a look: an answer has no versions."""
        return times.folder_facts(self.upstream)

    def look(
        self,
        window: AnswerWindow,
        now: datetime,  # noqa: ARG002 a door
        spark: Any = None,  # noqa: ARG002 a door
        scratch: Scratch | None = None,
    ) -> TimeFacts:
        """A new answer, if it differs from the one before; keeps it."""
        answer = self.answers.with_scratch(scratch).ask({}, self.cache_seconds)
        before = window.after_mark
        if before is not None and before.id == answer.mark.id:
            return TimeFacts("files", None, note=answer.note)
        return TimeFacts("files", answer.mark, rows=answer.mark.count, note=answer.note)

    def examine(self, now: datetime, spark: Any = None) -> None:  # noqa: ARG002 a door
        """Ask what a first run would ask; raises what it would, and keeps nothing."""
        self.answers.with_scratch(Scratch()).ask({}, self.cache_seconds)

    def is_gone(self, mark: AnswerMark | None) -> bool:
        """Whether an answer that was looked at is no longer kept."""
        return mark is not None and not self.answers.has(mark)

    def readable(self, window: AnswerWindow, mark: AnswerMark | None) -> AnswerMark | None:
        """The answer as it was planned; raises FM-SOURCE-053 if it is gone and nothing is decided.

        snapshot: as it is now. lost: without it.
        """
        if mark is None or not self.is_gone(mark):
            return mark
        if window.method == "snapshot":
            return self.answers.ask({}, PLANNED_SECONDS).mark
        if window.method == "lost":
            return None
        raise self.answers.gone(mark)

    def frame(
        self, spark: SparkSession, window: AnswerWindow, mark: AnswerMark | None
    ) -> DataFrame:
        """The records of an answer.

        Of none no rows, with their columns: FM-SOURCE-042 where nothing tells them.
        """
        if mark is not None:
            return self.answers.frame(spark, mark, self.ddl)
        known = window.through_mark if self.ddl is None else None
        return self.answers.frame(spark, known or AnswerMark("", 0), self.ddl).limit(0)


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

    def settled(self, window: AnswerWindow, choice: Settlement) -> AnswerWindow | None:
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
        from floodmark.sources.time.read import with_change_columns

        reader = self._reader(window)
        mark = reader.readable(window, _answer_of(window))
        return with_change_columns(reader.frame(self._spark, window, mark), window)

    def table(self, window: AnswerWindow, at_version: int) -> DataFrame:
        """The records of the answer at one side of the window."""
        reader = self._reader(window)
        if at_version == NOTHING_PROCESSED:
            return reader.frame(self._spark, window, None)
        is_end = at_version == window.through
        mark = reader.readable(window, window.through_mark if is_end else window.after_mark)
        return reader.frame(self._spark, window, mark)

    def look(self, window: AnswerWindow, now: datetime, settle_seconds: float | None) -> TimeFacts:  # noqa: ARG002 answers do not settle
        """See `QuerySource.look`."""
        return self._reader(window).look(window, now)

    def _reader(self, window: AnswerWindow) -> AnswerReader:
        found: Any = reader_of(self._readers, window.upstream)
        reader: AnswerReader = found
        return reader


def _answer_of(window: AnswerWindow) -> AnswerMark | None:
    """The answer of a window, if it has a new one."""
    return None if window.through_mark == window.after_mark else window.through_mark


class CursorAnswers:
    """What is new in the answers to one question, by a key of the records. See `Rows`."""

    def __init__(
        self,
        upstream: str,
        answers: Answers,
        cursor: str,
        ddl: str,
        *,
        parameter: str | None = None,
        kind: str | None = None,
        on_null_cursor: OnNullCursor = "fail",
        cache_seconds: float = 0.0,
        scope: str = "",
    ) -> None:
        self._upstream = upstream
        self._answers = answers
        self._cursor = cursor
        self._ddl = ddl
        self._parameter = parameter
        self._kind = kind
        self._on_null_cursor = on_null_cursor
        self._cache_seconds = cache_seconds
        self._scope = scope
        self._latest: Answer | None = None

    @property
    def note(self) -> str | None:
        """How the latest answer was come by."""
        return None if self._latest is None else self._latest.note

    def newest(
        self, low: CursorMark | None, ceiling: CursorMark | None, scratch: Scratch | None = None
    ) -> CursorMark | None:
        """The newest value, none above `ceiling`, for which the answer at hand is looked at again."""
        answers = self._answers.with_scratch(scratch)
        if ceiling is None or self._latest is None:
            self._latest = answers.ask(self._since(low), self._cache_seconds)
        mark = self._newest_of(answers.lines(self._latest.mark), ceiling)
        if mark is not None:
            answers.plan_from(self._latest, self._since(low), self._planned_as(mark))
        return mark

    def frame(self, spark: SparkSession, low: CursorMark | None, high: CursorMark) -> DataFrame:
        """The rows of the answer that the plan has looked at; of a new one if that is not at hand."""
        since, what = self._since(low), self._planned_as(high)
        age = max(self._cache_seconds, PLANNED_SECONDS)
        answer = self._answers.planned(since, what, age) or self._answers.ask(since, -1.0)
        self._latest = answer
        return self._answers.frame(spark, answer.mark, self._ddl)

    def _planned_as(self, high: CursorMark) -> tuple[str, str]:
        """Whose plan it is, and how far it reaches: an API may show another part to the next one."""
        return self._scope, high.encoded()

    def no_rows(self, spark: SparkSession, mark: CursorMark | None) -> DataFrame:  # noqa: ARG002 a door
        """No rows, with the declared columns."""
        return spark.createDataFrame([], self._ddl)

    def _since(self, low: CursorMark | None) -> dict[str, str]:
        return {} if low is None or self._parameter is None else {self._parameter: low.text}

    def _newest_of(self, lines: Iterable[bytes], ceiling: CursorMark | None) -> CursorMark | None:
        newest: CursorMark | None = None
        for line in lines:
            mark = self._mark_of(json.loads(line, parse_float=Decimal))
            if mark is None or (ceiling is not None and is_after(mark, ceiling)):
                continue
            if newest is not None and newest.type != mark.type:
                raise self._no_mark(f"values of types {newest.type} and {mark.type}")
            newest = mark if newest is None or is_after(mark, newest) else newest
        return newest

    def _mark_of(self, record: Mapping[str, Any]) -> CursorMark | None:
        """The mark of a record; None where it has none and that is allowed."""
        value = record.get(self._cursor)
        if value is None:
            if self._on_null_cursor == "fail":
                raise self._no_value(record)
            return None
        return self._typed(value)

    def _typed(self, value: Any) -> CursorMark:
        """The mark of a value of JSON: numbers as they are, text as a time, or as text where said."""
        try:
            if isinstance(value, str):
                mark = cursor_marks.guessed(value, self._kind)
                is_text = mark.type == "string"
                if not is_text or self._kind == "string":
                    return mark
            elif isinstance(value, Decimal) or self._kind == "decimal":
                return ValueMark("decimal", Decimal(value))
            elif isinstance(value, int) and not isinstance(value, bool):
                return ValueMark("int", value)
        except (ValueError, ArithmeticError, TypeError) as error:
            raise self._no_mark(f"{type(error).__name__}: {error}"[:200]) from error
        raise self._no_mark(f"a {type(value).__name__}: {str(value)[:60]}")

    def _no_mark(self, found: str) -> SourceError:
        return SourceError(
            "FM-SOURCE-033",
            "the cursor gives no marks",
            where=f"{self._upstream}, cursor {self._cursor}",
            found=found,
            allowed="values of one kind: integers, ISO dates, ISO times with a zone or without; with"
            " type: decimal also fractions, with type: string and order: binary also text",
            state="nothing was read or written; the committed watermark stays",
            next="say another cursor or its type, then run the same command again",
        )

    def _no_value(self, record: Mapping[str, Any]) -> SourceError:
        return SourceError(
            "FM-SOURCE-032",
            "records have no value in the cursor",
            where=f"{self._upstream}, cursor {self._cursor}",
            found=f"a record with the keys {', '.join(record)}"[:300],
            allowed="a value in each record; on_null_cursor: skip, or include with keys",
            state="nothing was read or written; the committed watermark stays",
            next="say another cursor or on_null_cursor, then run the same command again",
        )
