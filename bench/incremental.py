"""Pipelines of nodes against jobs written by hand, and against a peer: what is new, and no more."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.jvm import java_context

import floodmark as fm
from bench.harness import Figure, median, seconds, spread, step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROUNDS = 5
ROWS, NEWS = 1_000_000, 10_000
MERGED_ROWS, MERGED_CHANGE = 10_000_000, 100_000
FIRST_SECOND, DAY = 1_700_000_000, 86_400

APPEND = """\
project: bench
connections:
  lake: {type: lake, root: lake}
pipelines:
  - pipeline: load
    nodes:
      - name: news
        read: {connection: lake, format: delta, path: source, incremental: {cursor: updated_at}}
        write: {connection: lake, format: delta, path: ours, mode: append}
"""
MERGE = """\
project: bench
connections:
  lake: {type: lake, root: lake}
pipelines:
  - pipeline: merge
    nodes:
      - name: news
        read: {connection: lake, format: delta, path: source, baseline: 0}
        write:
          connection: lake
          format: delta
          path: ours
          mode: merge
          merge: {keys: [id], strategy: upsert}
"""


def generated(spark: SparkSession, first: int, count: int, day: int) -> DataFrame:
    """Rows as a shop has them; those of a later day are newer by `updated_at`."""
    begin = FIRST_SECOND + day * DAY
    return spark.range(first, first + count).selectExpr(
        "id",
        "id % 100 AS grp",
        "rand(1) AS amount",
        "concat('n', id) AS name",
        f"timestamp_seconds({begin} + id % 80000) AS updated_at",
    )


# The incremental job ------------------------------------------------------------------------------


def incremental_job(spark: SparkSession, folder: Path) -> list[Figure]:
    """A table of 1 million rows with `updated_at`; every round adds 1% and loads just that.

    Each job has a source of its own: Delta keeps what it has loaded of a table, so whoever reads a
    grown table second would find it loaded by the first.
    """
    lake = folder / "lake"
    sources = {"ours": str(lake / "source"), "by_hand": str(lake / "source_by_hand")}
    for source in sources.values():
        generated(spark, 0, ROWS, 0).repartition(4).write.format("delta").save(source)
    jobs = {
        "ours": _ours(_project(spark, folder, APPEND)),
        "by_hand": lambda: _append_news(spark, sources["by_hand"], str(lake / "by_hand")),
    }
    costs = {name: Cost(spark) for name in jobs}
    with step(f"the incremental job: {NEWS:,} new rows of {ROWS:,}"):
        for turn in range(ROUNDS + 2):
            for source in sources.values() if turn else ():
                _grow(spark, source, turn)
            for name in list(jobs) if turn % 2 else list(reversed(jobs)):
                costs[name].of(jobs[name], counts=turn > 1)
    expected = ROWS + (ROUNDS + 1) * NEWS
    for target in ("ours", "by_hand"):
        found = spark.read.format("delta").load(str(lake / target)).count()
        assert found == expected, (target, found, expected)
    return _job_figures(costs["ours"], costs["by_hand"])


def our_rounds(spark: SparkSession, folder: Path) -> Callable[[], float]:
    """The incremental job, warm; what is given does one more round of ours and tells its seconds."""
    source = str(folder / "lake" / "source")
    generated(spark, 0, ROWS, 0).repartition(4).write.format("delta").save(source)
    run = _ours(_project(spark, folder, APPEND))
    turns = itertools.count(1)

    def do_round() -> float:
        _grow(spark, source, next(turns))
        return seconds(run)

    run()
    do_round()
    return do_round


def _grow(spark: SparkSession, source: str, turn: int) -> None:
    news = generated(spark, ROWS + turn * NEWS, NEWS, turn).coalesce(1)
    news.write.format("delta").mode("append").save(source)


def _append_news(spark: SparkSession, source: str, target: str) -> None:
    """What people write: the highest value of the target, then everything above it."""
    from pyspark.sql import functions as fn

    news = spark.read.format("delta").load(source)
    if Path(target).is_dir():
        newest = spark.read.format("delta").load(target).agg(fn.max("updated_at")).collect()[0][0]
        news = news.where(fn.col("updated_at") > newest)
    news.write.format("delta").mode("append").save(target)


def _job_figures(ours: Cost, by_hand: Cost) -> list[Figure]:
    times = f"{median(ours.seconds):.2f} s against {median(by_hand.seconds):.2f} s"
    jobs = f"{median(ours.jobs):.0f} against {median(by_hand.jobs):.0f}"
    read = f"{median(ours.megabytes):.2f} MB against {median(by_hand.megabytes):.2f} MB"
    return [
        Figure(
            "incremental job / hand-written",
            median(ours.seconds) / median(by_hand.seconds),
            "times",
            1.3,
            note=f"{times}; {spread(ours.seconds)}",
        ),
        Figure(
            "Spark jobs beyond the hand-written one's",
            median(ours.jobs) - median(by_hand.jobs),
            "jobs",
            0,
            note=jobs,
        ),
        Figure(
            "input read / hand-written",
            median(ours.megabytes) / max(median(by_hand.megabytes), 1e-6),
            "times",
            1.0,
            note=read,
        ),
    ]


# The merge ----------------------------------------------------------------------------------------


def merge_job(spark: SparkSession, folder: Path) -> list[Figure]:
    """1% of 10 million rows changed: read by change feed, merged by key."""
    lake = folder / "lake"
    source = str(lake / "source")
    targets = {name: str(lake / name) for name in ("ours", "by_hand")}
    with step(f"merge of {MERGED_CHANGE:,} changes into {MERGED_ROWS:,} rows"):
        _feed_source(spark, source)
        for target in targets.values():
            generated(spark, 0, MERGED_ROWS, 0).repartition(8).write.format("delta").option(
                "delta.enableChangeDataFeed", "true"
            ).save(target)
        project = _project(spark, folder, MERGE)
        times: dict[str, list[float]] = {"ours": [], "by_hand": []}
        for turn in range(1, ROUNDS):
            _change(spark, source, turn)
            version = turn
            jobs: dict[str, Callable[[], object]] = {
                "ours": _ours(project),
                "by_hand": lambda: _merge_by_hand(spark, source, targets["by_hand"], version),  # noqa: B023
            }
            for name in list(jobs) if turn % 2 else list(reversed(jobs)):
                started = time.perf_counter()
                jobs[name]()
                if turn > 1:
                    times[name].append(time.perf_counter() - started)
    ours, by_hand = median(times["ours"]), median(times["by_hand"])
    note = f"{ours:.2f} s against {by_hand:.2f} s; {spread(times['ours'])}"
    return [
        Figure("merge of 1% into 10M rows / hand-written", ours / by_hand, "times", 1.2, note=note)
    ]


def _feed_source(spark: SparkSession, path: str) -> None:
    """An upstream whose whole content is the target's: only its changes are read."""
    generated(spark, 0, 10, 0).write.format("delta").option(
        "delta.enableChangeDataFeed", "true"
    ).save(path)


