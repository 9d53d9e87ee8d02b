"""What a look at a CSV file finds, against Python's own reader."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from floodmark.deltalog import Storage
from floodmark.errors import SourceError
from floodmark.model.ddl import read_columns
from floodmark.sources.files.csv import CsvFile, Dialect, refuse_other_columns

PLAIN = Dialect.of({}, is_tabbed=False)


def looked_at(tmp_path: Path, content: bytes, dialect: Dialect = PLAIN, block: int = 64) -> CsvFile:
    path = tmp_path / "file.csv"
    path.write_bytes(content)
    return CsvFile(str(path), dialect, Storage(), block)


# Python leaves a return that stands alone without quotes: nobody could read it back.
VALUES = st.lists(st.sampled_from(["a", " ", ",", '"', "\n", "\r\n"]), max_size=6).map("".join)
QUOTING = st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(st.tuples(VALUES, VALUES), max_size=8),
    QUOTING,
    st.sampled_from(["\n", "\r\n"]),
    st.tuples(st.integers(16, 40), st.booleans()),
)
def test_whatever_is_written_by_the_rules_is_sound_and_its_line_breaks_are_seen(
    tmp_path: Path,
    rows: list[tuple[str, str]],
    quoting: int,
    end: str,
    block_and_mark: tuple[int, bool],
) -> None:
    block, has_mark = block_and_mark
    text = io.StringIO(newline="")
    csv.writer(text, quoting=quoting, lineterminator=end).writerows([("id", "t"), *rows])  # type: ignore[arg-type]
    content = (b"\xef\xbb\xbf" if has_mark else b"") + text.getvalue().encode()

    look = looked_at(tmp_path, content, block=block).look()

    assert look.header == ("id", "t")
    assert look.spans_lines == any("\n" in value for row in rows for value in row)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b'id,t\n1,"open\n2,b\n', 2),
        (b'id,t\n1,a\n2,"a \\"b\\" c"\n', 3),
        (b'id,t\n1,"a" \n', 2),
        (b'id,t\n1,"a"b\n2,"c"\n', 2),
        (b'id,t\n1,"two\nlines"\n2,b\r\n', 4),
        (b"id,t\n1,a\n" + b"\0" * 70, 3),
        (b"id,t\n" + b"1,a\n" * 15 + b"\0\0\0\n2,b\n", 17),
    ],
    ids=[
        *("never_closed", "backslashes", "space_behind", "text_behind", "two_ends"),
        *("not_written_yet", "line_of_nuls"),
    ],
)
def test_what_spark_would_read_wrong_is_refused_with_its_line(
    tmp_path: Path, content: bytes, line: int
) -> None:
    with pytest.raises(SourceError) as caught:
        looked_at(tmp_path, content).look()

    assert caught.value.code == "FM-SOURCE-058"
    assert str(caught.value.where).endswith(f"file.csv, line {line}")


def test_a_nul_within_a_value_is_a_character(tmp_path: Path) -> None:
    assert looked_at(tmp_path, b"id,t\n1,a\0b\n2,\0\n").look().has_rows


def test_quotes_in_values_without_quotes_are_characters(tmp_path: Path) -> None:
    look = looked_at(tmp_path, b'id,t\n1,5" pipe\n2,x"y\n3,"a\nb"\n').look()

    assert look.spans_lines
    assert not looked_at(tmp_path, b'id,t\n1,5" pipe\n2,b\r\n').look().spans_lines


@pytest.mark.parametrize(
    ("content", "separator", "is_row"),
    [
        (b"id\tt\n1\ta\n\t\n2\tb\n", "\t", True),
        (b"id\tt\r\n1\ta\r\n\t", "\t", True),
        (b"t\na\n  \nb\n", ",", True),
        (b"id t\n1 a\n \n", " ", True),
        (b"id\tt\n1\ta\n\n2\tb\n\n", "\t", False),
        (b"id\tt\n\ta\n1\t\n", "\t", False),
        (b"id,t\n1,a\n   \n", ",", False),  # white space behind the last row is none
    ],
)
@pytest.mark.parametrize("block", [5, 6, 7, 8, 64])
def test_a_row_of_white_space_alone_is_seen(
    tmp_path: Path, content: bytes, separator: str, block: int, *, is_row: bool
) -> None:
    """Spark leaves such lines out where it reads a file in parts."""
    dialect = Dialect.of({"sep": separator}, is_tabbed=False)

    assert looked_at(tmp_path, content, dialect, block).look().spans_lines == is_row


@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf", b"\n\r\n\n"])
def test_a_file_without_a_line_has_no_rows(tmp_path: Path, content: bytes) -> None:
    assert not looked_at(tmp_path, content).look().has_rows


@pytest.mark.parametrize("name", ["escape", "ESCAPE", "multiLine", "lineSep", "comment", "mode"])
def test_a_file_that_its_node_describes_is_not_judged_by_our_rules(
    tmp_path: Path, name: str
) -> None:
    dialect = Dialect.of({name: "\\"}, is_tabbed=False)

    look = looked_at(tmp_path, b'id,t\n1,"a \\" b\n', dialect).look()

    assert look.spans_lines
    assert dialect.reader_options(spans_lines=True)[name.lower()] == "\\"


def test_the_options_of_a_node_win_in_any_spelling(tmp_path: Path) -> None:
    dialect = Dialect.of({"Delimiter": "\\t", "QUOTE": "'", "nullValue": "NA"}, is_tabbed=False)
    options = dialect.reader_options(spans_lines=False)

    assert (options["escape"], options["nullvalue"], options["multiline"]) == ("'", "NA", "false")
    assert dialect.separator == "\t"
    assert looked_at(tmp_path, b"a\t'b'\n", dialect).look().header == ("a", "b")


def test_the_line_that_does_not_fit_is_found_without_its_value(tmp_path: Path) -> None:
    kinds = {column.name: column.kind for column in read_columns("id INT, t STRING")}

    assert (
        looked_at(tmp_path, b'id,t\n1,"a\nb"\n2\n').misfit(kinds)
        == "line 4: 1 values for 2 columns"
    )
    assert looked_at(tmp_path, b"id,t\n1,a\nxx,b\n").misfit(kinds) == "line 3: column id is no INT"
    assert looked_at(tmp_path, b"id,t\n1,a\n").misfit(kinds) is None


def test_other_columns_are_named() -> None:
    refuse_other_columns("f", ["ID", "t"], ["id", "T"])
    for header, found in (
        (["id"], "missing: t"),
        (["id", "t", "gate"], "not expected: gate"),
        (["t", "id"], "another order or a name twice: t, id"),
    ):
        with pytest.raises(SourceError) as caught:
            refuse_other_columns("in/a.csv", header, ["id", "t"])
        assert (caught.value.code, caught.value.found) == ("FM-SOURCE-057", found)
        assert caught.value.where == "in/a.csv, line 1"


def test_a_first_line_that_is_no_header_is_not_shown_where_values_are_hidden() -> None:
    with pytest.raises(SourceError) as caught:
        refuse_other_columns("f", ["1", "CANARY"], ["id", "iban"], hides_values=True)

    assert "CANARY" not in str(caught.value)
    found = "missing: id, iban; not expected: 2 other names, "
    assert str(caught.value.found).startswith(found)
