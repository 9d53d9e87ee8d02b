"""A small shop project on real Delta tables, and a way to call the command line on it."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from tests.support.outsides import ON_ARROW

from floodmark.cli.call import Call, Opening
from floodmark.cli.main import main

GOLDEN = Path(__file__).parent / "golden"

SHOP = """\
project: shop
pipelines:
  - pipeline: daily
    scope: nightly
    upstreams: [lake/orders, lake/customers]
    function: jobs:process
  - pipeline: report
    scope: nightly
    upstreams: [lake/orders]
    function: jobs:report
  - pipeline: solo
    upstreams: [lake/customers]
    function: jobs:process
"""

JOBS = """\
def process(inputs, run):
    rows = inputs["lake/customers"]
    run.write(rows, f"lake/gold/{run.pipeline}", mode="append", changes="log")
    return {"note": "fine"}


def report(inputs, run):
    return share(1, 0)


def share(part, whole):
    return part / whole
"""


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


Command = Callable[..., Answer]


def add_version(path: Path, *ids: int, feed: bool = True) -> None:
    settings = {"delta.enableChangeDataFeed": "true"} if feed else None
    rows = pa.table({"id": list(ids), "name": [f"n{i}" for i in ids]})
    write_deltalake(str(path), rows, mode="append", configuration=settings)


@pytest.fixture(autouse=True)
def own_logging() -> Iterator[None]:
    """Commands set up logging for their process; the process of the tests gets its own back."""
    logger = logging.getLogger("floodmark")
    before = (list(logger.handlers), logger.level, logger.propagate)
    yield
    logger.handlers[:], logger.level, logger.propagate = before


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty project folder as the working directory; imports of it are undone afterwards."""
    folder = tmp_path / "shop"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield folder
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def shop(project: Path) -> Path:
    """Two upstreams, three pipelines, two scopes; `lake/customers` has no change feed."""
    (project / "floodmark.yaml").write_text(SHOP)
    (project / "jobs.py").write_text(JOBS)
    for number in range(2):
        add_version(project / "lake/orders", number, number + 10)
        add_version(project / "lake/customers", number, feed=False)
    return project


ON_DELTA_RS = Opening(session=lambda: None, outside=ON_ARROW)
"""Projects that run on delta-rs instead of Spark."""


@pytest.fixture
def opening() -> Opening:
    """How commands open their project; a module that runs without Spark has another one."""
    return Opening()


@pytest.fixture
def floodmark(opening: Opening, capsys: pytest.CaptureFixture[str]) -> Command:
    """Calls the command line in this process."""

    def call(*arguments: str) -> Answer:
        capsys.readouterr()
        code = main(list(arguments), opening)
        captured = capsys.readouterr()
        return Answer(code, captured.out, captured.err)

    return call


@pytest.fixture
def arrow_call(shop: Path) -> Callable[..., Call]:
    """Makes calls whose project runs on delta-rs instead of Spark; the streams of the moment."""

    def make(*, as_json: bool = True, folder: Path = shop, opening: Opening = ON_DELTA_RS) -> Call:
        return Call(str(folder), as_json=as_json, is_verbose=False, opening=opening)

    return make


@pytest.fixture
def golden(tmp_path: Path) -> Callable[[str, str], None]:
    """Compares a screen with its golden file; FLOODMARK_UPDATE_GOLDEN=1 writes it anew."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / f"{name}.txt"
        seen = steady(text, tmp_path)
        if os.environ.get("FLOODMARK_UPDATE_GOLDEN"):
            path.write_text(seen)
        assert seen == path.read_text()

    return check


def steady(text: str, folder: Path) -> str:
    """The text without what differs from run to run."""
    text = text.replace(str(folder), "<folder>")
    text = re.sub(r"batch_\d{8}T\d{12}Z_[0-9a-f]{8}", "batch_<instant>_<id>", text)
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "<table id>", text)
    text = re.sub(r"\b[0-9a-f]{32}\b", "<store id>", text)
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC by \w+", "<instant> by <user>", text)
    text = re.sub(r"\d\d-\d\d \d\d:\d\d(:\d\d)?", "<instant>", text)
    text = re.sub(r"\d+(\.\d)? (kB|B)\b", "<size>", text)
    text = re.sub(r" +since\n", "  since\n", text)
    return re.sub(r" +\d+(\.\d s| min \d+ s)", "  <time>", text)
