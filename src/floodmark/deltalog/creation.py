"""Tables of floodmark's own: made by one writer, however many try."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from floodmark.deltalog.log import is_delta_table
from floodmark.deltalog.storage import Storage
from floodmark.errors import SourceError


def create_table(path: str, schema: Any, storage: Storage, **properties: Any) -> None:
    """Make an empty table of delta-rs; nothing is written where somebody else has just made it.

    Raises what delta-rs or the storage raised (DeltaError, OSError) if there is no table then.
    """
    from deltalake import CommitProperties, DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        DeltaTable.create(
            path,
            schema,
            storage_options=storage.options,
            # Else delta-rs commits a second creation behind the first: others see the table change.
            commit_properties=CommitProperties(max_commit_retries=0),
            **properties,
        )
    except (DeltaError, OSError):
        if not _is_there(path, storage):
            raise


def _is_there(path: str, storage: Storage) -> bool:
    with suppress(SourceError):  # nobody can look: what delta-rs said tells more
        return is_delta_table(path, storage)
    return False
