"""PostgreSQL, for sinks, sources and streams alike: connections, statements, what errors mean.

How rows are written is in `floodmark.postgres.rows`. The driver is imported on first use.
"""

from typing import TYPE_CHECKING

from floodmark.postgres.connect import (
    LOCK_NOT_AVAILABLE,
    LOCK_SECONDS,
    MAX_NAME_BYTES,
    UNDEFINED_COLUMN,
    Connect,
    address_of,
    certificate_file,
    connector,
    connector_by,
    connector_to,
    cursor_of,
    is_lost_connection,
    is_of_an_execution,
    is_raised_by_a_function,
    is_refused_login,
    libpq_settings,
    limit_locks,
    lock_holders,
    lock_limit,
    quoted,
    quoted_table,
    run,
    said,
    sqlstate,
    statement_limit,
)
from floodmark.postgres.open_connections import OpenConnections

if TYPE_CHECKING:
    from floodmark.postgres.connect import Connection as Connection
    from floodmark.postgres.connect import Cursor as Cursor

__all__ = (
    "LOCK_NOT_AVAILABLE",
    "LOCK_SECONDS",
    "MAX_NAME_BYTES",
    "UNDEFINED_COLUMN",
    "Connect",
    "OpenConnections",
    "address_of",
    "certificate_file",
    "connector",
    "connector_by",
    "connector_to",
    "cursor_of",
    "is_lost_connection",
    "is_of_an_execution",
    "is_raised_by_a_function",
    "is_refused_login",
    "libpq_settings",
    "limit_locks",
    "lock_holders",
    "lock_limit",
    "quoted",
    "quoted_table",
    "run",
    "said",
    "sqlstate",
    "statement_limit",
)
