"""Reading a published table, without Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from floodmark.control.delta import unreadable
from floodmark.deltalog import Storage


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
    except (DeltaError, OSError) as error:
        raise unreadable(path, error) from error
