"""Files as other programs write them: values, empty files, marks of order, errors with their place."""

from __future__ import annotations

import csv
import io
import shutil
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd  # type: ignore[import-untyped]
import pytest
from tests.spark.test_file_reads import Inbox, inbox

from floodmark.deltalog import Storage
from floodmark.errors import FloodmarkError, SourceError
from floodmark.project import Project
from floodmark.sources.files import FileReader, FileRows
from floodmark.sources.files.lists import FileFacts, FileLists

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
__all__ = ["inbox"]

TEXTS = [
    'say "hi", now', 'a "quoted" word', '"', '""', "two\nlines", "three\n\nlines,\n", "", None,
    "C:\\dir\\", 'back\\"slash', " around ", "#note", "NULL", "NA", "a;b\tc", "größe 漢字", "'", "x",
]  # fmt: skip
PANDAS: dict[str, dict[str, Any]] = {
    "as_it_is": {},
    "crlf": {"lineterminator": "\r\n"},
    "texts_quoted": {"quoting": csv.QUOTE_NONNUMERIC},
    "marked": {"encoding": "utf-8-sig"},
}


def read(spark: SparkSession, root: Path, form: str, ddl: str | None, **options: str) -> DataFrame:
    reader = FileReader(
        "files://inbox/in", str(root), "*", form, FileLists(str(root / "_control"), Storage()),
        Storage(), ddl, options,
    )  # fmt: skip
    files = {p.name: FileFacts(p.stat().st_size, 0) for p in sorted(root.iterdir()) if p.is_file()}
    return FileRows(reader).frame(spark, files)


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


@pytest.mark.parametrize("form", ["csv", "tsv"])
def test_what_pandas_and_python_write_comes_back_value_by_value(
    spark: SparkSession, tmp_path: Path, form: str
) -> None:
    separator = "," if form == "csv" else "\t"
    wanted = []
    for number, (name, options) in enumerate(PANDAS.items()):
        ids = range(number * 100, number * 100 + len(TEXTS))
        # Without quotes around every text, pandas writes nothing for both: only NULL can come back.
        texts = TEXTS if name == "texts_quoted" else [text or None for text in TEXTS]
        texts = [None if text == "" else text for text in texts]
        frame = pd.DataFrame({"id": ids, "t": pd.Series(texts, dtype=object)})
        written = frame.dropna() if name == "texts_quoted" else frame
        written.to_csv(tmp_path / f"{name}.{form}", sep=separator, index=False, **options)
        wanted += list(
            zip(written["id"], written["t"].where(written["t"].notna(), None), strict=True)
        )
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=separator, quoting=csv.QUOTE_ALL)
    writer.writerows([("id", "t"), *((900 + i, t) for i, t in enumerate(TEXTS) if t is not None)])
    (tmp_path / f"all_quoted.{form}").write_text(text.getvalue(), newline="")
    wanted += [(900 + i, t) for i, t in enumerate(TEXTS) if t is not None]

    found = rows(read(spark, tmp_path, form, "id INT, t STRING"))

    assert found == sorted(((int(i), t) for i, t in wanted), key=repr)
    assert (906, "") in found


@pytest.mark.parametrize(
    ("form", "text", "ddl", "wanted"),
    [
        ("tsv", "id\tt\n1\ta\n\t\n2\tb\n", "id INT, t STRING", [(1, "a"), (2, "b"), (None, None)]),
        ("csv", "t\na\n  \nb\n", "t STRING", [("  ",), ("a",), ("b",)]),
    ],
)
def test_a_row_of_white_space_is_a_row(
    spark: SparkSession,
    tmp_path: Path,
    *,
    form: str,
    text: str,
    ddl: str,
    wanted: list[tuple[Any, ...]],
) -> None:
    (tmp_path / "a").write_text(text)

    assert rows(read(spark, tmp_path, form, ddl)) == sorted(wanted, key=repr)


