from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.model.names import matching, quoted

NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)


@given(NAMES)
def test_a_quoted_name_reads_back_as_it_was(name: str) -> None:
    assert quoted(name)[1:-1].replace("``", "`") == name


@given(NAMES)
def test_no_single_backtick_is_left_inside(name: str) -> None:
    inner = quoted(name)[1:-1]

    assert "`" not in inner.replace("``", "")


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_names_that_cannot_be_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not a column name"):
        quoted(name)


@pytest.mark.parametrize(
    ("name", "columns", "found"),
    [
        ("id", ["ID", "id"], "id"),
        ("id", ["ID"], "ID"),
        ("id", ["ID", "Id"], None),
        ("id", ["other"], None),
    ],
)
def test_a_name_means_its_column_or_the_only_one_of_another_case(
    name: str, columns: list[str], found: str | None
) -> None:
    assert matching(name, columns) == found
