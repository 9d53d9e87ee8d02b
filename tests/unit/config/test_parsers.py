"""With and without libyaml a file means the same, place for place."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import Any

import pytest
import yaml

from floodmark.config.text import yaml_document
from floodmark.config.text.places import Report

TEXTS = [
    "a: 1\nb: [x, {c: ~}]\n",
    "a:\nb:\n  -\n  - c:\n",
    "---\n",
    "a: &x {k: v}\nb: *x\nc: &y [1, *x]\nd: *y\n",
    "a: |\n  text\n   more\nb: >-\n  folded\n  text\nc: 'it''s'\nd: \"\\u00e9\"\n",
    "a: é\nb: {ü: ß, c: 日本}\n",
    "? a\n: b\n",
    "a: !x 1\nb: !!int '7'\n5: x\na: 2\n",
    "# only a comment\n",
    "a: b # c\n\n\nd:   e\n",
]


@pytest.mark.parametrize("text", TEXTS)
def test_both_parsers_find_the_same(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml.cyaml", None)
    monkeypatch.delattr(yaml, "cyaml", raising=False)

    assert content(yaml_document, text) == content(loaded_anew(yaml_document), text)


def content(module: Any, text: str) -> tuple[object, ...]:
    """What a module of ours reads: the leaves with their places, and the errors."""
    report = Report("f")
    root = module.read_document(text, report).root
    leaves = [(path, e.value, e.place) for path, e in root.leaves()] if root else None
    return leaves, [str(error) for error in report.errors]


def loaded_anew(module: ModuleType) -> ModuleType:
    """Another copy of a module, as it is where what it imports is not there."""
    spec = module.__spec__
    assert spec is not None
    assert spec.loader is not None
    copy = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(copy)
    return copy
