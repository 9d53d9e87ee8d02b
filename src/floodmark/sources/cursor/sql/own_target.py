"""Sub-queries of a source's query over the lake: `WHERE at > (SELECT MAX(at) FROM raw.orders)`.

The database does not know the target of the node. Such a scalar sub-query is cut out, evaluated on
the lake, and its value bound as a typed literal.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from floodmark.model.sql_names import SqlDialect
from floodmark.sources.cursor.sql.parameters import sqlglot_name, tokens_of, unbound


@dataclass(frozen=True, slots=True)
class OwnSubquery:
    """A scalar sub-query over the node's own target."""

    lake_sql: str
    """The same query in Spark's dialect."""
    start: int
    end: int
    """Its place in the source's query, brackets and all; the end is excluded."""


def own_subqueries(
    dialect: SqlDialect, query: str, targets: Collection[str]
) -> tuple[OwnSubquery, ...]:
    """The sub-queries that read nothing but `targets`, the names under which the target is known.

    Raises FM-SOURCE-030 where one reads the target together with other tables, gives more than one
    column, or cannot be parsed although it names the target.
    """
    known = {name.lower() for name in targets}
    found: list[OwnSubquery] = []
    for start, end in _nested_selects(dialect, query):
        is_inside = any(other.start <= start and end <= other.end for other in found)
        inner = query[start + 1 : end - 1]
        if not is_inside and any(name in _spelled(inner) for name in known):
            own = _own(dialect, inner, known)
            if own is not None:
                found.append(OwnSubquery(own, start, end))
    return tuple(found)


def bound_subqueries(query: str, found: Sequence[OwnSubquery], literals: Sequence[str]) -> str:
    """The query with the values in the place of the sub-queries."""
    for own, value in sorted(zip(found, literals, strict=True), key=lambda pair: -pair[0].start):
        query = query[: own.start] + value + query[own.end :]
    return query


def _nested_selects(dialect: SqlDialect, query: str) -> Iterator[tuple[int, int]]:
    """The places of all bracketed SELECTs, outer ones before those inside them."""
    tokens = tokens_of(dialect, query)
    for number, token in enumerate(tokens[:-1]):
        if token.text == "(" and tokens[number + 1].text.upper() == "SELECT":
            closing = _closing(tokens, number)
            if closing is not None:
                yield token.start, closing + 1


def _closing(tokens: Sequence[Any], opening: int) -> int | None:
    depth = 0
    for token in tokens[opening:]:
        is_name = token.token_type.name in ("IDENTIFIER", "STRING")
        depth += 0 if is_name else {"(": 1, ")": -1}.get(token.text, 0)
        if depth == 0:
            return int(token.end)
    return None


def _own(dialect: SqlDialect, inner: str, known: Collection[str]) -> str | None:
    """The sub-query in Spark's dialect if it reads the target alone; None if it does not read it."""
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        parsed = sqlglot.parse_one(inner, dialect=sqlglot_name(dialect))
    except SqlglotError as error:
        raise unbound(f"{inner[:200]}: {error}"[:500], f"SQL of {dialect}") from error
    tables = {
        ".".join(part.name for part in table.parts).lower() for table in parsed.find_all(exp.Table)
    }
    if not tables & set(known):
        return None
    if tables - set(known):
        others = ", ".join(sorted(tables - set(known)))
        raise unbound(
            f"a sub-query that reads the target together with {others}",
            "a sub-query over the target alone: it is evaluated on the lake",
        )
    if not isinstance(parsed, exp.Select) or len(parsed.expressions) != 1:
        raise unbound(f"({inner[:200]})", "a sub-query that gives one value")
    return parsed.sql(dialect="spark")


def _spelled(text: str) -> str:
    """The text without quotes around names and blanks around dots: a first, quick look."""
    plain = "".join(character for character in text if character not in '"`[] \t\n')
    return plain.lower()
