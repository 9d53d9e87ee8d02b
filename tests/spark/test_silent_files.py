"""What Spark's readers change or leave out of files without a word: each is refused, or named.

One suite over all formats. Only Spark reads files: the Arrow double of an engine reads none.
"""

from __future__ import annotations

import gzip
import json
import logging
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import orc, parquet
from tests.spark.test_csv_reads import read, rows
from tests.spark.test_file_reads import Inbox, inbox

from floodmark.deltalog import Storage
from floodmark.errors import FloodmarkError, SourceError
from floodmark.sources.files import FileLists, FileReader, FileRows
from floodmark.sources.files.lists import FileFacts
from floodmark.sources.files.values import OF_NO_DATE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
__all__ = ["inbox"]

XML = {"rowTag": "r"}


def written(form: str, records: list[dict[str, Any]], schema: pa.Schema | None = None) -> bytes:
    """Records as a file of a format."""
    if form == "json":
        return "".join(json.dumps(record) + "\n" for record in records).encode()
    if form == "xml":
        fields = ["".join(f"<{k}>{v}</{k}>" for k, v in record.items()) for record in records]
        return ("<x>\n" + "".join(f"<r>{each}</r>\n" for each in fields) + "</x>").encode()
    if form in ("csv", "tsv"):
        end, names = "," if form == "csv" else "\t", list(records[0])
        lines = [names, *([str(record[n]) for n in names] for record in records)]
        quoted = [[f'"{value}"' if end in value else value for value in line] for line in lines]
        return "".join(end.join(line) + "\n" for line in quoted).encode()
    sink = pa.BufferOutputStream()
    write = parquet.write_table if form == "parquet" else orc.write_table
    write(pa.Table.from_pylist(records, schema), sink)
    return bytes(sink.getvalue().to_pybytes())


def refusal(
    spark: SparkSession, root: Path, form: str, ddl: str | None, **more: str
) -> SourceError:
    with pytest.raises(SourceError) as caught:
        rows(read(spark, root, form, ddl, **(XML if form == "xml" else {}), **more))
    return caught.value


# Values ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["csv", "tsv", "json", "xml"])
@pytest.mark.parametrize(
    ("value", "kind"),
    [("1,5", "DECIMAL(9,2)"), ("1.234,5", "NUMERIC(9,2)"), ("1.005", "DEC(9,2)")],
)
def test_a_decimal_of_a_text_that_spark_would_change_is_refused(
    spark: SparkSession, tmp_path: Path, form: str, value: str, kind: str
) -> None:
    (tmp_path / "a").write_bytes(written(form, [{"id": 1, "d": "1.50"}, {"id": 2, "d": value}]))

    error = refusal(spark, tmp_path, form, f"id INT, d {kind}")

    assert (error.code, error.where) == ("FM-SOURCE-059", f"{tmp_path}/a")
    line = {"json": 2}.get(form, 3)
    assert error.found == (
        f"line {line}: column d is not exactly a {kind}, or can be meant in two ways"
    )


@pytest.mark.parametrize("form", ["csv", "json", "xml"])
@pytest.mark.parametrize("kind", ["DOUBLE", "FLOAT", "INT", "DATE"])
@pytest.mark.parametrize("value", ["1,5", "12abc"])
def test_a_text_that_is_no_value_of_the_type_is_never_another_value(
    spark: SparkSession, tmp_path: Path, form: str, kind: str, value: str
) -> None:
    (tmp_path / "a").write_bytes(written(form, [{"id": 1, "d": value}]))

    with pytest.raises(Exception, match=r"FAILED_READ_FILE|FM-SOURCE-059"):
        rows(read(spark, tmp_path, form, f"id INT, d {kind}", **(XML if form == "xml" else {})))


