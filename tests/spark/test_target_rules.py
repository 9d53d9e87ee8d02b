"""What a Delta table asks of its rows is found before they are written, record by record."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from floodmark.deltalog import Storage
from floodmark.streaming.load.target_rules import TargetRules
from floodmark.streaming.records.read import BAD, BAD_COLUMN, KEY, OFFSET, VALUE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

COLUMNS = ("id", "v", "Amount")
ROWS: list[tuple[Any, ...]] = [
    (0, "abc", 1, None),
    (1, "abcd", 1, None),
    (2, "abc  ", 1, None),  # spaces count
    (3, None, None, None),  # a CHECK that is NULL does not hold
    (None, "a", 1, None),
    (5, "a", 100, None),
    (6, None, None, "malformed"),
    (7, None, 2, None),
    (None, "abcd", 100, None),
]


def test_records_that_the_table_would_refuse_are_told_from_all_others(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = str(tmp_path / "out")
    spark.sql(
        f"CREATE TABLE delta.`{place}` (id BIGINT NOT NULL, v VARCHAR(3), amount INT, more STRING)"
        " USING delta"
    )
    spark.sql(f"ALTER TABLE delta.`{place}` ADD CONSTRAINT small CHECK (amount < 10)")
    spark.sql(f"ALTER TABLE delta.`{place}` ADD CONSTRAINT odd CHECK (more IS NULL OR id > 0)")
    schema = f"id BIGINT, v STRING, Amount INT, {BAD} STRING, {BAD_COLUMN} STRING, {KEY} BINARY,"
    schema += f" {VALUE} BINARY, {OFFSET} BIGINT"
    told = [
        (i, v, amount, bad, None, b"k", b"record", offset)
        for offset, (i, v, amount, bad) in enumerate(ROWS)
    ]
    records = spark.createDataFrame(told, schema)

    rules = TargetRules.of(place, Storage(), COLUMNS)
    judged = rules.applied(records)

    found = {row[OFFSET]: (row[BAD], row[BAD_COLUMN]) for row in judged.collect()}
    assert found == {
        0: (None, None),
        1: ("check", "v"),
        2: ("check", "v"),
        3: ("check", "small"),
        4: ("null", "id"),
        5: ("check", "small"),
        6: ("malformed", None),
        7: (None, None),
        8: ("null", "id"),
    }
    assert judged.columns == records.columns
    whole = judged.where(f"{BAD} IS NOT NULL").select(KEY, VALUE).distinct().collect()
    assert [tuple(map(bytes, row)) for row in whole] == [(b"k", b"record")]
    rows = judged.where(f"{BAD} IS NULL")
    assert [tuple(row) for row in rows.select(KEY, VALUE).distinct().collect()] == [(None, None)]
    # The table itself is the judge: it takes all that is left, and none of the others.
    rows.select(*COLUMNS).write.format("delta").mode("append").save(place)
    assert spark.read.format("delta").load(place).count() == 2


def test_a_table_without_rules_and_none_at_all_have_no_rules(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = str(tmp_path / "out")
    spark.sql(f"CREATE TABLE delta.`{place}` (id BIGINT, v STRING, more INT NOT NULL) USING delta")

    assert not TargetRules.of(place, Storage(), ("id", "v"))
    assert not TargetRules.of(str(tmp_path / "nothing"), Storage(), ("id", "v"))
