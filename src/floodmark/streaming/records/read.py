"""A batch of Kafka records by exact offsets, parsed, judged, and still one frame.

Every record of the ranges is one row: the columns of the target, where it stood in Kafka, and what
is wrong with it. The bytes of a record are kept only where it is not written, so that good rows
carry nothing twice.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from floodmark.config.stream import StreamSchema
from floodmark.engines.spark import needing_kafka
from floodmark.model import epoch_micros
from floodmark.model.names import quoted
from floodmark.model.offsets import Offsets, span

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

TOPIC, PARTITION, OFFSET, TIMESTAMP = "_topic", "_partition", "_offset", "_timestamp"
PLACE = (TOPIC, PARTITION, OFFSET, TIMESTAMP)
BAD, BAD_COLUMN, KEY, VALUE = "_fm_bad", "_fm_column", "_fm_key", "_fm_value"
EVENT_TIME = "_fm_event_time"
JUDGEMENT = (BAD, BAD_COLUMN, KEY, VALUE, EVENT_TIME)

EMPTY, MALFORMED, NULL, LATE, UNFIT = "empty", "malformed", "null", "late", "value"
CHECK = "check"
DETAILS = {
    EMPTY: "the record has no value",
    MALFORMED: "the value is no JSON object of the schema",
    NULL: "a required column has no value",
    LATE: "the record came after the event-time watermark",
    UNFIT: "a text has U+0000, which the target does not take",
    CHECK: "the target does not take the row: a CHECK constraint, or a text longer than its column",
}
"""What is wrong with a record, by its reason."""

KNOWN_YEARS = datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)
"""Of events: Python knows no time outside of them, in whatever zone."""

_CORRUPT = "_fm_corrupt"
_MARK = f"_fm_{secrets.token_hex(8)}"
"""A name that no record can know."""
_PARSED = "_fm_parsed"
_INSTEAD_OF_NUL = {"strip": "", "replace": "\ufffd"}
_SIZED_TEXT = re.compile(r"\b(?:var)?char\(\d+\)")


@dataclass(frozen=True)
class Wanted:
    """What to read, and by what to judge it."""

    start: Offsets
    end: Offsets
    payload: StreamSchema
    columns: Sequence[str]
    """Of the target."""
    event_time: str | None = None
    """The column with the time of the event."""
    late_before: datetime | None = None
    """Records of an earlier time are late."""
    nul_bytes: str = "reject"
    """What becomes of U+0000 in texts: `reject` leaves it to the target, which refuses it."""
    is_late: Callable[[Column], Column] | None = None
    """Another rule of what is late, by the time of the event."""
    required: Sequence[str] = ()
    """Columns of the payload that have to have a value, beside those that its schema says."""
    refuses_nul: bool = False
    """Whether a record with U+0000 in a text is refused here, not by the target."""
    keeps_bytes: bool = False
    """Whether key and value of rows are told too: somebody else will judge them."""

    @property
    def rules(self) -> Wanted:
        """The same for every batch, as far as it goes: by what to judge."""
        columns, required = tuple(self.columns), tuple(self.required)
        return replace(self, start=Offsets(), end=Offsets(), columns=columns, required=required)


@dataclass(frozen=True)
class Records:
    """Records as they came, a frame with the columns of Spark's Kafka source; by what to judge them."""

    frame: DataFrame
    wanted: Wanted

    def judged(self) -> DataFrame:
        """One row for each: columns of the target, `PLACE`, `JUDGEMENT`."""
        steps = _steps(self.wanted.rules)
        # In steps of their own: a record is parsed, and what is wrong with it looked for, only once.
        return self.frame.select("*", steps.parsed).select("*", steps.bad).select(*steps.told)


def batch_records(spark: SparkSession, options: Mapping[str, str], wanted: Wanted) -> Records:
    """Exactly the records that are there between start and end, the same each time.

    Offsets that are gone are an error when they are read, never fewer rows. Raises SetupError
    FM-SETUP-011 if the session has no connector to Kafka.
    """
    return Records(_records(spark, options, wanted), wanted)


@dataclass(frozen=True)
class _Steps:
    """The columns of each step."""

    parsed: Column
    bad: Column
    told: Sequence[Column]


@lru_cache(maxsize=16)
def _steps(rules: Wanted) -> _Steps:
    """Kept for the next batch: making them takes hundreds of calls into the JVM, 0.1 s.

    They are names and functions, bound to no frame; a process has one JVM as long as it lives.
    """
    return _Steps(
        _parsed(rules.payload).alias(_PARSED),
        _bad(rules).alias(BAD),
        [*_target_columns(rules), *_place_columns(), *_judgement(rules)],
    )


def _records(spark: SparkSession, options: Mapping[str, str], wanted: Wanted) -> DataFrame:
    ranges = span(wanted.start, wanted.end)
    # By partition, not by topic: one that is added meanwhile is not part of the batch.
    assigned: dict[str, list[int]] = {}
    for one in ranges:
        assigned.setdefault(one.topic, []).append(one.partition)
    start = Offsets.of({(one.topic, one.partition): one.start for one in ranges})
    end = Offsets.of({(one.topic, one.partition): one.until for one in ranges})
    reader = (
        spark.read.format("kafka")
        .options(**options)
        .option("assign", json.dumps(assigned))
        .option("startingOffsets", start.to_json())
        .option("endingOffsets", end.to_json())
        .option("failOnDataLoss", "true")
    )
    with needing_kafka():
        return reader.load()


