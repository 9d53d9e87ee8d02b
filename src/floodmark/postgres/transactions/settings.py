"""What a transaction sets for itself: how long it waits, that its commit lasts, its memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.postgres.connect import run

if TYPE_CHECKING:
    from floodmark.postgres.connect import Cursor

LOCK_SECONDS = 600
"""As long as a Delta target is waited for; see `limit_locks`."""
MORE_MEMORY = (
    "SELECT set_config('work_mem', '256MB', true)"
    " WHERE pg_size_bytes(current_setting('work_mem')) < 256 * 1024 * 1024"
)
"""For this transaction: the default of 4 MB sorts on disk."""


def limit_locks(cursor: Cursor, seconds: float = LOCK_SECONDS) -> None:
    """End the wait for any lock of this transaction after so long, unless a shorter limit is set."""
    run(cursor, f"SELECT {lock_limit(seconds)}")


def lock_limit(seconds: float = LOCK_SECONDS) -> str:
    """The expression that does it, for a statement that sets more."""
    return _at_most("lock_timeout", seconds)


def statement_limit(seconds: float) -> str:
    """The same for each statement of the transaction; a COMMIT is none to the server."""
    return _at_most("statement_timeout", seconds)


def _at_most(setting: str, seconds: float) -> str:
    limit = min(max(1, round(seconds * 1000)), 2**31 - 1)
    return (
        f"set_config('{setting}', (SELECT CASE WHEN setting::bigint BETWEEN 1 AND"
        f" {limit} THEN setting ELSE '{limit}' END FROM pg_settings WHERE name = '{setting}'),"
        " true)"
    )


def lasting_commit() -> str:
    """The expression with which the server's answer to COMMIT means that the rows are on its disk.

    Others remember what was committed: a receipt, the offsets in a checkpoint. A setting that asks
    for more than that stays.
    """
    return (
        "set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off'"
        " THEN 'on' ELSE current_setting('synchronous_commit') END, true)"
    )
