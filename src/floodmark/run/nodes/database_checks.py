"""What can be wrong with a node that reads a database, without asking the database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from floodmark.config import ResolvedNode
from floodmark.config.project import IncrementalSettings, ReadSettings
from floodmark.config.text import KeyPath
from floodmark.errors import ConfigError, FloodmarkError
from floodmark.model import cursor_marks
from floodmark.model.sql_names import SqlDialect, column_name, name_parts
from floodmark.sources.sql.own_target import own_subqueries
from floodmark.sources.sql.parameters import parameters_of, unbound
from floodmark.sources.sql.queries import single_statement

Problem = tuple[KeyPath, FloodmarkError]


def database_problems(node: ResolvedNode) -> Iterator[Problem]:
    """What is wrong with the read and the `first_run_query` of a node, with the path of the key."""
    if node.read is None or node.kind != "database":
        return
    read, connection = node.read.settings, node.read.connection
    dialect: Any = connection.type if connection is not None else None
    yield from _names(read, dialect)
    if read.incremental is not None:
        yield from _cursor(read.incremental)
    yield from _queries(node, read, dialect)


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


def _queries(node: ResolvedNode, read: ReadSettings, dialect: SqlDialect) -> Iterator[Problem]:
    first = node.write.settings.first_run_query if node.write is not None else None
    baseline = read.incremental.baseline if read.incremental is not None else None
    if first is not None and baseline is not None:
        found = "baseline, and a first_run_query that loads everything"
        yield ("read", "incremental", "baseline"), _wrong(found, "one of the two")
    if first is not None:
        yield from _query(("write", "first_run_query"), dialect, first, ())
        if not isinstance(_used(dialect, first), FloodmarkError) and _used(dialect, first):
            found = "a first_run_query with a parameter of a window"
            yield ("write", "first_run_query"), unbound(found, "a query that loads everything")
    if read.query is None:
        return
    yield from _query(("read", "query"), dialect, read.query, node.own_names)
    used = _used(dialect, read.query)
    starts_nowhere = not isinstance(used, FloodmarkError) and "window_start" in used
    if starts_nowhere and first is None and baseline is None and node.cursor is not None:
        allowed = "write.first_run_query or a baseline: a first run has no earlier mark"
        yield ("read", "query"), unbound(":window_start in a first run", allowed)


def _query(
    path: KeyPath, dialect: SqlDialect, query: str, own: tuple[str, ...]
) -> Iterator[Problem]:
    try:
        single_statement(dialect, query)
        parameters_of(dialect, query)
        own_subqueries(dialect, query, own)
    except FloodmarkError as error:
        yield path, error


def _used(dialect: SqlDialect, query: str) -> set[Any] | FloodmarkError:
    try:
        return set(parameters_of(dialect, query))
    except FloodmarkError as error:
        return error


def _wrong(found: str, allowed: str) -> ConfigError:
    return ConfigError(
        "FM-CONFIG-015",
        "a read of a database cannot be as it is said",
        found=found,
        allowed=allowed,
        state="nothing was read or written",
        next="correct the key",
    )
