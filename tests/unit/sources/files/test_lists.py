"""Lists of files: what a glob means, what is new, and that a list is there before its mark."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from floodmark.deltalog import Storage
from floodmark.errors import PlanError, SourceError
from floodmark.model.cursor_marks import ValueMark
from floodmark.sources.files.lists import FileFacts, FileLists, listed, new_files, split_pattern

STORAGE = Storage()
SOON = datetime(2100, 1, 1, tzinfo=UTC)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in (
        "a.csv",
        "b.json",
        "_SUCCESS",
        ".hidden.csv",
        "2026/e.csv._COPYING_",
        "2026/01/c.csv",
        "2026/01/d [1].csv",
        "2026/e.csv",
        "_tmp/f.csv",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    return tmp_path


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("", {"a.csv", "b.json", "2026/01/c.csv", "2026/01/d [1].csv", "2026/e.csv"}),
        ("*.csv", {"a.csv"}),
        ("*/*.csv", {"2026/e.csv"}),
        ("**/*.csv", {"a.csv", "2026/01/c.csv", "2026/01/d [1].csv", "2026/e.csv"}),
        ("**", {"a.csv", "b.json", "2026/01/c.csv", "2026/01/d [1].csv", "2026/e.csv"}),
        ("2026", {"2026/01/c.csv", "2026/01/d [1].csv", "2026/e.csv"}),
        ("2026/0?", {"2026/01/c.csv", "2026/01/d [1].csv"}),
        ("a.csv", {"a.csv"}),
        ("[ab].*", {"a.csv", "b.json"}),
        ("_tmp/*.csv", {"_tmp/f.csv"}),
        ("_*/*.csv", {"_tmp/f.csv"}),
        ("*.xml", set()),
    ],
)
def test_a_glob_means_these_files(tree: Path, pattern: str, names: set[str]) -> None:
    found = listed(f"{tree}/{pattern}".rstrip("/"), STORAGE)
    assert set(found) == {f"{tree}/{name}" for name in names}


def test_a_place_that_is_not_there_is_an_error_and_not_an_empty_list(tmp_path: Path) -> None:
    with pytest.raises(PlanError) as caught:
        listed(f"{tmp_path}/nowhere/*.csv", STORAGE)
    assert caught.value.code == "FM-PLAN-001"


def test_a_place_that_cannot_be_looked_at_is_an_error(tree: Path) -> None:
    with pytest.raises(SourceError) as caught:
        listed(f"{tree}/a.csv/*.csv", STORAGE)
    assert caught.value.code == "FM-SOURCE-009"


def test_new_by_list_and_new_by_modification() -> None:
    known = {"a": FileFacts(1, 10), "b": FileFacts(1, 10)}
    found = {"a": FileFacts(1, 10), "b": FileFacts(2, 11), "c": FileFacts(1, 5)}
    assert set(new_files(found, known, "list")) == {"c"}
    assert set(new_files(found, known, "modified")) == {"b", "c"}


def test_a_list_is_kept_once_and_read_back(tmp_path: Path) -> None:
    lists = FileLists(str(tmp_path / "_control"), STORAGE)
    files = {"/in/ü.csv": FileFacts(3, 1_000), "/in/b.csv": FileFacts(4, 2_000)}
    mark = lists.keep("files://in/x", files)
    assert lists.keep("files://in/x", dict(reversed(files.items()))) == mark
    assert lists.read("files://in/x", mark) == files
    assert lists.read("files://in/x", None) == {}
    assert mark.text == "2 files"


def test_a_list_that_is_gone_is_an_error_with_a_way_forward(tmp_path: Path) -> None:
    lists = FileLists(str(tmp_path / "_control"), STORAGE)
    mark = lists.keep("files://in/x", {"/in/a": FileFacts(1, 1)})
    assert lists.sweep([], SOON) == 1
    with pytest.raises(SourceError) as caught:
        lists.read("files://in/x", mark)
    assert caught.value.code == "FM-SOURCE-040"
    assert "state reset --upstream files://in/x" in (caught.value.next or "")


def test_a_sweep_keeps_the_lists_that_marks_name_and_those_that_are_young(tmp_path: Path) -> None:
    lists = FileLists(str(tmp_path / "_control"), STORAGE)
    old = lists.keep("files://in/x", {"/in/a": FileFacts(1, 1)})
    new = lists.keep("files://in/x", {"/in/a": FileFacts(1, 1), "/in/b": FileFacts(1, 1)})
    other = ValueMark("int", 3)
    assert lists.sweep([new, other], datetime(2000, 1, 1, tzinfo=UTC)) == 0
    assert set(lists.read("files://in/x", old)) == {"/in/a"}
    assert lists.sweep([new, other], SOON) == 1
    assert set(lists.read("files://in/x", new)) == {"/in/a", "/in/b"}
    with pytest.raises(SourceError):
        lists.read("files://in/x", old)


def test_where_a_search_begins() -> None:
    assert split_pattern("s3://bucket/in/*.csv") == ("s3://bucket/in", ["*.csv"])
    assert split_pattern("/in/a.csv") == ("/in/a.csv", [])


def test_how_files_were_corrected_is_kept_with_their_list_and_goes_where_it_goes(
    tmp_path: Path,
) -> None:
    lists = FileLists(str(tmp_path), STORAGE)
    before, now = FileFacts(10, 1), FileFacts(12, 2)
    mark = lists.keep("files://in", {"a": before, "b": before})
    other = lists.keep("files://in", {"a": before})

    lists.correct("files://in", mark, {"b": now})
    lists.correct("files://in", mark, {"a": now})

    assert lists.read("files://in", mark) == {"a": now, "b": now}
    assert lists.read("files://in", other) == {"a": before}
    assert sum(".corrected." in path for path in lists.named([mark])) == 1
    assert lists.sweep([mark], SOON) == 1
    assert lists.read("files://in", mark) == {"a": now, "b": now}
    lists.sweep([], SOON)
    assert not any(path.is_file() for path in tmp_path.rglob("*"))
