"""Whole runs against hand-written jobs: what the bookkeeping costs, and that cost follows change."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import floodmark as fm
from bench.harness import Figure, median, seconds, spread, step
from bench.tables import append_change, append_small, big_table, small_tables
from floodmark.coordinator import Outside
from floodmark.deltalog import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.model.state import SinkDone
    from floodmark.model.window import Window
    from floodmark.model.write import WriteSpec
    from floodmark.run.engine import Engine
    from floodmark.transforms import Step

ROUNDS = 5


class Stopwatch:
    """Adds up the time spent inside an engine, so that the rest can be told apart."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def timed(self, action: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any) -> Any:
            started = time.perf_counter()
            try:
                return action(*args)
            finally:
                self.seconds += time.perf_counter() - started

        return wrapped


class TimedEngine:
    """An engine whose reads and writes are timed."""

    def __init__(self, inner: Engine, watch: Stopwatch) -> None:
        self._inner = inner
        self._watch = watch
        self.spark = inner.spark

    def source(self) -> Any:
        inner = self._inner.source()
        return _Timed(inner, self._watch, timed=("read", "table"), plain=("check",))

    def sink(self, spec: WriteSpec, windows: Sequence[Window], previous: SinkDone | None) -> Any:
        inner = self._inner.sink(spec, windows, previous)
        return _Timed(inner, self._watch, timed=("write",), plain=("committed",))

    def transformed(
        self, steps: Sequence[Step], frame: Any, others: Mapping[str, Any], root: Path
    ) -> Any:
        return self._inner.transformed(steps, frame, others, root)

    def is_lost_file(self, error: BaseException) -> bool:
        return self._inner.is_lost_file(error)

    def refuse_without_receipts(self, pipeline: str) -> None:
        self._inner.refuse_without_receipts(pipeline)


class _Timed:
    """A source or sink of which some methods are timed."""

    def __init__(
        self, inner: Any, watch: Stopwatch, timed: tuple[str, ...], plain: tuple[str, ...]
    ) -> None:
        for name in timed:
            setattr(self, name, watch.timed(getattr(inner, name)))
        for name in plain:
            setattr(self, name, getattr(inner, name))


PROJECT = """\
project: bench
pipelines:
  - pipeline: p
    upstreams: [{upstreams}]
    function: jobs:process
"""
JOBS = """\
def process(inputs, run):
    run.write(inputs[{source!r}], {target!r}, mode="append")
"""


def bookkeeping(spark: SparkSession, folder: Path) -> list[Figure]:
    """Everything of a run of 10 upstreams but reading frames and `Sink.write`.

    What is timed is `Project.run`, which `floodmark run` calls, and the same by separate calls of
    the coordinator. Planning, leases, checks of the sources, looking for receipts, recording,
    advancing and the published tables all count.
    """
    watch = Stopwatch()
    with step("bookkeeping of a run of 10 upstreams"):
        paths = small_tables(folder / "ten", 10)
        samples = {
            "run": _project_run(spark, folder / "project", paths, watch),
            "calls": _separate_calls(spark, folder / "calls", paths, watch),
        }
        times: dict[str, list[float]] = {name: [] for name in samples}
        for turn in range(ROUNDS + 1):
            for path in paths:
                append_small(path)
            for name, sample in samples.items():
                watch.seconds = 0.0
                taken = seconds(sample) - watch.seconds
                if turn:
                    times[name].append(taken * 1000)
    names = {"run": ("`floodmark run`", 400), "calls": ("separate calls", 600)}
    return [
        Figure(
            f"bookkeeping of 10 upstreams, {text}",
            median(times[n]),
            "ms",
            target,
            note=spread(times[n]),
        )
        for n, (text, target) in names.items()
    ]


def _project_run(
    spark: SparkSession, folder: Path, paths: list[str], watch: Stopwatch
) -> Callable[[], object]:
    folder.mkdir(parents=True)
    (folder / "floodmark.yaml").write_text(PROJECT.format(upstreams=", ".join(paths)))
    (folder / "jobs.py").write_text(JOBS.format(source=paths[0], target=str(folder / "copy")))
    outside = Outside(engine=timed_engine(spark, watch))
    project = fm.Project.load(folder, session=lambda: spark, outside=outside)

    def run() -> None:
        summary = project.run()
        assert [outcome.status for outcome in summary.outcomes] == ["SUCCESS"], summary

    return run


def _separate_calls(
    spark: SparkSession, folder: Path, paths: list[str], watch: Stopwatch
) -> Callable[[], object]:
    outside = Outside(engine=timed_engine(spark, watch))
    control = str(folder / "control")
    coordinator = fm.Coordinator(control, spark, actor="bench", schema=None, outside=outside)

    def function(inputs: Mapping[str, Any], run: Any) -> None:
        run.write(inputs[paths[0]], str(folder / "copy"), mode="append")

    def run() -> None:
        coordinator.register("p", paths)
        batch_id = str(coordinator.create_batch(pipelines=["p"]).batch_id)
        coordinator.run_pipeline("p", batch_id, function)
        assert coordinator.finalize_batch(batch_id)

    return run


