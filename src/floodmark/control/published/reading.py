"""Reading a published table, without Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from floodmark.control.journal.delta import unreadable
from floodmark.deltalog import Storage

MARKER = "projection"
"""The transaction of a published table whose version is the number of the last event it shows."""


def read_published(path: str, storage: Storage, query: str) -> pa.Table | None:
    """The answer of a query on a published table, named `t` in it; None if there is no table.

    Read by delta-rs itself: a pyarrow dataset over it sometimes aborts the interpreter at exit.
    """
    from deltalake import DeltaTable, QueryBuilder
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        table: Any = DeltaTable(path, storage_options=storage.options)
        return pa.table(QueryBuilder().register("t", table).execute(query))
    except TableNotFoundError:
        return None
    # A damaged data file is an ArrowInvalid, which is a ValueError.
    except (DeltaError, OSError, ValueError) as error:
        raise unreadable(path, error) from error


def published_through(path: str, storage: Storage) -> int | None:
    """The number of the last event that a published table shows; None if there is no table."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        table: Any = DeltaTable(path, storage_options=storage.options)
        return int(table.transaction_version(MARKER) or 0)
    except TableNotFoundError:
        return None
    except (DeltaError, OSError) as error:
        raise unreadable(path, error) from error
