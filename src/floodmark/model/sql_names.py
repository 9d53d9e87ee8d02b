"""Names of tables and columns in databases: read as their SQL reads them, written quoted."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

SqlDialect = Literal["postgres", "sqlserver", "mysql", "oracle", "snowflake", "bigquery"]

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_$#]*")
"""A name that needs no quotes: only such a one is folded to the database's case."""
_FOLDING: dict[str, Callable[[str], str]] = {
    "postgres": str.lower,
    "oracle": str.upper,
    "snowflake": str.upper,
}
_QUOTES = {"sqlserver": ("[", "]"), "mysql": ("`", "`"), "bigquery": ("`", "`")}
_STANDARD = ('"', '"')
_MAX_PARTS = 4


def quoted_for(dialect: SqlDialect, name: str) -> str:
    """One identifier, whatever is in it; raises ValueError where the database cannot have it.

    >>> quoted_for("postgres", 'a"b'), quoted_for("sqlserver", "a]b"), quoted_for("mysql", "a`b")
    ('"a""b"', '[a]]b]', '`a``b`')
    """
    if not name or "\0" in name or (dialect == "oracle" and '"' in name):
        raise ValueError(f"not a name of {dialect}: {name!r}")
    opening, closing = _QUOTES.get(dialect, _STANDARD)
    if dialect == "bigquery":
        return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"
    return opening + name.replace(closing, closing * 2) + closing


def qualified(dialect: SqlDialect, parts: tuple[str, ...]) -> str:
    """A name of several parts.

    >>> qualified("postgres", ("sales", "Orders"))
    '"sales"."Orders"'
    """
    return ".".join(quoted_for(dialect, part) for part in parts)


def name_parts(dialect: SqlDialect, text: str) -> tuple[str, ...]:
    """The parts of a name as a user writes it: quoted ones as they are, others as SQL folds them.

    Raises ValueError for an empty part, an open quote or more than four parts.

    >>> name_parts("postgres", 'Sales."Odd.Name"'), name_parts("oracle", "hr.emp")
    (('sales', 'Odd.Name'), ('HR', 'EMP'))
    """
    parts, rest = [], text.strip()
    while True:
        part, rest = _first_part(dialect, rest)
        parts.append(part)
        if not rest:
            break
        if not rest.startswith("."):
            raise ValueError(f"not the name of a table: {text!r}")
        rest = rest[1:]
    if len(parts) > _MAX_PARTS:
        raise ValueError(f"too many parts: {text!r}")
    return tuple(parts)


def column_name(dialect: SqlDialect, text: str) -> str:
    """A column as a user writes it; raises ValueError if it has several parts."""
    parts = name_parts(dialect, text)
    if len(parts) != 1:
        raise ValueError(f"not one column: {text!r}")
    return parts[0]


def _first_part(dialect: SqlDialect, text: str) -> tuple[str, str]:
    opening, closing = _QUOTES.get(dialect, _STANDARD)
    if text.startswith(opening):
        return _quoted_part(text, closing, escapes=dialect == "bigquery")
    name, dot, rest = text.partition(".")
    if not name.strip() or set(name) & {"\0", opening, closing}:
        raise ValueError(f"an empty part of a name, or a quote in the middle: {text!r}")
    if _PLAIN.fullmatch(name):
        name = _FOLDING.get(dialect, str)(name)
    return name, dot + rest


def _quoted_part(text: str, closing: str, *, escapes: bool) -> tuple[str, str]:
    name, at = "", 1
    while at < len(text):
        two = text[at : at + 2]
        if (escapes and two[:1] == "\\" and len(two) == 2) or (not escapes and two == closing * 2):
            name, at = name + two[1], at + 2
        elif text[at] == closing:
            if not name:
                break
            return name, text[at + 1 :]
        else:
            name, at = name + text[at], at + 1
    raise ValueError(f"a quoted name is empty or does not end: {text!r}")
