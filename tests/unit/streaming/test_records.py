"""Who reads the records of a stream, by how the batches before went."""

from __future__ import annotations

import pytest

from floodmark.config.stream.schemas import from_ddl
from floodmark.errors import StreamError
from floodmark.model.offsets import Offsets
from floodmark.streaming.records.plain_json import why_not_plain
from floodmark.streaming.records.read import Wanted
from floodmark.streaming.records.reading import RecordReading


def wanted(ddl: str, event_time: str | None = None) -> Wanted:
    payload = from_ddl(ddl)
    return Wanted(Offsets(), Offsets(), payload, payload.names, event_time)


@pytest.mark.parametrize(
    ("ddl", "event_time", "reason"),
    [
        ("id BIGINT, name VARCHAR(5), price DECIMAL(10,2), day DATE", None, None),
        ("id BIGINT, at TIMESTAMP", "at", None),
        ("id BIGINT", "_timestamp", None),
        ("id BIGINT, tags ARRAY<STRING>", None, "column tags is of type array<string>"),
        ("id BIGINT, ratio FLOAT", None, "column ratio is of type float"),
        ("id BIGINT", "id", "the time of events is of type bigint"),
    ],
)
def test_kinds_that_both_parsers_read_alike_are_plain(
    ddl: str, event_time: str | None, reason: str | None
) -> None:
    assert why_not_plain(wanted(ddl, event_time)) == reason


def test_a_record_that_is_lost_between_the_two_is_an_error() -> None:
    reading = RecordReading("events", lambda act: act())

    reading.check(2, 2)
    with pytest.raises(StreamError) as caught:
        reading.check(2, 1)

    assert caught.value.code == "FM-STREAM-007"
