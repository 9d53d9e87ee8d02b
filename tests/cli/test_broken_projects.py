"""Broken floodmark.yaml files: a typed error with its place, exit code 2, nothing written."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., Any]

ONE = """\
project: shop
pipelines:
  - pipeline: a
    upstreams: [lake/a]
    function: jobs:process
"""
PIPELINE = "  - {pipeline: a, upstreams: [lake/a], function: 'jobs:process'}\n"


def with_top(line: str) -> str:
    return f"{line}\n{ONE}"


def with_pipeline(flow: str) -> str:
    return f"project: shop\npipelines:\n  - {flow}\n"


def bomb() -> str:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    return "\n".join(rows) + "\n" + ONE


# name: (content, code, line:column of the first error)
BROKEN: dict[str, tuple[str | bytes, str, str]] = {
    # Not text, not YAML
    "empty": ("", "FM-CONFIG-004", "1:1"),
    "only a comment": ("# nothing\n", "FM-CONFIG-004", "1:1"),
    "only blanks": ("\n\n   \n", "FM-CONFIG-004", "1:1"),
    "only a document mark": ("---\n", "FM-CONFIG-004", "2:1"),
    "latin-1": ("project: caf\xe9\n".encode("latin-1"), "FM-CONFIG-002", "1:13"),
    "utf-16": (ONE.encode("utf-16"), "FM-CONFIG-002", "1:1"),
    "broken utf-8 in the middle": (b"project: shop\nx: \xff\xfe\n", "FM-CONFIG-002", "2:4"),
    "NUL byte": (b"project: sh\x00op\n", "FM-CONFIG-002", "1:12"),
    "escape character": ("project: shop\ncontrol: \x1b[31mred\n", "FM-CONFIG-002", "2:10"),
    "binary": (bytes(range(256)), "FM-CONFIG-002", "2:118"),
    "tab as indentation": ("project: shop\npipelines:\n\t- a\n", "FM-CONFIG-002", "3:1"),
    "open bracket": ("project: [shop\n", "FM-CONFIG-002", "2:1"),
    "open quote": ('project: "shop\n', "FM-CONFIG-002", "2:1"),
    "missing colon": ("project shop\npipelines: []\n", "FM-CONFIG-002", "2:10"),
    "bad indentation": ("project: shop\n  control: x\n", "FM-CONFIG-002", "2:10"),
    "two values": ("project: a: b\n", "FM-CONFIG-002", "1:11"),
    "two documents": (f"{ONE}---\n{ONE}", "FM-CONFIG-002", "6:1"),
    "unknown alias": ("project: *shop\n", "FM-CONFIG-002", "1:10"),
    "bad escape": ('project: "\\q"\n', "FM-CONFIG-002", "1:12"),
    "a directive of another YAML": (f"%YAML 3.0\n---\n{ONE}", "FM-CONFIG-002", "1:1"),
    "deep brackets": ("project: " + "[" * 5_000 + "\n", "FM-CONFIG-002", "1:49"),
    "deep blocks": ("\n".join(" " * i + "a:" for i in range(200)), "FM-CONFIG-002", "41:41"),
    "alias bomb": (bomb(), "FM-CONFIG-002", "6:15"),
    "an alias of itself": ("project: &a [*a]\n", "FM-CONFIG-002", "1:14"),
    "python tag": ("project: !!python/object/apply:os.system [ls]\n", "FM-CONFIG-002", "1:10"),
    "own tag": ("project: !secret shop\n", "FM-CONFIG-002", "1:10"),
    "set tag": ("project: !!set {a, b}\n", "FM-CONFIG-002", "1:10"),
    "binary tag": ("project: !!binary aGVsbG8=\n", "FM-CONFIG-002", "1:10"),
    "int tag on text": ("project: !!int shop\n", "FM-CONFIG-004", "1:10"),
    "bool tag on text": ("project: !!bool shop\n", "FM-CONFIG-004", "1:10"),
    # Keys
    "duplicate key": (with_top("project: other"), "FM-CONFIG-005", "2:1"),
    "duplicate key of a pipeline": (
        with_pipeline("{pipeline: a, pipeline: b, upstreams: [lake/a], function: 'j:p'}"),
        "FM-CONFIG-005",
        "3:19",
    ),
    "number as key": (with_top("5: x"), "FM-CONFIG-004", "1:1"),
    "boolean as key": (with_top("true: x"), "FM-CONFIG-004", "1:1"),
    "null as key": (with_top("~: x"), "FM-CONFIG-004", "1:1"),
    "list as key": (with_top("[a, b]: x"), "FM-CONFIG-004", "1:1"),
    "merge key": (with_top("<<: {control: x}"), "FM-CONFIG-003", "1:1"),
    "misspelled key": (with_top("contrl: lake/x"), "FM-CONFIG-003", "1:1"),
    "key in capitals": (with_top("Control: lake/x"), "FM-CONFIG-003", "1:1"),
    "key of a later version": (with_top("stories: {}"), "FM-CONFIG-003", "1:1"),
    "misspelled key of a pipeline": (
        f"{ONE}    upstream: [lake/b]\n",
        "FM-CONFIG-003",
        "6:5",
    ),
    "key with an escape": (with_top('"a\\e[31m": x'), "FM-CONFIG-003", "1:1"),
    # The file
    "text": ("shop\n", "FM-CONFIG-004", "1:1"),
    "a list": ("- project\n", "FM-CONFIG-004", "1:1"),
    "a number": ("42\n", "FM-CONFIG-004", "1:1"),
    "an empty mapping": ("{}\n", "FM-CONFIG-004", "1:1"),
    # project, control, schema, lease_ttl
    "no project": (f"pipelines:\n{PIPELINE}", "FM-CONFIG-004", "1:1"),
    "project without value": (ONE.replace("shop", ""), "FM-CONFIG-004", "1:9"),
    "project is a number": (ONE.replace("shop", "7"), "FM-CONFIG-004", "1:10"),
    "project is a list": (ONE.replace("shop", "[a]"), "FM-CONFIG-004", "1:10"),
    "project is a boolean": (ONE.replace("shop", "true"), "FM-CONFIG-004", "1:10"),
    "project with a slash": (ONE.replace("shop", "a/b"), "FM-CONFIG-004", "1:10"),
    "project begins with a dash": (ONE.replace("shop", "-shop"), "FM-CONFIG-004", "1:10"),
    "control is empty": (with_top("control: ''"), "FM-CONFIG-004", "1:10"),
    "control is a mapping": (with_top("control: {path: x}"), "FM-CONFIG-004", "1:10"),
    "control with a line break": (with_top('control: "a\\nb"'), "FM-CONFIG-004", "1:10"),
    "schema is not an identifier": (with_top("schema: my-gold"), "FM-CONFIG-004", "1:9"),
    "schema with SQL in it": (with_top('schema: "gold; DROP"'), "FM-CONFIG-004", "1:9"),
    "lease_ttl is a number": (with_top("lease_ttl: 60"), "FM-CONFIG-004", "1:12"),
    "lease_ttl without unit": (with_top("lease_ttl: '60'"), "FM-CONFIG-004", "1:12"),
    "lease_ttl of an unknown unit": (with_top("lease_ttl: 3 fortnights"), "FM-CONFIG-004", "1:12"),
    "lease_ttl is zero": (with_top("lease_ttl: 0s"), "FM-CONFIG-004", "1:12"),
    "lease_ttl is negative": (with_top("lease_ttl: -60s"), "FM-CONFIG-004", "1:12"),
    "lease_ttl is huge": (with_top("lease_ttl: 999d"), "FM-CONFIG-004", "1:12"),
    "jobs is zero": (with_top("jobs: 0"), "FM-CONFIG-004", "1:7"),
    "jobs is text": (with_top("jobs: many"), "FM-CONFIG-004", "1:7"),
    "jobs beyond measure": (with_top("jobs: 1000"), "FM-CONFIG-004", "1:7"),
    # pipelines
    "no pipelines": ("project: shop\n", "FM-CONFIG-004", "1:1"),
    "pipelines without value": ("project: shop\npipelines:\n", "FM-CONFIG-004", "2:11"),
    "pipelines is empty": ("project: shop\npipelines: []\n", "FM-CONFIG-004", "2:12"),
    "pipelines is a mapping": ("project: shop\npipelines: {a: {}}\n", "FM-CONFIG-004", "2:12"),
    "pipelines is text": ("project: shop\npipelines: a\n", "FM-CONFIG-004", "2:12"),
    "a pipeline is text": (with_pipeline("a"), "FM-CONFIG-004", "3:5"),
    "a pipeline is nothing": ("project: shop\npipelines:\n  -\n", "FM-CONFIG-004", "3:4"),
    "a pipeline is a list": (with_pipeline("[a]"), "FM-CONFIG-004", "3:5"),
    "a pipeline without name": (
        with_pipeline("{upstreams: [lake/a], function: 'j:p'}"),
        "FM-CONFIG-004",
        "3:5",
    ),
    "a pipeline with an empty name": (
        with_pipeline("{pipeline: '', upstreams: [lake/a], function: 'j:p'}"),
        "FM-CONFIG-004",
        "3:16",
    ),
    "a pipeline with a blank in its name": (
        with_pipeline("{pipeline: a b, upstreams: [lake/a], function: 'j:p'}"),
        "FM-CONFIG-004",
        "3:16",
    ),
    "a pipeline with a long name": (
        with_pipeline(f"{{pipeline: {'a' * 129}, upstreams: [lake/a], function: 'j:p'}}"),
        "FM-CONFIG-004",
        "3:16",
    ),
    "a scope that is a list": (
        with_pipeline("{pipeline: a, scope: [x], upstreams: [lake/a], function: 'j:p'}"),
        "FM-CONFIG-004",
        "3:26",
    ),
    "two pipelines of one name": (f"{ONE}{PIPELINE}", "FM-CONFIG-005", "6:16"),
    "timeout is a number": (f"{ONE}    timeout: 5\n", "FM-CONFIG-004", "6:14"),
    "timeout is nothing": (f"{ONE}    timeout: 0s\n", "FM-CONFIG-004", "6:14"),
    "retry is a number": (f"{ONE}    retry: 3\n", "FM-CONFIG-004", "6:12"),
    "retry without attempts": (f"{ONE}    retry: {{attempts: 0}}\n", "FM-CONFIG-004", "6:23"),
    "retry with an odd wait": (f"{ONE}    retry: {{backoff: 1 year}}\n", "FM-CONFIG-004", "6:22"),
    "misspelled key of retry": (f"{ONE}    retry: {{attempt: 3}}\n", "FM-CONFIG-003", "6:13"),
    # upstreams
    "no upstreams": (with_pipeline("{pipeline: a, function: 'j:p'}"), "FM-CONFIG-004", "3:5"),
    "upstreams is empty": (ONE.replace("[lake/a]", "[]"), "FM-CONFIG-004", "4:16"),
    "upstreams without value": (ONE.replace("[lake/a]", ""), "FM-CONFIG-004", "4:15"),
    "upstreams is text": (ONE.replace("[lake/a]", "lake/a"), "FM-CONFIG-004", "4:16"),
    "an upstream is a number": (ONE.replace("[lake/a]", "[lake/a, 5]"), "FM-CONFIG-004", "4:25"),
    "an upstream is nothing": (ONE.replace("[lake/a]", "[~]"), "FM-CONFIG-004", "4:17"),
    "an upstream is empty": (ONE.replace("[lake/a]", "['']"), "FM-CONFIG-004", "4:17"),
    "an upstream is a mapping": (ONE.replace("[lake/a]", "[{a: b}]"), "FM-CONFIG-004", "4:17"),
    "an upstream twice": (ONE.replace("[lake/a]", "[lake/a, lake/a]"), "FM-CONFIG-005", "4:25"),
    "an upstream twice, spelled otherwise": (
        ONE.replace("[lake/a]", "[lake/a, ./lake//a/]"),
        "FM-CONFIG-005",
        "4:25",
    ),
    "an unknown scheme": (ONE.replace("lake/a", "'s4://b/a'"), "FM-CONFIG-004", "4:17"),
    "control with an unknown scheme": (with_top("control: zz://b/c"), "FM-CONFIG-004", "1:10"),
    "a URI twice": (
        ONE.replace("[lake/a]", "['s3://b/a', 's3://b/a/']"),
        "FM-CONFIG-005",
        "4:29",
    ),
    # function
    "no function": (with_pipeline("{pipeline: a, upstreams: [lake/a]}"), "FM-CONFIG-004", "3:5"),
    "function without name": (ONE.replace("jobs:process", "jobs"), "FM-CONFIG-004", "5:15"),
    "function without module": (ONE.replace("jobs:process", "':p'"), "FM-CONFIG-004", "5:15"),
    "function as a file": (
        ONE.replace("jobs:process", "'jobs.py:p'") + "x",
        "FM-CONFIG-002",
        "6:2",
    ),
    "function with a path": (ONE.replace("jobs:process", "'../jobs:p'"), "FM-CONFIG-004", "5:15"),
    "function with a call": (ONE.replace("jobs:process", "'jobs:p()'"), "FM-CONFIG-004", "5:15"),
    "function is a mapping": (ONE.replace("jobs:process", "{a: b}"), "FM-CONFIG-004", "5:15"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_project_file_gives_a_typed_error_with_its_place(
    name: str, project: Path, floodmark: Command
) -> None:
    content, code, place = BROKEN[name]
    data = content if isinstance(content, bytes) else content.encode()
    (project / "floodmark.yaml").write_bytes(data)

    answer = floodmark("plan")

    assert answer.code == 2
    assert answer.out == ""
    assert "Traceback" not in answer.err
    assert answer.err.splitlines()[0].startswith(f"{code}  ")
    assert f"floodmark.yaml:{place}" in answer.err.splitlines()[1]
    assert answer.err.isprintable() or "\x1b" not in answer.err
    assert os.listdir(project) == ["floodmark.yaml"]


@pytest.mark.parametrize("verb", ["run", "status", "lag", "history", "validate", "doctor"])
def test_every_verb_refuses_a_broken_file(verb: str, project: Path, floodmark: Command) -> None:
    (project / "floodmark.yaml").write_text("project: shop\n")

    answer = floodmark(verb, "--json")

    assert answer.code == 2
    assert answer.document["error"]["code"] == "FM-CONFIG-004"
    assert os.listdir(project) == ["floodmark.yaml"]


def test_all_errors_of_a_file_come_at_once_from_top_to_bottom(
    project: Path, floodmark: Command
) -> None:
    (project / "floodmark.yaml").write_text(
        "project: 7\ncontrol: ''\nnope: 1\n"
        "pipelines:\n  - {pipeline: a, upstreams: [x/y, x/y], function: f}\n"
    )

    errors = floodmark("validate", "--json").document["error"]["errors"]

    places = [error["where"].split(" ")[0] for error in errors]
    assert [error["code"][-3:] for error in errors] == ["004", "004", "003", "001", "005", "004"]
    assert places == [
        "floodmark.yaml:1:10:",
        "floodmark.yaml:2:10:",
        "floodmark.yaml:3:1:",
        "floodmark.yaml:5:31:",
        "floodmark.yaml:5:36:",
        "floodmark.yaml:5:52:",
    ]


def test_a_folder_without_a_project_says_how_to_name_one(project: Path, floodmark: Command) -> None:
    answer = floodmark("plan", "--project", "nowhere", "--json")

    assert answer.code == 2
    assert answer.document["error"]["code"] == "FM-CONFIG-001"


def test_a_huge_file_is_not_read(project: Path, floodmark: Command) -> None:
    (project / "floodmark.yaml").write_bytes(b"# " + b"x" * (2 << 20))

    answer = floodmark("plan")

    assert answer.code == 2
    assert answer.err.startswith("FM-CONFIG-001")


def test_yaml_1_2_leaves_on_and_no_and_dates_as_text(project: Path, floodmark: Command) -> None:
    names = ["on", "no", "yes", "off", "y", "2026-11-15", "1_000"]
    text = "".join(PIPELINE.replace("pipeline: a", f"pipeline: {name}") for name in names)
    (project / "floodmark.yaml").write_text(f"project: no\npipelines:\n{text}")

    answer = floodmark("plan", "--json", "nobody")

    assert answer.document["error"]["code"] == "FM-CONFIG-008"
    assert answer.document["error"]["allowed"].startswith(", ".join(names))


def test_anchors_and_aliases_within_measure_are_welcome(project: Path, floodmark: Command) -> None:
    (project / "floodmark.yaml").write_text(
        "project: shop\npipelines:\n"
        "  - {pipeline: a, upstreams: &all [lake/a], function: 'j:p'}\n"
        "  - {pipeline: b, upstreams: *all, function: 'j:p'}\n"
    )

    answer = floodmark("plan", "nobody", "--json")

    assert answer.document["error"]["code"] == "FM-CONFIG-008"
