"""Faults of upstreams that only Spark and Delta can make, from plan to finalize."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import floodmark as fm
from floodmark.deltalog import DeltaLog
from floodmark.errors import SourceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FEED = "delta.enableChangeDataFeed"


class Stage:
    """A Spark-written upstream (id INT, x INT), and a pipeline `p` that merges it by id."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark = spark
        self.up = str(root / "up")
        self.target = str(root / "copy")
        self.c = fm.Coordinator(str(root / "_control"), spark, actor="t", schema=None)
        self.rows: list[tuple[Any, ...]] = []
        self.columns: list[str] = []

    def create(self, **properties: str) -> None:
        given = {FEED: "true", **{k.replace("_", "."): v for k, v in properties.items()}}
        text = ", ".join(f"'{name}' = '{value}'" for name, value in given.items())
        self.sql(f"CREATE TABLE {{}} (id INT, x INT) USING delta TBLPROPERTIES ({text})")

    def sql(self, statement: str) -> None:
        self.spark.sql(statement.format(f"delta.`{self.up}`"))

    def insert(self, *values: str) -> None:
        self.sql(f"INSERT INTO {{}} VALUES {', '.join(f'({value})' for value in values)}")

    def register(self, **options: Any) -> None:
        self.c.register("p", [fm.Upstream(self.up, **options)])

    def copy(self, inputs: Mapping[str, Any], run: Any) -> None:
        frame = inputs[self.up]
        self.columns = frame.columns[:-3]
        self.rows = sorted(map(tuple, frame.drop("_commit_timestamp").collect()), key=str)
        kept = frame.select("id", *frame.columns[-3:])
        run.write(kept, self.target, mode="merge", keys=["id"], missing="delete")

    def step(self) -> fm.Window:
        """One batch from plan to finalize; returns its window."""
        batch = self.c.create_batch([self.up])
        assert batch.batch_id is not None
        self.c.run_pipeline("p", batch.batch_id, self.copy)
        assert self.c.finalize_batch(batch.batch_id) == (self.up,)
        return batch.windows[0]

    def ids(self) -> list[int]:
        return sorted(
            row["id"] for row in self.spark.read.format("delta").load(self.target).collect()
        )


@pytest.fixture
def stage(spark: SparkSession, tmp_path: Path) -> Stage:
    return Stage(spark, tmp_path)


@pytest.fixture
def begun(stage: Stage) -> Stage:
    """The feed is on; versions 0 and 1 are processed."""
    stage.create()
    stage.insert("1, 10")
    stage.register()
    stage.step()
    return stage


def test_snapshot_and_feed_are_one_frame_where_the_feed_came_late(stage: Stage) -> None:
    stage.create(**{FEED.replace(".", "_"): "false"})
    stage.register(method="feed")
    stage.insert("1, 10", "2, 20")
    stage.step()
    stage.insert("3, 30")
    stage.sql(f"ALTER TABLE {{}} SET TBLPROPERTIES ({FEED} = true)")
    stage.sql("DELETE FROM {} WHERE id = 1")

    window = stage.step()

    assert (window.method, window.start, window.end) == ("snapshot+feed", 2, 4)
    assert stage.rows == [
        (1, 10, "delete", 4),
        (1, 10, "insert", 3),
        (2, 20, "insert", 3),
        (3, 30, "insert", 3),
    ]
    assert stage.ids() == [2, 3]


def test_a_range_lost_to_vacuum_fails_typed_and_is_read_as_a_snapshot(begun: Stage) -> None:
    begun.insert("2, 20", "3, 30")
    begun.sql("UPDATE {} SET x = 31 WHERE id = 3")
    batch_id = str(begun.c.create_batch([begun.up]).batch_id)
    shutil.rmtree(Path(begun.up) / "_change_data")

    with pytest.raises(SourceError) as caught:
        begun.c.run_pipeline("p", batch_id, begun.copy)

    assert caught.value.code == "FM-SOURCE-006"
    assert f"floodmark retry {batch_id} --on-lost-range snapshot" in (caught.value.next or "")
    assert begun.ids() == [1]
    begun.c.run_pipeline("p", batch_id, begun.copy, on_lost_range="snapshot")
    assert begun.c.finalize_batch(batch_id) == (begun.up,)
    assert begun.rows == [(1, 10, "insert", 3), (2, 20, "insert", 3), (3, 31, "insert", 3)]
    assert begun.ids() == [1, 2, 3]
    assert [f.text for f in begun.c.verify() if not f.ok and f.name != "tables"] == []


