"""What can be wrong with a step, each as one error in the user's words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence, Sized
from typing import TypeVar

from floodmark.config.text import nearest
from floodmark.errors import TransformError
from floodmark.next_steps import command
from floodmark.transforms.sql import NotSqlError

NOTHING_DONE = "nothing was read or written"
NEXT = "correct the step, then: " + command("validate")
MAX_LISTED = 30

_Parsed = TypeVar("_Parsed")


class NotYetKnownError(Exception):
    """What a transform needs to know is known only once Spark has looked at the input."""


def fault(
    code: str,
    title: str,
    *,
    found: str | None = None,
    allowed: str | None = None,
    column: str | None = None,
    close: str | None = None,
    next: str = NEXT,
    details: dict[str, str] | None = None,
) -> TransformError:
    """An error of a step; the list of steps adds which step it is."""
    error = TransformError(
        code, title, found=found, allowed=allowed, state=NOTHING_DONE, next=next, details=details
    )
    error.column, error.nearest = column, close
    return error


def listed(names: Sequence[str], word: str | None = None) -> str:
    """Names for an error: not too many, and the nearest match where there is one."""
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    text = ", ".join(names[:MAX_LISTED]) + more or "none"
    close = nearest(word, list(names)) if word else None
    return f"{text}; nearest: {close}" if close else text


def no_column(
    name: str, known: Sequence[str], frame: str, key: str | None = None
) -> TransformError:
    return fault(
        "FM-TRANSFORM-003",
        f'{frame} has no column "{name}"',
        found=f"the name in {key}" if key else None,
        allowed=listed(known, name),
        column=name,
        close=nearest(name, list(known)),
    )


def wrong_type(column: str, found: str, allowed: Sequence[str]) -> TransformError:
    return fault(
        "FM-TRANSFORM-004",
        f'column "{column}" has a type that this transform does not take',
        found=found,
        allowed=", ".join(allowed),
        column=column,
        next="cast it in a step before this one (cast_columns), or name another column",
    )


def no_frame(name: str, known: Sequence[str]) -> TransformError:
    return fault(
        "FM-TRANSFORM-007",
        f'there is no frame "{name}" that this step could read',
        allowed=listed(known, name),
        close=nearest(name, list(known)),
        next="name a node of the pipeline, and add it to depends_on",
    )


def wrong_parameters(found: str, allowed: str | None = None) -> TransformError:
    return fault("FM-TRANSFORM-002", "the parameters are wrong", found=found, allowed=allowed)


def require_unique(names: Iterable[str], key: Callable[[str], str], frame: str) -> None:
    """Raise FM-TRANSFORM-005 if two names mean the same column."""
    seen: dict[str, str] = {}
    for name in names:
        if key(name) in seen:
            raise _twice(seen[key(name)], name, frame)
        seen[key(name)] = name


def _twice(first: str, second: str, frame: str) -> TransformError:
    alike = "" if first == second else ", which differ only in case"
    return fault(
        "FM-TRANSFORM-005",
        f'{frame} would have two columns "{second}"',
        found=f"{first} and {second}{alike}",
        column=second,
        next="rename or drop one of them in a step before, or choose another name",
    )


def require_columns(outputs: Sized) -> None:
    """Raise FM-TRANSFORM-002 if nothing would be left."""
    if not outputs:
        raise wrong_parameters("no column would be left", "at least one column")


def parsed(parse: Callable[[str], _Parsed], text: str, key: str) -> _Parsed:
    """What `parse` makes of a text; raises FM-TRANSFORM-006 if it is not that."""
    try:
        return parse(text)
    except NotSqlError as error:
        raise fault(
            "FM-TRANSFORM-006",
            f"the SQL of {key} cannot be used: {error}",
            found=text[:200],
            allowed="one expression over the columns of input" if key != "sql" else "one query",
        ) from error


_PLAN = re.compile(r";\n'?[A-Z]\w+\b.*", re.DOTALL)


def without_plan(text: str) -> str:
    r"""An error of Spark without the tree of its plan, which it appends where it cannot analyse.

    >>> without_plan("no such column; line 1 pos 7;\n'Project ['nope]\n+- Relation [id#1]")
    'no such column; line 1 pos 7'
    """
    return _PLAN.sub("", text)
