"""The schema that editors get accepts what the loader accepts, and shows what it refuses."""

from __future__ import annotations

import importlib.util
import re
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import fastjsonschema
import pytest
import yaml

from floodmark.config.project.schema import KINDS, header, json_schema

ROOT = Path(__file__).resolve().parents[3]
FENCE = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def neighbour(name: str) -> ModuleType:
    """A module of tests beside this one."""
    path = Path(__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"schema_{name}", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


BROKEN, OLDER, LAYERS = map(
    neighbour, ("test_broken_configurations", "test_older_spellings", "test_layers")
)


@pytest.fixture(scope="module")
def accepts() -> Callable[[str, str], bool]:
    checks: dict[str, Callable[..., Any]] = {
        kind: fastjsonschema.compile(json_schema(kind), use_default=False) for kind in KINDS
    }

    def check(kind: str, text: str) -> bool:
        try:
            checks[kind](yaml.safe_load(text))
        except fastjsonschema.JsonSchemaValueException:
            return False
        return True

    return check


Accepts = Callable[[str, str], bool]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("project", BROKEN.PROJECT), ("pipeline", BROKEN.ORDERS), ("project", OLDER.PROJECT),
        ("pipeline", OLDER.SEED_003), ("pipeline", OLDER.SEED_002), ("pipeline", OLDER.CSV),
        ("project", LAYERS.BASE), ("pipeline", LAYERS.SECOND), ("pipeline", LAYERS.THIRD),
        ("overlay", LAYERS.PROD), ("overlay", "jobs: 3\n"),
    ],
)  # fmt: skip
def test_good_files_are_accepted(accepts: Accepts, kind: str, text: str) -> None:
    assert accepts(kind, text)


def test_the_projects_of_examples_and_documents_are_accepted(accepts: Accepts) -> None:
    texts = [path.read_text() for path in ROOT.glob("examples/**/floodmark.yaml")]
    texts += [(ROOT / "src/floodmark/demo/project/floodmark.yaml").read_text()]
    for page in (ROOT / "README.md", ROOT / "docs/get-started.md"):
        texts.append(textwrap.dedent(FENCE.findall(page.read_text())[0]))

    assert [text for text in texts if not accepts("project", text)] == []


def _visible(case: Any) -> bool:
    """Mistakes of one key or value; names, rules between keys and secrets are not in a schema."""
    kind = case.name.partition(":")[0]
    is_step = "nodes.transform" in case.name
    return kind in ("misspelled", "choice", "kind") and not is_step


@pytest.mark.parametrize(
    "case", [case for case in BROKEN.GENERATED if _visible(case)], ids=lambda case: case.name
)
def test_an_editor_shows_the_mistake(accepts: Accepts, case: Any) -> None:
    (file,) = [name for name, text in case.files.items() if text != BROKEN.FILES[name]]
    kind = "project" if file == "floodmark.yaml" else "pipeline"

    assert not accepts(kind, case.files[file])


def test_a_literal_password_is_shown(accepts: Accepts) -> None:
    assert not accepts("project", BROKEN.PROJECT.replace("${env:FM_ERP_PASSWORD}", "hunter2"))


def test_every_key_has_a_description() -> None:
    schema = json_schema()
    models = {"project": schema, **schema["$defs"]}
    silent = [
        f"{name}.{key}"
        for name, model in models.items()
        for key, value in model.get("properties", {}).items()
        if "description" not in value and not value.get("deprecated")
    ]

    assert silent == []


def test_the_header_is_the_one_editors_look_for() -> None:
    assert header("x.json") == "# yaml-language-server: $schema=x.json"
