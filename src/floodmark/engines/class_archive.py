"""An archive of the classes of Spark and Delta, which a JVM maps instead of loading them one by one.

A local session loads some 20,000 classes before its first row, and Java reads, checks and links
each. With an archive it starts and does its first work in about half the time (measured in
docs/decisions/0030). An archive belongs to one Java and one class path; a JVM that finds another
one leaves it alone, and so does `options`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.engines import java
from floodmark.engines.cache import cache_dir
from floodmark.engines.files import write_atomically
from floodmark.errors import SetupError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

USED_BY = (17,)
"""Java 21 takes Spark's class path for another one than it was when the archive was made."""
MAKE_TIMEOUT_SECONDS = 600
_QUIET = "-Xlog:disable -Xlog:all=error:stderr"
_JAVA, _SPARK = "java.jsa", "spark.jsa"
"""Java's own classes, and those of the class path upon them: not every Java brings the first."""
_SIZES = "sizes"
"""The file that is written last: without it, and with other sizes, there is no archive."""


def options(class_path: Sequence[Path]) -> str:
    """The options of a JVM that begins with `class_path`; none if there is no archive for it."""
    folder = place(class_path)
    return _maps(folder / _JAVA, folder / _SPARK) if is_made(folder) else ""


def place(class_path: Sequence[Path]) -> Path:
    """The folder of the archive for this Java, this Spark and `class_path`; may not exist."""
    return cache_dir() / "classes" / f"{_installation()}-{_fingerprint(class_path)}"


def is_made(folder: Path) -> bool:
    """Whether the archive in a folder is whole: a JVM dies of one that was cut off."""
    noted = folder / _SIZES
    return noted.is_file() and noted.read_text() == _sizes(folder)


def make(class_path: Sequence[Path]) -> Path:
    """Make the archive by a session that does a little of everything; takes half a minute.

    It appears whole or not at all; what this installation made before is removed. Raises
    SetupError FM-SETUP-012 if this Java cannot make one.
    """
    folder = place(class_path)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    own, upon = folder / _JAVA, folder / _SPARK
    # The second file names the place of the first, which therefore has to be there already.
    _run([str(java.find().executable), "-Xshare:dump", f"-XX:SharedArchiveFile={own}"], own)
    _run([sys.executable, "-m", __name__, str(own), str(upon)], upon)
    write_atomically(folder / _SIZES, _sizes(folder).encode())
    for old in folder.parent.glob(f"{_installation()}-*"):
        if old != folder:
            shutil.rmtree(old, ignore_errors=True)
    return folder


def _maps(*files: Path) -> str:
    return f"-XX:SharedArchiveFile={':'.join(map(str, files))} {_QUIET}"


def size(archive: Path) -> int:
    """The bytes of an archive."""
    return sum(file.stat().st_size for file in archive.iterdir())


def _sizes(folder: Path) -> str:
    files = [folder / name for name in (_JAVA, _SPARK)]
    return " ".join(str(file.stat().st_size if file.is_file() else 0) for file in files)


def _run(command: Sequence[str], made: Path) -> None:
    """Run what makes a file; the folder it runs in is nobody's."""
    try:
        ran = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=MAKE_TIMEOUT_SECONDS,
            check=False,
            cwd=made.parent,
            env={**os.environ, "SPARK_SUBMIT_OPTS": java.SHORT_RUN},
        )
    except subprocess.TimeoutExpired as error:
        raise _not_made(command, f"no answer within {MAKE_TIMEOUT_SECONDS} s") from error
    if ran.returncode or not made.is_file():
        said = ran.stdout.strip()[-500:]
        raise _not_made(command, said or f"exit code {ran.returncode} and no file")


def _not_made(command: Sequence[str], found: str) -> SetupError:
    return SetupError(
        "FM-SETUP-012",
        "Java made no archive of the classes",
        where=" ".join(command),
        found=found,
        state="nothing else was changed; sessions start as before, only slower",
        next="nothing has to be done; another Java 17 may make one: set JAVA_HOME",
    )


def _installation() -> str:
    """Of the code that runs: several environments of one user keep an archive each."""
    return hashlib.sha256(f"{sys.prefix} {__file__}".encode()).hexdigest()[:8]


def _fingerprint(class_path: Sequence[Path]) -> str:
    """Of all that a JVM compares with the archive: its own build, and the jars before and of Spark."""
    runtime = java.find().executable.resolve()
    jars = [*class_path, *sorted(_spark_jars().glob("*.jar"))]
    facts = [(str(file), *_size_and_time(file)) for file in (runtime, *jars)]
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def _spark_jars() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        return Path("pyspark/jars")
    return Path(spec.origin).parent / "jars"


def _size_and_time(file: Path) -> tuple[int, int]:
    found = file.stat()
    return found.st_size, found.st_mtime_ns


def main(own: str, upon: str) -> None:
    """A first session: starts, appends, merges, reads changes and files, and ends."""
    from floodmark.engines.spark import local_session

    dump = f"{_maps(Path(own))} -XX:ArchiveClassesAtExit={upon}"
    spark = local_session({"spark.driver.extraJavaOptions": dump})
    with tempfile.TemporaryDirectory() as lake:
        _do_a_little_of_everything(spark, lake)
    process = spark.sparkContext._gateway.proc  # type: ignore[union-attr]  # noqa: SLF001
    spark.stop()
    # Java writes the archive while it ends, which it does when nothing more can come.
    process.stdin.close()
    process.wait(MAKE_TIMEOUT_SECONDS)


def _do_a_little_of_everything(spark: SparkSession, lake: str) -> None:
    table, feed = f"{lake}/table", {"delta.enableChangeDataFeed": "true"}
    rows = spark.createDataFrame([(1, "a"), (2, "b")], "id int, name string")
    for mode in ("append", "append", "overwrite"):
        rows.write.format("delta").options(**feed).mode(mode).save(table)
    rows.createOrReplaceTempView("news")
    spark.sql(
        f"MERGE INTO delta.`{table}` t USING news n ON t.id = n.id"
        " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    changes = {"readChangeFeed": "true", "startingVersion": "0"}
    spark.read.format("delta").options(**changes).load(table).groupBy("id").count().collect()
    rows.write.parquet(f"{lake}/files")
    spark.read.parquet(f"{lake}/files").collect()


if __name__ == "__main__":
    main(*sys.argv[1:])
