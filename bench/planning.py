"""Planning 1,000 upstreams, against a literal port of the createBatch people write by hand."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.harness import Figure, median, seconds, spread, step
from bench.tables import append_small, small_tables, spoil

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UPSTREAMS = 1_000
FAULTY = 10
"""One upstream in so many has a fault."""
PORTED = 20

_CHILD = """
import json, sys, time
import floodmark as fm
from bench.harness import own_peak_mb
paths = json.load(open(sys.argv[1]))
started = time.perf_counter()
batch = fm.Coordinator(sys.argv[2], actor="bench").create_batch(paths)
taken = time.perf_counter() - started
assert len(batch.windows) == len(paths) and batch.status == "PENDING", batch.status
print(json.dumps({"seconds": taken, "peak_mb": own_peak_mb()}))
"""


def measure(spark: SparkSession, folder: Path) -> list[Figure]:
    """Fresh processes plan first runs and change-feed windows; Spark plans the port's 20."""
    with step(f"making {UPSTREAMS} tables"):
        paths = small_tables(folder / "upstreams", UPSTREAMS)
    names = folder / "paths.json"
    names.write_text(json.dumps(paths))
    with step("first batches in fresh processes"):
        first = [_plan_in_child(names, folder / f"first{turn}") for turn in range(3)]
    with step(f"change feeds in fresh processes, in turn with the port on {PORTED} upstreams"):
        port = SeedPort(spark, paths[:PORTED])
        port.create_batch()
        following, ported = _in_turn(names, paths, folder / "following", port)
    with step(f"the same with faults in every {FAULTY}th upstream"):
        faulty = _with_faults(names, paths, folder / "following")
    ours = median([run["seconds"] for run in following])
    slowest = max(ours, median([run["seconds"] for run in first]))
    ratio = (median(ported) / PORTED) / (slowest / UPSTREAMS)
    peak = max(run["peak_mb"] for run in [*first, *following])
    times = [run["seconds"] for run in following]
    return [
        Figure(
            "plan 1,000 upstreams, first batch", median([r["seconds"] for r in first]), "s", 1.0
        ),
        Figure("plan 1,000 upstreams, change feed", ours, "s", 1.0, note=spread(times)),
        Figure(
            "plan 1,000 upstreams, 10% with faults",
            median(faulty),
            "s",
            1.5,
            note=f"feed switched off or on late, columns added; {spread(faulty)}",
        ),
        Figure("plan 1,000 upstreams, peak memory", peak, "MB", 300, note="whole process"),
        Figure(
            "per upstream, against the literal port",
            ratio,
            "times",
            500,
            "higher",
            f"port {median(ported) / PORTED:.2f} s per upstream, ours {slowest:.3f} ms",
        ),
    ]


def _in_turn(
    names: Path, paths: list[str], control: Path, port: SeedPort
) -> tuple[list[dict[str, float]], list[float]]:
    """Three batches after the first, each upstream with one new version; the port between them."""
    import floodmark as fm

    coordinator = fm.Coordinator(str(control), actor="bench")
    coordinator.register("all", paths)
    runs, ported = [], []
    batch = coordinator.create_batch(paths)
    for _ in range(3):
        coordinator.record_run("all", str(batch.batch_id), status="SUCCESS")
        coordinator.finalize_batch(str(batch.batch_id))
        for path in paths:
            append_small(path)
        runs.append(_plan_in_child(names, control))
        ported.append(seconds(port.create_batch))
        batch = coordinator.create_batch(paths)
        assert batch.reused
    return runs, ported


def _with_faults(names: Path, paths: list[str], control: Path) -> list[float]:
    """Three batches, each with new faults in a tenth of the upstreams and a new version in all."""
    import floodmark as fm

    coordinator = fm.Coordinator(str(control), actor="bench")
    times = []
    for turn in range(3):
        batch = coordinator.create_batch(paths)
        coordinator.record_run("all", str(batch.batch_id), status="SUCCESS")
        coordinator.finalize_batch(str(batch.batch_id))
        for number, path in enumerate(paths):
            if number % FAULTY == 0:
                spoil(path, number // FAULTY + turn)
            append_small(path)
        times.append(_plan_in_child(names, control)["seconds"])
        reasons = {window.reason for window in coordinator.create_batch(paths).windows}
        assert len(reasons) > 1, reasons
    return times


def _plan_in_child(names: Path, control: Path) -> dict[str, float]:
    command = [sys.executable, "-c", _CHILD, str(names), str(control)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found: dict[str, float] = json.loads(printed)
    return found


class SeedPort:
    """The createBatch of the document the product grew from, in PySpark, line by line."""

    def __init__(self, spark: SparkSession, paths: list[str]) -> None:
        self.spark = spark
        self.paths = paths
        spark.sql("CREATE SCHEMA IF NOT EXISTS port")
        spark.sql(
            "CREATE OR REPLACE TABLE port.watermarks (batch_id STRING, table_name STRING, "
            "start_version LONG, end_version LONG, last_processed_version LONG, "
            "latest_available_version LONG, start_ts TIMESTAMP, end_ts TIMESTAMP, "
            "cdf_enabled BOOLEAN, update_ts TIMESTAMP, updated_by STRING, status STRING, "
            "error_message STRING) USING DELTA"
        )
        spark.sql(
            "CREATE OR REPLACE TABLE port.committed_watermarks (table_name STRING, "
            "last_committed_version LONG, commit_ts TIMESTAMP, updated_by STRING) USING DELTA"
        )

    def create_batch(self) -> None:
        """For each upstream: read the committed version, DESCRIBE HISTORY, DESCRIBE DETAIL."""
        batch_id, now = f"batch_{uuid.uuid4()}", dt.datetime.now(dt.UTC)
        rows = [self._row(batch_id, path, now) for path in self.paths]
        schema = self.spark.table("port.watermarks").schema
        frame = self.spark.createDataFrame(rows, schema)
        frame.write.format("delta").mode("append").saveAsTable("port.watermarks")

    def _row(self, batch_id: str, path: str, now: dt.datetime) -> tuple[Any, ...]:
        committed = self._committed(path)
        latest, has_feed = self._discover(path)
        status = "PENDING" if latest > committed else "NOOP"
        start, end = committed + 1, max(latest, committed)
        return (
            batch_id,
            path,
            start,
            end,
            committed,
            latest,
            now,
            now,
            has_feed,
            now,
            "me",
            status,
            "",
        )

    def _committed(self, path: str) -> int:
        from pyspark.sql import functions as fn

        frame = self.spark.table("port.committed_watermarks").filter(fn.col("table_name") == path)
        found = frame.select("last_committed_version").collect()
        return int(found[0][0]) if found else -1

    def _discover(self, path: str) -> tuple[int, bool]:
        from pyspark.sql import functions as fn

        history = self.spark.sql(f"DESCRIBE HISTORY delta.`{path}`")
        latest = history.agg(fn.max("version").cast("long")).collect()[0][0]
        detail = self.spark.sql(f"DESCRIBE DETAIL delta.`{path}`")
        properties = detail.select("properties").collect()[0][0]
        return int(latest), properties.get("delta.enableChangeDataFeed", "").lower() == "true"
