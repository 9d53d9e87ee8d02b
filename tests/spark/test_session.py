from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.support.jvm import java, java_pid
from tests.support.sessions import SMALL

from floodmark.engines import class_archive
from floodmark.engines.jvm import child_session, file_lock, has_no_answer, is_connect, is_gone
from floodmark.engines.spark import (
    _java_options,
    class_path,
    default_conf,
    has_delta,
    local_session,
)
from floodmark.errors import SetupError, SinkError
from floodmark.run.limits import Limits, SparkJobs, call_within

pytestmark = pytest.mark.spark


def test_local_session_called_again_returns_the_active_one(spark: SparkSession) -> None:
    assert local_session({"spark.app.name": "other"}) is spark
    assert has_delta(spark)


def test_every_thread_gets_the_session_that_is_there_with_its_settings(
    spark: SparkSession,
) -> None:
    before = spark.conf.getAll

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(local_session, {"spark.sql.shuffle.partitions": "77"}).result() is spark

    assert spark.conf.getAll == before


@pytest.mark.parametrize("stop", [None, threading.Event()])
def test_a_function_finds_its_session_in_whatever_thread_it_runs(
    spark: SparkSession, stop: threading.Event | None
) -> None:
    jobs = SparkJobs(spark, "a-run")

    def function() -> SparkSession | None:
        return jobs.during(SparkSession.getActiveSession)

    assert call_within(Limits(stop=stop), function, lambda: None) is spark


def test_local_session_leaves_the_environment_as_it_was(spark: SparkSession) -> None:
    code = (
        "import os; from floodmark.engines.spark import local_session\n"
        "ours = lambda: [os.environ.get(name) for name in ('JAVA_HOME', 'PYSPARK_PYTHON')]\n"
        "before = ours(); local_session().stop()\n"
        "assert ours() == before"
    )

    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_jars_of_the_lock_are_enough_for_every_delta_command(
    spark: SparkSession, tmp_lake: Path
) -> None:
    from delta.tables import DeltaTable

    table, sink = f"{tmp_lake}/t", f"{tmp_lake}/sink"
    options = {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true"}
    frame = spark.range(100).selectExpr("id", "id * 2 AS v")
    frame.write.format("delta").options(**options).save(table)
    merged = spark.range(50, 150).selectExpr("id", "9L AS v").alias("s")
    (
        DeltaTable.forPath(spark, table)
        .alias("t")
        .merge(merged, "t.id = s.id")
        .whenMatchedUpdateAll()
        .whenNotMatchedInsertAll()
        .execute()
    )
    spark.sql(f"DELETE FROM delta.`{table}` WHERE id < 10")
    spark.sql(f"OPTIMIZE delta.`{table}` ZORDER BY (id)")
    spark.sql(f"VACUUM delta.`{table}`")
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 1)
    stream = spark.readStream.format("delta").option("ignoreChanges", "true").load(table)
    query = (
        stream.writeStream.format("delta")
        .option("checkpointLocation", f"{tmp_lake}/checkpoint")
        .trigger(availableNow=True)
        .start(sink)
    )
    query.awaitTermination()

    assert feed.load(table).count() == 50 * 2 + 50 + 10
    assert spark.read.format("delta").load(sink).count() == 140


def test_a_child_session_has_settings_of_its_own_and_writes_frames_of_its_parent(
    spark: SparkSession, tmp_lake: Path
) -> None:
    child = child_session(spark)
    child.conf.set("spark.sql.shuffle.partitions", "3")

    spark.range(5).write.format("delta").save(f"{tmp_lake}/t")

    assert spark.conf.get("spark.sql.shuffle.partitions") != "3"
    assert child.read.format("delta").load(f"{tmp_lake}/t").count() == 5
    assert not is_connect(spark)


def test_the_default_settings_reach_the_session(spark: SparkSession) -> None:
    said = {
        key: value for key, value in default_conf().items() if key not in {*SMALL, "spark.jars"}
    }
    assert {key: spark.conf.get(key) for key in said} == said
    assert len(said) >= 8


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="what is mapped is told by Linux")
def test_classes_come_from_the_archive_that_was_made_at_set_up(spark: SparkSession) -> None:
    archive = class_archive.place(class_path())
    if not class_archive.is_made(archive):
        pytest.skip("no archive was made: floodmark jars archive")
    pid = java_pid(spark)

    assert str(archive / "spark.jsa") in Path(f"/proc/{pid}/maps").read_text()


def test_the_jvm_holds_the_file_lock_not_python(spark: SparkSession, tmp_path: Path) -> None:
    lock, jvm_pid = tmp_path / "lock", java_pid(spark)

    with file_lock(spark, str(lock)):
        held = Path("/proc/locks").read_text() if Path("/proc/locks").exists() else ""

    pattern = f"POSIX  ADVISORY  WRITE {jvm_pid} "
    assert pattern in held or sys.platform == "darwin"
    assert str(os.getpid()) not in [
        line.split()[4] for line in held.splitlines() if "WRITE" in line
    ]


def test_threads_take_turns_on_one_lock(spark: SparkSession, tmp_path: Path) -> None:
    inside: list[int] = []
    overlaps: list[bool] = []

    def work() -> None:
        with file_lock(spark, str(tmp_path / "lock"), timeout_seconds=60):
            overlaps.append(bool(inside))
            inside.append(1)
            inside.pop()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert overlaps == [False] * 8