def test_an_empty_text_in_quotes_is_no_null_and_own_options_win(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text('id,t\n1,""\n2,\n3,NA\n')

    assert rows(read(spark, tmp_path, "csv", "id INT, t STRING")) == [(1, ""), (2, None), (3, "NA")]
    same = rows(read(spark, tmp_path, "csv", "id INT, t STRING", NULLVALUE=""))
    assert same == [(1, None), (2, None), (3, "NA")]
    named = rows(read(spark, tmp_path, "csv", "id INT, t STRING", nullValue="NA"))
    assert named == [(1, ""), (2, None), (3, None)]
    (tmp_path / "a.csv").write_text('id,t\n4,"a \\"b\\" c"\n')
    assert rows(read(spark, tmp_path, "csv", None, escape="\\")) == [("4", 'a "b" c')]
    with pytest.raises(SourceError) as caught:
        read(spark, tmp_path, "csv", "id INT, t STRING")
    assert (caught.value.code, caught.value.where) == (
        "FM-SOURCE-058",
        f"{tmp_path}/a.csv, line 2",
    )


# Every format ------------------------------------------------------------------------------------

LINES = {
    "csv": "id,t\n1,a\n2,b\n",
    "tsv": "id\tt\n1\ta\n2\tb\n",
    "json": '{"id": 1, "t": "a"}\n{"id": 2, "t": "b"}\n',
    "xml": "<rows>\n<r><id>1</id><t>a</t></r>\n<r><id>2</id><t>b</t></r>\n</rows>\n",
    "text": "1\n2\n",
}
OPTIONS = {"xml": {"rowTag": "r"}}


def values(form: str) -> list[tuple[Any, ...]]:
    return [("1",), ("2",)] if form == "text" else [(1, "a"), (2, "b")]


@pytest.mark.parametrize("form", LINES)
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_ends_of_lines_marks_of_order_and_empty_files_change_no_value(
    spark: SparkSession, tmp_path: Path, form: str, ending: str
) -> None:
    content = LINES[form].replace("\n", ending).encode()
    (tmp_path / "a").write_bytes(b"")
    (tmp_path / "b").write_bytes(content)
    (tmp_path / "c").write_bytes(b"\xef\xbb\xbf" + content)
    ddl = None if form == "text" else "id INT, t STRING"

    found = rows(read(spark, tmp_path, form, ddl, **OPTIONS.get(form, {})))

    assert found == sorted(values(form) * 2)


@pytest.mark.parametrize("form", ["csv", "tsv", "json", "xml", "text", "parquet", "orc"])
def test_a_file_of_no_bytes_has_no_rows_or_is_named(
    spark: SparkSession, tmp_path: Path, form: str
) -> None:
    (tmp_path / "empty").write_bytes(b"")
    options = OPTIONS.get(form, {})
    if form in ("parquet", "orc"):
        with pytest.raises(SourceError) as caught:
            read(spark, tmp_path, form, "id INT")
        assert (caught.value.code, caught.value.where) == ("FM-SOURCE-059", f"{tmp_path}/empty")
        return

    if form != "text":
        with pytest.raises(SourceError) as caught:
            read(spark, tmp_path, form, None, **options)
        assert caught.value.code == "FM-SOURCE-042"
        assert "empty" in str(caught.value.found)
    assert rows(read(spark, tmp_path, form, "value STRING", **options)) == []


@pytest.mark.parametrize(
    ("form", "content", "ddl", "options", "found"),
    [
        ("csv", "id,t\n1,größe\n".encode("latin1"), "id INT, t STRING", {}, "line 2: bytes that"),
        ("text", "a\ngröße\n".encode("latin1"), "value STRING", {}, "line 2: bytes that are no UTF-8"),
        ("csv", b"id;d\n1;1,5\n", "id INT, d DECIMAL(9,2)", {"sep": ";"}, "line 2: column d is not"),
        ("tsv", b"id\td\n1\t1.005\n", "id INT, d DECIMAL(9,2)", {}, "line 2: column d is not exactly"),
        ("json", b'{"id": 1}\n{"id": 2}\n', "id INT", {"multiLine": "true"}, "line 2: two values"),
    ],
)  # fmt: skip
def test_what_spark_would_change_or_leave_out_is_refused(
    spark: SparkSession,
    tmp_path: Path,
    *,
    form: str,
    content: bytes,
    ddl: str,
    options: dict[str, str],
    found: str,
) -> None:
    (tmp_path / "a").write_bytes(content)

    with pytest.raises(SourceError) as caught:
        read(spark, tmp_path, form, ddl, **options)

    assert (caught.value.code, caught.value.where) == ("FM-SOURCE-059", f"{tmp_path}/a")
    assert str(caught.value.found).startswith(found)


def test_what_is_said_of_a_file_is_read_as_it_is_said(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes("id;d;t\n1;1,5;größe\n".encode("latin1"))
    said = {"sep": ";", "encoding": "ISO-8859-1", "locale": "de-DE"}

    frame = read(spark, tmp_path, "csv", "id INT, d DECIMAL(9,2), t STRING", **said)

    assert rows(frame) == [(1, Decimal("1.50"), "größe")]


# In a project ------------------------------------------------------------------------------------

CSV = 'format: csv, path: "*.csv", schema: "id LONG, v STRING"'


@pytest.mark.parametrize(
    ("form", "content", "where"),
    [
        ("csv", 'id,v\n1,"two\nlines"\n2\n', "line 4: 1 values for 2 columns"),
        ("csv", "id,v\n1,one\nxx,two\n", "line 3: column id is no LONG"),
        ("json", '{"id": 1, "v": "one"}\n{"id": 2,\n', "line 2 is no JSON"),
        ("json", '{"id": 1, "v": "one"}{"id": 2, "v": "two"}\n', "line 1: two values in one line"),
    ],
    ids=["short_line", "wrong_type", "broken_json", "joined_json"],
)
def test_a_record_that_does_not_fit_is_named_with_file_and_line(
    inbox: Inbox, form: str, content: str, where: str
) -> None:
    inbox.write(f'format: {form}, path: "*.{form}", schema: "id LONG, v STRING"')
    inbox.put(f"bad one.{form}", content)

    with pytest.raises(FloodmarkError) as caught:
        inbox.run()

    assert caught.value.code == "FM-SOURCE-059"
    assert str(caught.value.where).endswith(f"in/bad one.{form}")
    assert caught.value.found == where


def test_a_corrected_file_is_told_no_more_and_a_rebuild_reads_it(inbox: Inbox) -> None:
    inbox.write(CSV)
    inbox.put("a.csv", "id,v\n1,one\n")
    inbox.run()
    inbox.put("b.csv", "id,value,more\n2,two,x\n", at=1_800_000_000)
    with pytest.raises(FloodmarkError) as caught:
        inbox.run()
    assert (caught.value.code, caught.value.found) == (
        "FM-SOURCE-057",
        "missing: v; not expected: value, more",
    )
    inbox.put("b.csv", "id,v\n2,two\n", at=1_800_000_001)
    (batch,) = inbox.project.coordinator.look.state().open_ids
    assert inbox.project.retry(batch, on_lost_range="snapshot").exit_code == 0

    assert warnings_of(inbox.project) == []
    shutil.rmtree(inbox.root / "lake/rows")
    inbox.put("c.csv", "id,v\n3,three\n")
    with pytest.raises(FloodmarkError):
        inbox.run()
    (batch,) = inbox.project.coordinator.look.state().open_ids
    assert inbox.project.retry(batch, on_lost_target="rebuild").exit_code == 0
    assert inbox.rows() == [(1, "one"), (2, "two"), (3, "three")]
    assert warnings_of(inbox.project) == []
    # What is changed once more is told once more.
    inbox.put("b.csv", "id,v\n2,two\n9,new\n", at=1_800_000_002)
    assert len(warnings_of(inbox.project)) == 1


def warnings_of(project: Project) -> list[str]:
    windows = [w for each in project.plan() for w in each.windows]
    return [str(w.warning) for w in windows if w.warning is not None]


def test_validate_names_a_target_that_was_loaded_by_older_rules(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox.write(CSV)
    inbox.put("a.csv", "id,v\n1,one\n")
    with monkeypatch.context() as older:
        older.setattr("floodmark.sources.files.probe.DEFAULTS_VERSION", 0)
        inbox.run()
    inbox.put("b.csv", "id,v\n2,two\n")
    inbox.run()

    (warning,) = codes(inbox)
    assert warning.found == "2 files in lake/rows"
    inbox.write(f"{CSV}, options: {{escape: '\\', emptyValue: '', multiLine: false}}")
    assert codes(inbox) == []
    inbox.write(CSV)
    ((scope, upstream),) = inbox.project.coordinator.look.state().marks
    inbox.project.coordinator.admin.reset(upstream, scope=scope)
    assert inbox.project.run(full_refresh=True).exit_code == 0
    assert codes(inbox) == []
    assert inbox.rows() == [(1, "one"), (2, "two")]


def codes(inbox: Inbox) -> list[Any]:
    return [w for w in Project.check(inbox.root).file.warnings if w.code == "FM-CONFIG-039"]
