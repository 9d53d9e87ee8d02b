"""The one place that talks to Spark's JVM through py4j; Spark Connect has no such JVM."""

from __future__ import annotations

import errno
import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from floodmark.errors import SinkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LOCK_TIMEOUT_SECONDS = 600.0
LOCK_POLL_SECONDS = 0.02

_DELTA_OPTIONS = (
    "org.apache.spark.sql.delta.DeltaOptions",
    "com.databricks.sql.transaction.tahoe.DeltaOptions",
)
_CATALOG_IS_WANTED = "spark.databricks.delta.requiredSparkConfsCheck.enabled"
_FIXED_ZONE = re.compile(r"Z|UTC|UCT|GMT|UT|Zulu|Universal|Greenwich|Etc/.*|(UTC|GMT|UT)?[+-]\d.*")
"""Names of zones without summer time, now and ever; all others have a past with transitions."""

_OBSERVATION_POLL_SECONDS = 0.005
_WANT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""What this machine has no more of where a connection is not opened."""

_thread_locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)


def has_answered() -> bool:
    """Whether the JVM of this process has started and can be asked."""
    from pyspark import SparkContext

    return SparkContext._gateway is not None


def other_session() -> SparkSession | None:
    """The session that this process has, whichever thread has begun it; not that of a context
    which was stopped.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is None:
        return None
    return SparkSession._instantiatedSession