def test_an_accepted_loss_gives_the_changes_that_are_left(begun: Stage) -> None:
    begun.insert("2, 20")
    begun.sql("UPDATE {} SET x = 21 WHERE id = 2")
    begun.insert("3, 30")
    batch_id = str(begun.c.create_batch([begun.up]).batch_id)
    shutil.rmtree(Path(begun.up) / "_change_data")

    begun.c.run_pipeline("p", batch_id, begun.copy, on_lost_range="accept")

    assert begun.rows == [(3, 30, "insert", 4)]
    amended = begun.c.status(batch_id)[0].shown_window(begun.up)
    assert amended.method == "lost"
    assert "only the changes of versions 4-4 are read" in amended.reason


def test_a_wholly_lost_range_gives_an_empty_frame_with_the_columns(begun: Stage) -> None:
    begun.insert("2, 20")
    batch_id = str(begun.c.create_batch([begun.up]).batch_id)
    os.unlink(Path(begun.up) / "_delta_log" / f"{2:020d}.json")

    begun.c.run_pipeline("p", batch_id, begun.copy, on_lost_range="accept")

    assert (begun.rows, begun.columns) == ([], ["id", "x"])
    assert begun.ids() == [1]


def test_a_deletion_vector_is_a_change_and_restore_takes_it_back(stage: Stage) -> None:
    stage.create(delta_enableDeletionVectors="true")
    stage.sql("INSERT INTO {} SELECT /*+ COALESCE(1) */ id, id FROM range(1, 9)")
    stage.register()
    stage.step()

    stage.sql("DELETE FROM {} WHERE id = 3")
    assert "deletionVectors" in DeltaLog(stage.up).facts().reader_features
    assert (stage.step().method, stage.rows) == ("feed", [(3, 3, "delete", 2)])
    stage.sql("RESTORE TABLE {} TO VERSION AS OF 1")
    window = stage.step()

    assert (window.method, window.rows, stage.rows) == ("feed", 1, [(3, 3, "insert", 3)])
    assert stage.ids() == list(range(1, 9))


def test_a_lost_deletion_vector_is_a_lost_range(stage: Stage) -> None:
    stage.create(delta_enableDeletionVectors="true")
    stage.sql("INSERT INTO {} SELECT /*+ COALESCE(1) */ id, id FROM range(1, 9)")
    stage.register()
    stage.step()
    stage.sql("DELETE FROM {} WHERE id = 3")
    batch_id = str(stage.c.create_batch([stage.up]).batch_id)
    for file in Path(stage.up).glob("deletion_vector_*.bin"):
        os.unlink(file)

    stage.c.run_pipeline("p", batch_id, stage.copy, on_lost_range="accept")

    assert stage.rows == []
    assert stage.c.status(batch_id)[0].shown_window(stage.up).method == "lost"


def test_optimize_and_overwrite_are_read_by_feed(begun: Stage) -> None:
    begun.insert("2, 20")
    begun.step()
    begun.sql("OPTIMIZE {}")
    window = begun.step()
    assert (window.rows, begun.rows) == (0, [])

    begun.sql("INSERT OVERWRITE {} VALUES (2, 20), (3, 30)")

    assert begun.step().method == "feed"
    assert begun.ids() == [2, 3]


def test_a_renamed_and_a_dropped_column_split_the_range(stage: Stage) -> None:
    stage.create(delta_columnMapping_mode="name")
    stage.insert("1, 10")
    stage.register()
    stage.step()
    stage.insert("2, 20")
    stage.sql("ALTER TABLE {} RENAME COLUMN x TO y")
    stage.insert("3, 30")
    stage.sql("ALTER TABLE {} DROP COLUMN y")
    stage.insert("4")

    found = []
    for _ in range(3):
        window = stage.step()
        found.append((window.method, window.start, window.end, stage.columns, len(stage.rows)))

    assert found == [
        ("feed", 2, 2, ["id", "x"], 1),
        ("feed", 3, 4, ["id", "y"], 1),
        ("feed", 5, 6, ["id"], 1),
    ]
    assert stage.ids() == [1, 2, 3, 4]


