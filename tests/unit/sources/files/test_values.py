"""What Spark would change in a text file, or leave out of it: found before it is read."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest

from floodmark.deltalog import Storage
from floodmark.errors import SourceError
from floodmark.sources.files.csv import CsvFile, Dialect
from floodmark.sources.files.values import is_exact, other_characters, second_value


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

        assert file.changes_decimals(file.look(), kinds) == changes
        if changes:
            assert "column d is not exactly a DECIMAL(12, 2)" in str(file.misfit(kinds))


# JSON ---------------------------------------------------------------------------------------------


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

    assert second_value(path, Storage(), spans_lines=False) == found


def test_a_second_value_of_a_file_that_is_one_value_is_found(tmp_path: Path) -> None:
    one, two = '{"a":\n [{},\n {}]}\n', '{"a": 1}\n\n{"a": 2}\n'
    path = written(tmp_path, one.encode(), "a.json")
    assert second_value(path, Storage(), spans_lines=True) is None
    path = written(tmp_path, two.encode(), "a.json")
    found = second_value(path, Storage(), spans_lines=True)
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

        found = second_value(path, Storage(), spans_lines=False, block_bytes=block)

        wanted = None if bad is None else f"line {bad + 1}: two values in one line"
        assert found == wanted, lines
