"""Fixtures that every test may ask for."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.sessions import AS_USERS, QUICK, SMALL

from floodmark import secrecy
from floodmark.engines import kafka_server
from floodmark.engines.java import SHORT_RUN
from floodmark.engines.kafka_server import KafkaServer
from floodmark.engines.postgres_server import PostgresServer, running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

os.environ.setdefault("SPARK_SUBMIT_OPTS", SHORT_RUN)
if os.environ.get("FLOODMARK_TEST_SIZE") != "full":
    # delta-rs hands its work to threads, at a price: 8% of the time of a story without Spark.
    os.environ.setdefault("TOKIO_WORKER_THREADS", "1")
LONG_RUN = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=4"}
"""The session of a worker does enough to pay for better code: a fifth less from the thirtieth
story on (measured); the JVMs that tests start and kill do not."""


@pytest.fixture(autouse=True)
def _secrets_of_one_test() -> Iterator[None]:
    """Secrets of tests are words that other tests show."""
    yield
    secrecy.forget()


@pytest.fixture(scope="session")
def full_size() -> bool:
    """Whether the large sizes were asked for: `python3 go.py test --full`."""
    return os.environ.get("FLOODMARK_TEST_SIZE") == "full"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session of the run, as users get it; tests change only children of it."""
    from floodmark.engines.spark import local_session

    session = local_session({**SMALL, **LONG_RUN}, app_name="floodmark-tests")
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def _way_of_queries(request: pytest.FixtureRequest) -> Iterator[None]:
    """The session as users have it, for tests that are marked so."""
    is_marked = request.node.get_closest_marker("as_users") is not None
    is_full = os.environ.get("FLOODMARK_TEST_SIZE") == "full"
    if "spark" not in request.fixturenames or not (is_marked or is_full):
        yield
        return
    session = request.getfixturevalue("spark")
    for key, value in AS_USERS.items():
        session.conf.set(key, value)
    yield
    for key, value in QUICK.items():
        session.conf.set(key, value)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server: the one of FLOODMARK_TEST_PG, else one of our own, started when asked."""
    given = os.environ.get("FLOODMARK_TEST_PG")
    if given:
        from psycopg.conninfo import conninfo_to_dict

        said = {key: str(value) for key, value in conninfo_to_dict(given).items()}
        address = said["host"], int(said.get("port", "5432"))
        secret = said["user"], said.get("password", "")
        yield PostgresServer(*address, *secret, said.get("dbname", said["user"]))
        return
    with running() as server:
        yield server


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaServer]:
    """The one Kafka broker of the run; tests have topics of their own, and let it live."""
    with kafka_server.running() as server:
        yield server


@pytest.fixture
def pg_schema(postgres: PostgresServer) -> Iterator[str]:
    """A schema of the test's own, with a name that has to be quoted."""
    import psycopg

    name = f'Test "{uuid.uuid4().hex[:8]}"'
    identifier = psycopg.sql.Identifier(name)
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute(psycopg.sql.SQL("CREATE SCHEMA {}").format(identifier))
        yield name
        connection.execute(psycopg.sql.SQL("DROP SCHEMA {} CASCADE").format(identifier))


@pytest.fixture
def raw_names(spark: SparkSession) -> Iterator[None]:
    """The catalog's schema `raw`, forgotten after the test: the session is everybody's."""
    yield
    spark.sql("DROP SCHEMA IF EXISTS raw CASCADE")


@pytest.fixture
def tmp_lake(tmp_path: Path) -> Path:
    """An empty folder for tables."""
    lake = tmp_path / "lake"
    lake.mkdir()
    return lake


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without workers the tests of Spark come last: a process has one session, and it shows.

    A command that finds a session already there neither starts one nor says so.
    """
    items.sort(key=lambda item: (_needs_spark(item), item.get_closest_marker("slow") is None))


def _needs_spark(item: pytest.Item) -> bool:
    return "spark" in getattr(item, "fixturenames", ())


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """One worker begins with Spark, the others with the rest; who is done first helps."""
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

    class ByNeed(LoadScopeScheduling):  # type: ignore[misc]
        """Hands out the largest groups first; all other tests are groups of their own."""

        def _split_scope(self, nodeid: str) -> str:
            return next(
                (group for place, group in PLACES if nodeid.startswith(place)), _own(nodeid)
            )

        def _assign_work_unit(self, node: Any) -> None:
            has_spark = node is self.nodes[0]
            fitting = (scope for scope in self.workqueue if scope.startswith(SPARK) is has_spark)
            chosen = next(fitting, None)
            if chosen is not None:
                self.workqueue.move_to_end(chosen, last=False)
            super()._assign_work_unit(node)

    return ByNeed(config, log)


def _own(nodeid: str) -> str:
    """The group of a test that shares nothing: a file of Spark, else the test alone."""
    place = nodeid.split("::", maxsplit=1)[0]
    return f"{SPARK} {place}" if place.startswith("tests/spark/") else nodeid


SPARK = "spark"
PLACES = (
    ("tests/contract/test_sinks.py::TestDelta", f"{SPARK} sinks"),
    ("tests/contract/test_sources.py::TestDelta", f"{SPARK} sources"),
    ("tests/contract/test_sources.py::TestNamed", f"{SPARK} sources"),
    ("tests/contract/test_node_sources.py::TestArrow", "nodes"),
    ("tests/contract/test_node_sources.py", f"{SPARK} nodes"),
    ("tests/contract/test_time_sources.py::TestSpark", f"{SPARK} times"),
    ("tests/crash/test_spark_crashes.py", f"{SPARK} crashes"),
    ("tests/crash/test_database_crashes.py", f"{SPARK} crashes"),
    ("tests/properties/test_changes.py", f"{SPARK} changes"),
    ("tests/properties/test_transforms.py", f"{SPARK} transforms"),
    ("tests/examples/test_transforms_guide.py", f"{SPARK} transforms"),
    ("tests/services/", "postgres"),
    ("tests/streaming/", "streams"),
    ("tests/cli/", "commands"),
)
"""Where tests of a group are; one that is elsewhere only starts what it needs once more."""
