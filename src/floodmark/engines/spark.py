"""Local Spark sessions with Delta, tuned for one machine."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.engines import class_archive, gateway, jars, java, screen, spawnless
from floodmark.engines.faults import spark_condition
from floodmark.engines.jvm import other_session
from floodmark.errors import ConfigError, SetupError
from floodmark.model.arguments import checks_call
from floodmark.model.names import choices
from floodmark.next_steps import command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
DELTA_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"

CONNECTORS = ("postgres", "kafka")
"""Groups of jars by which Spark reaches what is not a file."""

MAX_DRIVER_MEMORY_MB = 4096
_NO_SOURCE = ("DATA_SOURCE_NOT_FOUND", "_LEGACY_ERROR_TEMP_1140")
"""Spark's conditions for a format that it does not have; Kafka's has one of its own."""
_WAREHOUSE = "floodmark-warehouse-"
_CONNECT_VARIABLES = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")
"""pyspark sets the second where a process has had a session of Spark Connect."""
_ZONE = "-Duser.timezone=UTC"
"""JDBC hands wall times through the zone of the JVM: one with summer time skips an hour a year."""


@checks_call("fm")
def local_session(
    conf: Mapping[str, str] | None = None,
    *,
    app_name: str = "floodmark",
    connectors: Sequence[str] = (),
) -> SparkSession:
    """A Delta-enabled Spark on this machine; `conf` adds to and overrides the defaults.

    Fetches the Delta jars on first use, and those of `connectors` (`"kafka"`, `"postgres"`); of
    connectors that are not named it has those that were fetched before. Called again, it returns
    the session that is active, whose settings stay as they are. Raises SetupError: FM-SETUP-001 no Java, 002 and 004 jars,
    003 no pyspark, 005 if the active session has no Delta, 013 where Spark Connect is asked for;
    ConfigError FM-CONFIG-007 for a connector that there is not.
    """
    _refuse_unknown(connectors)
    refuse_connect(conf)
    active = active_session()
    if active is not None:
        return _require_delta(active)
    settings = {
        **default_conf(connectors),
        **_own_warehouse(),
        "spark.app.name": app_name,
        **(conf or {}),
    }
    settings["spark.driver.extraJavaOptions"] = _java_options(conf or {})
    of_user = (conf or {}).get("spark.executor.extraJavaOptions", "")
    settings["spark.executor.extraJavaOptions"] = f"{_ZONE} {of_user}".strip()
    settings |= spawnless.settings(settings)
    if "spark.jars" not in (conf or {}):
        settings |= _archived(settings)
    with _environment(JAVA_HOME=str(java.home(java.find())), PYSPARK_PYTHON=sys.executable):
        return _start(settings)


def refuse_connect(conf: Mapping[str, str] | None = None) -> None:
    """Raise FM-SETUP-013 where pyspark would give a Spark Connect session instead of a local one.

    Starts nothing and asks nobody: pyspark goes by these names alone.
    """
    said = {
        **{name: os.environ.get(name) for name in _CONNECT_VARIABLES},
        "spark.remote": (conf or {}).get("spark.remote"),
    }
    names = [name for name, value in said.items() if value]
    if (conf or {}).get("spark.api.mode", "classic").lower() != "classic":
        names.append("spark.api.mode")
    if not names:
        return
    raise SetupError(
        "FM-SETUP-013",
        "Spark Connect is asked for, over which rows and receipt cannot be committed together",
        found=f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} set",
        allowed="a session of Spark with a driver of its own",
        state="nothing was started or written",
        next=f"take {' and '.join(names)} away, then repeat the command in a process of its own",
    )


def has_delta(spark: SparkSession) -> bool:
    """Whether `spark` can write Delta tables and run Delta's SQL."""
    extensions = spark.conf.get("spark.sql.extensions", "") or ""
    catalog = spark.conf.get("spark.sql.catalog.spark_catalog", "") or ""
    # Databricks brings Delta without naming it in these settings.
    on_databricks = spark.conf.get("spark.databricks.clusterUsageTags.sparkVersion", "") or ""
    return (DELTA_EXTENSION in extensions and catalog == DELTA_CATALOG) or bool(on_databricks)


