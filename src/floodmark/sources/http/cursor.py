"""What is new in the answers of a web API by a cursor: a key of their records."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from floodmark.errors import SourceError
from floodmark.model import CursorMark, ValueMark, cursor_marks
from floodmark.model.cursor_marks import is_after
from floodmark.sources.cursor import OnNullCursor
from floodmark.sources.http.answers import PLANNED_SECONDS, Answer, Answers
from floodmark.sources.scratch import Scratch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class CursorAnswers:
    """What is new in the answers to one question, by a key of the records. See `sources.cursor.Rows`."""

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
        """See `Rows.note`."""
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

    def no_rows(self, spark: SparkSession, mark: CursorMark | None) -> DataFrame:  # noqa: ARG002 see Rows
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
