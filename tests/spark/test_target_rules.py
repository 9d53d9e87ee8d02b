"""What a Delta table asks of its rows is found before they are written, record by record."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from floodmark.deltalog import Storage
from floodmark.streaming.records.read import BAD, BAD_COLUMN, KEY, OFFSET, VALUE
from floodmark.streaming.records.target_rules import TargetRules

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


def test_a_result_that_the_table_would_refuse_is_told_by_its_rule(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = str(tmp_path / "out")
    spark.sql(f"CREATE TABLE delta.`{place}` (id BIGINT, n BIGINT NOT NULL) USING delta")
    spark.sql(f"ALTER TABLE delta.`{place}` ADD CONSTRAINT few CHECK (n < 3)")
    rows = spark.createDataFrame([(1, 2), (2, 3), (3, None)], "id BIGINT, n BIGINT")

    rules = TargetRules.of(place, Storage(), ("id", "n"))

    assert rules.first_broken(rows.where("id = 1")) is None
    assert rules.first_broken(rows.where("id = 2")) == ("check", "few")
    assert rules.first_broken(rows.where("id = 3")) == ("null", "n")


def test_rules_of_some_columns_judge_no_other_column_of_the_same_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A measure may have the name of a column of the payload."""
    place = str(tmp_path / "out")
    spark.sql(f"CREATE TABLE delta.`{place}` (v STRING, amount BIGINT NOT NULL) USING delta")
    spark.sql(f"ALTER TABLE delta.`{place}` ADD CONSTRAINT few CHECK (amount < 3)")
    spark.sql(f"ALTER TABLE delta.`{place}` ADD CONSTRAINT named CHECK (v <> '')")
    schema = f"v STRING, amount BIGINT, {BAD} STRING, {BAD_COLUMN} STRING, {KEY} BINARY,"
    rows = [("a", 5, None, None, None, None), ("", None, None, None, None, None)]
    records = spark.createDataFrame(rows, f"{schema} {VALUE} BINARY")

    judged = TargetRules.of(place, Storage(), ("v",)).applied(records)

    assert [(row["v"], row[BAD_COLUMN]) for row in judged.collect()] == [("a", None), ("", "named")]
