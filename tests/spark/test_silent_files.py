"""What Spark's readers change or leave out of files without a word: each is refused, or named.

One suite over all formats. Only Spark reads files: the Arrow double of an engine reads none.
"""

from __future__ import annotations

import gzip
import json
import logging
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
    from pyspark.sql import SparkSession

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
