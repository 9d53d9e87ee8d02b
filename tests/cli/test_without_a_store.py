"""Every verb in a project without a control store: only those that freeze or register make one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.cli.conftest import ON_DELTA_RS, Answer, add_version

from floodmark.cli.call import Opening
from floodmark.cli.main import build_app

Command = Callable[..., Answer]

PROJECT = """\
project: shop
connections: {lake: {type: lake, root: lake}}
pipelines:
  - pipeline: p
    nodes:
      - name: n
        read: {connection: lake, path: a}
        write: {connection: lake, path: b, mode: append}
"""

NEEDS_ONE = {
    "retry": "retry batch_x",
    "record": "record p batch_x --status SUCCESS",
    "finalize": "finalize batch_x",
    "cancel": "cancel batch_x",
    "backfill": "backfill lake/a --start 0 --end 0 --allow-duplicates",
    "replay": "replay batch_x",
    "pause": "pause p",
    "resume": "resume p",
    "refresh": "refresh p",
    "rename": "rename p q",
    "remove": "remove old",
    "status": "status batch_x",
    "verify": "verify",
    "metrics": "metrics",
    "upkeep": "upkeep",
    "state show": "state show",
    "state export": "state export kept.json",
    "state rebuild": "state rebuild",
    "state reset": "state reset --upstream lake/a --to-version 0 --yes",
}
LOOKS = {
    "plan": "plan",
    "lag": "lag",
    "history": "history",
    "gaps": "gaps",
    "doctor": "doctor",
    "validate": "validate",
    "config": "config",
    "schema": "schema",
    "graph": "graph",
    "init": "init minimal elsewhere",
}
MAKES_ONE = {"run", "demo", "state import"}
OF_OTHER_THINGS = ("stream ", "jars ")


def verbs(command: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    children = getattr(command, "commands", None)
    if children is None:
        yield " ".join(path)
    for name, child in (children or {}).items():
        yield from verbs(child, (*path, name))


@pytest.fixture
def opening() -> Opening:
    return ON_DELTA_RS


@pytest.fixture
def lost(project: Path, floodmark: Command) -> Path:
    """A project that has run, and lost its store; the path of that."""
    (project / "floodmark.yaml").write_text(PROJECT)
    add_version(project / "lake/a", 1)
    assert floodmark("run").code == 0
    shutil.rmtree(project / "lake/_control")
    return project / "lake/_control"


def test_every_verb_is_sorted() -> None:
    found = set(verbs(typer.main.get_command(build_app())))

    others = {verb for verb in found if not verb.startswith(OF_OTHER_THINGS)}
    assert others == {*NEEDS_ONE, *LOOKS, *MAKES_ONE}


@pytest.mark.parametrize("verb", NEEDS_ONE)
def test_a_verb_that_needs_a_store_makes_none(lost: Path, floodmark: Command, verb: str) -> None:
    answer = floodmark(*NEEDS_ONE[verb].split(), "--json")

    assert answer.code != 0, answer
    assert json.loads(answer.out)["error"]["code"] == "FM-CONTROL-001"
    assert not lost.exists()


@pytest.mark.parametrize("verb", LOOKS)
def test_a_look_makes_none(lost: Path, floodmark: Command, verb: str) -> None:
    floodmark(*LOOKS[verb].split())

    assert not lost.exists()
    assert floodmark("state", "rebuild", "--from-targets", "lake/b").code == 0