def test_a_lock_held_by_another_process_is_a_named_retryable_error(
    spark: SparkSession, tmp_path: Path
) -> None:
    lock = tmp_path / "lock"
    code = (
        "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX)\n"
        "print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(SinkError) as caught, file_lock(spark, str(lock), timeout_seconds=0.2):
            pass
        assert holder.stdin is not None
        holder.stdin.close()

    assert caught.value.code == "FM-SINK-014"
    assert caught.value.retryable
    with file_lock(spark, str(lock), timeout_seconds=5):
        pass


def test_a_remote_location_is_not_locked(spark: SparkSession) -> None:
    with file_lock(spark, "s3://bucket/table/_lock"), file_lock(spark, "s3://bucket/table/_lock"):
        pass


def test_a_session_without_delta_is_refused(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = child_session(spark)
    child.conf.set("spark.sql.catalog.spark_catalog", "none")
    monkeypatch.setattr(SparkSession, "getActiveSession", classmethod(lambda _: child))

    with pytest.raises(SetupError) as caught:
        local_session()

    assert caught.value.code == "FM-SETUP-005"


FAILS = """\
import sys
from pathlib import Path
import floodmark as fm
spark = fm.local_session({"spark.ui.enabled": "false"})
jvm, folder = spark._jvm, Path(sys.argv[1])
spark.range(10).write.parquet(str(folder))
frame = spark.read.parquet(str(folder))
for file in folder.glob("*.parquet"):
    file.unlink()
for copy in ("first", "second"):
    try:
        frame.write.format("delta").save(f"{folder}-{copy}")
    except Exception as error:
        assert "FileNotFoundException" in str(error) or "FILE_NOT_EXIST" in str(error), error
    else:
        sys.exit("it did not fail")
    print("more logs are asked for", file=sys.stderr, flush=True)
    jvm.java.lang.System.setProperty(*sys.argv[2].removeprefix("-D").split("="))
    jvm.org.apache.logging.log4j.core.config.Configurator.reconfigure()
"""


def test_a_task_that_fails_is_told_by_its_error_and_in_logs_only_where_more_are_asked_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In one JVM, which is given later what a session that starts with more logs is given."""
    script = tmp_path / "fails.py"
    script.write_text(FAILS)
    with caplog.at_level("INFO", "floodmark"):
        usual = _java_options({})
    with caplog.at_level("DEBUG", "floodmark"):
        more = _java_options({}).removeprefix(usual).strip()

    done = subprocess.run(
        [sys.executable, script, str(tmp_path / "data"), more],
        capture_output=True,
        text=True,
        check=True,
    )

    told = done.stderr.split("more logs are asked for")
    traces = [
        [line for line in part.splitlines() if line.lstrip().startswith("at ")] for part in told
    ]
    assert [bool(lines) for lines in traces] == [False, True, False], done.stderr[:2000]


def test_an_exception_of_java_is_an_answer_of_a_session_that_is_there(spark: SparkSession) -> None:
    errors = []
    for fails in (
        lambda: java(spark).java.lang.Integer.parseInt("no number"),
        lambda: java(spark).java.util.ArrayList().get(3),
        lambda: spark.sql("SELECT raise_error('no')").collect(),
    ):
        with pytest.raises(Exception) as caught:  # noqa: PT011  (of whatever class)
            fails()
        errors.append(caught.value)

    assert [has_no_answer(error) for error in errors] == [False] * 3
    assert not is_gone(spark)


def test_a_session_that_cannot_be_asked_for_want_of_descriptors_is_not_gone(
    spark: SparkSession,
) -> None:
    """A thread has a connection of its own to the JVM, which is opened when it asks first."""
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: 1).result() == 1
        with no_descriptors():
            assert not pool.submit(is_gone, spark).result()
        assert not pool.submit(is_gone, spark).result()


@contextmanager
def no_descriptors() -> Iterator[None]:
    """This process can open nothing while the block runs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.open(os.devnull, os.O_RDONLY)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))), hard))
    try:
        while True:
            try:
                taken.append(os.dup(taken[0]))
            except OSError:
                break
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for each in taken:
            os.close(each)


def test_a_process_that_is_killed_has_no_answer() -> None:
    from pyspark.java_gateway import launch_gateway

    gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
    assert gateway.jvm.java.lang.Math.abs(-1) == 1
    gateway.proc.kill()
    gateway.proc.wait()

    for _ in range(2):
        with pytest.raises(Exception) as caught:  # noqa: PT011  (of whatever class)
            gateway.jvm.java.lang.Math.abs(-1)
        assert has_no_answer(caught.value), repr(caught.value)


@pytest.mark.as_users
def test_a_function_of_python_over_columns_of_parquet_comes_to_an_end(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Without code for whole stages Spark would read Parquet by rows, which never hung."""
    from pyspark.sql import functions as f

    assert spark.conf.get("spark.sql.codegen.wholeStage") == "true"
    place = str(tmp_path / "rows")
    spark.range(3).write.parquet(place)
    double = f.udf(lambda number: 2 * number, "long", useArrow=True)
    jobs = SparkJobs(spark, "a-function")

    def doubled() -> list[int]:
        rows = spark.read.parquet(place).select(double("id").alias("id"))
        return sorted(row["id"] for row in rows.collect())

    found = call_within(Limits(90), lambda: jobs.during(doubled), jobs.cancel)

    assert found == [0, 2, 4]