def is_connect(spark: SparkSession) -> bool:
    """Whether `spark` is a Spark Connect session, which has no JVM and no child sessions."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def has_delta_transactions(spark: SparkSession) -> bool:
    """Whether the Delta in the session's JVM knows the transaction options of a write.

    Asked of its classes, which takes 2 ms: a setting says nothing about who writes. An engine that
    is not Spark, or a Delta before 2.0, takes the options and ignores them.
    """
    from py4j.protocol import Py4JError

    for name in _DELTA_OPTIONS:
        options = _jvm(spark)
        try:
            for part in name.split("."):
                options = getattr(options, part)
            if options.TXN_APP_ID() == "txnAppId":
                return True
        except (TypeError, Py4JError):  # what py4j says of a class that is not there
            continue
    return False


def lacks_delta_catalog(spark: SparkSession) -> bool:
    """Whether Delta refuses everything for want of its catalog, by its own rule."""
    if spark.conf.get("spark.sql.catalog.spark_catalog", "") or is_on_databricks(spark):
        return False
    return spark.conf.get(_CATALOG_IS_WANTED, "true") != "false"


def is_on_databricks(spark: SparkSession) -> bool:
    """Whether the runtime is that of Databricks, whose commits to S3 go through a service."""
    return bool(spark.conf.get("spark.databricks.clusterUsageTags.clusterId", ""))


def setting_at_start(spark: SparkSession, key: str) -> str:
    """A setting with which Spark was started; empty if it was not said then.

    What is read by the processes of Spark knows nothing of the settings of a session.
    """
    return str(spark.sparkContext.getConf().get(key, "") or "")


def child_session(spark: SparkSession) -> SparkSession:
    """A session with settings of its own on the same Spark; a new one at each call.

    Frames of the parent can be written through it; temp views do not cross.
    """
    return spark.newSession()


def make_active(spark: SparkSession) -> None:
    """Let `SparkSession.getActiveSession()` of the calling thread, which begins without, be `spark`."""
    if not is_connect(spark):
        kind = _named(spark, spark._jsparkSession.getClass().getName())
        kind.setActiveSession(spark._jsparkSession)


def session_like(spark: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """A child session with the settings of `spark` and those given; `spark` stays as it is.

    Not for Spark Connect, which has no child sessions.
    """
    child = child_session(spark)
    # A child session starts from the defaults: what the parent was told later has to follow.
    defaults = child.conf.getAll
    for key, value in spark.conf.getAll.items():
        if defaults.get(key) != value and child.conf.isModifiable(key):
            child.conf.set(key, value)
    for key, value in settings.items():
        child.conf.set(key, value)
    return child


def frame_by_plan(spark: SparkSession, frame: DataFrame) -> DataFrame:
    """The analysed plan of another session's frame, as a frame of `spark`.

    Spark plans and runs it anew in `spark`: only what the analysis decided stays.
    """
    from pyspark.sql import DataFrame

    dataset = _named(spark, frame._jdf.getClass().getName())
    plan = frame._jdf.queryExecution().analyzed()
    return DataFrame(dataset.ofRows(spark._jsparkSession, plan), spark)


def frame_by_rows(spark: SparkSession, frame: DataFrame) -> DataFrame:
    """The rows of another session's frame, as a frame of `spark`.

    The other session plans the rows at once, with its own settings; reading them is left to the
    actions on the frame. They stay in Spark's own format, so no value is converted.
    """
    from pyspark.sql import DataFrame

    rows = frame._jdf.queryExecution().toRdd()
    made = spark._jsparkSession.internalCreateDataFrame(rows, frame._jdf.schema(), False)  # noqa: FBT003  # py4j has no names
    return DataFrame(made, spark)


def rows_of(frame: DataFrame) -> int:
    """How many rows an execution of a frame gives; of Parquet it reads the footers alone.

    Exact, whatever is executed twice: each task counts once. `observe` counts repeated tasks again
    (SPARK-58183), and Delta answers `count` of a whole table from its log without a look at the
    files, but for a plan without the aggregate.
    """
    if is_connect(frame.sparkSession):
        return frame.count()
    return int(frame.select()._jdf.queryExecution().toRdd().count())


def observed_rows(frame: DataFrame) -> tuple[DataFrame, Callable[[float], int | None]]:
    """The frame, and how many rows the first action on it has read; not over Connect.

    That number is None if no action has told it within the seconds given: Spark tells some time
    after the action has ended. Repeated tasks count again, and rows that a plan needs no more do not.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as fn

    observation = Observation()
    observed = frame.observe(observation, fn.count(fn.lit(1)).alias("rows"))
    handle: Any = observation._jo

    def rows(seconds: float) -> int | None:
        # `get` would wait for ever for a frame that nothing reads.
        end = time.monotonic() + seconds
        while not handle.future().isCompleted():
            if time.monotonic() >= end:
                return None
            time.sleep(_OBSERVATION_POLL_SECONDS)
        # A plan without the frame tells an empty row, on which Observation.get raises.
        row = handle.getRow()
        return int(row.getLong(0)) if row.length() else None

    return observed, rows


def _named(spark: SparkSession, name: str) -> Any:
    """A class of Spark's JVM."""
    return reduce(getattr, name.split("."), _jvm(spark))


def local_property(spark: SparkSession, key: str) -> str:
    """What Spark has noted for the jobs of this thread; empty if nothing."""
    return str(spark.sparkContext.getLocalProperty(key) or "")


def has_fixed_zone(spark: SparkSession) -> bool:
    """Whether the JVMs of a session keep one distance from UTC: no wall time is skipped in theirs.

    Of a cluster one that runs tasks is asked. False where nobody answers.
    """
    from pyspark.errors import PySparkException

    try:
        if not is_connect(spark) and str(spark.conf.get("spark.master", "")).startswith("local"):
            zone = _jvm(spark).java.time.ZoneId.systemDefault().getId()
        else:
            asked = "java_method('java.time.ZoneId', 'systemDefault') AS zone"
            zone = spark.range(1).selectExpr(asked).collect()[0]["zone"]
    except PySparkException:
        return False
    return _FIXED_ZONE.fullmatch(str(zone)) is not None


def local_path(location: str) -> Path | None:
    """The path on this machine's disk, or None if `location` is somewhere else."""
    scheme = urlsplit(location).scheme
    if scheme == "file":
        return Path(unquote(urlsplit(location).path))
    return Path(location) if not scheme else None


