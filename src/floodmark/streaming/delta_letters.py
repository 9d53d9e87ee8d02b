"""Clean-up of the dead letters beside a Delta target."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from floodmark import failpoints
from floodmark.deltalog import Storage, is_delta_table
from floodmark.errors import StreamError


def removed(path: str, stream_id: str, before: datetime, storage: Storage) -> int:
    """Remove the letters of a stream from before a time, in one commit; returns how many.

    Killed anywhere it did all or nothing, and files that nobody needs stay until VACUUM. Receipts of
    batches stay in the log of the table. Raises FM-STREAM-053.
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        if not is_delta_table(path, storage):
            return 0
        table: Any = DeltaTable(path, storage_options=storage.options)
        of_stream = f"stream_id = '{stream_id.replace(chr(39), chr(39) * 2)}'"
        is_older = f"dead_lettered_at < '{before.isoformat()}'"
        failpoints.reached("letters.before_commit")
        done = table.delete(f"{of_stream} AND {is_older}")
    except (DeltaError, OSError) as error:
        raise StreamError(
            "FM-STREAM-053",
            "the dead letters of a stream were not cleaned up",
            where=f"stream {stream_id}, {path}",
            found=str(error)[:500],
            state="no dead letter was removed",
            next="floodmark stream cleanup again, when nobody else writes to that table",
            retryable=True,
        ) from error
    return int(done["num_deleted_rows"] or 0)
