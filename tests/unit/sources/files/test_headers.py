"""The names in the first line of a delimited file, as Spark would read them."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from floodmark.deltalog import Storage
from floodmark.sources.files.csv import CsvFile, Dialect
from floodmark.sources.files.headers import grouped


def header_of(path: str, options: dict[str, str]) -> tuple[str, ...] | None:
    return CsvFile(path, Dialect.of(options, is_tabbed=False), Storage()).look().header


@pytest.mark.parametrize(
    ("data", "options", "header"),
    [
        (b"id,v\n1,one\n", {}, ("id", "v")),
        (b"\xef\xbb\xbfid,v\r\n", {}, ("id", "v")),
        (b'"a ""b""","c,d"\n', {}, ('a "b"', "c,d")),
        (b"\n\nid;v", {"sep": ";"}, ("id", "v")),
        ("größe,v\n".encode("latin-1"), {"encoding": "latin-1"}, ("größe", "v")),
        ("id,v\n".encode("utf-16"), {"encoding": "utf-16"}, ("id", "v")),
        (b"", {}, None),
    ],
)
def test_a_header_is_read_by_the_options_of_the_reader(
    tmp_path: Path, data: bytes, options: dict[str, str], header: tuple[str, ...] | None
) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(data)

    assert header_of(str(path), options) == header


def test_files_are_grouped_and_one_without_a_header_is_with_the_first(tmp_path: Path) -> None:
    texts = {"a": "id,v\n1,x\n", "b": "v,id\n", "c": "", "d": "id,v\n"}
    for name, text in texts.items():
        (tmp_path / f"{name}.csv").write_text(text)
    (tmp_path / "e.csv.gz").write_bytes(gzip.compress(b"v,id\nx,1\n"))
    paths = sorted(map(str, tmp_path.iterdir()))

    groups = grouped({path: header_of(path, {}) for path in paths})

    names = {h: "".join(Path(p).name[0] for p in group) for h, group in groups.items()}
    assert names == {("id", "v"): "adc", ("v", "id"): "be"}


def test_files_without_any_header_are_one_group() -> None:
    assert grouped({"a.csv": None}) == {(): ["a.csv"]}
