"""Queries that keep state: windows of event time, and records that count once.

Spark keeps the state in its checkpoint and drops what is late by its own watermark. Neither tells
which records those were, so every batch is judged a second time, by its exact offsets and by the
watermark that Spark used: dead letters and counts come from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from floodmark.config import LoadedStream
from floodmark.config.stream import WINDOW_COLUMNS, AggregateSettings, StreamingSettings
from floodmark.model.names import quoted
from floodmark.model.offsets import Offsets
from floodmark.streaming.records.judged_letters import JudgedLetters
from floodmark.streaming.records.late import LateRule
from floodmark.streaming.records.read import (
    BAD,
    EVENT_TIME,
    JUDGEMENT,
    KEY,
    LATE,
    PLACE,
    VALUE,
    Records,
    Wanted,
)
from floodmark.streaming.records.target_rules import TargetRules

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_WINDOW = "_fm_window"
_MICROS = 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DUPLICATES = "numDroppedDuplicateRows"
"""Spark's own name of the number of rows that a deduplication dropped."""


@dataclass(frozen=True)
class Tally:
    """What became of the records of a batch before the target saw anything of it."""

    received: int
    late: int
    letters: JudgedLetters
    newest_event: datetime | None = None
    """Of the records that could be read."""

    @property
    def counted(self) -> int:
        """Records that are neither late nor dead letters: with state, those that reached it."""
        return self.received - self.late - len(self.letters)


@dataclass(frozen=True)
class StateQuery:
    """The part of a query that keeps state, as the settings of one stream say it."""

    stream: LoadedStream

    @property
    def _run(self) -> StreamingSettings:
        return self.stream.settings.streaming

    @property
    def definition(self) -> str:
        """What the state is of."""
        return self._run.state_definition

    @property
    def output_mode(self) -> str:
        """As Spark wants it: without windows every record comes once, whatever is said."""
        return self._run.output_mode if self._run.aggregate is not None else "append"

    @property
    def has_windows(self) -> bool:
        """Whether rows are results of many records, and no record's own."""
        return self._run.aggregate is not None

    @property
    def hides_duplicates(self) -> bool:
        """Whether only Spark knows how many duplicates it dropped: windows come behind them."""
        return self._run.aggregate is not None and self._run.deduplicate is not None

    @cached_property
    def _event_time(self) -> str | None:
        return self._run.watermark.event_time_column if self._run.watermark else None

    @cached_property
    def _required(self) -> tuple[str, ...]:
        """Spark leaves records without a time out of every window; a key of NULL is none."""
        aggregate, load = self._run.aggregate, self.stream.settings.load
        is_key = load.sink_type == "postgresql" and load.write_mode == "upsert"
        groups = aggregate.group_by if aggregate is not None and is_key else []
        return (*([self._event_time] if self._event_time else []), *groups)

    @property
    def own_columns(self) -> tuple[str, ...]:
        """Columns of the target whose value is a record's own, and no result of many."""
        aggregate = self._run.aggregate
        return tuple(self.stream.columns if aggregate is None else aggregate.group_by)

    def frame(self, records: DataFrame, rules: TargetRules) -> DataFrame:
        """The rows of each batch, for a stream of records as Spark's Kafka source gives them.

        `rules` are those of `own_columns`: what breaks one of them reaches no state.
        """
        judged = Records(records, self._wanted(self._columns)).judged()
        sound = (rules.applied(judged) if rules else judged).where(f"{BAD} IS NULL")
        delay = f"{round(self._run.state_seconds * 1_000)} milliseconds"
        rows = sound.withWatermark(EVENT_TIME, delay)
        if self._run.deduplicate is not None:
            rows = rows.dropDuplicatesWithinWatermark(self._run.deduplicate.columns)
        if self._run.aggregate is not None:
            return _windows(rows, self._run.aggregate).select(*map(quoted, self.stream.columns))
        return rows.select(*map(quoted, self.stream.columns), *PLACE, *JUDGEMENT)

    @property
    def _columns(self) -> Sequence[str]:
        """Of the payload: measures may use any of them."""
        if self._run.aggregate is not None:
            return self.stream.payload.names
        keys = self._run.deduplicate.columns if self._run.deduplicate is not None else []
        return list(dict.fromkeys([*self.stream.columns, *keys]))

    def _wanted(self, columns: Sequence[str], **more: Any) -> Wanted:
        nothing = Offsets()
        payload, required = self.stream.payload, self._required
        said = {"start": nothing, "end": nothing, **more}
        return Wanted(
            payload=payload,
            columns=columns,
            event_time=self._event_time,
            required=required,
            nul_bytes=self.stream.settings.load.nul_bytes,
            refuses_nul=self.has_windows and self.stream.settings.load.sink_type == "postgresql",
            **said,
        )

    def judging(self, start: Offsets, end: Offsets, watermark_ms: int) -> Wanted:
        """How the records of a batch are judged once more; late ones by Spark's own rule.

        `watermark_ms` is that of the batch before: what Spark drops by.
        """
        # Windows of complete output drop nothing; a deduplication before them does.
        keeps_all = self._run.output_mode == "complete" and self._run.deduplicate is None
        is_late = None if keeps_all else self._is_late(watermark_ms)
        return self._wanted((), start=start, end=end, is_late=is_late)

    def judged(self, records: Records, rules: TargetRules) -> DataFrame:
        """Records that are read by `judging`, judged by the rules of `frame` too."""
        if not rules:
            return records.judged()
        wanted = replace(records.wanted, columns=rules.columns, keeps_bytes=True)
        judged = rules.applied(replace(records, wanted=wanted).judged())
        return judged.select(*PLACE, *JUDGEMENT)

    def _is_late(self, watermark_ms: int) -> Any:
        """Not behind the watermark: the record itself, or the end of its last window."""
        aggregate = self._run.aggregate if self._run.deduplicate is None else None

        def rule(event_time: Column) -> Column:
            from pyspark.sql import functions as f

            moment = f.unix_micros(event_time)
            if aggregate is not None:
                slide, length = (
                    f.lit(round(seconds * _MICROS))
                    for seconds in (aggregate.slide_seconds, aggregate.window_seconds)
                )
                moment = moment - f.pmod(moment, slide) + length
            return moment <= f.lit(watermark_ms * 1_000)

        return rule


