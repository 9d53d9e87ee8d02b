from __future__ import annotations

import pytest

from floodmark.errors import SourceError
from floodmark.model.sql_names import SqlDialect
from floodmark.sources.cursor.sql.own_target import bound_subqueries, own_subqueries

SEED = (
    "SELECT * FROM dbo.orders\n"
    "WHERE updated_at > (SELECT COALESCE(MAX(updated_at), '1900-01-01') FROM raw.orders)"
)


@pytest.mark.parametrize("dialect", ["sqlserver", "postgres", "mysql", "oracle", "snowflake"])
def test_the_sub_query_of_the_seed_is_cut_out_and_bound(dialect: SqlDialect) -> None:
    found = own_subqueries(dialect, SEED, ["raw.orders"])

    assert [own.lake_sql for own in found] == [
        "SELECT COALESCE(MAX(updated_at), '1900-01-01') FROM raw.orders"
    ]
    assert bound_subqueries(SEED, found, ["<mark>"]) == (
        "SELECT * FROM dbo.orders\nWHERE updated_at > <mark>"
    )


def test_several_are_bound_each_with_its_value() -> None:
    query = "SELECT 1 FROM t WHERE a > (SELECT MAX(a) FROM [raw].[orders]) AND b > ( SELECT MAX(b) FROM RAW . Orders )"

    found = own_subqueries("sqlserver", query, ["raw.orders"])

    assert bound_subqueries(query, found, ["1", "2"]) == "SELECT 1 FROM t WHERE a > 1 AND b > 2"


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM raw.orders",
        "SELECT * FROM t WHERE a > (SELECT MAX(a) FROM raw.orders_old)",
        "SELECT '(SELECT MAX(a) FROM raw.orders)' FROM t -- (SELECT MAX(a) FROM raw.orders)",
        "SELECT * FROM t WHERE a IN (SELECT a FROM other WHERE note = 'raw.orders')",
    ],
)
def test_what_does_not_read_the_target_stays_as_it_is(query: str) -> None:
    assert own_subqueries("postgres", query, ["raw.orders"]) == ()


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM t WHERE a > (SELECT MAX(o.a) FROM raw.orders o JOIN dbo.x ON true)",
        "SELECT * FROM t WHERE (a, b) > (SELECT MAX(a), MAX(b) FROM raw.orders)",
    ],
)
def test_what_cannot_be_evaluated_on_the_lake_is_refused(query: str) -> None:
    with pytest.raises(SourceError) as caught:
        own_subqueries("postgres", query, ["raw.orders"])

    assert caught.value.code == "FM-SOURCE-030"
