"""Why PostgreSQL does not open a connection, by its SQLSTATE.

The driver gives no state for a connection that was not opened, so a wrong password looks like a
server that is away (decision 0046). The server does send one: libpq shows it in the trace of its
protocol, which a second attempt is made for.
"""

from __future__ import annotations

import os
import re
import select
import time
from typing import Any

TRACE_SECONDS = 15
LIBPQ_THAT_TRACES = 180_000
"""Older ones leave the messages of the connecting out of the trace."""

_ERROR = re.compile(rb'^B\t\d+\tErrorResponse\t.* C "([0-9A-Z]{5})" ', re.MULTILINE)


def refusal_state(conninfo: str, error: BaseException) -> str | None:
    """The SQLSTATE with which a server refuses a connection; None where it does not, or says none.

    Asks the server once more, unless the first attempt already took as long as it may.
    """
    import psycopg

    can_trace = hasattr(os, "memfd_create") and psycopg.pq.version() >= LIBPQ_THAT_TRACES
    if not can_trace or isinstance(error, psycopg.errors.ConnectionTimeout):
        return None
    # The trace holds what a login sends: it stays in memory that has no name.
    handle = os.memfd_create("floodmark")
    try:
        _connect_traced(conninfo, handle)
        os.lseek(handle, 0, os.SEEK_SET)
        states = _ERROR.findall(os.read(handle, 1 << 20))
    finally:
        os.close(handle)
    return states[-1].decode() if states and _is_known(states[-1].decode()) else None


def _is_known(state: str) -> bool:
    from psycopg import errors

    try:
        errors.lookup(state)
    except KeyError:
        return False
    return True


def _connect_traced(conninfo: str, handle: int) -> None:
    """Try to connect once, with every message of the protocol written to a file."""
    from psycopg import pq

    connection: Any = pq.PGconn.connect_start(conninfo.encode())
    try:
        connection.trace(handle)
        connection.set_trace_flags(pq.Trace.SUPPRESS_TIMESTAMPS)
        deadline = time.monotonic() + TRACE_SECONDS
        while connection.status != pq.ConnStatus.BAD:
            polled = connection.connect_poll()
            if polled not in (pq.PollingStatus.READING, pq.PollingStatus.WRITING):
                break
            left = deadline - time.monotonic()
            if left <= 0:
                break
            sockets = [connection.socket]
            reads = polled == pq.PollingStatus.READING
            select.select(sockets if reads else [], [] if reads else sockets, [], left)
        connection.untrace()
    finally:
        connection.finish()
