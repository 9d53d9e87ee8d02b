"""The files of a project as one: pipelines/, overlays, and where each value comes from."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from floodmark.config import load_project
from floodmark.config.project.origins import origins
from floodmark.errors import ConfigError, ConfigErrors

BASE = """\
project: shop
jobs: 2
connections:
  lake: {type: lake, root: lake, storage_options: {aws_region: a}}
  inbox: {type: files, root: data}
pipelines:
  - pipeline: first
    upstreams: [lake/a]
    function: jobs:f
"""
SECOND = """\
pipeline: second
nodes:
  - name: load
    read: {connection: inbox, format: csv, path: "*.csv"}
    write: {connection: lake, path: raw/a, mode: append}
  - name: tidy
    depends_on: load
    write: {connection: lake, path: silver/a, mode: overwrite}
"""
THIRD = """\
pipelines:
  - {pipeline: third, upstreams: [lake/b], function: "jobs:f"}
  - {pipeline: fourth, upstreams: [lake/b], function: "jobs:f"}
"""
PROD = """\
jobs: 8
connections:
  lake: {root: "s3://bucket/lake"}
  inbox: {type: lake, root: "s3://bucket/inbox"}
pipelines:
  - pipeline: second
    timeout: 3h
    nodes:
      - name: tidy
        write: {path: gold/a}
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    write(tmp_path, "floodmark.yaml", BASE)
    write(tmp_path, "pipelines/b_second.yaml", SECOND)
    write(tmp_path, "pipelines/c_third.yml", THIRD)
    write(tmp_path, "env/prod.yaml", PROD)
    return tmp_path


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(exist_ok=True)
    (root / name).write_text(text)


def errors_of(root: Path, env: str | None = None) -> list[ConfigError]:
    with pytest.raises(ConfigError) as caught:
        load_project(root / "floodmark.yaml", env)
    error = caught.value
    return list(error.errors) if isinstance(error, ConfigErrors) else [error]


def test_pipelines_come_from_the_file_then_from_the_folder_by_name(shop: Path) -> None:
    settings = load_project(shop / "floodmark.yaml").settings

    assert [p.pipeline for p in settings.pipelines] == ["first", "second", "third", "fourth"]


def test_a_folder_of_pipelines_is_enough(tmp_path: Path) -> None:
    write(tmp_path, "floodmark.yaml", "project: shop\n")
    write(tmp_path, "pipelines/a.yaml", "pipeline: a\nupstreams: [x/y]\nfunction: m:f\n")

    assert [p.pipeline for p in load_project(tmp_path / "floodmark.yaml").settings.pipelines] == [
        "a"
    ]


def test_an_overlay_changes_what_it_names_and_nothing_else(shop: Path) -> None:
    base = load_project(shop / "floodmark.yaml").settings
    prod = load_project(shop / "floodmark.yaml", "prod").settings

    assert (base.jobs, prod.jobs) == (2, 8)
    assert prod.connections["lake"].model_dump() == {
        **base.connections["lake"].model_dump(),
        "root": "s3://bucket/lake",
    }
    before, after = base.pipelines[1], prod.pipelines[1]
    assert (before.timeout, after.timeout) == (None, "3h")
    assert before.nodes[0] == after.nodes[0]
    assert after.nodes[1].write is not None
    assert (after.nodes[1].write.path, after.nodes[1].write.mode) == ("gold/a", "overwrite")
    assert base.pipelines[2:] == prod.pipelines[2:]


def test_a_connection_of_another_type_takes_the_place_of_the_whole(shop: Path) -> None:
    inbox = load_project(shop / "floodmark.yaml", "prod").settings.connections["inbox"]

    assert (inbox.type, inbox.model_dump()["root"]) == ("lake", "s3://bucket/inbox")