@contextmanager
def file_lock(
    spark: SparkSession, location: str, *, timeout_seconds: float = LOCK_TIMEOUT_SECONDS
) -> Iterator[None]:
    """Hold the exclusive lock file at `location`, against threads, processes and other JVMs.

    The JVM holds it, not Python: when Python is killed, the commit that the JVM is still making
    stays covered until that JVM ends. The file is created and stays behind, empty. Nothing is
    locked for a location that is not on this machine's disk. Raises SinkError FM-SINK-014 after
    `timeout_seconds`; not reentrant.
    """
    path = local_path(location)
    if path is None:
        yield
        return
    deadline = time.monotonic() + timeout_seconds
    key = str(path.resolve())
    # Two channels of one JVM do not wait for each other: the second gets an exception.
    if not _thread_locks[key].acquire(timeout=timeout_seconds):
        raise _locked(path, timeout_seconds)
    try:
        with _jvm_lock(spark, path, deadline, timeout_seconds):
            yield
    finally:
        _thread_locks[key].release()


@contextmanager
def _jvm_lock(
    spark: SparkSession, path: Path, deadline: float, timeout_seconds: float
) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    file = _jvm(spark).java.io.RandomAccessFile(str(path), "rw")
    try:
        channel = file.getChannel()
        while not _try_lock(channel):
            if time.monotonic() > deadline:
                raise _locked(path, timeout_seconds)
            time.sleep(LOCK_POLL_SECONDS)
        yield
    finally:
        file.close()


def _try_lock(channel: Any) -> bool:
    from py4j.protocol import Py4JJavaError

    try:
        return channel.tryLock() is not None
    except Py4JJavaError as error:
        overlapping = "java.nio.channels.OverlappingFileLockException"
        if error.java_exception.getClass().getName() != overlapping:
            raise
        return False


def is_gone(spark: SparkSession) -> bool:
    """Whether the session of Spark is ended, or its process."""
    context = spark.sparkContext._jsc
    if context is None:
        return True
    try:
        return bool(context.sc().isStopped())
    # Whatever is raised where the process is asked: it is looked at.
    except Exception as error:  # noqa: BLE001
        return has_no_answer(error)


def has_no_answer(error: BaseException) -> bool:
    """Whether a call into the JVM failed because nobody is there: an exception of Java is an answer.

    So is none that could not be asked for, because this process may open no more connections.
    """
    from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
    from pyspark.errors import PySparkException

    if isinstance(error, Py4JJavaError | PySparkException):
        return False
    cause = error.cause if isinstance(error, Py4JNetworkError) else error
    if isinstance(cause, OSError):
        return cause.errno not in _WANT
    return isinstance(error, Py4JError)


def _jvm(spark: SparkSession) -> Any:
    return spark.sparkContext._jvm


def _locked(path: Path, timeout_seconds: float) -> SinkError:
    return SinkError(
        "FM-SINK-014",
        "the target could not be locked",
        where=str(path),
        found=f"another writer holds the lock since more than {timeout_seconds:g} s",
        state="nothing was written",
        next="wait for the other writer, then run the same command again",
        retryable=True,
    )


def state_metric(query: StreamingQuery, name: str) -> int:
    """A number that the operators of a running batch count, over all of them.

    Complete once the rows of the batch were computed; Spark itself tells it only after the batch.
    """
    return sum(_metrics(query._jsq.streamingQuery().lastExecution().executedPlan(), name))


def _metrics(plan: Any, name: str) -> list[int]:
    """The values of a metric in a plan, from its root on."""
    known, children = plan.metrics(), plan.children()
    found = [int(known.get(name).get().value())] if known.contains(name) else []
    below = (_metrics(children.apply(index), name) for index in range(children.size()))
    return [*found, *(value for values in below for value in values)]
