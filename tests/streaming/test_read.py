"""Records are parsed and judged in one pass; what is wrong keeps its bytes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from floodmark.config.stream.schemas import from_ddl
from floodmark.model.offsets import Offsets
from floodmark.streaming.records.read import (
    BAD,
    BAD_COLUMN,
    EMPTY,
    EVENT_TIME,
    KEY,
    LATE,
    MALFORMED,
    NULL,
    OFFSET,
    VALUE,
    Records,
    Wanted,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PAYLOAD = from_ddl("id BIGINT NOT NULL, at TIMESTAMP, `odd name` STRING, price DECIMAL(10,2)")
GOOD = b'{"id": 1, "at": "2026-01-01T10:00:00Z", "odd name": "x", "price": 1.25, "more": 5}'


def rows_of(spark: SparkSession, values: list[bytes | None], **more: Any) -> list[dict[str, Any]]:
    schema = (
        "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"
    )
    now = datetime(2026, 1, 2, tzinfo=UTC)
    records = [(b"k", value, "t", 0, i, now) for i, value in enumerate(values)]
    frame = spark.createDataFrame(records, schema)
    said = {"payload": PAYLOAD, "columns": ["id", "odd name", "price"], **more}
    wanted = Wanted(Offsets(), Offsets(), **said)
    table = Records(frame, wanted).judged().toArrow()
    return sorted(table.to_pylist(), key=lambda row: row[OFFSET])


def test_a_good_record_is_a_row_without_its_bytes(spark: SparkSession) -> None:
    (row,) = rows_of(spark, [GOOD], event_time="at")

    assert (row["id"], row["odd name"], str(row["price"])) == (1, "x", "1.25")
    assert (row[BAD], row[KEY], row[VALUE]) == (None, None, None)
    assert row[EVENT_TIME].replace(tzinfo=UTC) == datetime(2026, 1, 1, 10, tzinfo=UTC)


BROKEN = [
    (None, EMPTY),
    (b"", MALFORMED),
    (b"nonsense", MALFORMED),
    (b'{"id": 1', MALFORMED),
    (b'{"id": "one"}', MALFORMED),
    (b'{"id": 1.5}', MALFORMED),
    (b'{"id": 99999999999999999999}', MALFORMED),
    (b'{"id": 1, "at": "yesterday"}', MALFORMED),
    (b'[{"id": 1}, {"id": 2}]', MALFORMED),
    (b"null", MALFORMED),
    (b"5", MALFORMED),
    (b'{"id": 1, "odd name": "\xff"}', MALFORMED),
    (b"\xff\xfe{", MALFORMED),
    (b'{"id": 1}\n{"id": 2}', MALFORMED),
    (b'{"id": 1}{"id": 2}', MALFORMED),
    (b'{"id": 1}, {"id": 2}', MALFORMED),
    (b'{"id": 1}, "price": 2', MALFORMED),
    (b'{"id": 1} and more', MALFORMED),
    (b"{'id': 1}", MALFORMED),
    # Closes what the parser puts around a record, and opens it again.
    (b'{"id": 1}], "x": [{}', MALFORMED),
    (b'{"id": 1}]], "x": [[{}', MALFORMED),
    (b'{"id": 1}], [{}', MALFORMED),
    (b'{"id": 1}], [{}]], "x": [[{}', MALFORMED),
    (b'{"id": 1}]} {"x": [{}', MALFORMED),
    (b'{"id": 1}]]} {"x": [[{}', MALFORMED),
    (b'{"id": 1}]], "_fm_documents": [[{"id": 2}', MALFORMED),
    (b'{"id": 1}], "_fm_documents": [{"id": 2}', MALFORMED),
    (b'""', MALFORMED),
    (b"{}", NULL),
    (b'{"id": null}', NULL),
]


def test_what_cannot_be_read_is_told_with_its_bytes(spark: SparkSession) -> None:
    rows = rows_of(spark, [value for value, _ in BROKEN])

    assert [row[BAD] for row in rows] == [reason for _, reason in BROKEN]
    assert [row[VALUE] for row in rows] == [value for value, _ in BROKEN]
    assert {row[KEY] for row in rows} == {b"k"}
    assert [row[BAD_COLUMN] for row in rows if row[BAD] == NULL] == ["id", "id"]


def test_a_value_of_another_type_is_told_with_its_column(spark: SparkSession) -> None:
    values = [b'{"id": "1"}', b'{"id": 1, "price": [2]}', b'{"id": 1, "at": "soon"}', b'{"id": 1']

    rows = rows_of(spark, list(values))

    assert [row[BAD_COLUMN] for row in rows] == ["id", "price", "at", None]
    assert {row[BAD] for row in rows} == {MALFORMED}


def test_an_event_of_a_year_that_python_does_not_know_has_no_time(spark: SparkSession) -> None:
    at = ["12026-01-01T00:00:00Z", "9999-12-31T23:59:59-17:00", "0000-01-01T00:00:00Z"]
    values: list[bytes | None] = [f'{{"id": 1, "at": "{time}"}}'.encode() for time in at]
    past = datetime(2026, 1, 1, tzinfo=UTC)

    rows = rows_of(spark, values, event_time="at", late_before=past)

    assert [(row[BAD], row[EVENT_TIME]) for row in rows] == [(None, None)] * 3


def test_texts_with_a_length_are_read_whole(spark: SparkSession) -> None:
    schema = from_ddl("id BIGINT, code VARCHAR(2), tags ARRAY<CHAR(1)>")

    (row,) = rows_of(
        spark, [b'{"code": "long", "tags": ["xyz"]}'], payload=schema, columns=["code", "tags"]
    )

    assert (row[BAD], row["code"], row["tags"]) == (None, "long", ["xyz"])


@pytest.mark.parametrize(
    ("policy", "kept"), [("reject", "a\0b"), ("strip", "ab"), ("replace", "a\ufffdb")]
)
def test_nul_in_a_text_is_treated_as_it_is_said(
    spark: SparkSession, policy: str, kept: str
) -> None:
    schema = from_ddl("id BIGINT, name STRING, code VARCHAR(9)")
    value = b'{"id": 1, "name": "a\\u0000b", "code": "a\\u0000b"}'

    (row,) = rows_of(
        spark, [value], payload=schema, columns=["id", "name", "code"], nul_bytes=policy
    )

    assert (row["id"], row["name"], row["code"], row[BAD]) == (1, kept, kept, None)


def test_a_line_end_behind_the_record_is_fine(spark: SparkSession) -> None:
    (row,) = rows_of(spark, [b' {"id": 7}\r\n'])

    assert (row["id"], row[BAD]) == (7, None)


def test_only_what_is_older_than_the_watermark_is_late(spark: SparkSession) -> None:
    at = '{"id": 1, "at": "%s"}'
    values = [
        (at % "2026-01-01T09:59:59.999Z").encode(),
        (at % "2026-01-01T10:00:00Z").encode(),
        b'{"id": 1}',
    ]

    rows = rows_of(
        spark, list(values), event_time="at", late_before=datetime(2026, 1, 1, 10, tzinfo=UTC)
    )

    assert [row[BAD] for row in rows] == [LATE, None, None]
    assert rows[0][VALUE] == values[0]


def test_the_time_of_the_record_can_be_the_event_time(spark: SparkSession) -> None:
    (row,) = rows_of(
        spark, [GOOD], event_time="_timestamp", late_before=datetime(2026, 1, 3, tzinfo=UTC)
    )

    assert row[BAD] == LATE
