"""With and without libyaml a file means the same, place for place."""

from __future__ import annotations

import pytest

from floodmark.config.text import yaml_document as document
from floodmark.config.text.places import Report
from floodmark.config.text.yaml_document import read_document

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
    def found() -> tuple[object, ...]:
        report = Report("f")
        root = read_document(text, report).root
        leaves = [(path, e.value, e.place) for path, e in root.leaves()] if root else None
        return leaves, [str(error) for error in report.errors]

    fast = found()
    monkeypatch.setattr(document, "_FastParser", document._PlainParser)

    assert found() == fast
