from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.model.sql_names import (
    SqlDialect,
    column_name,
    name_parts,
    qualified,
    quoted_for,
)

DIALECTS = list(get_args(SqlDialect))
names = st.text(st.characters(exclude_characters='\0"'), min_size=1, max_size=12)


@given(st.sampled_from(DIALECTS), st.lists(names, min_size=1, max_size=4))
def test_a_quoted_name_is_read_back_as_it_is(dialect: SqlDialect, parts: list[str]) -> None:
    assert name_parts(dialect, qualified(dialect, tuple(parts))) == tuple(parts)


@pytest.mark.parametrize(
    ("dialect", "expected"),
    [
        ("postgres", ("sales", "orders")),
        ("oracle", ("SALES", "ORDERS")),
        ("snowflake", ("SALES", "ORDERS")),
        ("sqlserver", ("Sales", "Orders")),
        ("mysql", ("Sales", "Orders")),
        ("bigquery", ("Sales", "Orders")),
    ],
)
def test_plain_names_are_folded_as_the_database_folds_them(
    dialect: SqlDialect, expected: tuple[str, ...]
) -> None:
    assert name_parts(dialect, "Sales.Orders") == expected


def test_names_that_sql_would_not_take_plain_are_kept_as_they_are() -> None:
    assert name_parts("postgres", "Sales.My Table") == ("sales", "My Table")
    assert name_parts("bigquery", "my-project.ds.t") == ("my-project", "ds", "t")
    assert name_parts("sqlserver", "[a.b]].c].[d]") == ("a.b].c", "d")


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", 'a."b', '""', 'a"."', "a.b.c.d.e", '"a"b'])
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"name|part"):
        name_parts("postgres", text) and column_name("postgres", text)


@pytest.mark.parametrize(
    ("dialect", "name"), [("postgres", ""), ("mysql", "a\0"), ("oracle", 'a"')]
)
def test_what_a_database_cannot_name_is_refused(dialect: SqlDialect, name: str) -> None:
    with pytest.raises(ValueError, match="not a name"):
        quoted_for(dialect, name)
