"""PostgreSQL, for sinks, sources and streams alike: connections and statements.

`floodmark.postgres.transactions` knows what errors mean and how a COMMIT ends, `floodmark.postgres.rows`
how rows are written. The driver is imported on first use.
"""

from typing import TYPE_CHECKING

from floodmark.postgres.connect import (
    Connect,
    address_of,
    certificate_file,
    connector,
    connector_by,
    connector_to,
    cursor_of,
    libpq_settings,
    quoted,
    quoted_table,
    run,
)
from floodmark.postgres.open_connections import OpenConnections

if TYPE_CHECKING:
    from floodmark.postgres.connect import Connection as Connection
    from floodmark.postgres.connect import Cursor as Cursor

__all__ = (
    "Connect",
    "OpenConnections",
    "address_of",
    "certificate_file",
    "connector",
    "connector_by",
    "connector_to",
    "cursor_of",
    "libpq_settings",
    "quoted",
    "quoted_table",
    "run",
)
