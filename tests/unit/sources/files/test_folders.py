"""Folders that are columns: which they are, and what is refused of them."""

from __future__ import annotations

import pytest

from floodmark.model.ddl import read_columns
from floodmark.sources.files.folders import Folders


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("a.csv", ()),
        ("zip=01234/a.csv", (("zip", "01234"),)),
        ("eu/zip=A1/day=2026-01-01/part/a.csv", (("zip", "A1"), ("day", "2026-01-01"))),
        ("zip=a%2Fb%20c=d/k=v/a=b.csv", (("zip", "a/b c=d"), ("k", "v"))),
        ("zip=__HIVE_DEFAULT_PARTITION__/a.csv", (("zip", None),)),
        ("zip=100%/a.csv", (("zip", "100%"),)),
    ],
)
def test_the_columns_of_a_path_are_texts(path: str, values: tuple[tuple[str, str], ...]) -> None:
    found = Folders.of(path)

    assert (found.values, found.fault) == (values, None)


@pytest.mark.parametrize("path", ["=1/a", "k=/a", "k=1/x/j=2/a", "k=1/K=2/a"])
def test_folders_that_spark_refuses_or_passes_over_are_found(path: str) -> None:
    assert Folders.of(path).fault is not None


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("INT", ["01234", "-5"], ["A1", "1.5", "2147483648", "1_0"]),
        ("LONG", ["2147483648"], ["x"]),
        ("NUMERIC(9,2)", ["1.50"], ["1,5", "1.005"]),
        ("DATE", ["2026-01-31"], ["2026-01-31 garbage", "2026", "20260131"]),
        ("TIMESTAMP", ["2026-01-31 10:00:00"], ["10:00"]),
        ("DOUBLE", ["1.5"], ["12d"]),
        ("STRING", ["anything"], []),
    ],
)
def test_a_declared_type_is_strict(kind: str, good: list[str], bad: list[str]) -> None:
    columns = read_columns(f"id LONG, V {kind}")
    for value in (*good, "__HIVE_DEFAULT_PARTITION__"):
        assert Folders.of(f"v={value}/a").misfit(columns) is None
    for value in bad:
        found = str(Folders.of(f"v={value}/a").misfit(columns))
        assert found.startswith("the name of its folder: column V")
        assert value not in found


def test_a_column_that_file_and_folder_have_is_found() -> None:
    assert Folders.of("zip=1/a").taken(["id", "Zip"]) is not None
    assert Folders.of("zip=1/a").taken(["id"]) is None
