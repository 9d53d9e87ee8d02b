"""What a new user sees of a project before its first run: nothing that is no problem is called one."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.web import Asked, Said, WebServer

Command = Callable[..., Any]


@pytest.fixture
def begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, floodmark: Command
) -> Callable[..., Path]:
    """Begins a project from a template, and goes into it."""
    monkeypatch.chdir(tmp_path)

    def begin(template: str) -> Path:
        assert floodmark("init", template, template).code == 0
        monkeypatch.chdir(tmp_path / template)
        return tmp_path / template

    return begin


@pytest.mark.parametrize("template", ["minimal", "medallion"])
def test_tables_that_the_first_run_creates_are_no_problem(
    begun: Callable[..., Path], floodmark: Command, template: str
) -> None:
    begun(template)

    found = floodmark("doctor", "--json").document["findings"]

    machine = {"pyspark", "java", "jars"}
    assert [each for each in found if not each["ok"] and each["name"] not in machine] == []


def test_a_table_that_nobody_writes_still_is_one(
    begun: Callable[..., Path], floodmark: Command
) -> None:
    root = begun("medallion")
    (root / "pipelines/bronze.yaml").unlink()

    found = floodmark("doctor", "--json").document["findings"]

    missing = [each["name"] for each in found if "there is nothing" in each["text"]]
    assert [name.rpartition("/lake/")[2] for name in missing] == [
        "bronze/orders",
        "bronze/customers",
    ]


def test_a_variable_that_is_not_set_is_the_only_mistake(
    begun: Callable[..., Path], floodmark: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LAKE_ROOT", "INBOX_ROOT"):
        monkeypatch.delenv(name, raising=False)
    begun("cloud")

    errors = floodmark("validate", "--json").document["error"]["errors"]

    assert {each["code"] for each in errors} == {"FM-CONFIG-012"}
    assert [each["title"].split()[3] for each in errors] == ["LAKE_ROOT", "INBOX_ROOT", "LAKE_ROOT"]


def refuses(_: Asked) -> Said:
    return Said("no", status=403)


def test_a_store_in_a_cloud_without_credentials_is_told_in_our_words_alone(
    begun: Callable[..., Path],
) -> None:
    root = begun("cloud")
    with WebServer(refuses).running() as metadata:
        known = {name: text for name, text in os.environ.items() if not name.startswith("AWS_")}
        known.pop("RUST_LOG", None)
        roots = {name: f"s3://nowhere/{name}" for name in ("LAKE_ROOT", "INBOX_ROOT")}
        more = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": metadata.url}
        quiet, loud = (
            subprocess.run(
                [sys.executable, "-m", "floodmark", "plan", *option],
                cwd=root,
                env={**known, **roots, **more},
                capture_output=True,
                text=True,
                check=False,
                timeout=120,
            )
            for option in ((), ("--verbose",))
        )

    assert quiet.returncode == 4
    assert quiet.stderr.startswith("FM-CONTROL-002  the control store cannot be read")
    assert "WARN" not in quiet.stderr
    assert max(map(len, quiet.stderr.splitlines())) < 300
    assert " WARN " in loud.stderr  # else this test shows nothing


@pytest.mark.parametrize(
    "name", ["a [b]", "a^b", "a|b", "a\\b", "a%20b", "a\nb", "a\x7fb"], ids=ascii
)
def test_a_folder_in_which_no_store_can_be_is_refused_and_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, floodmark: Command, name: str
) -> None:
    assert floodmark("init", "minimal", str(tmp_path / name)).code == 0
    monkeypatch.chdir(tmp_path / name)
    before = sorted(tmp_path.rglob("*"))

    for verb in (["validate"], ["plan"], ["plan", "--freeze"], ["run"], ["status"]):
        assert floodmark(*verb, "--json").document["error"]["code"] == "FM-CONTROL-035", verb
    assert sorted(tmp_path.rglob("*")) == before
    text = (tmp_path / name / "floodmark.yaml").read_text()
    (tmp_path / name / "floodmark.yaml").write_text(f"control: {tmp_path}/control\n{text}")
    for verb in (["plan", "--freeze"], ["plan"], ["lag"], ["verify"], ["upkeep"]):
        assert floodmark(*verb).code == 0, verb


@pytest.mark.parametrize(
    "name", ["a b", "ü", "日本", "a#b?c", "a{b}", "a(1)", "100%", "a:b", "a'b\"", "a=b, c;d&e"]
)
def test_a_folder_of_any_other_name_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, floodmark: Command, name: str
) -> None:
    begun = floodmark("init", "minimal", str(tmp_path / name))
    typed = shlex.split(begun.out.partition("next: cd ")[2])[0]
    assert typed.removesuffix(";") == str(tmp_path / name)
    monkeypatch.chdir(tmp_path / name)

    for verb in ("plan --freeze", "plan", "lag", "verify", "upkeep", "state rebuild", "status"):
        assert floodmark(*verb.split()).code == 0, verb
