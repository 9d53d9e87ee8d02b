"""What an error of PostgreSQL means, by its SQLSTATE, and what of its text may be shown.

row        one of the rows is to blame: found by bisection, so that the others can be written
unclear    a row may be to blame, or what was asked: without rows the same is tried to learn it
transient  the same may succeed later: connections, deadlocks, resources, shutdowns
lasting    somebody has to mend something: names, rights, syntax
"""

from __future__ import annotations

import re
from typing import Literal

from floodmark.secrecy import masked

Fault = Literal["row", "unclear", "transient", "lasting"]
OF_ROWS: tuple[Fault, ...] = ("row", "unclear")

DISK_FULL = "53100"
_ROW_CLASSES = ("22", "23", "44", "54", "P0")
"""Data, constraints, WITH CHECK OPTION, limits of the program, refusals by triggers."""
_ROW_SECURITY = "ExecWithCheckOptions"
"""The function of the server that refuses a row for a policy, with the state of missing rights."""
_TRANSIENT_CLASSES = ("08", "40", "53", "57")
"""Connections, rolled back by the server, resources, intervention of an operator."""
_TRANSIENT_STATES = frozenset(("25006", "55006", "55P03", "58030"))
"""A server that is read only (a standby), in use, lock not available, input and output."""

LOCK_NOT_AVAILABLE = "55P03"
_OF_VALUES = ("22",)
"""The class of SQLSTATE for data that a type does not take."""
_OF_FUNCTIONS = ("P0",)
"""That of what PL/pgSQL raises; with ERRCODE it raises any other state too."""
_LANGUAGES = frozenset(("pl_exec.c", "plperl.c", "plpy_elog.c", "plpy_plpymodule.c", "pltcl.c"))
"""The files of the server whose errors have the text of somebody's function."""
_PLPGSQL, _RAISE = "pl_exec.c", "exec_stmt_raise"
"""PL/pgSQL tells its own mistakes from the same file; RAISE is what the author wants to be told."""
_OF_TYPES = ("42601", "42602", "42622", "XX000", "38", "39")
"""What types say of a value beside class 22: tsvector, jsonpath, hstore, ltree, PostGIS."""
TEXT_OF_A_FUNCTION = "text of a function of the database, left out: it may show values"
_QUOTATION = re.compile("[\"'`\u00ab\u00bb\u2018-\u201f\u2039\u203a\u300c-\u300f]")
_BYTES = re.compile(r"(?:0x[0-9a-fA-F]+\s*)+")


def fault(error: BaseException) -> Fault:
    """Which of the four an error of the driver or the server is."""
    import psycopg

    state = sqlstate(error)
    if state[:2] in _ROW_CLASSES:
        return "row"
    if state[:2] in _TRANSIENT_CLASSES or state in _TRANSIENT_STATES:
        return "transient"
    if is_raised_by_a_function(error) or _is_by_a_policy(error):
        return "row"
    if state:
        return "unclear" if is_of_an_execution(error) else "lasting"
    # psycopg refuses a NUL or a lone surrogate itself: there is no state then.
    if isinstance(error, psycopg.DataError | UnicodeError):
        return "row"
    return "transient" if is_lost_connection(error) else "lasting"


def _is_by_a_policy(error: BaseException) -> bool:
    return getattr(getattr(error, "diag", None), "source_function", None) == _ROW_SECURITY


def sqlstate(error: BaseException) -> str:
    """The five characters by which PostgreSQL classifies an error; empty where it said nothing."""
    return str(getattr(error, "sqlstate", None) or "")


def is_lost_connection(error: BaseException) -> bool:
    """Whether the connection, and with it every answer that was still to come, is gone.

    Class 08 is the connection, 57P the server that shuts down; without a state the socket broke.
    """
    import psycopg

    state = sqlstate(error)
    if state:
        return state[:2] == "08" or state.startswith("57P")
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)


def said(error: BaseException) -> str:
    """What the server or the driver said, with its state, on one line, without values and secrets.

    Only the first part of it: the detail of the server shows the values of whole rows. Where the
    first part is about a value, the value is left out; what a trigger raises is left out whole.
    """
    state = sqlstate(error)
    primary = getattr(getattr(error, "diag", None), "message_primary", None)
    text = masked(" ".join((primary or str(error)).split()))
    if state.startswith(_OF_FUNCTIONS) or _source_file(error) in _LANGUAGES:
        text = f"{_condition(error)}: {TEXT_OF_A_FUNCTION}"
    elif state.startswith(_OF_VALUES) or is_of_an_execution(error):
        text = f"{_condition(error)}: {without_values(text)}"
    return f"{text} (SQLSTATE {state})" if state else f"{type(error).__name__}: {text}"


def is_raised_by_a_function(error: BaseException) -> bool:
    """Whether a function of the database raised the error on purpose, in whatever state."""
    diagnosis, source = getattr(error, "diag", None), _source_file(error)
    if source == _PLPGSQL:
        return getattr(diagnosis, "source_function", None) == _RAISE
    return source in _LANGUAGES


def is_of_an_execution(error: BaseException) -> bool:
    """Whether an error with a state of a statement's text came while the statement was at work.

    Types use those states for values that they cannot read. What is wrong with a statement itself
    has a position in it, and what is wrong in a function has that function in its context.
    """
    diagnosis = getattr(error, "diag", None)
    if diagnosis is None or not sqlstate(error).startswith(_OF_TYPES):
        return False
    if diagnosis.statement_position or diagnosis.internal_position:
        return False
    # The innermost line comes first: that of a COPY names no function.
    return (diagnosis.context or "COPY ").startswith("COPY ")


def _source_file(error: BaseException) -> str | None:
    found: str | None = getattr(getattr(error, "diag", None), "source_file", None)
    return found


def without_values(text: str) -> str:
    """A message of the server about a value, without what it quotes of it.

    Whatever is between the first and the last quotation mark is left out, since a value may hold
    such marks itself; bytes in hexadecimal are parts of a value too.

    >>> without_values('invalid input value for enum kind: "HIV "positive""')
    'invalid input value for enum kind: …'
    >>> without_values('value "12345678901" is out of range for type integer')
    'value … is out of range for type integer'
    """
    marks = [match.start() for match in _QUOTATION.finditer(text)]
    if marks:
        end = marks[-1] + 1 if len(marks) > 1 else len(text)
        text = f"{text[: marks[0]]}…{text[end:]}"
    return _BYTES.sub("…", text)


def _condition(error: BaseException) -> str:
    """The name of an error's state, as InvalidTextRepresentation."""
    return type(error).__name__


def is_refused_login(error: BaseException) -> bool:
    """Whether the server does not let this user in, or has no such database: nothing that passes."""
    return sqlstate(error).startswith(("28", "3D"))
