"""What scripts, stores and streams of others rely on is still there, under its name."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from tests.frozen import surface

CURRENT = surface.surface()


@pytest.mark.parametrize("part", sorted(surface.recorded()))
def test_nothing_that_was_shown_is_gone(part: str) -> None:
    lost = list(surface.lost(surface.recorded()[part], CURRENT.get(part)))

    assert lost == [], f"others use these; if they only moved, keep the old name too: {lost}"


def test_everything_that_is_shown_is_recorded() -> None:
    missing = list(surface.lost(CURRENT, surface.recorded()))

    assert missing == [], "run: PYTHONPATH=src python -m tests.frozen.surface --record"


@pytest.mark.parametrize("part", sorted(surface.recorded()))
def test_a_name_that_goes_is_noticed_in_every_part(part: str) -> None:
    current = copy.deepcopy(CURRENT)
    spoil(current, part)

    assert list(surface.lost(surface.recorded()[part], current[part]))


def spoil(names: Any, key: Any) -> None:
    """Take one name away, or change it, as deep inside as there is one."""
    inside = names[key]
    if isinstance(inside, dict) and inside:
        spoil(inside, next(iter(inside)))
    elif isinstance(inside, list) and inside:
        inside.pop()
    elif inside:
        names[key] = f"{inside} changed"
    else:
        del names[key]


def test_recording_never_takes_anything_out(tmp_path: Path) -> None:
    path = tmp_path / "names.json"
    surface.record({"codes": ["A", "B"], "words": {"kind": ["x"]}}, path)
    surface.record({"codes": ["B", "C"], "words": {"mode": ["y"]}}, path)

    assert surface.recorded(path) == {
        "codes": ["A", "B", "C"],
        "words": {"kind": ["x"], "mode": ["y"]},
    }
