"""The story of a run is one function that a stranger can read, and `floodmark run` goes through it."""

from __future__ import annotations

import inspect
import traceback
from pathlib import Path

import pytest
from tests.support import crash
from tests.support.outsides import ON_ARROW

import floodmark as fm
from floodmark.project import story
from floodmark.project.outcomes import NullWatcher

FILE = """\
project: shop
pipelines:
  - {pipeline: copy, upstreams: [lake/orders], function: "pipelines:copy"}
"""
FUNCTION = """\
def copy(inputs, run):
    run.write(inputs["lake/orders"], "lake/out", mode="append")
"""


@pytest.fixture
def shop(tmp_path: Path) -> fm.Project:
    crash.append_rows(tmp_path, "./lake/orders", [(1, 10)])
    (tmp_path / "floodmark.yaml").write_text(FILE)
    (tmp_path / "pipelines.py").write_text(FUNCTION)
    return fm.Project.load(tmp_path, outside=ON_ARROW, session=lambda: None)


def test_it_fits_on_one_screen() -> None:
    lines = inspect.getsource(story.run_project).splitlines()

    assert len(lines) <= 60


def test_its_stages_stand_there_in_their_order() -> None:
    text = inspect.getsource(story.run_project)
    places = [text.index(f"# {stage}") for stage in ("1. Discover", "2. Plan", "5. Report")]

    assert places == sorted(places)
    assert text.index("# 3. Run") < text.index("# 4. Finalize")


class Stack(NullWatcher):
    """Remembers through which functions a pipeline is started."""

    def __init__(self) -> None:
        self.functions: list[str] = []

    def started(self, pipeline: str, batch_id: str) -> None:
        self.functions = [frame.name for frame in traceback.extract_stack()]


def test_a_run_goes_through_it(shop: fm.Project) -> None:
    stack = Stack()

    summary = shop.run(watcher=stack)

    assert [outcome.status for outcome in summary.outcomes] == ["SUCCESS"]
    assert [each.advanced for each in summary.batches] == [(str(shop.root / "lake/orders"),)]
    assert "run_project" in stack.functions


def test_looking_takes_no_lease_and_starts_no_session(tmp_path: Path, shop: fm.Project) -> None:
    shop.run()
    looks = fm.Project.load(tmp_path, session=lambda: pytest.fail("a session was started")).look
    before = looks.state().seq

    answers = (looks.status(), looks.lag(), looks.history(), looks.gaps(), looks.verify())

    assert all(finding.ok for finding in answers[4])
    assert looks.state().seq == before
