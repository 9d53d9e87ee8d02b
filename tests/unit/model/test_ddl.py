"""Columns as DDL says them: what Spark takes is taken, what it refuses is told with its place."""

from __future__ import annotations

import pytest

from floodmark.model.ddl import DdlError, columns_of, read_columns


@pytest.mark.parametrize(
    ("ddl", "columns"),
    [
        ("id LONG", {"id": "LONG"}),
        ("id: long, b : string", {"id": "long", "b": "string"}),
        (
            "a DECIMAL(12, 2), b DECIMAL, c varchar(10)",
            {"a": "DECIMAL(12,2)", "b": "DECIMAL", "c": "varchar(10)"},
        ),
        ("`a b` INT NOT NULL COMMENT 'the key, always', c DATE", {"a b": "INT", "c": "DATE"}),
        (
            "m MAP<STRING, ARRAY<INT>>, s STRUCT<a: INT, b: STRUCT<c: DATE>>",
            {"m": "MAP<STRING,ARRAY<INT>>", "s": "STRUCT<a:INT,b:STRUCT<c:DATE>>"},
        ),
        (
            "i INTERVAL DAY TO SECOND, t timestamp_ntz",
            {"i": "INTERVAL DAY TO SECOND", "t": "timestamp_ntz"},
        ),
        (
            """id INT COMMENT 'no -- remark', -- a remark, with INT
               b DATE COMMENT "it's" 'all', c STRUCT<`x y`: INT>""",
            {"id": "INT", "b": "DATE", "c": "STRUCT<`x y`:INT>"},
        ),
        ("größe DOUBLE, _x VARIANT", {"größe": "DOUBLE", "_x": "VARIANT"}),
    ],
)
def test_columns_are_read(ddl: str, columns: dict[str, str]) -> None:
    assert columns_of(ddl) == columns


@pytest.mark.parametrize(
    ("ddl", "message"),
    [
        ("", "the end, where the name of a column should be"),
        ("id", 'the end after "id", where a type should be'),
        ("id LNG", '"LNG" after "id", where a type such as long should be'),
        (
            "id LONG amount DECIMAL",
            '"amount" after "id LONG", where a comma, NOT NULL or COMMENT should be',
        ),
        ("id LONG,", 'the end after "id LONG ,", where the name of a column should be'),
        ("id ARRAY<INT", 'the end after "ARRAY < INT", where ">" should be'),
        ("id DECIMAL(a)", '"a" after "id DECIMAL (", where a number should be'),
        ("id DECIMAL(١)", '"١" after "id DECIMAL (", where a number should be'),
        ("id INT, ID STRING", "column ID is there twice"),
        ("id INT NOT NIL", '"NIL" after "id INT NOT", where NULL should be'),
        ("id INT COMMENT why", '"why" after "id INT COMMENT", where a comment in quotes should be'),
        ("` INT", '"`", where the name of a column should be'),
        ("1 INT", '"1", where the name of a column should be'),
    ],
)
def test_what_is_wrong_is_told_with_its_place(ddl: str, message: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        columns_of(ddl)
    assert str(caught.value) == message


@pytest.mark.parametrize("part", ["ARRAY<", "MAP<INT,", "STRUCT<a: "])
@pytest.mark.parametrize("closing", [">", ""])
def test_types_nested_thousands_deep_are_an_error_of_ours(part: str, closing: str) -> None:
    with pytest.raises(ValueError, match="types are nested deeper than 100"):
        columns_of(f"id {part * 2_000}INT{closing * 2_000}")


def test_where_it_is_wrong_can_be_shown() -> None:
    with pytest.raises(DdlError) as caught:
        columns_of("id INT, -- the key\n  at TIMSTAMP")
    assert caught.value.position == len("id INT, -- the key\n  at ")


def test_not_null_is_kept_beside_other_words() -> None:
    found = read_columns("a MINE NOT NULL COMMENT 'x', b MINE COMMENT 'x' NOT NULL, c MINE")
    assert [column.nullable for column in found] == [False, False, True]