def _change(spark: SparkSession, source: str, turn: int) -> None:
    """As many changed rows as asked for, spread over the whole key space."""
    stride = MERGED_ROWS // MERGED_CHANGE
    changed = generated(spark, 0, MERGED_CHANGE, turn).selectExpr(
        f"id * {stride} + {turn} AS id", "grp", "amount", "name", "updated_at"
    )
    changed.coalesce(2).write.format("delta").mode("append").save(source)


def _merge_by_hand(spark: SparkSession, source: str, target: str, version: int) -> None:
    from delta.tables import DeltaTable

    feed = spark.read.format("delta").option("readChangeFeed", "true")
    changes = feed.option("startingVersion", version).option("endingVersion", version).load(source)
    news = changes.drop("_change_type", "_commit_version", "_commit_timestamp")
    merge = DeltaTable.forPath(spark, target).alias("t").merge(news.alias("s"), "t.id = s.id")
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()


# Both ---------------------------------------------------------------------------------------------


@dataclass
class Cost:
    """What a job costs: seconds, Spark jobs, and input that executors read."""

    spark: SparkSession
    seconds: list[float] = field(default_factory=list)
    jobs: list[float] = field(default_factory=list)
    megabytes: list[float] = field(default_factory=list)

    def of(self, job: Callable[[], object], *, counts: bool) -> None:
        """Do it, and note what it took if it counts."""
        before, started = self._spent(), time.perf_counter()
        job()
        taken, after = time.perf_counter() - started, self._spent()
        if counts:
            self.seconds.append(taken)
            self.jobs.append(after[0] - before[0])
            self.megabytes.append((after[1] - before[1]) / 1e6)

    def _spent(self) -> tuple[int, int]:
        """Jobs and input bytes so far; Spark tells the second a moment late."""
        context = java_context(self.spark).sc()
        context.listenerBus().waitUntilEmpty()
        read = context.statusStore().executorSummary("driver").totalInputBytes()
        return context.dagScheduler().numTotalJobs(), read


def _project(spark: SparkSession, folder: Path, text: str) -> fm.Project:
    (folder / "floodmark.yaml").write_text(text)
    return fm.Project.load(folder, session=lambda: spark)


def _ours(project: fm.Project) -> Callable[[], object]:
    def run() -> None:
        summary = project.run()
        assert [outcome.status for outcome in summary.outcomes] == ["SUCCESS"], summary

    return run
