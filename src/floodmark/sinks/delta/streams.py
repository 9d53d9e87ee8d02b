"""A merge for `foreachBatch`: every micro-batch of a stream applied once, with a receipt."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from floodmark.deltalog import DeltaLog, Storage, absolute, is_delta_table
from floodmark.errors import ConfigError, SinkError
from floodmark.model import (
    Deletes,
    Receipt,
    SinkDone,
    Strategy,
    WriteSpec,
    batch_of,
    commit_metadata,
)
from floodmark.model.arguments import checks_call
from floodmark.model.names import PIPELINE_NAME, PIPELINE_NAME_RULE
from floodmark.next_steps import repeated
from floodmark.sinks.loss import untold

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

QUERY_ID = "sql.streaming.queryId"
"""The property by which Spark tells the threads of a query whose they are; kept in the checkpoint."""
_LOSSES = (
    "FM-SINK-007",
    "FM-SINK-009",
    "FM-SINK-016",
    "FM-SINK-017",
    "FM-SINK-044",
    "FM-SINK-045",
)

_UNTOLD = ("FM-SINK-042", "FM-SINK-043")

ApplyBatch = Callable[["DataFrame", int], None]


@checks_call("fm")
def stream_merge(
    target: str,
    *,
    stream: str,
    keys: Iterable[str],
    strategy: Strategy = "upsert",
    sequence_by: str | None = None,
    deletes: Deletes = "apply",
    created_at: str | None = None,
    updated_at: str | None = None,
    add_columns: bool = False,
    storage_options: Mapping[str, str] | None = None,
    allow_gaps: bool = False,
    allow_single_writer: bool = False,
) -> ApplyBatch:
    """What `writeStream.foreachBatch` calls to merge each micro-batch into a Delta table.

    Rows and receipt are one commit. A micro-batch that Spark repeats after a crash is found by its
    receipt and changes nothing. Receipts belong to `stream`, the target and the checkpoint: with a
    new checkpoint location Spark reads its source anew, and so its rows are merged anew. Frames with
    `_change_type` are reduced by it, as in `run.write`; the options mean the same as there.

    Every micro-batch of the query has to come here: one that the target does not show is missing,
    after an older copy of the table was put back or the table was dropped, and the next is refused
    (FM-SINK-047). `allow_gaps` says that batches are left out on purpose, or that the target is meant
    as it is.

    Called in another place than a stream it takes the batch number as it is given. Raises
    FM-CONFIG-007 for a name of the stream that is none.
    """
    if not PIPELINE_NAME.fullmatch(stream):
        raise ConfigError(
            "FM-CONFIG-007",
            f"not a name of a stream: {stream!r}",
            rule="name_of_stream",
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
        allow_single_writer=allow_single_writer,
    )

    def apply(frame: DataFrame, batch_id: int) -> None:
        from floodmark.sinks.delta.write import DeltaSink, refuse_without_receipts

        refuse_without_receipts(frame.sparkSession, path)
        query = _query_of(frame)
        app_id = f"floodmark/stream/{stream}/{query or 'no-query'}"
        receipt = Receipt(app_id, batch_id, _metadata(stream, app_id, batch_id))
        try:
            previous = last_stream_write(path, app_id, storage, refuses_cleaned=not allow_gaps)
            if query and not allow_gaps:
                _refuse_gap(path, previous, receipt)
            sink = DeltaSink(frame.sparkSession, spec, (), previous, storage.options)
            sink.write(frame, receipt)
        except SinkError as error:
            raise _of_stream(error) from error.__cause__

    return apply


def _query_of(frame: DataFrame) -> str:
    """The id of the query, which lives as long as its checkpoint; empty outside of a stream."""
    from floodmark.engines.jvm import local_property

    return local_property(frame.sparkSession, QUERY_ID)


def _metadata(stream: str, app_id: str, batch_id: int) -> str:
    return commit_metadata("stream", f"{app_id}/{batch_id}", batch_id, stream, {})


def last_stream_write(
    path: str, app_id: str, storage: Storage, *, refuses_cleaned: bool = False
) -> SinkDone | None:
    """The last micro-batch that the target holds: a stream has no journal but the target's own log.

    A receipt whose commit file was cleaned up does not tell what others did since: None, or
    FM-SINK-042 with `refuses_cleaned`.
    """
    if not is_delta_table(path, storage):
        return None
    log = DeltaLog(path, storage)
    stored = log.transaction_version(app_id)
    if stored is None:
        return None
    commit, facts = log.find_transaction(app_id, stored), log.facts()
    if commit is None:
        if refuses_cleaned:
            known = SinkDone("", app_id, path, facts.table_id, -1, None, seq=stored)
            raise untold(known, facts.earliest_version, Receipt(app_id, stored, ""))
        return None
    batch_id = batch_of(commit.user_metadata)
    return SinkDone(
        "", app_id, path, facts.table_id, commit.version, None, seq=stored, batch_id=batch_id
    )


def _refuse_gap(path: str, previous: SinkDone | None, receipt: Receipt) -> None:
    """Raise FM-SINK-047 where the target does not show the micro-batch before this one."""
    last = -1 if previous is None or previous.seq is None else previous.seq
    if last >= receipt.seq - 1:
        return
    raise SinkError(
        "FM-SINK-047",
        "micro-batches before this one are missing in the target",
        where=path,
        found=f"micro-batch {receipt.seq}; the target shows"
        f" {'none of this query' if last < 0 else f'batches through {last}'}",
        allowed="every micro-batch of a query, in order; an older copy of the table may have been put"
        " back, or the table was dropped",
        state="nothing was written; the stream's checkpoint counts the missing batches as done",
        next="put the table back as it was; or begin anew with another checkpoint location, which"
        " reads the source from its beginning; or, if the target is meant as it is:"
        " fm.stream_merge(..., allow_gaps=True)",
    )


def _of_stream(error: SinkError) -> SinkError:
    """The error with what can be done about a stream: it has no batch to retry."""
    if error.code in _LOSSES:
        error.next = (
            "put the table back as it was; or begin anew with another checkpoint location, which"
            " reads the source from its beginning"
        )
    elif error.code in _UNTOLD:
        error.next = (
            "if nobody restored or emptied the table: fm.stream_merge(..., allow_gaps=True) for the"
            " next micro-batch; else begin anew with another checkpoint location, which reads the"
            " source from its beginning"
        )
    elif error.next:
        error.next = repeated(error.next, "then start the stream again")
    return error