def test_the_environment_variable_names_the_overlay_and_the_argument_wins(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(shop, "env.dev.yaml", "jobs: 1\n")
    monkeypatch.setenv("FLOODMARK_ENV", "prod")

    assert load_project(shop / "floodmark.yaml").settings.jobs == 8
    assert load_project(shop / "floodmark.yaml", "dev").settings.jobs == 1


def test_every_value_knows_the_file_line_and_column_it_comes_from(shop: Path) -> None:
    found = {
        o.key: (o.value, o.where) for o in origins(load_project(shop / "floodmark.yaml", "prod"))
    }

    assert found["project"] == ("shop", f"{shop}/floodmark.yaml:1:10")
    assert found["jobs"] == (8, f"{shop}/env/prod.yaml:1:7")
    assert found["connections.lake.root"] == ("s3://bucket/lake", f"{shop}/env/prod.yaml:3:16")
    assert found["connections.lake.type"] == ("lake", f"{shop}/floodmark.yaml:4:16")
    path = "pipelines[second].nodes[tidy].write"
    assert found[f"{path}.path"] == ("gold/a", f"{shop}/env/prod.yaml:10:23")
    assert found[f"{path}.mode"] == ("overwrite", f"{shop}/pipelines/b_second.yaml:8:53")
    assert found["lease_ttl"] == ("60s", "default")


def test_the_merged_project_is_one_document_that_loads_to_the_same_settings(
    shop: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    loaded = load_project(shop / "floodmark.yaml", "prod")
    alone = tmp_path_factory.mktemp("alone") / "floodmark.yaml"

    alone.write_text(json.dumps(loaded.merged_values()))

    assert load_project(alone).settings == loaded.settings


@pytest.mark.parametrize("env", ["prd", "../prod", "prod.yaml", "a/b", "*"])
def test_an_environment_that_is_not_there_is_refused_with_the_nearest(shop: Path, env: str) -> None:
    (error,) = errors_of(shop, env)

    assert error.code == "FM-CONFIG-010"
    assert env in error.title
    assert "prod" in (error.allowed or "")


def test_two_files_for_one_environment_are_refused(shop: Path) -> None:
    write(shop, "env.prod.yaml", "jobs: 1\n")

    (error,) = errors_of(shop, "prod")

    assert error.code == "FM-CONFIG-010"
    assert "env/prod.yaml" in (error.found or "")
    assert "env.prod.yaml" in (error.found or "")


@pytest.mark.parametrize(
    ("file", "text", "code", "place"),
    [
        ("env/prod.yaml", "jobs: many\n", "FM-CONFIG-004", "1:7"),
        ("env/prod.yaml", "jbs: 3\n", "FM-CONFIG-003", "1:1"),
        ("env/prod.yaml", "- jobs\n", "FM-CONFIG-004", "1:1"),
        ("env/prod.yaml", "jobs: [\n", "FM-CONFIG-002", "2:1"),
        ("env/prod.yaml", "pipelines: [{pipeline: secnd, timeout: 1h}]\n", "FM-CONFIG-004", "1:13"),
        ("pipelines/x.yaml", "", "FM-CONFIG-004", "1:1"),
        ("pipelines/x.yaml", "- a\n", "FM-CONFIG-004", "1:1"),
        ("pipelines/x.yaml", "pipelines: a\n", "FM-CONFIG-004", "1:12"),
        ("pipelines/x.yaml", "connections: {}\npipelines: []\n", "FM-CONFIG-003", "1:1"),
        ("pipelines/x.yaml", "pipeline: first\nupstreams: [a/b]\nfunction: m:f\n", "FM-CONFIG-005", "1:11"),
    ],
)  # fmt: skip
def test_a_mistake_names_the_file_it_is_in(
    shop: Path, file: str, text: str, code: str, place: str
) -> None:
    write(shop, file, text)

    errors = errors_of(shop, "prod")

    assert (code, f"{shop}/{file}:{place}") in [
        (error.code, (error.where or "").partition(": ")[0]) for error in errors
    ]


def test_bytes_that_are_no_text_and_files_without_measure_are_told_together(shop: Path) -> None:
    (shop / "pipelines/x.yaml").write_bytes(b"pipeline: caf\xe9\n")
    (shop / "pipelines/y.yaml").write_bytes(b"# " + b"y" * (3 << 20))
    (shop / "pipelines/z.yaml").mkdir()

    errors = errors_of(shop)

    assert [error.code for error in errors] == ["FM-CONFIG-002", "FM-CONFIG-001", "FM-CONFIG-001"]
    assert "x.yaml:1:14" in (errors[0].where or "")


def test_errors_of_all_files_come_at_once(shop: Path) -> None:
    write(shop, "floodmark.yaml", BASE.replace("jobs: 2", "jobs: two"))
    write(shop, "pipelines/b_second.yaml", SECOND.replace("append", "apend"))
    write(shop, "env/prod.yaml", PROD.replace("3h", "long"))

    errors = errors_of(shop, "prod")

    files = [(e.where or "").removeprefix(f"{shop}/").split(":")[0] for e in errors]
    assert files == ["env/prod.yaml", "pipelines/b_second.yaml"]
    assert errors[0].title == "not a duration"


def test_a_broken_base_and_a_broken_pipeline_come_at_once(shop: Path) -> None:
    write(shop, "floodmark.yaml", BASE.replace("jobs: 2", "jobs: two"))
    write(shop, "pipelines/b_second.yaml", SECOND.replace("append", "apend"))

    with pytest.raises(ConfigErrors, match="2 errors in 2 files"):
        load_project(shop / "floodmark.yaml")


def test_the_project_of_the_guide_loads_with_and_without_its_overlay(tmp_path: Path) -> None:
    guide = Path(__file__).resolve().parents[3] / "docs/guides/project-files.md"
    blocks = re.findall(r"^```yaml\n(.*?)^```$", guide.read_text(), re.MULTILINE | re.DOTALL)
    for name, text in zip(
        ("floodmark.yaml", "pipelines/daily_orders.yaml", "env/prod.yaml"), blocks, strict=True
    ):
        write(tmp_path, name, text)

    plain, prod = (load_project(tmp_path / "floodmark.yaml", env) for env in (None, "prod"))

    assert plain.settings.pipelines[0].timeout is None
    assert prod.settings.pipelines[0].timeout == "4h"
    assert prod.warnings == ()
