"""What an error of PostgreSQL means for a stream, by its SQLSTATE.

row        one of the records is to blame: found by bisection, becomes a dead letter
transient  the same batch may succeed later: connections, deadlocks, resources, shutdowns
lasting    somebody has to mend something: names, rights, syntax
"""

from __future__ import annotations

from typing import Literal

from floodmark.errors import StreamError
from floodmark.postgres import is_lost_connection, said, sqlstate

Fault = Literal["row", "transient", "lasting"]

DISK_FULL = "53100"
_ROW_CLASSES = ("22", "23", "44", "54", "P0")
"""Data, constraints, WITH CHECK OPTION, limits of the program, refusals by triggers."""
_TRANSIENT_CLASSES = ("08", "40", "53", "57")
"""Connections, rolled back by the server, resources, intervention of an operator."""
_TRANSIENT_STATES = frozenset(("25006", "55006", "55P03", "58030"))
"""A server that is read only (a standby), in use, lock not available, input and output."""


def fault(error: BaseException) -> Fault:
    """Which of the three an error of the driver or the server is."""
    import psycopg

    state = sqlstate(error)
    if state[:2] in _ROW_CLASSES:
        return "row"
    if state[:2] in _TRANSIENT_CLASSES or state in _TRANSIENT_STATES:
        return "transient"
    if state:
        return "lasting"
    # psycopg refuses a NUL or a lone surrogate itself: there is no state then.
    if isinstance(error, psycopg.DataError | UnicodeError):
        return "row"
    return "transient" if is_lost_connection(error) else "lasting"


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
