"""The guide to transforms, run: every block, with the rows and the error it shows."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from tests.properties.transform_frames import frame_of, quick

from floodmark.errors import TransformError
from floodmark.transforms import Table, apply_steps, parse_steps, standard

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "transforms.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

ORDERS = Table(
    {"id": "int", "customer": "int", "amount": "string", "Email": "string"},
    [
        (1, 7, "12.50", "ANN@Example.org"),
        (1, 7, "12.50", "ANN@Example.org"),
        (2, 8, "3.00", None),
        (3, 9, None, "bob@example.org"),
    ],
)
CUSTOMERS = Table({"id": "int", "country": "string"}, [(7, "de"), (8, "fr")])


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A project with the modules that the page shows."""
    for code in blocks("python"):
        named = re.match(r"# (\w+/\w+\.py)\n", code)
        if named:
            (tmp_path / named[1]).parent.mkdir(exist_ok=True)
            (tmp_path / named[1]).write_text(code, encoding="utf-8")
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "jobs"]:
        del sys.modules[name]
    sys.path[:] = [folder for folder in sys.path if folder != str(tmp_path)]


def blocks(language: str) -> list[str]:
    found = FENCE.findall(PAGE.read_text(encoding="utf-8"))
    return [text for name, text in found if name == language]


def shown(rows: list[Any]) -> list[str]:
    return [" | ".join("NULL" if value is None else str(value) for value in row) for row in rows]


@pytest.mark.spark
def test_the_page_does_what_it_says(spark: SparkSession, root: Path) -> None:
    session = quick(spark)
    orders, customers = frame_of(session, ORDERS), frame_of(session, CUSTOMERS)
    registry = standard().with_modules(root, ["jobs.steps"])

    results = []
    for text in blocks("yaml"):
        try:
            steps = parse_steps(yaml.safe_load(text), registry)
            done = apply_steps(steps, orders, others={"customers": customers}, root=root)
            results.append(sorted(shown(done.frame.collect())))
        except TransformError as error:
            results.append(sorted(str(error).splitlines()))

    assert results == [sorted(text.splitlines()) for text in blocks("text")]


@pytest.mark.spark
def test_the_calls_from_python_run(spark: SparkSession, root: Path) -> None:
    session = quick(spark)
    given: dict[str, Any] = {"root": root, "orders": frame_of(session, ORDERS)}
    given["customers"] = frame_of(session, CUSTOMERS)

    (code,) = [code for code in blocks("python") if "apply_steps" in code]
    exec(code, given)

    assert [row[3] for row in given["done"].frame.collect()] == [None, "b***"]
    assert [lineage.level for lineage in given["done"].lineage] == ["column", "column"]
