"""What can be wrong with a node that reads a database, without asking the database."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Protocol

from floodmark.config.project.reads import IncrementalSettings, ReadSettings
from floodmark.config.project.resolved import ResolvedNode
from floodmark.config.text.places import KeyPath
from floodmark.errors import ConfigError, FloodmarkError
from floodmark.model import cursor_marks
from floodmark.model.sql_names import SqlDialect, column_name, name_parts

Problem = tuple[KeyPath, FloodmarkError]


class QuerySql(Protocol):
    """What is known of a query of a database without asking the database."""

    def query_problem(
        self, dialect: SqlDialect, query: str, own: Collection[str], /
    ) -> FloodmarkError | None:
        """Why a query cannot be read; `own` are names of the node's target."""
        ...

    def used_parameters(self, dialect: SqlDialect, query: str, /) -> Collection[str]:
        """The parameters of a window that it uses; none for a query that cannot be read."""
        ...

    def unbound(self, found: str, allowed: str, /) -> FloodmarkError:
        """The error for a query that cannot be bound to its window."""
        ...


def database_problems(node: ResolvedNode, sql: QuerySql) -> Iterator[Problem]:
    """What is wrong with the read and the `first_run_query` of a node, with the path of the key."""
    if node.read is None or node.kind != "database":
        return
    read, connection = node.read.settings, node.read.connection
    dialect: Any = connection.type if connection is not None else None
    yield from _names(read, dialect)
    if read.incremental is not None:
        yield from _cursor(read.incremental)
    yield from _queries(node, read, dialect, sql)


def _names(read: ReadSettings, dialect: SqlDialect) -> Iterator[Problem]:
    if read.table is not None:
        try:
            name_parts(dialect, read.table)
        except ValueError as error:
            yield ("read", "table"), _wrong(str(error), f"the name of a table of {dialect}")
    if read.partition is not None:
        try:
            column_name(dialect, read.partition.column)
        except ValueError as error:
            yield ("read", "partition", "column"), _wrong(str(error), "the name of a column")
    for key in ("cursor", "keys"):
        said = getattr(read.incremental, key) if read.incremental is not None else None
        for name in [said] if isinstance(said, str) else said or ():
            try:
                column_name(dialect, name)
            except ValueError as error:
                yield ("read", "incremental", key), _wrong(str(error), "the name of a column")


def _cursor(said: IncrementalSettings) -> Iterator[Problem]:
    if said.baseline is None or said.baseline == "latest":
        return
    try:
        cursor_marks.guessed(said.baseline, said.type)
    except ValueError as error:
        yield (
            ("read", "incremental", "baseline"),
            _wrong(str(error), f"a value of type {said.type}"),
        )


def _queries(
    node: ResolvedNode, read: ReadSettings, dialect: SqlDialect, sql: QuerySql
) -> Iterator[Problem]:
    first = node.write.settings.first_run_query if node.write is not None else None
    baseline = read.incremental.baseline if read.incremental is not None else None
    if first is not None and baseline is not None:
        found = "baseline, and a first_run_query that loads everything"
        yield ("read", "incremental", "baseline"), _wrong(found, "one of the two")
    if first is not None:
        path = ("write", "first_run_query")
        problem = sql.query_problem(dialect, first, ())
        if problem is not None:
            yield path, problem
        if sql.used_parameters(dialect, first):
            found = "a first_run_query with a parameter of a window"
            yield path, sql.unbound(found, "a query that loads everything")
    if read.query is None:
        return
    problem = sql.query_problem(dialect, read.query, node.own_names)
    if problem is not None:
        yield ("read", "query"), problem
    starts_nowhere = "window_start" in sql.used_parameters(dialect, read.query)
    if starts_nowhere and first is None and baseline is None and node.cursor is not None:
        allowed = "write.first_run_query or a baseline: a first run has no earlier mark"
        yield ("read", "query"), sql.unbound(":window_start in a first run", allowed)


def _wrong(found: str, allowed: str) -> ConfigError:
    return ConfigError(
        "FM-CONFIG-015",
        "a read of a database cannot be as it is said",
        found=found,
        allowed=allowed,
        state="nothing was read or written",
        next="correct the key",
    )
