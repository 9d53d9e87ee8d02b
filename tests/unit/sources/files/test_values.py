"""What Spark would change in a text file, or leave out of it: found before it is read."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from floodmark.deltalog import Storage
from floodmark.errors import SourceError
from floodmark.model.ddl import Kind, read_columns
from floodmark.sources.files.csv import CsvFile, Dialect
from floodmark.sources.files.values import Rules, broken_compression, is_exact, other_characters


def written(folder: Path, content: bytes, name: str = "a.csv") -> str:
    (folder / name).write_bytes(content)
    return str(folder / name)


def kinds_of(ddl: str) -> dict[str, Kind]:
    return {column.name: column.kind for column in read_columns(ddl)}


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
    kinds = kinds_of("id STRING, d DECIMAL(12, 2)")
    for name, raw in (("a.csv", content.encode()), ("a.csv.gz", gzip.compress(content.encode()))):
        path = written(tmp_path, raw, name)
        file = CsvFile(path, Dialect.of(options, is_tabbed=False), Storage())

        assert file.changes_values(file.look(), kinds) == changes
        if changes:
            assert "column d is not exactly a DECIMAL(12,2)" in str(file.misfit(kinds))


@pytest.mark.parametrize(
    "kind", ["DEC(12,2)", "numeric( 12 , 2 )", "NUMERIC(12,2)", "Decimal(12,2)", "DEC", "numeric"]
)
@pytest.mark.parametrize("header", ["id,d", "ID,D"])
def test_a_decimal_is_one_whatever_its_type_is_called(
    tmp_path: Path, kind: str, header: str
) -> None:
    kinds = kinds_of(f"id LONG, d {kind}")
    for value in ('"1,5"', "1.005"):
        path = written(tmp_path, f"{header}\n1,2\n2,{value}\n".encode())
        file = CsvFile(path, Dialect.of({}, is_tabbed=False), Storage())

        assert file.changes_values(file.look(), kinds)
        assert str(file.misfit(kinds)).startswith("line 3: column d is not exactly a ")


# Floats, dates and times --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (
            "DATE",
            ["2026-01-31", "2026-1-3", " 2026-01-31 ", "2026-01-31 00:00:00", "2026-01-31T00:00Z"],
            ["2026-01-31 garbage", "2026", "2026-01", "2026-01-31T23:59:59-12:00", "2026-01-31T",
             "2026-01-31 00:00:01", "20260131", "10:15", "x"],
        ),
        (
            "TIMESTAMP",
            ["2026-01-01", "2026-01-01 10:00:00.123456", "2026-01-01T10:00:00.123456000Z",
             "2026-01-01 10:00", "2026-01-01 10:00:00 Europe/Berlin", "2026-01-01T1:0:0+0100"],
            ["10:15", "T10:15", "2026", "2026-01", "2026-01-01 10:00:00.123456789",
             "2026-01-01 garbage", "2026-01-01 10"],
        ),
        ("TIMESTAMP_LTZ", ["2026-01-01"], ["2026"]),
        ("timestamp_ntz", ["2026-01-01 10:00:00"], ["2026", "10:15"]),
        (
            "DOUBLE",
            ["1", "1.5", "-.5", "1e3", "1.5E-7", "NaN", "Infinity", "-Inf", "+1."],
            ["12d", "5f", "5F", "0x1p3", "1_000"],
        ),
        ("REAL", ["1.5"], ["12d"]),
        ("STRING", ["12d", "2026", "1,5"], []),
    ],
)  # fmt: skip
def test_a_text_is_the_value_that_is_written_or_refused(
    tmp_path: Path, kind: str, good: list[str], bad: list[str]
) -> None:
    kinds = kinds_of(f"id LONG, d {kind}")
    for value in (*good, *bad):
        path = written(tmp_path, f'id,d\n1,\n2,"{value}"\n'.encode())
        file = CsvFile(path, Dialect.of({}, is_tabbed=False), Storage())
        fault = Rules(floats=True).fault("d", value, kinds["d"])

        assert (fault is not None) == (value in bad), value
        assert file.changes_values(file.look(), kinds) == (value in bad), value
        assert file.misfit(kinds) == (fault and f"line 3: {fault}")


def test_options_say_how_their_own_type_is_written_and_no_other() -> None:
    kinds = kinds_of("d DATE, t TIMESTAMP, f DOUBLE, n DECIMAL(9,2)")
    rules = Rules.of({"dateformat": "yyyy", "locale": "de-DE", "nanvalue": "none"}, floats=True)

    assert rules.fault("d", "2026", kinds["d"]) is None
    assert rules.fault("t", "2026", kinds["t"]) is not None
    assert rules.fault("n", "1,5", kinds["n"]) is None
    assert rules.fault("f", "none", kinds["f"]) is None
    assert rules.fault("f", "12d", kinds["f"]) is not None


# Compression --------------------------------------------------------------------------------------


def test_a_compressed_file_that_is_not_there_to_its_end_is_told_from_one_out_of_reach(
    tmp_path: Path,
) -> None:
    path = written(tmp_path, gzip.compress(TEXT.encode())[:-9], "a.csv.gz")

    assert "before it is complete" in str(broken_compression(path, Storage()))
    assert broken_compression(str(tmp_path / "other.csv.gz"), Storage()) is None
    assert broken_compression(written(tmp_path, b"id\n"), Storage()) is None
