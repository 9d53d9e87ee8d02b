"""A merge for `foreachBatch`: every micro-batch of a stream applied once, with a receipt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from floodmark.deltalog import DeltaLog, Storage, absolute, is_delta_table
from floodmark.errors import ConfigError, SinkError
from floodmark.model.names import PIPELINE_NAME, PIPELINE_NAME_RULE
from floodmark.model.receipt import Receipt, commit_metadata
from floodmark.model.state import SinkDone
from floodmark.model.write import Deletes, Strategy, WriteSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

QUERY_ID = "sql.streaming.queryId"
"""The property by which Spark tells the threads of a query whose they are; kept in the checkpoint."""
_LOSSES = ("FM-SINK-007", "FM-SINK-009", "FM-SINK-016", "FM-SINK-017")

ApplyBatch = Callable[["DataFrame", int], None]


def stream_merge(
    target: str,
    *,
    stream: str,
    keys: Sequence[str],
    strategy: Strategy = "upsert",
    sequence_by: str | None = None,
    deletes: Deletes = "apply",
    created_at: str | None = None,
    updated_at: str | None = None,
    add_columns: bool = False,
    storage_options: Mapping[str, str] | None = None,
) -> ApplyBatch:
    """What `writeStream.foreachBatch` calls to merge each micro-batch into a Delta table.

    Rows and receipt are one commit. A micro-batch that Spark repeats after a crash is found by its
    receipt and changes nothing. Receipts belong to `stream`, the target and the checkpoint: with a
    new checkpoint location Spark reads its source anew, and so its rows are merged anew. Frames with
    `_change_type` are reduced by it, as in `run.write`; the options mean the same as there.

    Called in another place than a stream it takes the batch number as it is given. Raises
    FM-CONFIG-007 for a name of the stream that is none.
    """
    if not PIPELINE_NAME.fullmatch(stream):
        raise ConfigError(
            "FM-CONFIG-007",
            f"not a name of a stream: {stream!r}",
            allowed=PIPELINE_NAME_RULE,
            state="nothing was read or written",
            next="correct the call",
        )
    storage, path = Storage(storage_options), absolute(target)
    spec = WriteSpec(
        target=path,
        mode="merge",
        name=stream,
        keys=(keys,) if isinstance(keys, str) else tuple(keys),
        strategy=strategy,
        sequence_by=sequence_by,
        deletes=deletes,
        created_at=created_at,
        updated_at=updated_at,
        adds_columns=add_columns,
    )

    def apply(frame: DataFrame, batch_id: int) -> None:
        from floodmark.sinks.delta import DeltaSink

        app_id = f"floodmark/stream/{stream}/{_query_of(frame)}"
        receipt = Receipt(app_id, batch_id, _metadata(stream, app_id, batch_id))
        sink = DeltaSink(
            frame.sparkSession, spec, (), last_write(path, app_id, storage), storage.options
        )
        try:
            sink.write(frame, receipt)
        except SinkError as error:
            raise _of_stream(error) from error.__cause__

    return apply


def _query_of(frame: DataFrame) -> str:
    """The id of the query, which lives as long as its checkpoint."""
    found = frame.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
    return str(found) if found else "no-query"


def _metadata(stream: str, app_id: str, batch_id: int) -> str:
    return commit_metadata("stream", f"{app_id}/{batch_id}", batch_id, stream, {})


def last_write(path: str, app_id: str, storage: Storage) -> SinkDone | None:
    """The last micro-batch that the target holds: a stream has no journal but the target's own log."""
    if not is_delta_table(path, storage):
        return None
    log = DeltaLog(path, storage)
    stored = log.transaction_version(app_id)
    commit = log.find_transaction(app_id, stored) if stored is not None else None
    if commit is None:
        return None
    table_id = log.facts().table_id
    return SinkDone("", app_id, path, table_id, commit.version, None, seq=stored)


def _of_stream(error: SinkError) -> SinkError:
    """The error with what can be done about a stream: it has no batch to retry."""
    if error.code in _LOSSES:
        error.next = (
            "put the table back as it was; or begin anew with another checkpoint location, which"
            " reads the source from its beginning"
        )
    elif error.next:
        error.next = error.next.replace(
            "then: floodmark retry BATCH", "then start the stream again"
        )
    return error