def test_changes_before_a_widened_column_are_read_as_the_whole_table(stage: Stage) -> None:
    stage.create(delta_enableTypeWidening="true")
    stage.insert("1, 10")
    stage.register()
    stage.step()
    stage.insert("2, 20")
    stage.sql("ALTER TABLE {} ALTER COLUMN x TYPE BIGINT")
    stage.insert("3, 3000000000")

    window = stage.step()

    assert (window.method, window.start, window.end) == ("snapshot", 2, 4)
    assert "widens or drops x" in window.reason
    assert stage.ids() == [1, 2, 3]
    stage.insert("4, 40")
    assert stage.step().method == "feed"


def test_a_widened_column_alone_is_read_by_feed(stage: Stage) -> None:
    stage.create(delta_enableTypeWidening="true")
    stage.insert("1, 10")
    stage.register()
    stage.step()
    stage.sql("ALTER TABLE {} ALTER COLUMN x TYPE BIGINT")
    stage.insert("3, 3000000000")

    assert stage.step().method == "feed"
    assert stage.rows == [(3, 3000000000, "insert", 3)]


def overwrite_schema(stage: Stage, schema: str, *rows: tuple[Any, ...]) -> None:
    frame = stage.spark.createDataFrame(list(rows), schema)
    writer = frame.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
    writer.save(stage.up)


def test_spark_reads_changes_before_a_type_change_through_delta_rs(begun: Stage) -> None:
    begun.insert("2, 20")
    begun.sql("UPDATE {} SET x = 21 WHERE id = 2")
    overwrite_schema(begun, "id int, x string", (3, "z"))

    first = begun.step()

    assert (first.method, first.start, first.end) == ("feed", 2, 3)
    assert "read by delta-rs" in first.reason
    assert begun.rows == [
        (2, 20, "insert", 2),
        (2, 20, "update_preimage", 3),
        (2, 21, "update_postimage", 3),
    ]
    second = begun.step()
    assert (second.method, begun.rows) == ("snapshot", [(3, "z", "insert", 4)])
    assert "changes the type of x" in second.reason
    assert begun.ids() == [3]


def test_spark_reads_changes_before_a_dropped_column_through_delta_rs(begun: Stage) -> None:
    begun.insert("2, 20")
    overwrite_schema(begun, "id int", (3,))

    begun.step()

    assert (begun.columns, begun.rows) == (["id", "x"], [(2, 20, "insert", 2)])
    assert begun.step().method == "feed"
    assert begun.rows == [(1, "delete", 3), (2, "delete", 3), (3, "insert", 3)]


def test_a_table_that_only_spark_may_read_but_moved_on_says_what_to_type(stage: Stage) -> None:
    stage.create(delta_enableTypeWidening="true")
    stage.insert("1, 10")
    stage.register()
    stage.step()
    stage.insert("2, 20")
    batch_id = str(stage.c.create_batch([stage.up]).batch_id)
    stage.sql("ALTER TABLE {} ALTER COLUMN x TYPE BIGINT")

    with pytest.raises(SourceError) as caught:
        stage.c.run_pipeline("p", batch_id, stage.copy)

    assert caught.value.code == "FM-SOURCE-007"
    assert f"floodmark retry {batch_id} --on-lost-range snapshot" in (caught.value.next or "")
    stage.c.run_pipeline("p", batch_id, stage.copy, on_lost_range="snapshot")
    assert stage.rows == [(1, 10, "insert", 2), (2, 20, "insert", 2)]


def test_widening_under_column_mapping_is_read_with_the_schema_of_the_range(stage: Stage) -> None:
    stage.create(delta_enableTypeWidening="true", delta_columnMapping_mode="name")
    stage.insert("1, 10")
    stage.register()
    stage.step()
    stage.insert("2, 20")
    batch_id = str(stage.c.create_batch([stage.up]).batch_id)
    stage.sql("ALTER TABLE {} ALTER COLUMN x TYPE BIGINT")

    stage.c.run_pipeline("p", batch_id, stage.copy)

    assert stage.rows == [(2, 20, "insert", 2)]