def _windows(rows: DataFrame, aggregate: AggregateSettings) -> DataFrame:
    from pyspark.sql import functions as f

    spans = [
        f"{round(seconds * _MICROS)} microseconds"
        for seconds in (aggregate.window_seconds, aggregate.slide_seconds)
    ]
    window = f.window(EVENT_TIME, *spans).alias(_WINDOW)
    measures = [f.expr(sql).alias(name) for name, sql in aggregate.measures.items()]
    grouped = rows.groupBy(window, *map(quoted, aggregate.group_by)).agg(*measures)
    ends = zip(WINDOW_COLUMNS, ("start", "end"), strict=True)
    return grouped.select(*(f.col(f"{_WINDOW}.{end}").alias(name) for name, end in ends), "*")


def tallied(called: str, records: DataFrame, late: LateRule | None = None) -> Tally:
    """Count judged records by what is wrong with them; the dead letters stay with the executors.

    `late` is the rule of a stream without state; where it makes dead letters of late records, they
    are such here. `called` is what commands call the stream.
    """
    from pyspark.sql import functions as f

    newest = f.max(f.unix_micros(EVENT_TIME)).alias("newest")
    lengths = [f.coalesce(f.octet_length(name), f.lit(0)).cast("bigint") for name in (KEY, VALUE)]
    size = f.sum(lengths[0] + lengths[1]).alias("size")
    rows = records.groupBy(BAD).agg(f.count("*").alias("records"), newest, size).collect()
    counts = {row[BAD]: int(row["records"]) for row in rows}
    keeps_late = late is not None and not late.is_dropped
    no_letters = {None} if keeps_late else {None, LATE}
    reasons = counts.keys() - no_letters
    letters = JudgedLetters(
        called,
        records.where(f.col(BAD).isin(*sorted(reasons))) if reasons else records.limit(0),
        sum(counts[reason] for reason in reasons),
        sum(int(row["size"] or 0) for row in rows if row[BAD] in reasons),
        late,
    )
    times = [
        row["newest"] for row in rows if row[BAD] in (None, LATE) and row["newest"] is not None
    ]
    dropped = 0 if keeps_late else counts.get(LATE, 0)
    return Tally(sum(counts.values()), dropped, letters, _time_of(max(times, default=None)))


def _time_of(micros: int | None) -> datetime | None:
    return None if micros is None else _EPOCH + timedelta(microseconds=micros)
