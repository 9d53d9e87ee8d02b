"""Columns of Parquet and ORC beside those of a node: what Spark would change is found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import orc, parquet

from floodmark.deltalog import Storage
from floodmark.model.ddl import read_columns
from floodmark.sources.files import footers


@pytest.mark.parametrize("form", ["parquet", "orc"])
def test_the_columns_of_a_file_are_those_it_was_written_with(tmp_path: Path, form: str) -> None:
    table = pa.table({"id": [1], "Größe": ["x"]})
    path = str(tmp_path / "a")
    (parquet if form == "parquet" else orc).write_table(table, path)

    found = footers.columns_in(path, form, Storage())

    assert isinstance(found, pa.Schema)
    assert found.names == ["id", "Größe"]
    whole = (tmp_path / "a").read_bytes()
    for cut in (whole[:-1], whole[:-9], whole[:4], b"x"):
        (tmp_path / "a").write_bytes(cut)
        assert str(footers.columns_in(path, form, Storage())).startswith("it does not end as")
    (tmp_path / "a").write_bytes(b"x" * 20 + whole[-4:])
    assert footers.columns_in(path, form, Storage()) is None


def struct(kind: Any) -> Any:
    return pa.struct([("a", kind)])


@pytest.mark.parametrize(
    ("form", "kind", "declared", "fits"),
    [
        ("parquet", pa.int32(), "SHORT", False),
        ("parquet", pa.uint16(), "SMALLINT", False),
        ("parquet", pa.int16(), "BYTE", False),
        ("parquet", pa.uint8(), "TINYINT", False),
        ("parquet", pa.int32(), "DATE", False),
        ("parquet", pa.list_(struct(pa.int32())), "ARRAY<STRUCT<a: SHORT>>", False),
        ("parquet", pa.map_(pa.string(), pa.int32()), "MAP<STRING, SHORT>", False),
        ("parquet", pa.int8(), "BYTE", True),
        ("parquet", pa.uint8(), "SHORT", True),
        ("parquet", pa.int32(), "LONG", True),
        ("parquet", pa.date32(), "DATE", True),
        ("parquet", pa.string(), "DATE", True),  # Spark refuses it
        ("orc", pa.int64(), "INT", False),
        ("orc", pa.string(), "LONG", False),
        ("orc", pa.string(), "DECIMAL(9,2)", False),
        ("orc", pa.float64(), "LONG", False),
        ("orc", pa.float64(), "FLOAT", False),
        ("orc", pa.float64(), "DECIMAL(9,2)", False),
        ("orc", pa.int64(), "DOUBLE", False),
        ("orc", pa.int32(), "NUMERIC(9,2)", False),
        ("orc", pa.decimal128(9, 4), "DECIMAL(9,2)", False),
        ("orc", pa.decimal128(9, 4), "DECIMAL(10,5)", True),
        ("orc", pa.decimal128(9, 4), "DOUBLE", False),
        ("orc", pa.bool_(), "INT", False),
        ("orc", pa.string(), "BOOLEAN", False),
        ("orc", pa.string(), "DATE", False),
        ("orc", pa.timestamp("ns"), "LONG", False),
        ("orc", pa.timestamp("ns"), "DATE", False),
        ("orc", struct(pa.int64()), "STRUCT<a: INT, b: INT>", False),
        ("orc", pa.int64(), "LONG", True),
        ("orc", pa.int32(), "LONG", True),
        ("orc", pa.int32(), "DECIMAL(12,2)", True),
        ("orc", pa.int64(), "STRING", True),
        ("orc", pa.float32(), "DOUBLE", True),
        ("orc", pa.timestamp("ns", "UTC"), "TIMESTAMP", True),
        ("orc", pa.string(), "BINARY", True),
    ],
)
def test_a_type_that_does_not_hold_all_values_of_the_file_is_found(
    form: str, kind: Any, declared: str, *, fits: bool
) -> None:
    columns = read_columns(f"id LONG, V {declared}, w LONG")
    schema = pa.schema([("id", pa.int64()), ("v", kind)])

    found = footers.misfit(schema, form, columns)

    assert (found is None) == fits
    assert fits or str(found).startswith("column V")


def test_nanoseconds_of_parquet_are_named_unless_they_are_read_as_a_number(tmp_path: Path) -> None:
    table = pa.table({"id": [1], "t": pa.array([1], pa.timestamp("ns"))})
    new, old = str(tmp_path / "new"), str(tmp_path / "old")
    parquet.write_table(table, new)
    parquet.write_table(table, old, use_deprecated_int96_timestamps=True)

    def found(path: str, ddl: str | None) -> str | None:
        columns = None if ddl is None else read_columns(ddl)
        schema = footers.columns_in(path, "parquet", Storage())
        assert isinstance(schema, pa.Schema)
        return footers.misfit(schema, "parquet", columns)

    for ddl in (None, "t TIMESTAMP", "id LONG, T TIMESTAMP_NTZ"):
        assert str(found(new, ddl)).startswith("column t counts nanoseconds")
        assert found(old, ddl) is None
    assert found(new, "id LONG, t LONG") is None
    assert found(new, "id LONG") is None


@pytest.mark.parametrize(
    ("kinds", "found"),
    [
        ((pa.int32(), pa.int64()), "column v is int64, but int32 in a"),
        ((pa.int64(), pa.float64()), "column v is double, but int64 in a"),
        ((pa.string(), pa.int64()), "column v is int64, but string in a"),
        ((pa.decimal128(9, 2), pa.decimal128(9, 3)), "column v is decimal128(9, 3), but"),
        ((struct(pa.int32()), struct(pa.int64())), "column v.a is int64, but int32 in a"),
        ((pa.list_(pa.int32()), pa.list_(pa.int64())), "column v is list"),
        ((pa.decimal128(9, 2), pa.decimal128(12, 2)), None),
        ((pa.string(), pa.large_string()), None),
        ((pa.dictionary(pa.int32(), pa.string()), pa.string()), None),
        ((pa.timestamp("us", "UTC"), pa.timestamp("ms")), None),
    ],
)
def test_a_column_of_two_types_is_found_with_both_files(kinds: Any, found: str | None) -> None:
    first, second = (pa.schema([("id", pa.int64()), ("v", kind)]) for kind in kinds)

    conflict = footers.conflict({"a": first, "b": second})

    assert (conflict is None) == (found is None)
    if conflict is not None:
        assert conflict[0] == "b"
        assert conflict[1].startswith(str(found))


@pytest.mark.parametrize("form", ["parquet", "orc"])
@pytest.mark.parametrize("ddl", [None, "id LONG"])
def test_columns_that_differ_by_case_alone_are_found(form: str, ddl: str | None) -> None:
    schema = pa.schema([("id", pa.int64()), ("Name", pa.string()), ("name", pa.string())])
    columns = None if ddl is None else read_columns(ddl)

    assert str(footers.misfit(schema, form, columns)).startswith("two columns differ from name")
