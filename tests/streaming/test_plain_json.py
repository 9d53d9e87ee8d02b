"""What Arrow reads of the records of a stream is what Spark would have said of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from floodmark.config.stream.schemas import from_ddl
from floodmark.model.offsets import Offsets
from floodmark.streaming.records.plain_json import PlainReader
from floodmark.streaming.records.read import BAD, EVENT_TIME, LATE, OFFSET, Records, Wanted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAYLOAD = from_ddl(
    "id BIGINT NOT NULL, small INT, tiny TINYINT, short SMALLINT, amount DOUBLE, name STRING,"
    " code VARCHAR(3), price DECIMAL(10,2), ok BOOLEAN, day DATE, at TIMESTAMP"
)
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
    ]
)
SENT = datetime(2026, 1, 2, tzinfo=UTC)
ORDINARY: dict[str, Sequence[str]] = {
    "id": ["0", "1", "-5", "9223372036854775807", "-9223372036854775808"],
    "small": ["0", "2147483647", "-2147483648", "null"],
    "tiny": ["-128", "127", "null"],
    "short": ["-32768", "32767"],
    "amount": ["0", "1", "1.5", "-2.25e-3", "1E10", "0.1", "123456789012345678", "null"],
    "name": ['"x"', '""', '"a\\nb"', '"\\u00e9é"', '"\\ud83d\\ude00"', '"Information"'],
    "code": ['"abc"', '"longer"', "null"],
    "price": ["1", "1.25", "-0.5", "12345678.99", "1e2", "null"],
    "ok": ["true", "false", "null"],
    "day": ['"2024-02-29"', '"1000-01-01"', '"9999-12-31"', "null"],
    "at": [
        '"2024-02-29T23:59:59Z"',
        '"2024-02-29 23:59:59.123456+02:00"',
        '"1960-01-01T00:00:00.5-11:30"',
        '"2024-01-01T00:00:00"',
        '"2024-01-01 00:00:00.25"',
        "null",
    ],
}
ODD: dict[str, Sequence[str]] = {
    "id": ["1.0", "1e3", '"1"', "9223372036854775808", "-0", "01", "+1", "true", "[1]", "{}", "1."],
    "small": ["2147483648", "-2147483649", "1.5", '"7"', "-0"],
    "tiny": ["128", "255", "256", "-129"],
    "short": ["32768", "-32769", "65535"],
    "amount": [
        "-0",
        "-0.0",
        "1e400",
        "-1e400",
        "1e-400",
        "4.9e-324",
        "2.2250738585072011e-308",
        "1.7976931348623157e308",
        "9007199254740993",
        "NaN",
        "Infinity",
        "-Infinity",
        "Inf",
        "-Inf",
        "-INF",
        '"NaN"',
        '"1.5"',
        ".5",
        "5.",
        "1" * 400,
        "0." + "1" * 1001,
        "1" * 1001,
    ],
    "name": [
        "5",
        "true",
        "[1, 2]",
        '{"a": 1}',
        '"\\u0000"',
        '"\\ud83d"',
        '"\\udc00"',
        '"\\ude00\\ud83d"',
        '"a\tb"',
        '"a\nb"',
        '"\\x"',
        '"\\',
        "'x'",
        '"is: -Info"',
        '"\x7f\u2028"',
        '"' + "long " * 300 + '"',
    ],
    "code": ["5", '"\\u0000"'],
    "price": [
        "1.255",
        "1.254",
        "123456789",
        "99999999.995",
        "99999999.99",
        "1e-2",
        "1e-3",
        "1.250",
        "1.2500000000000000000000000000000000000000",
        '"1.25"',
        '"1.2.5"',
        '""',
        "-0",
        "NaN",
        "1" * 60,
    ],
    "ok": ['"true"', "1", "True", '""'],
    "day": [
        '"2024-02-30"',
        '"2023-02-29"',
        '"0000-01-01"',
        '"0001-01-01"',
        '"2024-1-1"',
        '"20240101"',
        '"2024-01-01T00:00:00"',
        '" 2024-01-01"',
        "19000",
        '"+2024-01-01"',
        '"12024-01-01"',
        '""',
        '"٢٠٢٤-01-01"',
    ],
    "at": [
        '"2024-02-30T00:00:00Z"',
        '"2024-01-01T24:00:00Z"',
        '"2024-01-01T23:59:60Z"',
        '"2024-01-01T23:60:00Z"',
        '"0000-01-01T00:00:00Z"',
        '"2024-01-01T00:00:00.1234567Z"',
        '"2024-01-01T00:00:00.Z"',
        '"2024-01-01T00:00:00+18:00"',
        '"2024-01-01T00:00:00+18:01"',
        '"2024-01-01T00:00:00+17:59"',
        '"2024-01-01T00:00:00+17:60"',
        '"2024-01-01T00:00:00+23:00"',
        '"2024-01-01T00:00:00+0200"',
        '"2024-01-01T00:00:00+02"',
        '"2024-01-01T00:00:00 Europe/Berlin"',
        '"2024-01-01T00:00:00z"',
        '"2024-01-01"',
        '"2024-01-01T00:00"',
        '"T00:00:00"',
        '"0001-01-01T00:00:00+17:00"',
        '"9999-12-31T23:59:59-17:00"',
        '"now"',
        '""',
        "0",
        "1700000000",
        "1700000000.5",
    ],
}
UNKNOWN = [
    '"more": 5',
    '"more": {"a": [1, {"b": null}]}',
    '"more": NaN',
    '"more": Inf',
    '"more": [-Inf, 1]',
    '"more": Infinity',
    '"more": -INF',
    '"more": 1e400',
    '"more": ' + "1" * 1001,
    '"more": ' + "[" * 999 + "]" * 999,
    '"more": ' + "[" * 1001 + "]" * 1001,
    '"more": ' + '{"a":' * 1100 + "1" + "}" * 1100,
    '"' + "n" * 60_000 + '": 1',
    '"more": "\\ud83d"',
    '"more": 01',
    '"more": undefined',
    '"ID": "other"',
    '"id": 2',
    '"more": 1, "more": 2',
    '"\\u0069d": 3',
    '"": 0',
]
AROUND: list[Callable[[bytes], bytes | None]] = [
    lambda text: b" " + text,
    lambda text: text + b"\n",
    lambda text: text + text,
    lambda text: text + b"," + text,
    lambda text: text + b"\0",
    lambda text: b"\xef\xbb\xbf" + text,
    lambda text: b"[" + text + b"]",
    lambda text: text[:-1],
    lambda text: text + b"}",
    lambda text: text + b"]" + text,
    lambda text: text.replace(b":", b"\xff", 1),
    lambda text: text.replace(b":", b":\xed\xa0\x80", 1),
    lambda text: text.replace(b",", b",\n", 1),
    lambda text: text.replace(b",", b",,", 1),
    lambda text: text.replace(b",", b"}{", 1),
    lambda text: text.replace(b",", b"/**/,", 1),
    lambda text: text.replace(b'"', b"'"),
    lambda text: text[:20] + b"}" if len(text) > 20 else b"{}",
    lambda _: None,
    lambda _: b"",
    lambda _: b"{",
    lambda _: b"null",
    lambda _: b'{"id": "x}',
    lambda _: b'{y"}',
    lambda _: b'{"id": 1}], "x": [{}',
]


def made(rng: random.Random, how_odd: float) -> bytes | None:
    """A record; the odder, the more of it may be wrong."""
    names = [name for name in ORDINARY if name == "id" or rng.random() < 0.6]
    rng.shuffle(names)
    values = {
        name: rng.choice(ODD[name] if rng.random() < how_odd else ORDINARY[name]) for name in names
    }
    parts = [f'"{name}":{" " * rng.randrange(2)}{value}' for name, value in values.items()]
    if rng.random() < 2 * how_odd:
        parts.insert(rng.randrange(len(parts) + 1), rng.choice(UNKNOWN))
    text = ("{" + ", ".join(parts) + "}").encode("utf-8", "surrogatepass")
    return rng.choice(AROUND)(text) if rng.random() < 2 * how_odd else text


def table_of(values: Sequence[bytes | None]) -> pa.Table:
    rows = [
        {"key": b"k", "value": v, "topic": "t", "partition": 0, "offset": i, "timestamp": SENT}
        for i, v in enumerate(values)
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


def by_offset(table: pa.Table) -> dict[int, dict[str, Any]]:
    """Rows that can be compared: times as numbers, zeros with their sign."""
    for at, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type) or pa.types.is_date(field.type):
            number = pa.int64() if pa.types.is_timestamp(field.type) else pa.int32()
            table = table.set_column(at, field.name, table[field.name].cast(number))
        if pa.types.is_floating(field.type):
            table = table.set_column(at, field.name, table[field.name].cast(pa.string()))
    return {row[OFFSET]: row for row in table.to_pylist()}


def wanted_of(**more: Any) -> Wanted:
    return Wanted(Offsets(), Offsets(), PAYLOAD, PAYLOAD.names, **more)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("how_odd", "at_once", "share"), [(0.0, 10_000, 1.0), (0.01, 20, 0.5), (0.15, 1, 0.1)]
)
def test_what_is_read_here_is_what_spark_says(
    spark: SparkSession, how_odd: float, at_once: int, share: float, full_size: bool
) -> None:
    rng = random.Random(20261116 if not full_size else None)
    values = [made(rng, how_odd) for _ in range(40_000 if full_size else 4_000)]
    wanted = wanted_of(event_time="at", late_before=datetime(2000, 1, 1, tzinfo=UTC))
    records = table_of(values)

    batches = records.to_batches(max_chunksize=at_once)
    rows, others = PlainReader(wanted, "UTC").read(pa.Table.from_batches(batches))

    read, left = by_offset(rows), set(others["offset"].to_pylist())
    assert sorted([*read, *left]) == list(range(len(values)))
    by_spark = by_offset(Records(spark.createDataFrame(records), wanted).judged().toArrow())
    wrong = {
        values[at]: {
            name: (told, by_spark[at][name])
            for name, told in row.items()
            if told != by_spark[at][name]
        }
        for at, row in read.items()
        if row != by_spark[at]
    }
    assert wrong == {}
    assert len(read) >= share * len(values)
    assert any(row[BAD] == LATE for row in read.values())


def test_a_record_sent_in_a_year_that_python_does_not_know_has_no_time() -> None:
    """Producers that take microseconds for milliseconds are not rare."""
    far = pa.array([1_700_000_000_000_000_000]).cast(pa.timestamp("us", "UTC"))
    records = table_of([b'{"id": 1}']).set_column(5, "timestamp", far)

    rows, _ = PlainReader(wanted_of(event_time="_timestamp", late_before=SENT), "UTC").read(records)

    assert (rows[BAD].to_pylist(), rows[EVENT_TIME].to_pylist()) == ([None], [None])
