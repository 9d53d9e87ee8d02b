"""Rows at the edge of a window: what Spark leaves out, against every row that ever was."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as fn
from tests.properties.edge_model import Edge, Row, fresh, next_edge

from floodmark.errors import SourceError
from floodmark.sources.cursor.edges import Identity, applied_rows, edge_left_by, fresh_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SCHEMA = "history int, id int, `a t` int, name string"
NAMES = ("history", "id", "a t", "name")
HISTORIES, WINDOWS = 300, 4


@dataclass
class Upstream:
    """A table that others write to, and a reader of it by windows."""

    number: int
    overlap: int
    has_keys: bool
    random: random.Random
    rows: list[Row] = field(default_factory=list)
    high: int | None = None

    def insert(self) -> None:
        """Rows no earlier than the overlap allows: ties, late rows and rows without a cursor."""
        earliest = 0 if self.high is None else max(0, self.high - self.overlap)
        for _ in range(self.random.randrange(4)):
            at = None if self.random.random() < 0.2 else earliest + self.random.randrange(6)
            # Without keys rows may be equal in everything.
            own = len(self.rows) if self.has_keys else 0
            name = self.random.choice(["x", "y", None])
            self.rows.append({"history": self.number, "id": own, "a t": at, "name": name})

    def window(self) -> list[Row]:
        """Probe; rows arrive; then read what the probe has fixed."""
        known = [row["a t"] for row in self.rows if row["a t"] is not None]
        low = None if self.high is None else self.high - self.overlap
        self.high = max([*known, self.high or 0])
        self.insert()
        return [row for row in self.rows if self._is_read(row["a t"], low)]

    def is_near(self, at: int) -> bool:
        return at >= self.near_from

    @property
    def near_from(self) -> int:
        return (self.high or 0) - self.overlap

    def _is_read(self, at: int | None, low: int | None) -> bool:
        return at is None or ((low is None or at >= low) and at <= (self.high or 0))


@pytest.mark.parametrize("keys", [(), ("history", "id")], ids=["whole_rows", "keys"])
def test_every_row_is_applied_exactly_once_whatever_arrives_when(
    spark: SparkSession, keys: tuple[str, ...]
) -> None:
    """300 histories side by side in one frame, and each row as the plain model has it."""
    from pyspark.sql import functions as fn

    chance = random.Random(15)
    identity = Identity("a t", keys)
    upstreams = [
        Upstream(number, chance.randrange(5), bool(keys), chance) for number in range(HISTORIES)
    ]
    applied: Counter[Any] = Counter()
    model, edge = [Edge() for _ in upstreams], None
    for step in range(WINDOWS):
        if step < WINDOWS - 1:
            for upstream in upstreams:
                upstream.insert()
        reads = [upstream.window() for upstream in upstreams]
        read = frame_of(spark, [row for rows in reads for row in rows])
        expected = [
            row
            for rows, before in zip(reads, model, strict=True)
            for row in fresh(rows, before, identity)
        ]
        new = counted(read if edge is None else fresh_rows(read, edge, "orders"))

        assert new == Counter(map(values, expected))
        if edge is not None:
            again = counted(applied_rows(read, edge, "orders"))
            assert new + again == counted(read)
        applied += new
        model = [
            next_edge(rows, identity, upstream.is_near)
            for rows, upstream in zip(reads, upstreams, strict=True)
        ]
        near_from = fn.array(*(fn.lit(upstream.near_from) for upstream in upstreams))
        is_near = read["`a t`"] >= fn.get(near_from, read["history"])
        edge = edge_left_by(read, identity, is_near).localCheckpoint()
        assert edge.count() == 1 + sum(map(len, model))

    everything: Counter[Any] = Counter()
    for upstream in upstreams:
        seen = (row for row in upstream.rows if (row["a t"] or 0) <= (upstream.high or 0))
        everything += Counter(map(values, seen))
    assert applied == everything


def frame_of(spark: SparkSession, rows: list[Row]) -> DataFrame:
    return spark.createDataFrame([values(row) for row in rows], SCHEMA).repartition(3)


def values(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in NAMES)


def counted(frame: DataFrame) -> Counter[Any]:
    return Counter(map(tuple, frame.collect()))


def test_a_late_row_below_the_overlap_is_not_told_from_a_new_one(spark: SparkSession) -> None:
    """No window reads it again; whoever reads it all the same gets it as new."""
    schema = "id int, at int"
    first = spark.createDataFrame([(1, 10), (2, 7)], schema)
    edge = edge_left_by(first, Identity("at", ("id",)), first["at"] >= 8)
    later = spark.createDataFrame([(1, 10), (2, 7), (3, 8)], schema)

    assert sorted(map(tuple, fresh_rows(later, edge, "orders").collect())) == [(2, 7), (3, 8)]


def test_an_update_moves_the_cursor_and_is_applied_again(spark: SparkSession) -> None:
    schema = "id int, at int, v string"
    first = spark.createDataFrame([(1, 1, "old")], schema)
    edge = edge_left_by(first, Identity("at", ("id",)), first["at"] >= 0)
    moved = spark.createDataFrame([(1, 2, "new")], schema)

    assert [row["v"] for row in fresh_rows(moved, edge, "orders").collect()] == ["new"]


CHANGED = "id int, at int, v string"


def test_a_row_that_changed_without_its_cursor_comes_again_where_that_is_wanted(
    spark: SparkSession,
) -> None:
    """An update within the same second, or day, of a cursor."""
    first = spark.createDataFrame([(1, 5, "old"), (2, 5, "same"), (3, 4, "old")], CHANGED)
    edge = edge_left_by(first, Identity("at", ("id",)), first["at"] >= 5)
    later = [(1, 5, "new"), (2, 5, "same"), (4, 5, "late")]
    frame = spark.createDataFrame(later, CHANGED)
    wider = spark.createDataFrame([(*row, n) for n, row in enumerate(later)], f"{CHANGED}, n int")

    def fresh_ids(frame: DataFrame, *, keeps_changed: bool) -> list[int]:
        rows = fresh_rows(frame, edge, "orders", keeps_changed=keeps_changed)
        assert rows.columns == frame.columns
        return sorted(row["id"] for row in rows.collect())

    assert fresh_ids(frame, keeps_changed=True) == [1, 4]
    assert fresh_ids(frame, keeps_changed=False) == [4]
    # A new column of the source is no change of a row; without one of the old ones none is told.
    assert fresh_ids(wider, keeps_changed=True) == [1, 4]
    assert fresh_ids(frame.drop("v"), keeps_changed=True) == [4]


def test_times_within_lists_are_told_apart_by_the_microsecond_in_every_zone(
    spark: SparkSession,
) -> None:
    schema = "at int, many array<timestamp>, walls struct<w: timestamp_ntz>"

    def frame(micros: int) -> DataFrame:
        values = f"array(timestamp_micros({micros})), named_struct('w', TIMESTAMP_NTZ '2026-01-01 00:00:00.{micros:06}')"
        return spark.sql(f"SELECT 1, {values}").toDF("at", "many", "walls")

    assert frame(1).schema.simpleString() == spark.createDataFrame([], schema).schema.simpleString()
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        edge = edge_left_by(frame(1), Identity("at"), fn.lit(True)).localCheckpoint()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")

    assert fresh_rows(frame(1), edge, "orders").count() == 0
    assert fresh_rows(frame(2), edge, "orders").count() == 1


def test_rows_that_look_alike_are_different_rows(spark: SparkSession) -> None:
    rows = [
        ("a", "bc"), ("ab", "c"), ("abc", ""), ("abc", None), ("", "abc"), (None, "abc"),
        ("NULL", "abc"), ("1:a", "bc"), ("a", "1:bc"), ("a\0string\0", "bc"), ("a", "BC"),
    ]  # fmt: skip
    frame = spark.createDataFrame(
        [(1, *row, [row[0]], {"k": row[1]}) for row in rows],
        "at int, x string, y string, list array<string>, map map<string, string>",
    )

    edge = edge_left_by(frame, Identity("at"), frame["at"] >= 0)

    assert sorted(row["applied"] for row in edge.collect()) == [0] + [1] * len(rows)


def test_an_edge_without_rows_leaves_nothing_out(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, 9), (1, 9)], "id int, at int")
    edge = edge_left_by(frame, Identity("at"), frame["at"] >= 0).limit(0)

    assert fresh_rows(frame, edge, "orders").count() == 2
    assert applied_rows(frame, edge, "orders").count() == 0
    assert fresh_rows(frame, edge, "orders").columns == frame.columns


def test_new_columns_and_other_keys_change_nothing_about_what_was_applied(
    spark: SparkSession,
) -> None:
    before = spark.createDataFrame([(1, 9, "a")], "id int, at int, name string")
    after = spark.createDataFrame(
        [(1, 9, "a", None), (2, 9, "a", 1.0)], "id int, at int, name string, x double"
    )
    edge = edge_left_by(before, Identity("at"), before["at"] >= 9)

    assert [row["id"] for row in fresh_rows(after, edge, "orders").collect()] == [2]
    with pytest.raises(SourceError) as caught:
        fresh_rows(after.drop("name"), edge, "orders")
    assert caught.value.code == "FM-SOURCE-036"
    assert "name string" in str(caught.value.found)
