"""Parameters of a user's query, found by its tokens: never in strings, comments or quoted names."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from floodmark.errors import SourceError
from floodmark.model.sql_names import SqlDialect
from floodmark.next_steps import command

Parameter = Literal["window_start", "window_end"]

SPELLINGS: dict[str, Parameter] = {
    ":window_start": "window_start",
    ":window_end": "window_end",
    "@last_load_timestamp": "window_start",
    "@last_run_timestamp": "window_start",
}
_SQLGLOT: dict[str, str] = {"sqlserver": "tsql"}
_NEAR = 0.75
"""So like a parameter is a name that it is taken for a misspelled one."""


def parameters_of(dialect: SqlDialect, query: str) -> set[Parameter]:
    """The parameters that a query uses; raises FM-SOURCE-030 for a misspelled one."""
    return {name for name, _, _ in _found(dialect, query)}


def bound(dialect: SqlDialect, query: str, values: Mapping[Parameter, str]) -> str:
    """The query with literals in the place of its parameters; everything else as it was.

    Raises FM-SOURCE-030 if a parameter has no value: NULL would silently give no rows.
    """
    parts, at = [], 0
    for name, start, end in _found(dialect, query):
        if name not in values:
            raise unbound(
                f"{query[start:end]} has no value",
                "a first_run_query or a baseline for the first run, which has no earlier mark",
            )
        parts += [query[at:start], values[name]]
        at = end
    return "".join([*parts, query[at:]])


def unbound(found: str, allowed: str) -> SourceError:
    """The error for a query that cannot be bound to its window."""
    return SourceError(
        "FM-SOURCE-030",
        "a query cannot be bound to its window",
        found=found,
        allowed=allowed,
        state="nothing was read or written",
        next="correct the query, then: " + command("validate"),
    )


def sqlglot_name(dialect: SqlDialect) -> str:
    """What sqlglot calls the dialect."""
    return _SQLGLOT.get(dialect, dialect)


def tokens_of(dialect: SqlDialect, query: str) -> list[Any]:
    """The tokens of a query; raises FM-SOURCE-030 if a string or comment in it does not end."""
    import sqlglot
    from sqlglot.errors import TokenError

    try:
        found = sqlglot.Dialect.get_or_raise(sqlglot_name(dialect)).tokenize(query)
    except TokenError as error:
        raise unbound(str(error), f"SQL of {dialect}") from error
    return list(found)


def _found(dialect: SqlDialect, query: str) -> Iterator[tuple[Parameter, int, int]]:
    """Each parameter with its place, from start to end (excluded)."""
    tokens = tokens_of(dialect, query)
    for number, token in enumerate(tokens[:-1]):
        name = tokens[number + 1]
        before = tokens[number - 1] if number else None
        if token.text not in (":", "@") or name.start != token.end + 1:
            continue
        # `payload:window_start` is a path into JSON, and `a[1:n]` a slice.
        if before is not None and before.end + 1 == token.start and _is_value(query[before.end]):
            continue
        spelled = query[token.start : name.end + 1]
        parameter = SPELLINGS.get(spelled.lower())
        if parameter is not None:
            yield parameter, token.start, name.end + 1
        elif near := difflib.get_close_matches(spelled, SPELLINGS, n=1, cutoff=_NEAR):
            raise unbound(spelled, f"{', '.join(SPELLINGS)}; nearest: {near[0]}")


def _is_value(character: str) -> bool:
    return character.isalnum() or character in "_\"'`])"
