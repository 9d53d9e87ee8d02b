"""The cursor that a query itself names: the column it compares with the start of its window."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache

_COMPARED = re.compile(
    r"""(?P<column>"(?:[^"]|"")+"|[A-Za-z_][\w$]*)\s*>=?\s*(?P<start>:window_start\b|\()""",
    re.IGNORECASE,
)
_PARAMETER = re.compile(r":window_(start|end)\b", re.IGNORECASE)
_AGGREGATE = re.compile(
    r"^\s*SELECT\b.*\bFROM\s+(?P<table>[\w.\"`\[\]]+)", re.IGNORECASE | re.DOTALL
)


def implied_cursor(query: str, own_names: Collection[str]) -> str | None:
    """The column that is compared with `:window_start`, or with a sub-query over the own target.

    None where there is no such comparison, or there are several columns.

    >>> implied_cursor("SELECT * FROM orders o WHERE o.at > :window_start", ())
    'at'
    >>> implied_cursor("SELECT * FROM t WHERE at > (SELECT MAX(at) FROM raw.t)", ["raw.t"])
    'at'
    """
    return _implied(query, tuple(name.lower() for name in own_names))


def needs_cursor(query: str | None, own_names: Collection[str]) -> bool:
    """Whether a query asks for a part of its rows that only a cursor could tell.

    >>> needs_cursor("SELECT * FROM t", ["raw.t"])
    False
    >>> needs_cursor("SELECT * FROM t WHERE a + b > (SELECT MAX(a) FROM raw.t)", ["raw.t"])
    True
    """
    if query is None:
        return False
    names = tuple(name.lower() for name in own_names)
    opened = (match.end() for match in re.finditer(r"\(", query))
    return bool(_PARAMETER.search(query)) or any(_reads(query[at:], names) for at in opened)


@lru_cache(maxsize=256)
def _implied(query: str, own_names: tuple[str, ...]) -> str | None:
    found = {
        match["column"]
        for match in _COMPARED.finditer(query)
        if match["start"] != "(" or _reads(query[match.end() :], own_names)
    }
    return found.pop() if len(found) == 1 else None


def _reads(text: str, own_names: tuple[str, ...]) -> bool:
    """Whether a sub-query that begins here is over the own target."""
    match = _AGGREGATE.match(text)
    table = re.sub(r"[\"`\[\]]", "", match["table"]).lower() if match else ""
    return table in own_names
