"""What an error of PostgreSQL means for a stream, by its SQLSTATE.

row        one of the records is to blame: found by bisection, becomes a dead letter
unclear    a record may be to blame, or what was asked: without rows the same is tried to learn it
transient  the same batch may succeed later: connections, deadlocks, resources, shutdowns
lasting    somebody has to mend something: names, rights, syntax
"""

from __future__ import annotations

from typing import Literal

from floodmark.errors import StreamError
from floodmark.postgres import (
    is_lost_connection,
    is_of_an_execution,
    is_raised_by_a_function,
    said,
    sqlstate,
)

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


def database_error(stream_id: str, error: BaseException) -> StreamError:
    """FM-STREAM-005 for an error that ended a transaction."""
    is_transient = fault(error) == "transient"
    look = "look whether the database is there (a stream tries again by itself)"
    mend = look if is_transient else "mend what the database says"
    return StreamError(
        "FM-STREAM-005",
        "the database of a stream did not do what was asked",
        where=f"stream {stream_id}",
        found=said(error),
        state="nothing of a batch that was under way is written; the stored offsets stand",
        next=f"{mend}; then: floodmark stream run",
        retryable=is_transient,
        details={"sqlstate": sqlstate(error)},
    )
