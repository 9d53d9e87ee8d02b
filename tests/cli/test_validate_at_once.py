"""`validate` says everything that is wrong at once, and each thing once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., Any]

BROKEN = """\
project: shop
pipelines:
  - pipeline: daily
    upstreams: [lake/nowhere]
    function: jobs:nothing
    timeout: often
    tag: [a]
  - pipeline: other
    upstrems: [lake/orders]
    function: jobs:nobody
"""


@pytest.fixture
def errors(project: Path, floodmark: Command) -> list[tuple[str, str]]:
    (project / "floodmark.yaml").write_text(BROKEN)
    (project / "jobs.py").write_text("def process(inputs, run):\n    pass\n")
    answer = floodmark("validate", "--json")
    assert answer.code == 2
    return [(e["code"], e["title"]) for e in answer.document["error"]["errors"]]


def test_a_wrong_option_does_not_hide_a_wrong_function_and_upstream(
    errors: list[tuple[str, str]],
) -> None:
    titles = " / ".join(title for _, title in errors)

    for part in ("not a duration", 'unknown key "tag"', "lake/nowhere", "nothing", "nobody"):
        assert part in titles


def test_a_misspelled_key_is_one_error(errors: list[tuple[str, str]]) -> None:
    about = [title for _, title in errors if "upstrems" in title or '"upstreams"' in title]

    assert about == ['unknown key "upstrems"']
    assert len(errors) == 6


def test_a_misspelled_key_that_is_required_is_one_error(project: Path, floodmark: Command) -> None:
    (project / "floodmark.yaml").write_text(
        "projct: shop\n" + BROKEN.partition("\n")[2].partition("    timeout")[0]
    )

    found = floodmark("validate", "--json").document["error"]["errors"]

    titles = [error["title"] for error in found if "proj" in error["title"]]
    assert titles == ['unknown key "projct"']
