"""What the documentation says is there is there."""

from __future__ import annotations

import ast
import doctest
import importlib
import importlib.util
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import get_args
from urllib.parse import unquote

import pytest

from floodmark import errors, failpoints
from floodmark.control.events.bodies import BODIES
from floodmark.model.state import BatchKind, BatchStatus, RunStatus
from floodmark.model.window import Method, WindowKind

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
SOURCES = sorted((ROOT / "src").rglob("*.py"))

CODE = re.compile(r"FM-[A-Z]+-\d{3}")
FENCE = re.compile(r"^```(\w*)[^\n`]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
NAMED_TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
REQUIREMENT = re.compile(r"^\| ([WDS]\d+) \|.*?\| (done|part|open) \|(.*)\|$", re.MULTILINE)
NUMBERS = [
    f"{room}{n}" for room, last in (("W", 16), ("D", 18), ("S", 10)) for n in range(1, last + 1)
]

in_each_page = pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))


def generator() -> ModuleType:
    """docs/generate.py, which is a script and in no package."""
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def blocks(page: Path, language: str) -> list[str]:
    return [
        code for name, code in FENCE.findall(page.read_text(encoding="utf-8")) if name == language
    ]


def anchors(page: Path) -> set[str]:
    """The anchors of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def functions_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def requirement_rows() -> dict[str, tuple[str, str]]:
    text = (DOCS / "requirements.md").read_text(encoding="utf-8")
    return {number: (state, proof) for number, state, proof in REQUIREMENT.findall(text)}


def broken_links(page: Path) -> Iterator[str]:
    for link in LINK.findall(prose(page)):
        path, _, anchor = unquote(link).partition("#")
        if re.match(r"[a-z]+:", path):
            continue
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            yield link


@in_each_page
def test_links_lead_somewhere(page: Path) -> None:
    assert list(broken_links(page)) == []


EXAMPLES = [path for path in SOURCES if ">>> " in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: str(p.relative_to(ROOT / "src")))
def test_examples_of_the_source_give_what_they_show(path: Path) -> None:
    name = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
    module = importlib.import_module(name.removesuffix(".__init__"))

    outcome = doctest.testmod(module)

    assert outcome.attempted
    assert not outcome.failed


@in_each_page
def test_python_in_the_docs_compiles(page: Path) -> None:
    for code in blocks(page, "python"):
        compile(code, str(page), "exec")


@in_each_page
def test_codes_in_the_docs_exist(page: Path) -> None:
    named = set(CODE.findall(page.read_text(encoding="utf-8")))

    assert named <= set(errors.CODES)


def test_generated_pages_are_fresh() -> None:
    assert generator().stale() == [], "run: python docs/generate.py"


def test_every_code_in_the_source_is_listed() -> None:
    used = {code for path in SOURCES for code in CODE.findall(path.read_text(encoding="utf-8"))}

    assert used <= set(errors.CODES)


def test_every_code_is_documented_and_no_other() -> None:
    notes = generator().notes()["errors"]
    page = (DOCS / "reference" / "errors.md").read_text(encoding="utf-8")

    assert set(notes) == set(errors.CODES)
    assert all(f"| `{code}` |" in page for code in errors.CODES)


def test_every_failpoint_is_documented_and_no_other() -> None:
    points = set(failpoints.every_point())
    assert set(generator().notes()["failpoints"]) == points


def test_every_published_column_is_documented() -> None:
    from floodmark.control.published.tables import TABLES

    page = (DOCS / "reference" / "control-tables.md").read_text(encoding="utf-8")
    for table in TABLES:
        section = page.partition(f"## {table.name}\n")[2].partition("\n## ")[0]
        documented = set(re.findall(r"`(\w+)`", section))
        assert set(table.schema.names) <= documented, table.name


@pytest.mark.parametrize(
    ("table", "column", "values"),
    [
        ("watermarks", "batch_kind", get_args(BatchKind)),
        ("watermarks", "kind", get_args(WindowKind)),
        ("watermarks", "method", get_args(Method)),
        ("watermarks", "status", get_args(BatchStatus)),
        ("pipeline_checkpoints", "status", get_args(RunStatus)),
        # What the journal is folded into is no event.
        ("history", "kind", tuple(BODIES.keys() - {"SNAPSHOT"})),
    ],
)
def test_every_value_of_a_published_column_is_documented(
    table: str, column: str, values: tuple[str, ...]
) -> None:
    page = (DOCS / "reference" / "control-tables.md").read_text(encoding="utf-8")
    section = page.partition(f"## {table}\n")[2].partition("\n## ")[0]
    found = re.search(rf"^\| `{column}` \|.*$", section, re.MULTILINE)
    assert found
    assert [value for value in values if not re.search(rf"\b{re.escape(value)}\b", found[0])] == []


def test_every_verb_of_the_command_line_is_documented() -> None:
    import typer.main

    from floodmark.cli.main import build_app

    guide = (DOCS / "guides" / "commands.md").read_text(encoding="utf-8")
    verbs = typer.main.get_command(build_app()).commands  # type: ignore[attr-defined]
    assert [name for name in verbs if f"floodmark {name}" not in guide] == []


def test_every_requirement_has_a_row() -> None:
    assert list(requirement_rows()) == NUMBERS


def test_what_is_done_names_a_test_that_exists() -> None:
    for number, (state, proof) in requirement_rows().items():
        named = NAMED_TEST.findall(proof)
        assert named or state == "open", f"{number} is {state} and names no test"
        for path, function in named:
            assert (ROOT / path).is_file(), f"{number} names {path}"
            assert not function or function in functions_of(ROOT / path), f"{number}: {function}"


def test_the_rows_of_the_coordinator_name_single_tests() -> None:
    rows = {n: proof for n, (_, proof) in requirement_rows().items() if n.startswith("W")}
    named = {number: NAMED_TEST.findall(proof) for number, proof in rows.items()}
    whole = [(number, path) for number, tests in named.items() for path, test in tests if not test]

    assert all(named.values())
    assert whole == []


@pytest.mark.spark
@pytest.mark.slow
def test_the_first_example_of_the_readme_runs(tmp_path: Path) -> None:
    # A process of its own: relative paths are those of the directory a JVM was started in.
    example = tmp_path / "example.py"
    example.write_text(blocks(ROOT / "README.md", "python")[0], encoding="utf-8")

    done = subprocess.run(
        [sys.executable, str(example)],
        cwd=tmp_path,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.splitlines()[:2] == ["snapshot 0 0 3 1", "feed 1 2 2 1"]
    assert "12.0" in done.stdout
    assert "ben" not in done.stdout


def test_the_project_of_the_readme_is_valid(tmp_path: Path) -> None:
    from floodmark.config import load_project

    file = tmp_path / "floodmark.yaml"
    for page in (ROOT / "README.md", DOCS / "get-started.md"):
        file.write_text(textwrap.dedent(blocks(page, "yaml")[0]), encoding="utf-8")
        assert load_project(file).settings.pipelines


def test_get_started_lists_every_key_of_the_project_file() -> None:
    from floodmark.config.checks.faults import by_key
    from floodmark.config.project.settings import PipelineSettings, ProjectSettings

    text = (DOCS / "get-started.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `([a-z_\[\].]+)` \|", text, re.MULTILINE))
    top = set(by_key(ProjectSettings)) - {"pipelines"}

    assert listed >= top | {f"pipelines[].{key}" for key in by_key(PipelineSettings)}
