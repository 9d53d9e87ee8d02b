from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from floodmark.config import load_project, survey_project
from floodmark.config.plugins import load_function
from floodmark.config.plugins.functions import load_module
from floodmark.config.text.places import Report, nearest, place_of
from floodmark.config.text.yaml_document import read_document
from floodmark.errors import ConfigError, ConfigErrors, FloodmarkError
from floodmark.model.durations import seconds_of

GOOD = """\
project: shop
control: s3://bucket/control
schema: silver
lease_ttl: 2m
pipelines:
  - pipeline: a
    upstreams: [lake/a, "s3://bucket/b"]
    function: jobs.daily:process
  - pipeline: b
    scope: a
    upstreams:
      - lake/a
    function: jobs.daily:Jobs.process
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "floodmark.yaml"
    path.write_text(text)
    return path


def test_a_good_file_gives_typed_settings(tmp_path: Path) -> None:
    loaded = load_project(written(tmp_path, GOOD))

    assert loaded.root == tmp_path
    assert loaded.settings.catalog_schema == "silver"
    assert loaded.settings.lease_ttl_seconds == 120
    assert [p.shared_scope for p in loaded.settings.pipelines] == ["a", "a"]


def test_defaults(tmp_path: Path) -> None:
    text = "project: p\npipelines:\n  - {pipeline: a, upstreams: [x/y], function: 'm:f'}\n"

    loaded = load_project(written(tmp_path, text)).settings

    assert (loaded.control, loaded.catalog_schema) == ("lake/_control", "gold")
    assert loaded.lease_ttl_seconds == 60


def test_a_byte_order_mark_is_no_problem(tmp_path: Path) -> None:
    path = tmp_path / "floodmark.yaml"
    path.write_bytes(GOOD.encode("utf-8-sig"))

    assert load_project(path).settings.project == "shop"


def test_every_value_has_its_place(tmp_path: Path) -> None:
    loaded = load_project(written(tmp_path, GOOD))

    place = loaded.place("pipelines", 0, "upstreams", 1)
    assert (place.line, place.column) == (7, 25)
    assert loaded.key("pipelines", 0, "upstreams", 1) == "pipelines[0].upstreams[1] (pipeline a)"


def test_several_errors_are_one_exception_that_holds_each(tmp_path: Path) -> None:
    with pytest.raises(ConfigErrors) as caught:
        load_project(written(tmp_path, "project: 1\npipelines: 2\n"))

    assert len(caught.value.errors) == 2
    assert all(isinstance(error, ConfigError) for error in caught.value.errors)
    assert str(caught.value).endswith("2 errors in " + str(tmp_path / "floodmark.yaml"))


@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda b: b.decode("latin-1")))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_no_text_whatever_makes_anything_but_a_typed_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "floodmark.yaml"
    path.write_bytes(text.encode("utf-8", errors="surrogatepass"))

    with pytest.raises(FloodmarkError):
        load_project(path)


@given(st.lists(st.sampled_from(GOOD.splitlines(keepends=True)), max_size=20))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_shuffled_lines_make_settings_or_a_typed_error(tmp_path: Path, lines: list[str]) -> None:
    with suppress(ConfigError):
        assert load_project(written(tmp_path, "".join(lines))).settings.project == "shop"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"), ("No", "No"), ("yes", "yes"), ("true", True), ("False", False),
        ("0x1F", 31), ("0o17", 15), ("012", 12), ("1_000", "1_000"), ("1e3", 1000.0),
        ("2026-11-15", "2026-11-15"), ("12:30:45", "12:30:45"), ("~", None), ("null", None),
        (".inf", ".inf"), ("=", "="), ("'5'", "5"),
    ],
)  # fmt: skip
def test_scalars_are_those_of_yaml_1_2(text: str, value: object) -> None:
    report = Report("f")

    document = read_document(f"a: {text}\n", report)

    assert report.errors == []
    assert document.data == {"a": value}


@pytest.mark.parametrize("text", ["", "5", "s", "5 x", "-5s", "1e3s", "5 s s", "٥s", "5S"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        seconds_of(text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("60s", 60), ("15 minutes", 900), ("1.5h", 5400)]
)
def test_durations(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


def test_nearest_forgives_case_and_letters() -> None:
    assert nearest("Upstream", ["upstreams", "scope"]) == "upstreams"
    assert nearest("zzz", ["upstreams", "scope"]) is None


def test_places_count_from_one() -> None:
    place = place_of("ab\ncd", 4)

    assert (place.line, place.column) == (2, 2)


def test_a_function_is_loaded_from_the_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "fm_loaded_jobs").mkdir()
    (tmp_path / "fm_loaded_jobs/daily.py").write_text(
        "class Jobs:\n    @staticmethod\n    def process(i, r): return 7\n"
    )

    found = load_function(tmp_path, "fm_loaded_jobs.daily:Jobs.process")

    assert found(None, None) == 7


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("def f(:\n", "SyntaxError"),
        ("import fm_not_there_at_all\n", "ModuleNotFoundError"),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
        ("1 / 0\n", "ZeroDivisionError"),
    ],
)
def test_an_import_that_fails_names_its_line(
    source: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"fm_failing_{abs(hash(source))}"
    (tmp_path / f"{name}.py").write_text(source)

    with pytest.raises(ConfigError) as caught:
        load_function(tmp_path, f"{name}:f")

    assert caught.value.code == "FM-CONFIG-006"
    assert text in (caught.value.found or "")
    assert caught.value.details["at"].startswith(f"{name}.py:1")


def test_timeout_retry_and_jobs_are_read_as_people_write_them(tmp_path: Path) -> None:
    text = (
        "project: p\njobs: 3\npipelines:\n"
        "  - {pipeline: a, upstreams: [x/y], function: 'm:f', timeout: 1.5h,"
        " retry: {attempts: 4, backoff: 2 minutes}}\n"
        "  - {pipeline: b, upstreams: [x/y], function: 'm:f', retry: {}}\n"
        "  - {pipeline: c, upstreams: [x/y], function: 'm:f'}\n"
    )

    settings = load_project(written(tmp_path, text)).settings

    a, b, c = settings.pipelines
    assert settings.jobs == 3
    assert a.timeout_seconds == 5_400
    assert a.retry is not None
    assert (a.retry.attempts, a.retry.policy.wait_seconds(2)) == (4, 240)
    assert b.retry is not None
    assert (b.retry.attempts, b.retry.policy.wait_seconds(1)) == (3, 30)
    assert (c.timeout_seconds, c.retry) == (None, None)


def test_a_survey_keeps_what_is_sound_with_its_place(tmp_path: Path) -> None:
    text = (
        "project: p\ncontrol: 7\npipelines:\n"
        "  - nothing\n"
        "  - {pipeline: b, upstreams: [x/y], function: 'm:f'}\n"
        "  - {pipeline: c, upstreams: [], function: 'm:f'}\n"
    )

    loaded, report = survey_project(written(tmp_path, text))

    assert loaded is not None
    assert [pipeline.pipeline for pipeline in loaded.settings.pipelines] == ["unnamed-0", "b", "c"]
    assert loaded.place("pipelines", 1, "function").line == 5
    assert not loaded.is_whole("pipelines", 0)
    assert [error.code for error in report.errors] == ["FM-CONFIG-004"] * 3


def test_a_survey_leaves_out_of_a_node_only_what_is_wrong(tmp_path: Path) -> None:
    text = (
        "project: p\npipelines:\n- pipeline: a\n  nodes:\n"
        "  - 7\n"
        "  - name: load\n    read: {path: x/y, format: [csv]}\n"
        "    transform: [{}, deduplicate, 5, {sql: SELECT 1}]\n"
        "    write: {path: x/z, mode: apend, options: {zorder_by: 5}}\n"
    )

    loaded, report = survey_project(written(tmp_path, text))

    assert loaded is not None
    nothing, load = loaded.settings.pipelines[0].nodes
    assert (nothing.name, nothing.read) == ("unnamed-0", None)
    assert load.read is not None
    assert (load.read.path, load.read.format) == ("x/y", None)
    stub, deduplicate, other_stub, last = load.transform
    assert (deduplicate.name, last.sql) == ("deduplicate", "SELECT 1")
    assert stub == other_stub  # a broken step keeps its place, so that others keep theirs
    assert load.write is not None
    assert (load.write.path, load.write.mode) == ("x/z", None)
    node = ("pipelines", 0, "nodes", 1)
    assert not loaded.is_whole(*node, "transform", 0)
    assert loaded.is_whole(*node, "transform", 3)
    assert loaded.is_whole("pipelines", 0, "nodes", 1, "expect")
    assert not loaded.is_whole(*node, "read")
    assert len(report.errors) == 6


@pytest.mark.parametrize("text", ["", "x", "project: p\npipelines: []\n", "project: !x p\n", "[a"])
def test_a_survey_of_a_file_without_a_sound_pipeline_is_only_its_errors(
    text: str, tmp_path: Path
) -> None:
    loaded, report = survey_project(written(tmp_path, text))

    assert loaded is None
    assert report.errors


def test_projects_with_modules_of_one_name_get_their_own_in_any_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module of one is a file, of another a folder of modules, of the third a package."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    places = {
        "file": "fm_shared.py",
        "folder": "fm_shared/daily.py",
        "package": "fm_shared/daily.py",
    }
    for name, place in places.items():
        (tmp_path / name / place).parent.mkdir(parents=True)
        (tmp_path / name / place).write_text(f"def f(inputs, run):\n    return '{name}'\n")
    (tmp_path / "package/fm_shared/__init__.py").write_text("")
    functions = {
        "file": "fm_shared:f",
        "folder": "fm_shared.daily:f",
        "package": "fm_shared.daily:f",
    }

    for name in ("folder", "file", "package", "file", "folder", "package", "folder", "file"):
        function = load_function(tmp_path / name, functions[name])
        assert function({}, None) == name
        assert load_function(tmp_path / name, functions[name]) is function


def test_a_folder_of_pythonpath_stays_one_although_it_is_a_project_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, own = tmp_path / "shared", tmp_path / "own"
    for folder, text in ((shared, "NAME = 'shared'"), (own, "from fm_of_all import NAME")):
        folder.mkdir()
        (folder / ("fm_of_all.py" if folder == shared else "fm_of_one.py")).write_text(text)
    monkeypatch.setattr(sys, "path", [*sys.path, str(shared)])

    load_module(shared, "fm_of_all")
    monkeypatch.delitem(sys.modules, "fm_of_all")

    assert load_module(own, "fm_of_one").NAME == "shared"
