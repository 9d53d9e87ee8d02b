"""Formats by plug-in: files that Spark cannot read, each once, as planned, and nothing silently."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.node_projects import table_rows

from floodmark.errors import FloodmarkError
from floodmark.project import Project, RunSummary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

GUIDE = Path(__file__).resolve().parents[2] / "docs/guides/plug-ins.md"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    return [code for name, code in FENCE.findall(GUIDE.read_text()) if name == language]


class Weather:
    """The project of the guide."""

    def __init__(self, root: Path, spark: SparkSession) -> None:
        self.root, self.spark = root, spark
        (root / "inbox").mkdir()
        self.write(blocks("yaml")[0], blocks("python")[0])

    def write(self, project: str, module: str) -> None:
        """Each test has a module of its own name: imported ones are not read again."""
        name = f"wx_{self.root.name}_{len(list((self.root).glob('wx_*.py')))}"
        (self.root / f"{name}.py").write_text(module)
        (self.root / "floodmark.yaml").write_text(project.replace("plugins.weather", name))

    def put(self, name: str, text: str) -> None:
        (self.root / "inbox" / name).write_text(text)

    @property
    def project(self) -> Project:
        return Project.load(self.root, session=lambda: self.spark)

    def run(self) -> RunSummary:
        summary = self.project.run()
        for error in [*(o.error for o in summary.outcomes if o.error), *summary.refused]:
            raise error
        return summary

    def rows(self) -> list[tuple[Any, ...]]:
        return table_rows(self.root / "lake/readings")

    def exported(self) -> list[str]:
        files = (self.root / "lake/export").glob("*.wx")
        return sorted(line for file in files for line in file.read_text().splitlines())


@pytest.fixture
def weather(tmp_path: Path, spark: SparkSession) -> Iterator[Weather]:
    path = list(sys.path)
    yield Weather(tmp_path, spark)
    sys.path[:] = path


def failure(weather: Weather) -> FloodmarkError:
    with pytest.raises(FloodmarkError) as caught:
        weather.run()
    return caught.value


def test_every_file_is_read_once_and_written_in_the_same_format(weather: Weather) -> None:
    weather.put("a.wx", "Bonn;4.5\nKiel;-1.0")
    weather.run()
    weather.put("0 [late].wx", "Ulm;0.25")
    weather.run()

    assert weather.rows() == [("Bonn", 4.5), ("Kiel", -1.0), ("Ulm", 0.25)]
    assert weather.exported() == ["Bonn,4.5", "Kiel,-1.0", "Ulm,0.25"]
    assert not any(w.has_news for batch in weather.project.plan() for w in batch.windows)


def test_a_reader_that_raises_is_named_with_its_files_and_a_corrected_one_goes_on(
    weather: Weather,
) -> None:
    weather.put("a.wx", "Bonn;warm")

    error = failure(weather)

    assert error.code == "FM-SOURCE-045"
    assert re.fullmatch(r"wx_\w+:read_wx raised an error", error.title)
    assert f"{weather.root}/inbox/a.wx" in (error.where or "")
    assert "ValueError: could not convert" in (error.found or "")
    module = blocks("python")[0].replace("float(celsius)", "float(celsius.replace('warm', '20'))")
    weather.write(blocks("yaml")[0], module)
    weather.put("b.wx", "Ulm;1.0")
    weather.run()
    assert weather.rows() == [("Bonn", 20.0), ("Ulm", 1.0)]
    batches = list(weather.project.coordinator.look.state().batches.values())
    assert [len(batch.windows) for batch in batches] == [1, 1]


@pytest.mark.parametrize(
    ("gives", "title", "found", "allowed"),
    [
        ("rows", "gave no frame", "a list", "a DataFrame"),
        (
            'spark.createDataFrame([(1, "a")], "celsius INT, place STRING")',
            "gave other columns",
            "celsius int, place string",
            "celsius double, station string",
        ),
    ],
)
def test_a_reader_that_gives_something_else_is_refused(
    gives: str, title: str, found: str, allowed: str, weather: Weather
) -> None:
    module = re.sub(r"return spark.*", f"return {gives}", blocks("python")[0])
    weather.write(blocks("yaml")[0], module)
    weather.put("a.wx", "Bonn;4.5")

    error = failure(weather)

    assert error.code == "FM-SOURCE-045"
    assert error.title.endswith(title)
    assert (error.found, error.allowed) == (found, allowed)
    assert not (weather.root / "lake/readings/_delta_log/00000000000000000000.json").exists()


def test_columns_in_another_order_are_put_into_that_of_the_schema(weather: Weather) -> None:
    project = blocks("yaml")[0].replace(
        "station STRING, celsius DOUBLE", "celsius DOUBLE, station STRING"
    )
    weather.write(project, blocks("python")[0])
    weather.put("a.wx", "Bonn;4.5")
    weather.run()

    assert weather.rows() == [(4.5, "Bonn")]


def test_a_writer_that_raises_is_named_and_the_retry_writes(weather: Weather) -> None:
    module = blocks("python")[0].replace("folder = Path(path)", "raise OSError('no room')")
    weather.write(blocks("yaml")[0], module)
    weather.put("a.wx", "Bonn;4.5")

    error = failure(weather)

    assert error.code == "FM-SINK-035"
    assert error.title.endswith(":write_wx raised an error")
    assert "OSError: no room" in (error.found or "")
    weather.write(blocks("yaml")[0], blocks("python")[0])
    weather.run()
    assert weather.rows() == [("Bonn", 4.5)]
    assert weather.exported() == ["Bonn,4.5"]


def test_a_file_that_changed_after_it_was_planned_is_refused(weather: Weather) -> None:
    weather.put("a.wx", "Bonn;4.5")
    weather.project.freeze()
    weather.put("a.wx", "Bonn;14.5")

    assert failure(weather).code == "FM-SOURCE-041"
