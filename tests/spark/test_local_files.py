"""Local files of our sessions: as Hadoop's, without a process for each."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError
from tests.support.jvm import java, java_context, java_pid

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="counts by Linux's /proc")
def test_a_commit_of_delta_starts_no_process(spark: SparkSession, tmp_path: Path) -> None:
    target = str(tmp_path / "table")
    spark.range(1).write.format("delta").save(target)

    def append_starts_none() -> bool:
        before = faults_of_ended_children(spark)
        spark.range(1).write.format("delta").mode("append").save(target)
        return faults_of_ended_children(spark) == before

    # A worker of Python that another test began may end at any moment, but not in each of three.
    assert any(append_starts_none() for _ in range(3))


def faults_of_ended_children(spark: SparkSession) -> int:
    """What /proc tells of the processes that the JVM started and that are over."""
    pid = java_pid(spark)
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[8])


@pytest.mark.parametrize("mode", [0o640, 0o755, 0o400, 0o1777], ids=oct)
def test_permissions_are_set_as_asked(mode: int, spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "a file"
    file.touch()
    jvm = java(spark)
    permission = jvm.org.apache.hadoop.fs.permission.FsPermission(f"{mode:o}")

    files(spark).setPermission(jvm.org.apache.hadoop.fs.Path(str(file)), permission)

    assert stat.S_IMODE(file.stat().st_mode) == mode


@pytest.mark.parametrize("name", ["file", "folder", "link", "lost link", "nothing"])
def test_what_is_told_of_links_is_what_hadoop_tells(
    name: str, spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("some")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "lost link").symlink_to(tmp_path / "nobody")
    jvm = java(spark)
    hadoops = jvm.org.apache.hadoop.fs.LocalFileSystem()
    hadoops.initialize(files(spark).getUri(), configuration(spark))

    assert told_of(files(spark), spark, tmp_path / name) == told_of(hadoops, spark, tmp_path / name)


def told_of(files: Any, spark: SparkSession, path: Path) -> tuple[Any, ...]:
    jvm = java(spark)
    try:
        found = files.getFileLinkStatus(jvm.org.apache.hadoop.fs.Path(str(path)))
    except Py4JJavaError as error:
        return (error.java_exception.getClass().getName(),)
    return found.getPath().toString(), found.isSymlink(), found.isDirectory(), found.getLen()


def files(spark: SparkSession) -> Any:
    jvm = java(spark)
    found = jvm.org.apache.hadoop.fs.FileSystem.getLocal(configuration(spark))
    assert found.getClass().getSimpleName() == "SpawnlessFileSystem"
    return found


def configuration(spark: SparkSession) -> Any:
    return java_context(spark).hadoopConfiguration()


def test_settings_of_yarn_are_not_sent_with_every_job(spark: SparkSession) -> None:
    assert configuration(spark).get("yarn.resourcemanager.hostname") is None
    assert configuration(spark).get("mapreduce.outputcommitter.factory.scheme.s3a")


PLAIN = """\
from pyspark.sql import SparkSession
from floodmark.engines import spawnless

SparkSession.builder.master("local[1]").getOrCreate()
print(spawnless.settings({}))
"""


def test_a_jvm_that_runs_without_the_jar_is_not_asked_for_it(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PLAIN], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert done.stdout.split()[-1:] == ["{}"], done.stdout + done.stderr[-2000:]
