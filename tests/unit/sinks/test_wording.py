"""Errors of a write speak the language of whoever wrote it: keys of a file, or arguments of a call."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel
from tests.unit.sinks.test_rules import DATA, FRAME, OURS, feed, refused, snapshot, spec

from floodmark.config.project.writes import WriteSettings
from floodmark.model.write import WriteSpec
from floodmark.sinks import rules
from floodmark.sinks.rules import Target

MERGE = {"mode": "merge", "keys": ("id",)}
REFUSED: dict[str, Any] = {
    "no keys": (spec("merge"), {}),
    "no keys for latest": (spec(changes="latest"), {}),
    "changes of a merge": (spec(**MERGE, changes="log"), {}),
    "missing and ignore": (spec(**MERGE, missing="delete", deletes="ignore"), {}),
    "missing and strategy": (spec(**MERGE, missing="delete", strategy="append_only"), {}),
    "keys of an append": (spec(keys=("id",)), {}),
    "deletes of an append": (spec(deletes="soft"), {}),
    "no condition": (spec("replace_where"), {}),
    "unknown key": (spec("merge", keys=("nobody",)), {}),
    "unknown sequence": (spec(**MERGE, sequence_by="nobody"), {}),
    "unknown partition": (spec(partition_by=("nobody",)), {}),
    "unsaid changes": (spec(), {"windows": [feed("delete")]}),
    "lost log": (spec(changes="log"), {"windows": [feed("delete")], "columns": DATA}),
    "lost type": (spec(**MERGE), {"windows": [feed("delete")], "columns": DATA}),
    "lost version": (spec(**MERGE), {"columns": (*DATA, "_change_type")}),
    "appended snapshot": (spec(), {"windows": [snapshot()], "target": OURS}),
    "overwritten by changes": (spec("overwrite"), {"windows": [feed("insert")]}),
    "missing unsaid": (spec(**MERGE), {"windows": [snapshot()], "target": OURS}),
    "missing in part": (
        spec(**MERGE, missing="delete"),
        {"windows": [snapshot(), feed("insert")], "target": OURS},
    ),
    "new column": (spec(), {"columns": (*FRAME, "gate"), "target": OURS}),
    "absent column": (spec(), {"columns": ("id",), "target": OURS}),
    "soft columns": (
        spec(**MERGE, deletes="soft", created_at="came"),
        {"columns": ("id", "came"), "target": Target(exists=False)},
    ),
}
PYTHON = re.compile(r"\w=(?!=)|\b(True|False|None)\b|\bfunction\b|\bframe\b")
KEY = re.compile(r"\bwrite(?:\.\w+)+")


def text_of(write: WriteSpec, case: dict[str, Any]) -> str:
    windows = case.get("windows", [])
    more = {name: case[name] for name in ("columns", "target") if name in case}
    error = refused(write, *windows, **more)
    return " | ".join(part or "" for part in (error.title, error.found, error.allowed, error.next))


@pytest.mark.parametrize("name", REFUSED)
def test_a_node_is_told_in_keys_of_its_file(name: str) -> None:
    write, case = REFUSED[name]

    text = text_of(replace(write, is_node=True), case)

    assert not PYTHON.search(text), text
    for key in KEY.findall(text):
        assert_key(key)


@pytest.mark.parametrize("name", REFUSED)
def test_a_function_is_told_in_arguments(name: str) -> None:
    write, case = REFUSED[name]

    assert not KEY.search(text_of(write, case))


def test_a_key_of_two_upstreams_is_told_in_both_languages() -> None:
    for is_node, words in ((True, "write.merge.sequence_by"), (False, "sequence_by=")):
        write = replace(spec(**MERGE), is_node=is_node)
        with pytest.raises(Exception, match="two upstreams") as caught:
            rules.tie_notes(write, 0, None, '{"id": 1}', ["/lake/a", "/lake/b"])
        assert words in str(caught.value)


def test_no_value_is_shown_where_a_column_is_sensitive() -> None:
    write = replace(spec(**MERGE), is_node=True, hides_values=True)

    with pytest.raises(Exception, match="two upstreams") as caught:
        rules.tie_notes(write, 0, None, '{"mail": "ann@x"}', ["/lake/a", "/lake/b"])
    notes = rules.tie_notes(replace(write, sequence_by="at"), 2, '{"mail": "ann@x"}', None, None)

    assert "ann@x" not in str(caught.value)
    assert notes == {"ties": "2"}


def assert_key(key: str) -> None:
    model: Any = WriteSettings
    for part in key.split(".")[1:]:
        assert part in model.model_fields, key
        kinds = [model.model_fields[part].annotation]
        kinds += getattr(kinds[0], "__args__", ())
        model = next((k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)), None)
