"""What the sub-queries over a node's own target give, looked up in the lake."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from floodmark.deltalog import Storage, is_delta_table
from floodmark.model.cursor_marks import mark_of
from floodmark.model.sql_names import SqlDialect
from floodmark.sources.cursor.sql.literals import literal
from floodmark.sources.cursor.sql.own_target import OwnSubquery, bound_subqueries, own_subqueries
from floodmark.sources.cursor.sql.parameters import sqlglot_name, unbound
from floodmark.sources.cursor.sql.queries import SqlRelation

_OWN = "floodmark_own"


@dataclass(frozen=True)
class OwnTarget:
    """The target of the node that reads, by the names under which queries know it."""

    names: tuple[str, ...]
    place: Callable[[], str | None]
    """Its absolute path; None for one that only a catalog knows."""
    storage: Storage = field(default_factory=Storage)

    def bind(self, dialect: SqlDialect, query: str, spark: Any) -> str | None:
        """The query with the values of its sub-queries; None where only Spark could look.

        Raises FM-SOURCE-030 for a sub-query that gives no value: NULL would silently give no rows.
        """
        found = own_subqueries(dialect, query, self.names)
        if not found:
            return query
        path = self.place()
        if path is None and spark is None:
            return None
        is_there = path is None or is_delta_table(path, self.storage)
        values = []
        for own in found:
            inner = query[own.start + 1 : own.end - 1]
            try:
                value = self._value(own, path, spark) if is_there else None
            except _NotUnderstood:
                return None
            values.append(_otherwise(dialect, inner) if value is None else _said(dialect, value))
        return bound_subqueries(query, found, values)

    def is_named(self, relation: SqlRelation) -> bool:
        """Whether the query of a relation has a sub-query over the target."""
        query = relation.query
        return query is not None and bool(own_subqueries(relation.dialect, query, self.names))

    def _value(self, own: OwnSubquery, path: str | None, spark: Any) -> Any:
        if path is None:
            return _by_spark(spark, own.lake_sql)
        from deltalake import DeltaTable, QueryBuilder
        from deltalake.exceptions import DeltaError

        table = DeltaTable(path, storage_options=dict(self.storage.options))
        try:
            rows = pa.table(
                QueryBuilder().register(_OWN, table).execute(_over(own.lake_sql, _OWN)).read_all()
            )
        except DeltaError as error:  # a function that delta-rs does not have
            if spark is None:
                raise _NotUnderstood from error
            return _by_spark(spark, _over(own.lake_sql, f"delta.`{path}`", "spark"))
        return rows.column(0)[0].as_py() if rows.num_rows else None


def _by_spark(spark: Any, lake_sql: str) -> Any:
    from floodmark.sources.cursor.jdbc import exact_row

    return exact_row(spark.sql(lake_sql))[0]


class _NotUnderstood(Exception):
    """Only Spark could tell what a sub-query gives."""


def _over(lake_sql: str, place: str, dialect: str = "postgres") -> str:
    """The first part of the sub-query's value, over a table that is given otherwise.

    What a COALESCE says beyond that may be of another type; see `_otherwise`.
    """
    import sqlglot
    from sqlglot import exp

    parsed = sqlglot.parse_one(lake_sql, dialect="spark")
    value = parsed.expressions[0].unalias()
    if isinstance(value, exp.Coalesce):
        parsed.set("expressions", [value.this])
    for table in list(parsed.find_all(exp.Table)):
        name = table.alias_or_name
        table.replace(
            sqlglot.parse_one(f"SELECT * FROM {place} AS `{name}`", dialect="spark").find(exp.Table)
        )
    return parsed.sql(dialect=dialect)


def _said(dialect: SqlDialect, value: Any) -> str:
    try:
        return literal(dialect, mark_of(value, "binary"))
    except ValueError as error:
        raise unbound(
            str(error), "a sub-query that gives a number, a date, a time or text"
        ) from error


def _otherwise(dialect: SqlDialect, inner: str) -> str:
    """What a sub-query gives for a target without rows: the second part of a COALESCE."""
    import sqlglot
    from sqlglot import exp

    select = sqlglot.parse_one(inner, dialect=sqlglot_name(dialect))
    value = select.expressions[0].unalias() if isinstance(select, exp.Select) else None
    if isinstance(value, exp.Coalesce):
        for part in (value.this, *value.expressions):
            if not part.find(exp.AggFunc, exp.Column, exp.Null):
                return f"({part.sql(dialect=sqlglot_name(dialect))})"
    raise unbound(
        f"({inner[:200]}) gives no value: the target has no rows",
        "first_run_query for the first run, or COALESCE(..., a value) in the sub-query",
    )
