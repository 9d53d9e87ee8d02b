"""Fixtures that every test may ask for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from floodmark.engines.java import SHORT_RUN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

os.environ.setdefault("SPARK_SUBMIT_OPTS", SHORT_RUN)


@pytest.fixture(scope="session")
def full_size() -> bool:
    """Whether the large sizes were asked for: `python3 go.py test --full`."""
    return os.environ.get("FLOODMARK_TEST_SIZE") == "full"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session of the run, as users get it; tests change only children of it."""
    from floodmark.engines.spark import local_session

    session = local_session({"spark.driver.memory": "2g"}, app_name="floodmark-tests")
    yield session
    session.stop()


@pytest.fixture
def tmp_lake(tmp_path: Path) -> Path:
    """An empty folder for tables."""
    lake = tmp_path / "lake"
    lake.mkdir()
    return lake


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One worker has the one Spark session; the other starts with the commands.

    A command that finds a session already there neither starts one nor says so, so commands are
    played where none is: without workers before the tests of Spark, with workers on the other one
    (xdist hands out the largest groups first).
    """
    for item in items:
        group = _group(item)
        if group is not None:
            item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: _group(item) == "spark")


def _group(item: pytest.Item) -> str | None:
    if "spark" in getattr(item, "fixturenames", ()):
        return "spark"
    return "commands" if "cli" in item.path.parent.parts else None
