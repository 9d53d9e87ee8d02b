"""The drill of a lost target, typed as an operator types it."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from tests.cli.conftest import ON_DELTA_RS, Answer, add_version

from floodmark.cli.call import Opening
from floodmark.cli.main import main

YAML = """\
project: shop
pipelines:
  - pipeline: daily
    upstreams: [lake/orders]
    function: copies:copy
"""
COPIES = """\
def copy(inputs, run):
    run.write(inputs["lake/orders"], "lake/gold/orders", mode="append")
"""

Command = Callable[..., Answer]


@pytest.fixture
def opening() -> Opening:
    """Commands of this test run on delta-rs; everything else of them is real."""
    return ON_DELTA_RS


@pytest.fixture
def lake(project: Path, opening: Opening) -> Path:
    """A target with two batches in it, and news upstream."""
    (project / "floodmark.yaml").write_text(YAML)
    (project / "copies.py").write_text(COPIES)
    for number in (1, 2):
        add_version(project / "lake/orders", number)
        assert main(["run"], opening) == 0
    add_version(project / "lake/orders", 3)
    return project / "lake"


def ids(path: Path) -> list[int]:
    rows = QueryBuilder().register("t", DeltaTable(path)).execute("SELECT id FROM t ORDER BY id")
    return [row["id"] for row in pa.table(rows).to_pylist()]


def command_after(answer: Answer, choice: str) -> list[str]:
    """The command that the error gives for a choice, as arguments."""
    said = " ".join((answer.out + answer.err).split())
    found = re.search(rf"floodmark (retry batch_\w+ --on-lost-target {choice})", said)
    assert found, said
    return shlex.split(found[1])


@pytest.mark.parametrize(("choice", "expected"), [("rebuild", [1, 2, 3]), ("accept", [1, 3])])
def test_a_restored_target_is_mended_by_the_command_in_the_error(
    lake: Path, floodmark: Command, choice: str, expected: list[int]
) -> None:
    DeltaTable(lake / "gold/orders").restore(0)

    refused = floodmark("run")
    assert refused.code != 0
    assert "FM-SINK-009" in refused.out + refused.err
    assert floodmark(*command_after(refused, choice)).code == 0

    assert ids(lake / "gold/orders") == expected
    assert floodmark("verify").code == 0
    assert floodmark("run").code == 0


def test_a_dropped_target_is_mended_by_the_command_in_the_error(
    lake: Path, floodmark: Command
) -> None:
    shutil.rmtree(lake / "gold/orders")

    refused = floodmark("run")
    assert "FM-SINK-007" in refused.out + refused.err
    assert floodmark(*command_after(refused, "rebuild")).code == 0

    assert ids(lake / "gold/orders") == [1, 2, 3]
    assert floodmark("verify").code == 0