@pytest.mark.parametrize("form", ["csv", "json", "xml"])
@pytest.mark.parametrize(
    ("value", "kind"), [("20240101", "DATE"), ("45292", "TIMESTAMP"), ("10:00:00", "TIMESTAMP")]
)
def test_no_date_is_made_up(
    spark: SparkSession, tmp_path: Path, form: str, value: str, kind: str
) -> None:
    (tmp_path / "a").write_bytes(written(form, [{"id": 1, "d": value}]))

    error = refusal(spark, tmp_path, form, f"id INT, d {kind}")

    assert (error.code, error.where) == ("FM-SOURCE-059", f"{tmp_path}/a")
    line = 1 if form == "json" else 2
    assert error.found == f"line {line}: column d: {OF_NO_DATE} is no {kind}"


@pytest.mark.parametrize("form", ["csv", "tsv", "json", "xml"])
@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("2026-01-31 garbage", "DATE"),
        ("2026-01-31T23:59:59-12:00", "DATE"),
        ("2026", "DATE"),
        ("2026", "TIMESTAMP"),
        ("2026-01-01 10:00:00.123456789", "TIMESTAMP"),
    ],
)
def test_no_part_of_a_time_is_left_out_or_made_up(
    spark: SparkSession, tmp_path: Path, form: str, value: str, kind: str
) -> None:
    (tmp_path / "a").write_bytes(written(form, [{"id": 1, "d": value}]))

    error = refusal(spark, tmp_path, form, f"id INT, d {kind}")

    assert (error.code, error.where) == ("FM-SOURCE-059", f"{tmp_path}/a")
    line = 1 if form == "json" else 2
    assert error.found == f"line {line}: column d is not exactly a {kind}"


GOOD = [
    ("2026-01-03", "DATE", "2026-01-03"), ("2026-01-31T00:00:00Z", "DATE", "2026-01-31"),
    ("2026-01-31", "TIMESTAMP_NTZ", "2026-01-31 00:00:00"),
    ("2026-01-31T10:00:00.123456000", "TIMESTAMP_NTZ", "2026-01-31 10:00:00.123456"),
    ("2026-01-31 10:00:00 UTC", "TIMESTAMP", "1769853600"),
    ("-1.5E2", "DOUBLE", "-150.0"), ("1,234.50", "DEC(9,2)", "1234.50"),
]  # fmt: skip


@pytest.mark.parametrize("form", ["csv", "tsv", "json", "xml"])
def test_what_is_written_out_is_read(spark: SparkSession, tmp_path: Path, form: str) -> None:
    left_out = {"json": "DOUBLE", "xml": "DATE"}.get(form)  # a number, and a day alone, there
    good = [each for each in GOOD if each[1] != left_out]
    record = {f"c{number}": text for number, (text, _, _) in enumerate(good)}
    (tmp_path / "a").write_bytes(written(form, [record]))
    ddl = ", ".join(f"c{number} {kind}" for number, (_, kind, _) in enumerate(good))

    frame = read(spark, tmp_path, form, ddl, **(XML if form == "xml" else {}))

    shown = [
        f"string({'unix_seconds' if kind == 'TIMESTAMP' else ''}(c{number}))"
        for number, (_, kind, _) in enumerate(good)
    ]
    assert rows(frame.selectExpr(*shown)) == [tuple(value for _, _, value in good)]


def test_times_of_json_are_read_as_they_are_usually_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    texts = ["2024-01-05T10:00:00Z", "2024-01-05 10:00:00", "2024-01-05T11:00:00.000+01:00"]
    records = [{"d": "2024-01-05", "t": text} for text in texts]
    (tmp_path / "a").write_bytes(written("json", records))

    frame = read(spark, tmp_path, "json", "d DATE, t TIMESTAMP")

    found = frame.selectExpr("string(d)", "unix_seconds(t)")
    assert rows(found) == [("2024-01-05", 1_704_448_800)] * 3