def timed_engine(spark: SparkSession, watch: Stopwatch) -> TimedEngine:
    from floodmark.run.engine import SparkEngine

    return TimedEngine(SparkEngine(spark, Storage()), watch)


class Job:
    """One upstream, one target, fed with the same changes: ours and the hand-written job."""

    def __init__(self, spark: SparkSession, folder: Path, rows: int, change: int) -> None:
        self.spark = spark
        self.source = str(folder / "source")
        self.change = change
        self.next_id = rows
        self.version = 0
        self.coordinator = fm.Coordinator(
            str(folder / "control"), spark, actor="bench", schema=None
        )
        self.coordinator.register("p", [self.source])
        self.targets = {name: str(folder / name) for name in ("ours", "by_hand", "no_txn")}
        big_table(spark, self.source, rows)
        for target in self.targets.values():
            append_change(spark, target, 0, 10)
        batch = self.coordinator.create_batch([self.source])
        self.coordinator.record_run("p", str(batch.batch_id), status="SUCCESS")
        self.coordinator.finalize_batch(str(batch.batch_id))

    def grow(self) -> None:
        append_change(self.spark, self.source, self.next_id, self.change)
        self.next_id += self.change
        self.version += 1

    def ours(self) -> None:
        """Plan, run, finalize: the product."""
        source, target = self.source, self.targets["ours"]

        def function(inputs: Mapping[str, Any], run: Any) -> None:
            run.write(inputs[source], target, mode="append")

        c = self.coordinator
        with c.store.coalesce():
            batch = c.create_batch([source])
            result = c.run_pipeline("p", str(batch.batch_id), function)
            advanced = c.finalize_batch(str(batch.batch_id))
        assert result.rows_written == self.change, result
        assert advanced

    def by_hand(self) -> None:
        """The same read and write with the same transaction options, and no bookkeeping."""
        self._feed().write.format("delta").mode("append").option("txnAppId", "hand").option(
            "txnVersion", self.version
        ).save(self.targets["by_hand"])

    def no_txn(self) -> None:
        """The same without transaction options: at least once."""
        self._feed().write.format("delta").mode("append").save(self.targets["no_txn"])

    def _feed(self) -> Any:
        reader = self.spark.read.format("delta").option("readChangeFeed", "true")
        ranged = reader.option("startingVersion", self.version).option(
            "endingVersion", self.version
        )
        frame = ranged.load(self.source)
        return frame.drop("_change_type", "_commit_version", "_commit_timestamp")


def rounds(job: Job, count: int) -> dict[str, list[float]]:
    """Interleaved rounds; each begins with a new change of the upstream."""
    times: dict[str, list[float]] = {"ours": [], "by_hand": [], "no_txn": []}
    for turn in range(count + 1):
        job.grow()
        order = list(times) if turn % 2 else list(reversed(times))
        for name in order:
            started = time.perf_counter()
            getattr(job, name)()
            if turn:
                times[name].append(time.perf_counter() - started)
    return times


def whole_run(spark: SparkSession, folder: Path) -> list[Figure]:
    """A change of 1 million rows, and of 1,000 rows, against the hand-written job."""
    figures = []
    with step("whole runs over a change of 1 million rows"):
        big = rounds(Job(spark, folder / "million", 1_000_000, 1_000_000), ROUNDS)
    figures.append(
        Figure(
            "run over 1M changed rows / hand-written",
            median(big["ours"]) / median(big["by_hand"]),
            "times",
            1.3,
            note=f"{median(big['ours']):.2f} s against {median(big['by_hand']):.2f} s",
        )
    )
    with step("whole runs over a change of 1,000 rows"):
        small = rounds(Job(spark, folder / "thousand", 1_000_000, 1_000), ROUNDS)
    figures.append(
        Figure(
            "transaction options on a small append / without",
            median(small["by_hand"]) / median(small["no_txn"]),
            "times",
            note=f"{median(small['by_hand']):.2f} s against {median(small['no_txn']):.2f} s",
        )
    )
    figures.append(
        Figure(
            "run over 1,000 changed rows / hand-written",
            median(small["ours"]) / median(small["by_hand"]),
            "times",
            note=f"{median(small['ours']):.2f} s against {median(small['by_hand']):.2f} s",
        )
    )
    return figures


def change_cost(spark: SparkSession, folder: Path) -> list[Figure]:
    """The same 10,000-row change on 1 million and on 10 million rows."""
    with step("the same change on 1M and 10M rows"):
        jobs = {
            "small": Job(spark, folder / "one", 1_000_000, 10_000),
            "large": Job(spark, folder / "ten", 10_000_000, 10_000),
        }
        times: dict[str, list[float]] = {"small": [], "large": []}
        for turn in range(ROUNDS + 2):
            for name, job in jobs.items():
                job.grow()
                started = time.perf_counter()
                job.ours()
                if turn > 1:
                    times[name].append(time.perf_counter() - started)
    note = f"{median(times['large']):.2f} s against {median(times['small']):.2f} s"
    ratio = median(times["large"]) / median(times["small"])
    return [Figure("10,000-row change: 10M rows / 1M rows", ratio, "times", 1.5, note=note)]
