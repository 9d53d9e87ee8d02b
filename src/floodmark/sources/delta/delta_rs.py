"""The change feed of a range through delta-rs, for the ranges that Spark refuses.

Spark reads every range with the newest schema of the table and refuses it where a later version
changed a type or dropped a column; delta-rs reads it with the schema that the range ends with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from floodmark.deltalog import DeltaLog, Storage
from floodmark.model import CHANGE_COLUMNS, VersionWindow
from floodmark.sources.delta.proof import files_gone, prove_files, prove_version_files
from floodmark.sources.faults import schema_moved

if TYPE_CHECKING:
    from deltalake import DeltaTable

_TYPE, _VERSION, _TIMESTAMP = CHANGE_COLUMNS
CHANGE_FIELDS = (
    pa.field(_TYPE, pa.string()),
    pa.field(_VERSION, pa.int64()),
    pa.field(_TIMESTAMP, pa.timestamp("us", "UTC")),
)


def read_changes(window: VersionWindow, storage: Storage) -> pa.Table:
    """The changes of a window, with its own schema and the three change columns.

    Raises FM-SOURCE-007 if delta-rs cannot read it either, FM-SOURCE-006 if data files are gone.
    """
    return pa.concat_tables(streamed_changes(window, storage))


def streamed_changes(window: VersionWindow, storage: Storage) -> Iterator[pa.Table]:
    """The same, a batch at a time: of a feed of any length only a few batches are in memory.

    The first table is empty and has the schema.
    """
    from deltalake.exceptions import DeltaError

    try:
        table = _table(window.place, window.end, storage)
        schema = pa.schema([*pa.schema(table.schema().to_arrow()), *CHANGE_FIELDS])
        yield schema.empty_table()
        yield from _typed_each(table.load_cdf(window.feed_start or 0, window.end), schema)
    except DeltaError as error:
        raise schema_moved(window, f"delta-rs: {str(error)[:300]}") from error
    except Exception:
        # A file that is gone comes through the stream as a bare Exception: the store is asked.
        prove_files(DeltaLog(window.place, storage), window)
        raise


def streamed_version(window: VersionWindow, version: int, storage: Storage) -> Iterator[pa.Table]:
    """The whole table at a version, without change columns, in the same way."""
    from deltalake import QueryBuilder
    from deltalake.exceptions import DeltaError

    try:
        table = _table(window.place, version, storage)
        schema = pa.schema(table.schema().to_arrow())
        yield schema.empty_table()
        yield from _typed_each(
            QueryBuilder().register("t", table).execute("SELECT * FROM t"), schema
        )
    except (FileNotFoundError, DeltaError, pa.ArrowInvalid) as error:
        raise files_gone(window, type(error).__name__) from error
    except Exception:
        # As above.
        prove_version_files(DeltaLog(window.place, storage), window, version)
        raise


def _table(place: str, version: int, storage: Storage) -> DeltaTable:
    from deltalake import DeltaTable

    return DeltaTable(place, version, storage_options=dict(storage.options))


def _typed_each(batches: Iterable[Any], schema: pa.Schema) -> Iterator[pa.Table]:
    for batch in batches:
        yield typed(pa.Table.from_batches([pa.record_batch(batch)]), schema)


def typed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Columns by name and type; delta-rs gives its feed views of text and bare timestamps."""
    columns = []
    for field in schema:
        column = table[field.name]
        if pa.types.is_timestamp(field.type) and column.type.tz is None and field.type.tz:
            column = pc.assume_timezone(column.cast(pa.timestamp(field.type.unit)), "UTC")
        columns.append(column.cast(field.type))
    return pa.Table.from_arrays(columns, schema=schema)
