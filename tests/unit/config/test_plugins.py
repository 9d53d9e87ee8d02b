"""Plug-ins of a project's modules and of packages: found by name, refused with their place."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import floodmark as fm
from floodmark.config.plugins.registry import FileFormat, Plugins
from floodmark.errors import ConfigError, ConfigErrors, FloodmarkError
from floodmark.project import Project

MODULE = """
import floodmark as fm

@fm.format("wx")
def read_wx(spark, paths, options):
    return (paths, options)
"""
PROJECT = """\
project: weather
plugins: [acme_formats]
connections: {lake: {type: lake, root: lake}}
pipelines:
  - pipeline: readings
    nodes:
      - name: load
        read: {connection: lake, format: wx, path: in}
        write: {connection: lake, path: out, mode: append}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project's folder; what was imported from it is forgotten."""
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "lake" / "in").mkdir(parents=True)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def put(folder: Path, name: str, module: str) -> None:
    (folder / f"{name}.py").write_text(textwrap.dedent(module), encoding="utf-8")


def installed(folder: Path, name: str, module: str, entry: str) -> None:
    """What pip leaves of a package with one module and one entry point."""
    put(folder, name, module)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[floodmark.formats]\nwx = {entry}\n")


def refusal(call: Any, *arguments: Any) -> FloodmarkError:
    with pytest.raises(FloodmarkError) as caught:
        call(*arguments)
    return caught.value


def test_a_module_of_the_project_adds_its_formats(folder: Path) -> None:
    put(folder, "acme_formats", MODULE)

    found = Plugins(folder, ["acme_formats", "acme_formats"]).find(FileFormat, "wx")

    assert found.origin == "acme_formats:read_wx"
    assert found(None, ["a"], {"sep": ";"}) == (["a"], {"sep": ";"})


@pytest.mark.parametrize("entry", ["acme_package", "acme_package:read_wx"])
def test_an_entry_point_of_a_package_adds_its_formats(entry: str, folder: Path) -> None:
    installed(folder, "acme_package", MODULE, entry)

    assert Plugins(folder).find(FileFormat, "wx").origin == "acme_package:read_wx"


def test_a_format_of_a_package_may_have_another_name_than_its_entry_point(folder: Path) -> None:
    installed(folder, "acme_package", MODULE.replace('"wx"', '"weather"'), "acme_package")
    text = PROJECT.replace("plugins: [acme_formats]\n", "")
    (folder / "floodmark.yaml").write_text(text.replace("format: wx", "format: weather"))

    Project.check(folder)
    (folder / "floodmark.yaml").write_text(text.replace("format: wx", "format: wether"))

    assert "nearest: weather" in str(refusal(Project.check, folder))
    steps = text.replace("format: wx", "format: weather").replace(
        "        write:", "        transform: [{limt: {rows: 1}}]\n        write:"
    )
    (folder / "floodmark.yaml").write_text(steps)
    assert "nearest: limit" in str(refusal(Project.check, folder))


@pytest.mark.parametrize(
    ("module", "told"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("import nowhere_at_all", "nowhere_at_all"),
        ("import floodmark as fm\n@fm.format('wx')\ndef f(spark): ...", "f(spark, paths, options)"),
        ("import floodmark as fm\n@fm.format('w x')\ndef f(s, p, o): ...", '"w x" cannot be'),
        (MODULE + MODULE.replace("read_wx", "other"), 'two formats are called "wx"'),
    ],
)
def test_a_module_that_cannot_be_used_is_named(module: str, told: str, folder: Path) -> None:
    put(folder, "acme_formats", module)

    error = refusal(Plugins(folder, ["acme_formats"]).find, FileFormat, "wx")

    assert error.code == "FM-CONFIG-021"
    assert told in str(error)
    assert "acme_formats" in str(error) or "w x" in str(error)


def test_a_package_that_cannot_be_loaded_is_named(folder: Path) -> None:
    installed(folder, "acme_broken", "x = 1", "acme_broken:nothing")

    error = refusal(Plugins(folder).find, FileFormat, "wx")

    assert error.code == "FM-CONFIG-021"
    assert "package acme_broken" in error.title


def test_an_unknown_format_is_refused_with_its_place_and_the_nearest_one(folder: Path) -> None:
    put(folder, "acme_formats", MODULE.replace('"wx"', '"weather"'))
    (folder / "floodmark.yaml").write_text(PROJECT.replace("format: wx", "format: wether"))

    errors = [refusal(Project.check, folder), refusal(Project.load(folder).plan)]

    for error in errors:
        assert isinstance(error, ConfigError)
        assert not isinstance(error, ConfigErrors)
        assert error.code == "FM-CONFIG-013"
        assert "floodmark.yaml:8:42" in (error.where or "")
        assert error.allowed == "weather; nearest: weather"


def test_a_project_without_plugins_refuses_an_unknown_format_when_it_is_read(folder: Path) -> None:
    text = PROJECT.replace("plugins: [acme_formats]\n", "").replace("format: wx", "format: cvs")
    (folder / "floodmark.yaml").write_text(text)

    error = refusal(Project.load, folder)

    assert error.code == "FM-CONFIG-013"
    assert "nearest: csv" in (error.allowed or "")


def test_a_format_without_a_writer_is_refused_where_it_is_written(folder: Path) -> None:
    put(folder, "acme_formats", MODULE)
    text = PROJECT.replace("path: out", "format: wx, path: out")
    (folder / "floodmark.yaml").write_text(text)

    error = refusal(Project.check, folder)

    assert error.code == "FM-CONFIG-021"
    assert "floodmark.yaml:9:43" in (error.where or "")


def test_planning_lists_files_of_a_format_of_a_plug_in_without_spark(folder: Path) -> None:
    put(folder, "acme_formats", MODULE)
    (folder / "floodmark.yaml").write_text(PROJECT)
    (folder / "lake/in/a.wx").write_text("1")

    (batch,) = Project.load(folder).plan()

    assert [w.reason for w in batch.windows] == ["1 new file (1 seen in total)"]


def test_a_module_of_formats_alone_goes_with_named_steps(folder: Path) -> None:
    put(folder, "acme_formats", MODULE)
    text = PROJECT.replace(
        "        write:", "        transform: [{limit: {rows: 1}}]\n        write:"
    )
    (folder / "floodmark.yaml").write_text(text)

    Project.check(folder)


def test_the_decorated_function_can_still_be_called() -> None:
    @fm.format("wx")
    def read(spark: Any, paths: Any, options: Any) -> str:
        return f"{paths}"

    assert read(None, "p", {}) == "p"