def _parsed(payload: StreamSchema) -> Column:
    """The documents of a value between marks, and whether they are not of the schema.

    Spark stops behind the first document: two in one record, by lines say, would be one row. So a
    record is put in brackets, and the mark behind it says that they were not closed by the record
    itself.
    """
    from pyspark.sql import functions as f

    fields = ", ".join(f"{quoted(each.name)}: {json_type(each.type)}" for each in payload.fields)
    document = f"STRUCT<{fields}, {_MARK}: BOOLEAN>"
    schema = f"{_MARK} ARRAY<ARRAY<{document}>>, {_CORRUPT} STRING"
    options = {
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": _CORRUPT,
        "allowSingleQuotes": "false",
    }
    before, behind = f'{{"{_MARK}":[[', f'],[{{"{_MARK}":true}}]]}}'
    text = f.concat(f.lit(before), f.col("value").cast("string"), f.lit(behind))
    return f.from_json(text, schema, options)


def json_type(said: str) -> str:
    """The type to parse as: from_json knows no lengths, they are checked where rows are loaded."""
    return _SIZED_TEXT.sub("string", said)


def _between_marks(at: int) -> Column:
    from pyspark.sql import functions as f

    return f.get(f.col(f"{_PARSED}.{_MARK}"), at)


def _document() -> Column:
    from pyspark.sql import functions as f

    return f.get(_between_marks(0), 0)


def _field(name: str) -> Column:
    return _document().getField(name)


def _target_columns(wanted: Wanted) -> list[Column]:
    return [_kept(name, wanted).alias(name) for name in wanted.columns]


def _kept(name: str, wanted: Wanted) -> Column:
    from pyspark.sql import functions as f

    said = wanted.payload.field(name)
    is_text = said is not None and json_type(said.type) == "string"
    if wanted.nul_bytes == "reject" or not is_text:
        return _field(name)
    return f.replace(_field(name), f.lit("\0"), f.lit(_INSTEAD_OF_NUL[wanted.nul_bytes]))


def _place_columns() -> list[Column]:
    from pyspark.sql import functions as f

    names = zip(PLACE, ("topic", "partition", "offset", "timestamp"), strict=True)
    return [f.col(name).alias(alias) for alias, name in names]


def required_columns(wanted: Wanted) -> list[str]:
    """The columns of the payload that have to have a value."""
    fields = wanted.payload.fields
    return [each.name for each in fields if not each.nullable or each.name in wanted.required]


def _bad(wanted: Wanted) -> Column:
    """The reason why a record is no row; null for one that is."""
    from pyspark.sql import functions as f

    event_time = _event_time(wanted)
    is_sound = (
        f.is_valid_utf8(f.col("value").cast("string"))
        & (f.size(_between_marks(0)) == 1)
        & _document().isNotNull()
        & f.get(_between_marks(1), 0).getField(_MARK).isNotNull()
        & f.col(f"{_PARSED}.{_CORRUPT}").isNull()
    )
    bad = (
        f.when(f.col("value").isNull(), f.lit(EMPTY))
        .when(~is_sound, f.lit(MALFORMED))
        .when(_lacking(wanted).isNotNull(), f.lit(NULL))
    )
    if wanted.refuses_nul and wanted.nul_bytes == "reject":
        bad = bad.when(_with_nul(wanted.payload).isNotNull(), f.lit(UNFIT))
    if wanted.late_before is not None:
        bad = bad.when(event_time < f.lit(wanted.late_before), f.lit(LATE))
    if wanted.is_late is not None:
        bad = bad.when(wanted.is_late(event_time), f.lit(LATE))
    return bad


def _judgement(wanted: Wanted) -> list[Column]:
    """What is told of a record: its reason, and more only of one that is no row."""
    from pyspark.sql import functions as f

    bad = f.col(BAD)
    is_told = f.lit(True) if wanted.keeps_bytes else bad.isNotNull()  # noqa: FBT003  (a value)
    column = (
        f.when(bad == NULL, _lacking(wanted))
        .when(bad == MALFORMED, _unreadable(wanted.payload))
        .when(bad == UNFIT, _with_nul(wanted.payload))
    )
    return [
        bad,
        column.alias(BAD_COLUMN),
        f.when(is_told, f.col("key")).alias(KEY),
        f.when(is_told, f.col("value")).alias(VALUE),
        _event_time(wanted).alias(EVENT_TIME),
    ]


def _lacking(wanted: Wanted) -> Column:
    """The first required column without a value."""
    return _first({name: _field(name).isNull() for name in required_columns(wanted)})


def _with_nul(payload: StreamSchema) -> Column:
    """The first text with U+0000."""
    texts = [each.name for each in payload.fields if json_type(each.type) == "string"]
    return _first({name: _field(name).contains("\0") for name in texts})


def _first(claims: dict[str, Column]) -> Column:
    """The first column of which its claim is true; null for none."""
    from pyspark.sql import functions as f

    found = f.lit(None).cast("string")
    for name, is_so in reversed(claims.items()):
        found = f.when(is_so, f.lit(name)).otherwise(found)
    return found


def _unreadable(payload: StreamSchema) -> Column:
    """The first column that has a value in the JSON and none of its type; null for broken JSON."""
    from pyspark.sql import functions as f

    said = f.from_json(f.col("value").cast("string"), "map<string,string>")
    without = f.array(
        *(f.when(_field(each.name).isNull(), f.lit(each.name)) for each in payload.fields)
    )
    found = f.filter(without, lambda name: said[name].isNotNull())
    return f.when(_document().isNotNull(), f.get(found, 0))


def _event_time(wanted: Wanted) -> Any:
    from pyspark.sql import functions as f

    if wanted.event_time is None:
        return f.lit(None).cast("timestamp")
    known = wanted.payload.field(wanted.event_time)
    column = _field(wanted.event_time) if known else f.col("timestamp")
    time = column.cast("timestamp")
    first, last = (f.timestamp_micros(f.lit(epoch_micros(edge))) for edge in KNOWN_YEARS)
    return f.when((time >= first) & (time < last), time)
