"""Upstreams without versions on Spark, from plan to finalize."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import floodmark as fm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def at(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


def add_events(folder: Path, *rows: tuple[int, float]) -> None:
    times = pa.array([at(minutes) for _, minutes in rows], pa.timestamp("us", "UTC"))
    table = pa.table({"id": pa.array([i for i, _ in rows], pa.int64()), "at": times})
    folder.mkdir(exist_ok=True)
    pq.write_table(table, folder / f"{len(list(folder.iterdir()))}.parquet")


def add_users(path: Path, *ids: int) -> None:
    rows = pa.table({"user": pa.array(ids, pa.int64())})
    feed: dict[str, str | None] = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(path, rows, mode="append", configuration=feed)


def test_a_folder_of_parquet_and_a_delta_table_share_the_batches_of_a_scope(
    spark: SparkSession, tmp_path: Path
) -> None:
    events, users = tmp_path / "events", tmp_path / "users"
    c = fm.Coordinator(str(tmp_path / "control"), spark=spark, actor="tester", schema=None)
    c.register("both", [fm.Upstream(str(events), time_column="at"), str(users)])
    seen: list[tuple[list[int], list[int]]] = []

    def both(inputs: Mapping[str, Any], run: Any) -> None:
        frames = (inputs[str(events)].select("id"), inputs[str(users)].select("user"))
        new, old = (sorted(row[0] for row in frame.collect()) for frame in frames)
        seen.append((new, old))
        run.write(inputs[str(events)], str(tmp_path / "sink"), mode="append", name="events")

    def step() -> fm.Batch:
        batch = c.create_batch()
        c.run_pipeline("both", str(batch.batch_id), both)
        c.finalize_batch(str(batch.batch_id))
        return batch

    add_events(events, (1, 1), (2, 2))
    add_users(users, 10)
    step()
    add_events(events, (3, 3))
    step()
    add_users(users, 11)
    last = step()

    assert seen == [([1, 2], [10]), ([3], []), ([], [11])]
    written = spark.read.format("delta").load(str(tmp_path / "sink"))
    assert sorted(row["id"] for row in written.collect()) == [1, 2, 3]
    assert {window.kind: window.status for window in last.windows} == {
        "time": "NOOP",
        "version": "PENDING",
    }
    assert all(finding.ok for finding in c.verify()), c.verify()


def test_what_spark_wrote_is_planned_without_spark_to_the_microsecond(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "events"
    text = "2026-03-01 12:00:00.000001"
    for number, kind in enumerate(("INT96", "TIMESTAMP_MICROS")):
        spark.conf.set("spark.sql.parquet.outputTimestampType", kind)
        try:
            frame = spark.sql(f"SELECT {number}L AS id, to_timestamp('{text}Z') AS at")
            frame.coalesce(1).write.mode("append").parquet(str(folder))
        finally:
            spark.conf.unset("spark.sql.parquet.outputTimestampType")
    c = fm.Coordinator(str(tmp_path / "control"), actor="tester")
    c.register("p", [fm.Upstream(str(folder), time_column="at")])

    (window,) = c.create_batch().windows

    assert (window.rows, window.end_mark) == (
        2,
        '{"type":"timestamp","value":"2026-03-01T12:00:00.000001Z"}',
    )


def test_a_deferred_end_is_frozen_by_the_first_run_and_known_at_once_with_a_session(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "events"
    rows = spark.sql("SELECT 1L AS id, to_timestamp('2026-03-01 12:00:00Z') AS at")
    rows.coalesce(1).write.orc(str(folder))
    upstream = fm.Upstream(str(folder), time_column="at", format="orc")
    planner = fm.Coordinator(str(tmp_path / "control"), actor="tester")
    planner.register("p", [upstream])
    (planned,) = planner.create_batch().windows
    batch = str(planner.current_plan()[0].batch_id)
    c = fm.Coordinator(str(tmp_path / "control"), spark=spark, actor="tester", schema=None)
    target = str(tmp_path / "sink")

    def copy(inputs: Mapping[str, Any], run: Any) -> None:
        run.write(inputs[str(folder)], target, mode="append")

    c.run_pipeline("p", batch, copy)

    assert c.finalize_batch(batch) == (str(folder),)
    assert planned.deferred
    assert spark.read.format("delta").load(target).count() == 1
    assert c.create_batch().status == "NOOP"
