"""Crashes with a real Spark: exceptions in one session, and drivers killed by SIGKILL."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support import crash
from tests.support.jvm import gateway
from tests.support.sessions import SMALL

from floodmark.failpoints import FailpointReached
from floodmark.model.write import WriteMode
from floodmark.run.context import Run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

KILLED = -signal.SIGKILL
SHORT_TTL = 0.3
PIPELINES = ("copy",)
COMPARED = ("rows", "receipts", "marks", "watermarks", "problems", "history")

RAISED: Mapping[WriteMode, tuple[str, ...]] = {
    "append": (
        "sink.after_commit",
        "run.after_lease",
        "run.after_read",
        "sink.before_commit",
        "sink.between_sinks",
        "run.after_success",
    ),
    "merge": (
        "sink.before_commit",
        "sink.before_commit:2",
        "sink.after_commit",
        "run.before_done",
        "run.after_done:2",
    ),
    "overwrite": ("sink.after_commit", "run.after_source_check", "sink.before_commit:2"),
}
"""One batch each; the first of a mode creates the targets."""


def story(root: Path, mode: WriteMode) -> crash.Story:
    return crash.Story(root, mode, SHORT_TTL, PIPELINES)


def twin_of(root: Path) -> Path:
    """A second project over the same lake, told without Spark and without faults."""
    twin = root / "twin"
    twin.mkdir(exist_ok=True)
    if not (twin / "lake").exists():
        (twin / "lake").symlink_to(root / "lake")
    return twin


def tell_twin(root: Path, mode: WriteMode) -> None:
    twin = story(twin_of(root), mode)
    coordinator = twin.coordinator()
    twin.register(coordinator)
    twin.step(coordinator)


def compared(root: Path) -> dict[str, Any]:
    state = crash.end_state(str(root), PIPELINES)
    return {name: state[name] for name in COMPARED}


# By exception -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", crash.MODES)
def test_an_exception_at_any_point_of_a_run_on_spark_is_mended_by_the_retry(
    mode: WriteMode, spark: SparkSession, tmp_path: Path
) -> None:
    crash.build_lake(tmp_path)
    told = story(tmp_path, mode)
    coordinator = told.coordinator(spark=spark)
    told.register(coordinator)
    for number, point in enumerate(RAISED[mode]):
        crash.churn_lake(tmp_path, number)
        with crash.armed(point), pytest.raises(FailpointReached):
            told.step(coordinator)
        assert told.step(coordinator).reused
        tell_twin(tmp_path, mode)
        assert compared(tmp_path) == compared(twin_of(tmp_path)), point


# By SIGKILL ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kill:
    """A driver that is killed: at a failpoint, or some time into a slow write."""

    name: str
    mode: WriteMode
    point: str | None = None


KILLS = (
    Kill("before the commit", "append", "sink.before_commit"),
    Kill("after the commit", "append", "sink.after_commit"),
    Kill("after a merge", "merge", "sink.after_commit"),
    Kill("after success", "merge", "run.after_success"),
)
TORN_DOWN = Kill("while the JVM writes", "append")
ORPHANED = Kill("while the JVM, which lives on, commits", "append")

NAP_SECONDS = 4


def prepare(root: Path, mode: WriteMode) -> None:
    """The lake; for a merge also its targets, so that a MERGE is what is killed."""
    root.mkdir()
    crash.build_lake(root)
    if mode == "merge":
        told = story(root, mode)
        coordinator = told.coordinator()
        told.register(coordinator)
        told.step(coordinator)
        tell_twin(root, mode)
        crash.grow_lake(root)


def spark_step(root: Path, mode: WriteMode, spark: SparkSession | None = None) -> None:
    """Plan and finalize as the commands do, without Spark; run with it."""
    told = story(root, mode)
    coordinator = told.coordinator()
    told.register(coordinator)
    told.step(coordinator, runner=told.coordinator(spark=spark or new_session()))


def new_session() -> SparkSession:
    from floodmark.engines.spark import local_session

    return local_session({**SMALL, "spark.driver.memory": "1g"})


def write_slowly_and_die(root: Path, orphans_jvm: bool) -> None:
    """Be killed while the JVM computes the rows of a write; it may be left alive."""
    told = story(root, "append")
    coordinator = told.coordinator()
    told.register(coordinator)
    batch = coordinator.create_batch()
    spark = new_session()
    if orphans_jvm:
        keep_jvm_alive(spark, root)
    assert batch.batch_id
    told.coordinator(spark=spark).run_pipeline(
        "copy", batch.batch_id, partial(slow_and_deadly, root)
    )


def slow_and_deadly(root: Path, inputs: Mapping[str, Any], run: Run) -> None:
    from pyspark.sql import functions as fn

    nap = f"java_method('java.lang.Thread', 'sleep', {1000 * NAP_SECONDS}L)"
    one = inputs[crash.ORDERS].coalesce(1).limit(1)
    rest = inputs[crash.ORDERS].exceptAll(one)
    slow = one.withColumn("amount", fn.expr(f"amount + coalesce(0 * try_cast({nap} as bigint), 0)"))
    target = crash.WRITES["copy"][0][1]
    folder = root / target
    threading.Thread(target=die_once_written, args=(folder,), daemon=True).start()
    run.write(slow.unionAll(rest), target, mode="append", changes="log")


def die_once_written(folder: Path) -> None:
    """Kill this process as soon as the JVM has begun a data file: one of its tasks naps."""
    while not any(folder.glob("part-*.parquet")):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)


def keep_jvm_alive(spark: SparkSession, root: Path) -> None:
    """Spark's JVM ends when its standard input does: let a child of ours hold just that open.

    It lets go two seconds after the commit, or if there is none, after a minute.
    """
    held = gateway(spark).proc.stdin.fileno()
    if os.fork():
        return
    os.closerange(0, held)
    os.closerange(held + 1, os.sysconf("SC_OPEN_MAX"))
    commit = root / crash.WRITES["copy"][0][1] / "_delta_log" / f"{0:020d}.json"
    deadline = time.monotonic() + 60
    while not commit.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    (root / "committed by the orphan").write_text(str(commit.exists()))
    time.sleep(2)
    os._exit(0)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_drivers_killed_at_a_point_of_the_protocol_are_mended_by_the_normal_commands(
    spark: SparkSession, tmp_path: Path
) -> None:
    places = {kill: prepared(tmp_path, kill) for kill in KILLS}
    for kill, root in places.items():
        assert die(kill, root) == KILLED, read_log(root)
    assert_mended_by_normal_commands(places, spark)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_driver_killed_while_its_jvm_writes_has_written_once_or_not_at_all(
    spark: SparkSession, tmp_path: Path
) -> None:
    places = {kill: prepared(tmp_path, kill) for kill in (ORPHANED, TORN_DOWN)}
    assert die(TORN_DOWN, places[TORN_DOWN]) == KILLED, read_log(places[TORN_DOWN])
    assert die(ORPHANED, places[ORPHANED]) == KILLED, read_log(places[ORPHANED])
    # The orphaned JVM is still at work and holds the lock of its target: recovery has to wait.
    said = places[ORPHANED] / "committed by the orphan"
    assert not said.exists()
    assert_mended_by_normal_commands(places, spark)
    assert said.read_text() == "True"


def prepared(folder: Path, kill: Kill) -> Path:
    root = folder / kill.name
    assert crash.run(prepare, root, kill.mode, log=folder / "log") == 0
    return root


def die(kill: Kill, root: Path) -> int:
    log = root / "log"
    if kill.point is None:
        return crash.run(write_slowly_and_die, root, kill is ORPHANED, log=log, timeout=300)
    environment = {"FLOODMARK_FAILPOINT": kill.point}
    return crash.run(spark_step, root, kill.mode, log=log, environment=environment, timeout=300)


def assert_mended_by_normal_commands(places: Mapping[Kill, Path], spark: SparkSession) -> None:
    """The next process is that of the tests: it has a JVM of its own, which is already there."""
    for kill, root in places.items():
        spark_step(root, kill.mode, spark)
    for kill, root in places.items():
        log = root / "log"
        assert crash.run(tell_twin, root, kill.mode, log=log) == 0, log.read_text()
        ours, twin = (crash.result(compared, r, log=log) for r in (root, twin_of(root)))
        assert ours == twin, kill.name
        assert not ours["problems"], kill.name


def read_log(root: Path) -> str:
    return (root / "log").read_text()
