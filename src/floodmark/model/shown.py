"""Results as people see them in a terminal and in a notebook: a few lines, or a small table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

MOST_NAMES = 3


def lines(title: str, *rest: str) -> str:
    """A title with what there is to say below it; empty lines are left out."""
    return "\n  ".join([title, *filter(None, rest)])


def html_table(title: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table for a notebook; every value is text, never markup."""
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table><caption>{escape(title)}</caption><tr>{head}</tr>{body}</table>"


def several(names: Iterable[str]) -> str:
    """The first names, and how many more there are."""
    every = list(names)
    more = len(every) - MOST_NAMES
    return ", ".join(every[:MOST_NAMES]) + (f" and {more:,} more" if more > 0 else "")


def count(number: int | None, noun: str) -> str:
    """`1,204 rows`, `1 row`, or `unknown rows` where nobody knows."""
    if number is None:
        return f"unknown {noun}s"
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _cell(value: object) -> str:
    return f"<td>{'' if value is None else escape(str(value))}</td>"
