"""What Spark would change in a text file, or leave out of it: found before it is read."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from floodmark.deltalog import Storage
from floodmark.errors import SourceError
from floodmark.sources.files.csv import CsvFile, Dialect
from floodmark.sources.files.values import broken_compression, is_exact, other_characters


def written(folder: Path, content: bytes, name: str = "a.csv") -> str:
    (folder / name).write_bytes(content)
    return str(folder / name)


# Characters ---------------------------------------------------------------------------------------

TEXT = "id,t\n1,größe\n2,漢字\n3,x\n"


@pytest.mark.parametrize("block", [1, 2, 3, 5, 4 * 2**20])
def test_a_text_of_another_encoding_is_refused_with_its_line(tmp_path: Path, block: int) -> None:
    for good in (TEXT.encode(), TEXT.encode("utf-8-sig")):
        CsvFile(written(tmp_path, good), Dialect.of({}, is_tabbed=False), Storage(), block).look()
        assert other_characters(str(tmp_path / "a.csv"), Storage(), block) is None
    for bad, line in ((TEXT.encode("latin1", "replace"), 2), (TEXT.encode()[:-9], 3)):
        file = CsvFile(written(tmp_path, bad), Dialect.of({}, is_tabbed=False), Storage(), block)

        with pytest.raises(SourceError) as caught:
            file.look()

        assert (caught.value.code, caught.value.where) == ("FM-SOURCE-059", file.path)
        assert caught.value.found == f"line {line}: bytes that are no UTF-8"
        assert "options: {encoding: ISO-8859-1}" in str(caught.value.next)


def test_a_file_whose_encoding_is_said_is_not_taken_for_utf8(tmp_path: Path) -> None:
    said = Dialect.of({"encoding": "ISO-8859-1"}, is_tabbed=False)

    CsvFile(written(tmp_path, TEXT.encode("latin1", "replace")), said, Storage()).look()


# Decimals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "is_kept"),
    [
        ("1.5", True), ("-1.50", True), ("1.500", True), ("007", True), (".5", True), ("1.", True),
        ("1e3", True), ("1.5E2", True), ("1,234.5", True), ("1,234,567", True),
        ("1.005", False), ("1e-3", False), ("1,5", False), ("1,234", False), ("1.234,5", False),
        ("1,23.4", False), ("12,34,567", False), ("x", True), ("NaN", True),
    ],
)  # fmt: skip
def test_a_decimal_is_kept_that_is_exact_and_means_one_thing(value: str, *, is_kept: bool) -> None:
    assert is_exact(value, 2) == is_kept


@pytest.mark.parametrize(
    ("content", "options", "changes"),
    [
        ("id;d\n1;1.5\n2;\n", {"sep": ";"}, False),
        ("id;d\n1;1,5\n", {"sep": ";"}, True),
        ("id;d\n1;1,5\n", {"sep": ";", "locale": "de-DE"}, False),
        ('ID,D\n1,"1,234.5"\n', {}, False),
        ('id,d\n1,"two\nlines"\n2,1.005\n', {}, True),
        ("id,d\n1,NA\n", {"nullValue": "NA"}, False),
        ("1,1.005\n", {"header": "false"}, True),
        ("id,d\n1\n2,1.005\n", {}, False),  # Spark refuses it
    ],
)
def test_decimals_that_spark_would_change_are_found(
    tmp_path: Path, content: str, options: dict[str, str], *, changes: bool
) -> None:
    kinds = {"id": "STRING", "d": "DECIMAL(12, 2)"}
    for name, raw in (("a.csv", content.encode()), ("a.csv.gz", gzip.compress(content.encode()))):
        path = written(tmp_path, raw, name)
        file = CsvFile(path, Dialect.of(options, is_tabbed=False), Storage())

        assert file.changes_values(file.look(), kinds) == changes
        if changes:
            assert "column d is not exactly a DECIMAL(12, 2)" in str(file.misfit(kinds))


# Compression --------------------------------------------------------------------------------------


def test_a_compressed_file_that_is_not_there_to_its_end_is_told_from_one_out_of_reach(
    tmp_path: Path,
) -> None:
    path = written(tmp_path, gzip.compress(TEXT.encode())[:-9], "a.csv.gz")

    assert "before it is complete" in str(broken_compression(path, Storage()))
    assert broken_compression(str(tmp_path / "other.csv.gz"), Storage()) is None
    assert broken_compression(written(tmp_path, b"id\n"), Storage()) is None
