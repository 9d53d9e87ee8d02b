"""Copies of frozen values are those of `dataclasses.replace`."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import pytest

from floodmark.model.copying import replace
from floodmark.model.state import NOTHING_KNOWN
from floodmark.model.upstream import DEFAULT_OPTIONS


@dataclass(frozen=True, slots=True)
class One:
    only: int


def test_a_copy_has_the_changes_and_everything_else() -> None:
    copy = replace(NOTHING_KNOWN, seq=3, control_id="c")
    assert copy == dataclasses.replace(NOTHING_KNOWN, seq=3, control_id="c")
    assert (copy.seq, NOTHING_KNOWN.seq) == (3, 0)


def test_a_value_of_one_field_can_be_copied() -> None:
    assert replace(One(1), only=2) == One(2)


def test_a_copy_is_as_frozen_as_its_original() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        replace(NOTHING_KNOWN, seq=1).seq = 2  # type: ignore[misc]


def test_a_field_that_is_not_there_is_refused() -> None:
    with pytest.raises(KeyError):
        replace(NOTHING_KNOWN, sqe=1)  # type: ignore[call-arg]


def test_a_class_that_checks_itself_is_refused() -> None:
    with pytest.raises(TypeError, match="not a plain dataclass"):
        replace(DEFAULT_OPTIONS, format="delta")
