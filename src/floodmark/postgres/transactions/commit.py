"""COMMIT: that it lasts, and whether it happened where its answer was lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from floodmark.postgres.connect import run
from floodmark.postgres.transactions.faults import is_lost_connection

if TYPE_CHECKING:
    import psycopg

    from floodmark.postgres.connect import Connection, Cursor

READ_BACK_SECONDS = 60
"""How long a commit whose answer was lost may still be under way on the server."""


def settle(connection: Connection, is_there: Callable[[psycopg.Error], bool]) -> None:
    """COMMIT; returns only if it happened.

    Where its answer is lost `is_there` decides, with the error as it came: it looks for what this
    very transaction wrote, and raises where it cannot look. Any other error is raised as it is:
    nothing was committed.
    """
    import psycopg

    try:
        connection.commit()
    except psycopg.Error as error:
        if not is_lost_connection(error) or not is_there(error):
            raise


def wait_for_commit(cursor: Cursor) -> None:
    """Before what was written is looked for, under the lock that its transaction held.

    The server may still be at work on that very commit, and holds the lock until it is done.
    """
    run(cursor, f"SET LOCAL lock_timeout = '{READ_BACK_SECONDS}s'")
