"""XML that Spark would read as other values, or not to its end: found before it is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from floodmark.deltalog import Storage
from floodmark.model.ddl import read_columns
from floodmark.sources.files.values import OF_NO_DATE
from floodmark.sources.files.xml import XmlFile, XmlLook

DDL = (
    "id LONG, d DECIMAL(9,2), f DOUBLE, l ARRAY<DOUBLE>, s STRUCT<f: DOUBLE, t: STRING>, t STRING, at DATE, m MAP<STRING, DOUBLE>,"
    " a STRUCT<_cur: STRING, _rate: DOUBLE, _VALUE: DECIMAL(9,2)>"
)


def look(folder: Path, content: str | bytes, ddl: str | None = DDL, **options: str) -> XmlLook:
    path = folder / "a.xml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    columns = read_columns(ddl) if ddl is not None else ()
    return XmlFile(str(path), Storage(), {"rowtag": "r", **options}, columns).look()


def of_decimals(name: str) -> str:
    return f"column {name} is not exactly a DECIMAL(9,2), or can be meant in two ways"


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ("<d>1,5</d>", of_decimals("d")),
        ("<D> 1.005 </D>", of_decimals("D")),
        ("<d>1<!-- - -->,5</d>", of_decimals("d")),
        ("<d><![CDATA[1,5]]></d>", of_decimals("d")),
        ("<f>12abc</f>", "column f is no DOUBLE"),
        ("<f>1,5</f>", "column f is no DOUBLE"),
        ("<f>0x10</f>", "column f is no DOUBLE"),
        ("<f>\u0661</f>", "column f is no DOUBLE"),
        ("<s><f>1 2</f></s>", "column s.f is no DOUBLE"),
        ("<l>1</l><l>x</l>", "column l is no DOUBLE"),
        ("<a cur='EUR'>1,5</a>", of_decimals("a._VALUE")),
        ("<a cur='EUR' rate='1,1'>1.5</a>", "column a._rate is no DOUBLE"),
        ("<id>1</id><id>2</id>", "element id is there twice, and its column is no ARRAY"),
        ("<s><t>1</t><T>2</T></s>", "element s.T is there twice, and its column is no ARRAY"),
        ("<at>45292</at>", f"column at: {OF_NO_DATE} is no DATE"),
        ("<m><a>1</a><b>1,5</b></m>", "column m.b is no DOUBLE"),
        ("<at>2024-01-05</at>", None),
        ("<d>1,234.5</d><f>1,234.5</f><f2>1,5</f2><f2>x</f2>", None),
        ("<f>1e3</f><d></d><t>1,5</t><l>1</l><l>-2.5E-3</l><s><f>NaN</f></s>", None),
        ("<f/><a cur='1,5'>1.50</a><x><d>1,5</d></x>", None),
    ],
)
def test_a_value_that_spark_would_change_is_found(
    tmp_path: Path, record: str, why: str | None
) -> None:
    found = look(tmp_path, f"<x>\n<d>1,5</d><r><id>1</id></r>\n<r>{record}</r>\n</x>")

    assert found.fault == (why and f"line 3: {why}")


def test_attributes_of_a_record_are_columns(tmp_path: Path) -> None:
    text = '<x><r id="1" d="1,5"/></x>'

    assert look(tmp_path, text, "_id LONG, _d DECIMAL(9,2)").fault == f"line 1: {of_decimals('_d')}"
    assert look(tmp_path, text, "id LONG, d DECIMAL(9,2)", attributeprefix="").fault
    assert look(tmp_path, text, "_id LONG, v LONG", locale="de-DE") == XmlLook(absent=("v",))


def test_numbers_are_left_alone_where_the_node_says_how_they_are_written(tmp_path: Path) -> None:
    text = "<x><r><d>1,5</d><f>1,5</f></r><r><d>none</d><f>none</f></r></x>"

    assert look(tmp_path, text, locale="de-DE").fault is None
    fine = "<x><r><f>none</f></r></x>"
    assert look(tmp_path, fine, nullvalue="none").fault is None


def test_without_columns_only_the_end_and_the_rows_are_looked_at(tmp_path: Path) -> None:
    assert look(tmp_path, "<x><r><d>1,5</d><d>x</d></r></x>", None) == XmlLook()


@pytest.mark.parametrize("end", ["", "\n<r", "\n<r><id>2</id>", "\n<![CDATA[", "\n</"])
def test_a_file_that_was_cut_off_behind_a_record_is_named(tmp_path: Path, end: str) -> None:
    found = look(tmp_path, f"<x>\n<r><id>1</id></r>{end}")

    assert found.fault is not None
    assert found.fault.endswith("the file ends before its last element does")


@pytest.mark.parametrize(
    "content",
    [
        "<x><r><id>1</id></r></x>\0\0",
        "<x><r><id>1</id></r></x><x><r><id>2</id></r></x>",
        "<x><r><id>1</t></r></x>",
        '<?xml version="1.0" encoding="ISO-8859-1"?><x><r><t>größe</t></r></x>'.encode("latin1"),
        "<x><r><t>größe</t></r></x>".encode("utf-16"),
        "<x><r><t>größe</t></r></x>".encode("latin1"),
    ],
)
def test_of_other_faults_spark_is_the_judge(tmp_path: Path, content: str | bytes) -> None:
    assert look(tmp_path, content, None).fault is None


@pytest.mark.parametrize("other", ["R", "n:r", "n:R"])
def test_a_row_tag_that_no_element_has_is_named(tmp_path: Path, other: str) -> None:
    text = f"<x xmlns:n='u'><{other}><id>1</id></{other}></x>"

    assert look(tmp_path, text).fault == f"no element r, but {other}"
    assert look(tmp_path, "<x><q/></x>") == XmlLook(has_rows=False)


def test_prefixes_count_unless_the_node_says_otherwise(tmp_path: Path) -> None:
    text = "<x xmlns:n='u'><n:r><n:d>1,5</n:d></n:r></x>"

    assert look(tmp_path, text, ignorenamespace="true").fault == f"line 1: {of_decimals('d')}"


def test_a_column_that_no_record_has_is_named(tmp_path: Path) -> None:
    text = "<x><r><ID>1</ID></r><r><t/><s><v/></s></r></x>"

    assert look(tmp_path, text, "id LONG, t STRING, v LONG, w LONG").absent == ("v", "w")
    assert look(tmp_path, "<x/>", "id LONG").absent == ()