@pytest.mark.parametrize(
    ("form", "kind", "value", "declared"),
    [
        ("parquet", pa.int32(), 70_000, "SHORT"),
        ("parquet", pa.int32(), 20_240_101, "DATE"),
        ("orc", pa.int64(), 2**40, "INT"),
        ("orc", pa.string(), "1,5", "DECIMAL(9,2)"),
        ("orc", pa.float64(), 1.9, "LONG"),
    ],
)
def test_a_type_that_is_too_small_for_the_file_is_refused(
    spark: SparkSession, tmp_path: Path, *, form: str, kind: pa.DataType, value: Any, declared: str
) -> None:
    schema = pa.schema([("id", pa.int64()), ("v", kind)])
    (tmp_path / "a").write_bytes(written(form, [{"id": 1, "v": value}], schema))

    error = refusal(spark, tmp_path, form, f"id LONG, v {declared}")

    assert (error.code, error.where) == ("FM-SOURCE-059", f"{tmp_path}/a")
    assert error.found == f"column v is {kind}, which is no {declared}"


def test_nanoseconds_of_parquet_are_refused_and_not_cut(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = pa.schema([("t", pa.timestamp("ns", "UTC"))])
    (tmp_path / "a").write_bytes(written("parquet", [{"t": 1_704_103_200_123_456_789}], schema))

    for ddl in (None, "t TIMESTAMP", "t TIMESTAMP_NTZ"):
        error = refusal(spark, tmp_path, "parquet", ddl)
        assert (error.code, error.where) == ("FM-SOURCE-059", f"{tmp_path}/a")
        assert "nanoseconds" in str(error.found)


# Columns -----------------------------------------------------------------------------------------

FORMS = ["json", "xml", "parquet", "orc"]


@pytest.mark.parametrize("form", FORMS)
def test_a_column_that_a_file_lacks_is_named(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture, form: str
) -> None:
    (tmp_path / "a").write_bytes(written(form, [{"id": 1, "v": "a"}]))
    (tmp_path / "b").write_bytes(written(form, [{"id": 2, "w": "b"}]))
    options = XML if form == "xml" else {}

    with caplog.at_level(logging.WARNING, "floodmark"):
        found = rows(read(spark, tmp_path, form, "id LONG, v STRING, w STRING", **options))

    assert found == [(1, "a", None), (2, None, "b")]
    assert f"{tmp_path}/a: no column w; NULL is read" in caplog.messages
    assert f"{tmp_path}/b: no column v; NULL is read" in caplog.messages


@pytest.mark.parametrize("form", ["parquet", "orc"])
def test_a_column_that_one_of_several_files_lacks_is_named_without_a_schema_too(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture, form: str
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(written(form, [{"id": 1, "v": "a"}]))
    (tmp_path / "c").write_bytes(written(form, [{"ID": 2, "v": "b", "w": 1}]))

    with caplog.at_level(logging.WARNING, "floodmark"):
        assert len(rows(read(spark, tmp_path, form, None))) == 3

    assert caplog.messages == [f"{tmp_path}/a and 1 more: no column w; NULL is read"]


@pytest.mark.parametrize("form", FORMS)
def test_a_file_without_any_column_of_the_node_is_refused(
    spark: SparkSession, tmp_path: Path, form: str
) -> None:
    (tmp_path / "a").write_bytes(written(form, [{"id": 1, "v": "a"}]))

    error = refusal(spark, tmp_path, form, "number LONG, text STRING")

    assert (error.code, error.where) == ("FM-SOURCE-057", f"{tmp_path}/a")
    assert error.found == "no column of the node"


def test_a_row_tag_of_another_spelling_is_refused_and_one_of_no_element_is_named(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a").write_bytes(written("xml", [{"id": 1}]))
    with pytest.raises(SourceError) as caught:
        read(spark, tmp_path, "xml", "id LONG", rowTag="R")
    assert (caught.value.code, caught.value.found) == ("FM-SOURCE-059", "no element R, but r")

    with caplog.at_level(logging.WARNING, "floodmark"):
        assert rows(read(spark, tmp_path, "xml", "id LONG", rowTag="row")) == []

    assert caplog.messages == [f"{tmp_path}/a: no element row; no row is read"]


# Records -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "content", "found"),
    [
        ("json", b'{"id": 1}\n{"id": 2} xx\n', "line 2: something stands behind the end"),
        ("json", b'{"id": 1}}\n', "line 1: something stands behind the end"),
        ("xml", b"<x>\n<r><id>1</id></r>\n<r", "line 3: the file ends before its last element"),
        ("xml", b"<x><r><id>1</id><id>2</id></r></x>", "line 1: element id is there twice"),
    ],
)
def test_a_record_that_spark_would_leave_out_is_refused(
    spark: SparkSession, tmp_path: Path, form: str, content: bytes, found: str
) -> None:
    (tmp_path / "a").write_bytes(content)

    error = refusal(spark, tmp_path, form, "id INT")

    assert (error.code, error.where) == ("FM-SOURCE-059", f"{tmp_path}/a")
    assert str(error.found).startswith(found)


@pytest.mark.parametrize("form", ["csv", "json", "xml", "parquet", "orc"])
@pytest.mark.parametrize("cut", [1, 9])
def test_a_file_that_is_not_there_to_its_end_gives_no_row(
    inbox: Inbox, form: str, cut: int
) -> None:
    """Cut off, as when it is still being written; compressed where only that tells its end."""
    name = "a.csv.gz" if form == "csv" else f"a.{form}"
    content = written(form, [{"id": n, "v": f"{n}"} for n in range(100)])
    content = gzip.compress(content) if form == "csv" else content.rstrip()
    options = ", options: {rowTag: r}" if form == "xml" else ""
    inbox.write(f'format: {form}, path: "a.*", schema: "id LONG, v STRING"{options}')
    (inbox.root / "in" / name).write_bytes(content[:-cut])

    with pytest.raises(FloodmarkError) as caught:
        inbox.run()

    assert caught.value.code == "FM-SOURCE-059"
    assert str(caught.value.where).endswith(f"in/{name}")
    assert not list((inbox.root / "lake/rows/_delta_log").glob("*.json"))


# Names -------------------------------------------------------------------------------------------

NAMES = [
    "a b", " a", "a ", "a%20b", "%", "%zz", "%2F", "a\nb", "a\tb", "a\\b", "\\", "a#b", "#", "a?b", "?",
    "a[x]b", "[", "]", "a{b,c}", "{", "}", "a*b", "*", "a+b", "a&b", "a;b", 'a"b', "a'b", "a,b", "a|b",
    "a<b>", "$a", "~a", "a..b", "-a", "@a", "^a", "!a", "a`b", "größe", "gro\u0308ße", "\U0001d11e",
    "a=b", "=a", "a:b", ":", "C:", "file:x",
]  # fmt: skip
"""What people and programs call files."""


@pytest.mark.parametrize(
    ("form", "place"),
    [
        *((form, "file") for form in ("csv", "json", "xml", "text", "parquet", "orc", "binary")),
        *((form, "folder") for form in ("csv", "parquet")),
    ],
)
def test_a_file_is_read_once_or_refused_by_name_whatever_it_is_called(
    spark: SparkSession, tmp_path: Path, form: str, place: str
) -> None:
    names = dict(enumerate(NAMES))
    if place == "folder":
        # One called a=b is the column a.
        names = {n: f"{name}/f" for n, name in names.items() if name != "a=b"}
    for number, name in names.items():
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(
            f"{number}".encode() if form in ("text", "binary") else written(form, [{"id": number}])
        )
    refused = set()

    while True:
        try:
            found = ids(spark, tmp_path, form)
            break
        except SourceError as error:
            assert error.code == "FM-SOURCE-059"  # noqa: PT017
            refused.add(str(error.where).removeprefix(f"{tmp_path}/in/"))
            Path(str(error.where)).unlink()

    assert found == sorted(n for n, name in names.items() if name not in refused)
    of_files = {name for name in NAMES if ":" in name}
    assert refused == (of_files if place == "file" else {"=a/f"})


def test_a_file_whose_name_spark_leaves_out_is_refused_by_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    for name in ("a.csv", "b._COPYING_", ".c.csv", "_d.csv"):
        (tmp_path / name).write_text("id\n1\n")

    for name in ("b._COPYING_", ".c.csv", "_d.csv"):
        facts = {path: FileFacts(5, 0) for path in ("a.csv", name)}
        reader = reader_of(tmp_path, "csv", "*", "id LONG")
        with pytest.raises(SourceError) as caught:
            FileRows(reader).frame(spark, facts)
        assert (caught.value.code, caught.value.where) == ("FM-SOURCE-059", f"{tmp_path}/{name}")


def reader_of(root: Path, form: str, pattern: str, ddl: str | None, **options: str) -> FileReader:
    lists = FileLists(str(root / "_control"), Storage())
    return FileReader("files://x", str(root), pattern, form, lists, Storage(), ddl, options)


def ids(spark: SparkSession, root: Path, form: str) -> list[int]:
    """The numbers in all files of a folder and of those below it."""
    ddl = None if form in ("text", "binary") else "id LONG"
    options = XML if form == "xml" else {}
    reader = reader_of(root, form, "in", ddl, **options)
    column = {"text": "value", "binary": "string(content)"}.get(form, "id")
    frame = FileRows(reader).frame(spark, reader.files_there()).selectExpr(f"bigint({column})")
    return sorted(row[0] for row in frame.collect())


# Names of columns --------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["csv", "tsv", "json", "xml", "parquet", "orc"])
def test_a_column_in_another_case_is_read_or_refused_by_name(
    spark: SparkSession, tmp_path: Path, form: str
) -> None:
    (tmp_path / "a").write_bytes(written(form, [{"id": 1, "Name": "x"}]))

    if form == "json":
        error = refusal(spark, tmp_path, form, "id LONG, name STRING")
        assert (error.code, error.where) == ("FM-SOURCE-059", f"{tmp_path}/a")
        assert error.found == "line 1: key Name differs from column name by the case of its letters"
        return
    options = XML if form == "xml" else {}
    assert rows(read(spark, tmp_path, form, "id LONG, name STRING", **options)) == [(1, "x")]


@pytest.mark.parametrize("form", ["json", "xml", "parquet", "orc"])
def test_two_columns_that_differ_by_case_alone_are_refused(
    spark: SparkSession, tmp_path: Path, form: str
) -> None:
    (tmp_path / "a").write_bytes(written(form, [{"id": 1, "name": "x", "Name": "y"}]))

    error = refusal(spark, tmp_path, form, "id LONG, name STRING")

    assert (error.code, error.where) == ("FM-SOURCE-059", f"{tmp_path}/a")


# Folders that are columns ------------------------------------------------------------------------

OF_FOLDERS = ["csv", "tsv", "json", "xml", "parquet", "orc", "text"]


def under(root: Path, form: str, folders: dict[str, list[dict[str, Any]]]) -> None:
    """A file in each folder."""
    for folder, records in folders.items():
        path = root / "in" / folder / "f"
        path.parent.mkdir(parents=True, exist_ok=True)
        plain = str(records[0]["id"]).encode()
        path.write_bytes(plain if form == "text" else written(form, records))


def of_folders(
    spark: SparkSession, root: Path, form: str, ddl: str | None, *, is_wide: bool = False
) -> DataFrame:
    """The rows of all of them, read as one batch."""
    options = XML if form == "xml" else {}
    reader = replace(reader_of(root, form, "in", ddl, **options), takes_new_columns=is_wide)
    return FileRows(reader).frame(spark, reader.files_there())


@pytest.mark.parametrize("form", OF_FOLDERS)
@pytest.mark.parametrize("is_declared", [True, False])
def test_a_folder_is_a_text_in_every_batch_unless_its_type_is_declared(
    spark: SparkSession, tmp_path: Path, form: str, *, is_declared: bool
) -> None:
    ddl = None if form == "text" or not is_declared else "id LONG"
    for number, folder in enumerate(["zip=01234", "zip=A1", "zip=__HIVE_DEFAULT_PARTITION__"]):
        root = tmp_path / str(number)
        under(root, form, {folder: [{"id": 1}]})
        frame = of_folders(spark, root, form, ddl)
        assert frame.schema["zip"].dataType.typeName() == "string"
        assert [row["zip"] for row in frame.collect()] == [["01234"], ["A1"], [None]][number]
        if form in ("json", "parquet", "orc"):
            break  # the same for all without a header
    root = tmp_path / "both"
    under(root, form, {"zip=01234": [{"id": 1}], "zip=a%2Fb": [{"id": 2}]})
    assert rows(of_folders(spark, root, form, ddl).select("zip")) == [("01234",), ("a/b",)]


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_a_declared_folder_is_strict(spark: SparkSession, tmp_path: Path, form: str) -> None:
    under(tmp_path, form, {"zip=01234": [{"id": 1}]})
    assert rows(of_folders(spark, tmp_path, form, "id LONG, zip INT")) == [(1, 1234)]
    under(tmp_path, form, {"zip=A1": [{"id": 1}]})

    with pytest.raises(SourceError) as caught:
        of_folders(spark, tmp_path, form, "id LONG, zip INT")

    assert (caught.value.code, caught.value.where) == ("FM-SOURCE-059", f"{tmp_path}/in/zip=A1/f")
    assert caught.value.found == "the name of its folder: column zip is no INT"


@pytest.mark.parametrize("form", ["csv", "tsv", "json", "xml", "parquet", "orc"])
@pytest.mark.parametrize("ddl", [None, "id LONG", "id LONG, zip STRING"])
def test_a_column_that_file_and_folder_have_is_refused(
    spark: SparkSession, tmp_path: Path, form: str, ddl: str | None
) -> None:
    under(tmp_path, form, {"zip=01234": [{"id": 1, "Zip": "own"}]})

    with pytest.raises(SourceError) as caught:
        of_folders(spark, tmp_path, form, ddl)

    assert caught.value.code in ("FM-SOURCE-059", "FM-SOURCE-057")
    assert str(caught.value.where).startswith(f"{tmp_path}/in/zip=01234/f")


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_folders_of_other_columns_are_refused_or_read_with_null(
    spark: SparkSession, tmp_path: Path, form: str
) -> None:
    under(tmp_path, form, {"": [{"id": 0}], "j=2": [{"id": 2}], "k=1": [{"id": 1}]})

    with pytest.raises(SourceError) as caught:
        of_folders(spark, tmp_path, form, "id LONG")
    assert (caught.value.code, caught.value.found) == ("FM-SOURCE-057", "j=")

    frame = of_folders(spark, tmp_path, form, "id LONG", is_wide=True)
    assert rows(frame.select("id", "j", "k")) == [(0, None, None), (1, None, "1"), (2, "2", None)]
    for folder in ("j=2", "k=1"):
        shutil.move(tmp_path / "in" / folder, tmp_path / "in" / f"day={folder[2:]}")
    (tmp_path / "in/f").unlink()
    shutil.move(tmp_path / "in/day=2", tmp_path / "in/north/day=2")
    assert rows(of_folders(spark, tmp_path, form, "id LONG")) == [(1, "1"), (2, "2")]


@pytest.mark.parametrize("form", ["parquet", "orc"])
def test_a_column_of_two_types_is_refused_with_file_and_types(
    spark: SparkSession, tmp_path: Path, form: str
) -> None:
    for name, kind in (("a", pa.int32()), ("b", pa.int64())):
        (tmp_path / name).write_bytes(written(form, [{"id": 1}], pa.schema([("id", kind)])))

    error = refusal(spark, tmp_path, form, None)

    assert (error.code, error.where) == ("FM-SOURCE-059", f"{tmp_path}/b")
    assert error.found == f"column id is int64, but int32 in {tmp_path}/a"
    assert rows(read(spark, tmp_path, form, "id LONG")) == [(1,), (1,)]
