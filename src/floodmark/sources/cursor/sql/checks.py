"""Whether a query of a database can be bound to a window, told from its text alone."""

from __future__ import annotations

from collections.abc import Collection

from floodmark.errors import FloodmarkError
from floodmark.model.sql_names import SqlDialect
from floodmark.sources.cursor.sql.own_target import own_subqueries
from floodmark.sources.cursor.sql.parameters import parameters_of, unbound
from floodmark.sources.cursor.sql.queries import single_statement

__all__ = ["query_problem", "unbound", "used_parameters"]


def query_problem(dialect: SqlDialect, query: str, own: Collection[str]) -> FloodmarkError | None:
    """Why a query cannot be read; `own` are the names under which it may know its own target."""
    try:
        single_statement(dialect, query)
        parameters_of(dialect, query)
        own_subqueries(dialect, query, own)
    except FloodmarkError as error:
        return error
    return None


def used_parameters(dialect: SqlDialect, query: str) -> Collection[str]:
    """The parameters of a window that a query uses; none for one that cannot be read."""
    try:
        return parameters_of(dialect, query)
    except FloodmarkError:
        return ()