@contextmanager
def needing_kafka() -> Iterator[None]:
    """Around the `load` of a Kafka source: raises SetupError FM-SETUP-011 if Spark has none."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import AnalysisException

    try:
        yield
    except (AnalysisException, Py4JJavaError) as error:
        condition = spark_condition(error)
        if condition not in _NO_SOURCE:
            raise
        raise SetupError(
            "FM-SETUP-011",
            "the Spark session has no connector to Kafka",
            found=condition,
            allowed="jars of the group kafka in spark.jars, or the package spark-sql-kafka-0-10",
            state="nothing was read",
            next=command("jars", "fetch", "kafka") + ", then start the session again",
        ) from error


def _refuse_unknown(connectors: Sequence[str]) -> None:
    """One that is not there would be missed only by the first read, as a source without a driver."""
    for name in [connectors] if isinstance(connectors, str) else connectors:
        if name not in CONNECTORS:
            raise ConfigError(
                "FM-CONFIG-007",
                f"there is no connector {name}",
                rule="unknown_connector",
                allowed=choices(CONNECTORS, name),
                state="no session was started",
                next="correct the call",
            )


def default_conf(connectors: Sequence[str] = ()) -> dict[str, str]:
    """The settings of a local session, jars included (fetched if they are missing)."""
    cores = os.cpu_count() or 2
    few = str(max(2, min(2 * cores, 16)))
    return {
        "spark.master": "local[*]",
        # SPARK_API_MODE=connect would start a server of Spark Connect instead.
        "spark.api.mode": "classic",
        "spark.jars": ",".join(str(path) for path in _jars(connectors)),
        "spark.sql.extensions": DELTA_EXTENSION,
        "spark.sql.catalog.spark_catalog": DELTA_CATALOG,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": f"{_driver_memory_mb()}m",
        # Spark's 200 and Delta's 50 partitions cost 4 s on a small write and read (measured).
        "spark.sql.shuffle.partitions": few,
        "spark.databricks.delta.snapshotPartitions": "2",
        # VACUUM lists files with this many tasks; Spark's default is 10,000.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": few,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.adaptive.enabled": "true",
        # Spark would wait for ever for the thread of a query that is stopped.
        "spark.sql.streaming.stopTimeout": "60s",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Spark 4.2.0 waits for ever for a function of Python that is given columns as they lie in
        # Parquet (SPARK-58241); as rows they come to the same end.
        "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled": "false",
        # Rows that come to the driver make no way through the block manager: a fifth less time.
        "spark.task.maxDirectResultSize": "120m",
    }


def _jars(connectors: Sequence[str]) -> list[Path]:
    """Delta's jars and those of `connectors`, fetched if need be, and connectors fetched before."""
    there = [group for group in CONNECTORS if group in connectors or not jars.missing(group)]
    return [path for group in ("delta", *there) for path in jars.paths(group)]


def class_path() -> list[Path]:
    """What a local JVM of ours begins with, before Spark's own jars."""
    return [spawnless.JAR, *(jars.jars_dir() / jar.filename for jar in jars.groups()["delta"])]


def _archived(settings: Mapping[str, str]) -> dict[str, str]:
    """Delta moved from `spark.jars` to the class path: only from there is a class taken from the
    archive. Nothing where the class path is the user's, or cannot be ours.
    """
    ours = class_path()
    if settings.get(spawnless.CLASS_PATH) != str(spawnless.JAR) or ":" in "".join(map(str, ours)):
        return {}
    others = [path for path in settings["spark.jars"].split(",") if Path(path) not in ours]
    options = f"{settings['spark.driver.extraJavaOptions']} {class_archive.options(ours)}".strip()
    return {
        spawnless.CLASS_PATH: ":".join(map(str, ours)),
        "spark.jars": ",".join(others),
        "spark.driver.extraJavaOptions": options,
    }


def _own_warehouse() -> dict[str, str]:
    """A folder that goes with the process; Spark's default is wherever the user happens to be."""
    folder = tempfile.mkdtemp(prefix=_WAREHOUSE)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return {"spark.sql.warehouse.dir": folder}


def goes_with_the_process(location: str) -> bool:
    """Whether a place is in the warehouse of a local session, which is removed with its process."""
    return f"/{_WAREHOUSE}" in location


def _start(settings: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    with gateway.noted():
        session = builder.getOrCreate()
    screen.keep_quiet()
    return session


def active_session() -> SparkSession | None:
    """The session of this thread, else the one that this process has; raises FM-SETUP-003."""
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        raise SetupError(
            "FM-SETUP-003",
            "pyspark is not installed",
            state="nothing was started",
            next="pip install 'floodmark[spark]'",
        ) from error
    # A thread begins without an active session; taken for none, the settings of the one that is
    # there would be replaced.
    return SparkSession.getActiveSession() or other_session()


def _require_delta(spark: SparkSession) -> SparkSession:
    if has_delta(spark):
        return spark
    raise SetupError(
        "FM-SETUP-005",
        "the active Spark session has no Delta support",
        found=f"spark.sql.extensions = {spark.conf.get('spark.sql.extensions', '') or 'unset'}",
        allowed=f"spark.sql.extensions with {DELTA_EXTENSION}, "
        f"spark.sql.catalog.spark_catalog = {DELTA_CATALOG}",
        state="the session is unchanged",
        next="stop that session, or start it with these settings and the Delta jars",
    )


def _java_options(conf: Mapping[str, str]) -> str:
    with as_file(files("floodmark.engines").joinpath("log4j2.properties")) as path:
        ours = f"{_ZONE} -Dlog4j2.configurationFile={path.as_uri()}"
    if logging.getLogger("floodmark").isEnabledFor(logging.DEBUG):
        ours += " -Dfloodmark.tasks=error"
    return f"{ours} {conf.get('spark.driver.extraJavaOptions', '')}".strip()


def _driver_memory_mb() -> int:
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return MAX_DRIVER_MEMORY_MB // 2
    return min(total // 2 // 2**20, MAX_DRIVER_MEMORY_MB)


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    """The variables that Spark reads while it starts, set for that long only."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
