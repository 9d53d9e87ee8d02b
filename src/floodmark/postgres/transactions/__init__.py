"""Transactions of PostgreSQL: what errors mean, how long locks are waited for, COMMIT."""

from floodmark.postgres.transactions.commit import settle, wait_for_commit
from floodmark.postgres.transactions.faults import (
    DISK_FULL,
    LOCK_NOT_AVAILABLE,
    OF_ROWS,
    fault,
    is_lost_connection,
    is_of_an_execution,
    is_refused_login,
    said,
    sqlstate,
)
from floodmark.postgres.transactions.locks import lock_holders
from floodmark.postgres.transactions.savepoints import is_of_rows, savepoint
from floodmark.postgres.transactions.settings import (
    LOCK_SECONDS,
    MORE_MEMORY,
    lasting_commit,
    limit_locks,
    lock_limit,
    statement_limit,
)

__all__ = (
    "DISK_FULL",
    "LOCK_NOT_AVAILABLE",
    "LOCK_SECONDS",
    "MORE_MEMORY",
    "OF_ROWS",
    "fault",
    "is_lost_connection",
    "is_of_an_execution",
    "is_of_rows",
    "is_refused_login",
    "lasting_commit",
    "limit_locks",
    "lock_holders",
    "lock_limit",
    "said",
    "savepoint",
    "settle",
    "sqlstate",
    "statement_limit",
    "wait_for_commit",
)
