"""JSON that Spark would read as other values, or not to its end: found before it is read."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from floodmark.deltalog import Storage
from floodmark.model.ddl import read_columns
from floodmark.sources.files.json import JsonFile, JsonLook
from floodmark.sources.files.values import OF_NO_DATE, Rules


def written(folder: Path, content: bytes, name: str = "a.json") -> str:
    (folder / name).write_bytes(content)
    return str(folder / name)


# The end of a value -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ('{"a": 1}\n{"a": 2}\n', None),
        ('{"a": 1}\n{"a": 2}{"a": 3}\n', "line 2: two values in one line"),
        ('{"a": 1} \t {"a": 3}', "line 1: two values in one line"),
        ('{"a": 1},{"a": 3}\n', "line 1: two values in one line"),
        ('{"a": 1}\r\n\r\n{"a": 2}{"a": 3}\r\n', "line 3: two values in one line"),
        ('{"a": 1}\r{"a": 2}\r', None),
        ('[{"a": 1}, {"a": 2}]\n', None),
        ('{"a": [{"b": 1},{"b": [[1],[2]]}]}\n', None),
        ('{"a": "}{\\"}{"}\n{"a": "}, {"}\n', None),
        ('{"a": [{"b": "]}{"}, {}]}{}\n', "line 1: two values in one line"),
    ],
)
def test_two_values_of_json_in_one_line_are_found(
    tmp_path: Path, content: str, found: str | None
) -> None:
    path = written(tmp_path, content.encode(), "a.json")

    assert JsonFile(path, Storage()).look().fault == found


def test_a_second_value_of_a_file_that_is_one_value_is_found(tmp_path: Path) -> None:
    one, two = '{"a":\n [{},\n {}]}\n', '{"a": 1}\n\n{"a": 2}\n'
    path = written(tmp_path, one.encode(), "a.json")
    assert JsonFile(path, Storage(), spans_lines=True).look().fault is None
    path = written(tmp_path, two.encode(), "a.json")
    found = JsonFile(path, Storage(), spans_lines=True).look().fault
    assert found == "line 3: two values behind the end of the first one"


def value(rng: random.Random, depth: int) -> Any:
    kind = rng.randrange(6) if depth else 3 + rng.randrange(3)
    if kind < 2:
        return {rng.choice('a}{"\\'): value(rng, depth - 1) for _ in range(rng.randrange(3))}
    if kind == 2:
        return [value(rng, depth - 1) for _ in range(rng.randrange(3))]
    return rng.choice(["", "}{", "],[", '\\"', 7, None, True])


@pytest.mark.parametrize("block", [7, 4 * 2**20])
def test_of_any_lines_those_with_two_values_are_found(tmp_path: Path, block: int) -> None:
    rng = random.Random(10)
    for _ in range(300):
        lines = [json.dumps({"v": value(rng, 3)}) for _ in range(rng.randrange(1, 5))]
        bad = rng.randrange(len(lines)) if rng.random() < 0.5 else None
        if bad is not None:
            lines[bad] += rng.choice(["", " ", ","]) + json.dumps([value(rng, 2)])
        path = written(tmp_path, "\n".join(lines).encode(), "a.json")

        found = JsonFile(path, Storage(), block_bytes=block).look().fault

        wanted = None if bad is None else f"line {bad + 1}: two values in one line"
        assert found == wanted, lines


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ('{"a": 1}\n{"a": 2} xx\n', 2),
        ('{"a": 1} 5\n', 1),
        ('{"a": 1}\n\n{"a": "}"} "x"\n', 3),
        ('{"a": 1}}\n', 1),
        ('{"a": [1]}]\n{"a": "["}\n', 1),
        ('[{"a": 1}] true\n', 1),
        ('{"a": "} x"}\n{"a": "]]"}\n', None),
        ('{"a": 1},\n{"a": 2}\n', None),
        ('{"a": 1} \r\n{"a": {"b": 2} }\r\n', None),
        ('\ufeff{"a": 1}\n', None),
    ],
)
def test_what_stands_behind_the_end_of_a_value_is_found(
    tmp_path: Path, content: str, line: int | None
) -> None:
    path = written(tmp_path, content.encode())

    fault = JsonFile(path, Storage()).look().fault

    assert fault == (line and f"line {line}: something stands behind the end of the value")


def test_what_stands_behind_a_value_of_many_lines_is_found(tmp_path: Path) -> None:
    path = written(tmp_path, b'{\n"a": 1\n}\nnull\n')

    fault = JsonFile(path, Storage(), spans_lines=True).look().fault

    assert fault == "line 1: something stands behind the end of the value"


# Values -------------------------------------------------------------------------------------------

DDL = (
    "id LONG, d DECIMAL(9,2), s STRUCT<d: DECIMAL(9,1), t: STRING>, l ARRAY<DECIMAL(9,2)>,"
    " m MAP<STRING, STRUCT<d: DECIMAL(9,2)>>, `größe` DECIMAL(9,2), at TIMESTAMP,"
    " on DATE, n STRUCT<a: ARRAY<STRUCT<d: numeric(9,2)>>>"
)
OF_A_DECIMAL = "is not exactly a DECIMAL({}), or can be meant in two ways"


@pytest.mark.parametrize(
    ("record", "found"),
    [
        ({"d": "1,5"}, f"column d {OF_A_DECIMAL.format('9,2')}"),
        ({"d": "1.234,5"}, f"column d {OF_A_DECIMAL.format('9,2')}"),
        ({"d": "1.005"}, f"column d {OF_A_DECIMAL.format('9,2')}"),
        ({"s": {"d": "1.25"}}, f"column s.d {OF_A_DECIMAL.format('9,1')}"),
        ({"l": ["1.5", "1,5"]}, f"column l {OF_A_DECIMAL.format('9,2')}"),
        ({"m": {"k": {"d": "1,5"}}}, f"column m.d {OF_A_DECIMAL.format('9,2')}"),
        ({"größe": "1,5"}, f"column größe {OF_A_DECIMAL.format('9,2')}"),
        (
            {"at": 1_704_103_200_123},
            "column at: a number is read as seconds since 1970, and these are too many",
        ),
        ({"at": " 45292 "}, f"column at: {OF_NO_DATE} is no TIMESTAMP"),
        ({"at": "10:00:00"}, f"column at: {OF_NO_DATE} is no TIMESTAMP"),
        ({"at": 1_704_103_200}, None),
        ({"at": "2024"}, "column at is not exactly a TIMESTAMP"),
        ({"at": "2024-01-05 10:00:00.1234567"}, "column at is not exactly a TIMESTAMP"),
        ({"at": "2024-01-05 10:00:00.123456000+01:00"}, None),
        ({"at": "2024-01-05T10:00:00Z"}, None),
        ({"on": "2024-01-05 garbage"}, "column on is not exactly a DATE"),
        ({"on": "2024-01-05T23:59:59-12:00"}, "column on is not exactly a DATE"),
        ({"on": "2024-01-05T00:00:00"}, None),
        (
            {"n": {"a": [{"d": "1,5"}]}},
            "column n.a.d is not exactly a numeric(9,2), or can be meant in two ways",
        ),
        ({"D": "1.50"}, "key D differs from column d by the case of its letters"),
        ({"d": "1.50", "D": "2.50"}, "key D differs from column d by the case of its letters"),
        ({"GRÖSSE": 1}, "key GRÖSSE differs from column größe by the case of its letters"),
        ({"s": {"D": 1}}, "key D differs from column d by the case of its letters"),
        ({"m": {"K": {"d": "1.5"}, "k": {}}, "other": {"ID": 1}}, None),
        ({"d": "1,234.5", "s": {"d": "1.50"}, "l": ["1.00"]}, None),
        ({"d": 1.005}, None),
        ({"s": {"t": "1,5"}, "other": {"d": "1,5"}}, None),
    ],
)
@pytest.mark.parametrize("is_ascii", [True, False])
def test_a_value_that_spark_would_change_is_found(
    tmp_path: Path, record: dict[str, Any], found: str | None, *, is_ascii: bool
) -> None:
    good, bad = json.dumps({"id": 1}), json.dumps(record, ensure_ascii=is_ascii)
    columns = read_columns(DDL)
    path = written(tmp_path, f"{good}\n{bad}\n".encode())
    assert JsonFile(path, Storage(), columns=columns).look().fault == (found and f"line 2: {found}")

    path = written(tmp_path, f"[\n{good},\n{bad}\n]".encode())
    look = JsonFile(path, Storage(), spans_lines=True, columns=columns).look()

    assert look.fault == (found and f"line 1: {found}")


def test_values_are_left_alone_where_the_node_says_how_they_are_written(tmp_path: Path) -> None:
    path = written(tmp_path, b'{"id": 1, "d": "1,5"}\n')

    columns = read_columns(DDL)
    look = JsonFile(path, Storage(), columns=columns, rules=Rules(decimals=False)).look()

    assert look.fault is None
    path = written(tmp_path, b'{"at": "20240101"}\n')
    own = Rules.of({"timestampformat": "yyyyMMdd"}, floats=False)
    assert JsonFile(path, Storage(), columns=columns, rules=own).look().fault is None
    path = written(tmp_path, b'{"on": "20240101"}\n')
    assert JsonFile(path, Storage(), columns=columns, rules=own).look().fault is not None


@pytest.mark.parametrize("ddl", ["id LONG", None])
def test_a_column_that_the_folder_is_too_is_found(tmp_path: Path, ddl: str | None) -> None:
    columns = [] if ddl is None else read_columns(ddl)
    path = written(tmp_path, b'{"id": 1, "s": {"zip": 1}}\n{"id": 2, "Zip": "x"}\n')

    look = JsonFile(path, Storage(), columns=columns, folders=("zip",)).look()

    found = "column Zip is in the file and in the name of its folder"
    assert look.fault == f"line 2: {found}"


# Columns ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "absent"),
    [
        ('{"id": 1, "größe": 2}\n', ("ID", "v")),
        ('{"id": 1}\n{"gr\\u00f6\\u00DFe": 1}\n', ("ID", "v")),
        ('{"id": 1}\n{"gr\\u00F6\\u00DFe": 1, "v": null}\n', ("ID",)),
        ('{"a": "v", "b": "id"}\n', ("id", "ID", "v", "größe")),
        ("[]\n", ()),
    ],
)
def test_a_column_that_no_record_has_is_named(
    tmp_path: Path, content: str, absent: tuple[str, ...]
) -> None:
    columns = [
        *read_columns("id LONG"), *read_columns("ID LONG"), *read_columns("v STRING, `größe` LONG")
    ]  # fmt: skip
    file = JsonFile(written(tmp_path, content.encode()), Storage(), columns=columns)

    assert file.look() == JsonLook(absent=absent)
