"""Why a ledger writes nothing: the errors it raises, in words."""

from __future__ import annotations

from collections.abc import Sequence

from floodmark.errors import StreamError
from floodmark.model.offsets import Break, Offsets
from floodmark.next_steps import STREAM, Next, command
from floodmark.streaming.ledger.batches import Claim, DeadLetter, StreamBatch, StreamRow
from floodmark.streaming.ledger.tables import TABLES

ROLLED_BACK = "the batch was rolled back; the stored offsets stand where they stood"


def fenced(claim: Claim, row: StreamRow | None) -> StreamError:
    """FM-STREAM-001: the claim is no longer that of the row."""
    gone = "the row of the stream is gone"
    return StreamError(
        "FM-STREAM-001",
        "another runner has taken over this stream",
        stream=claim.stream_id,
        where=f"epoch {claim.epoch}",
        found=gone if row is None else f"epoch {row.epoch}, held by {row.holder}",
        state="nothing of this batch was written; the other runner goes on",
        next="stop this runner; who holds the stream is shown by: "
        + command("stream", "status", STREAM),
    )


def broken(row: StreamRow, batch: StreamBatch, found: Sequence[Break]) -> StreamError:
    """FM-STREAM-002 if a partition has a gap, else -003."""
    is_gap = any(one.kind == "gap" for one in found)
    return StreamError(
        "FM-STREAM-002" if is_gap else "FM-STREAM-003",
        "records between the last batch and this one would be lost"
        if is_gap
        else "records of this batch are already in the target",
        stream=row.stream_id,
        where=f"batch {batch.batch_id}",
        found="; ".join(map(str, found[:5])),
        allowed=f"a batch that begins at {row.end_offsets}",
        state="nothing of this batch was written",
        next=command("stream", "run", STREAM) + ", which compares checkpoint and database first",
    )


def moved(stream_id: str) -> StreamError:
    """FM-STREAM-011: the row is not the one that was looked at."""
    return StreamError(
        "FM-STREAM-011",
        "the stream moved while it was being looked at",
        stream=stream_id,
        state="nothing was written, and no runner was fenced",
        next=command("stream", "run", STREAM),
        retryable=True,
    )


def forgotten(stream: str, row: StreamRow | None, batch_id: int, end: Offsets) -> StreamError:
    """FM-STREAM-036: the row is gone, or older than the tracker."""
    has = "no row of the stream" if row is None else f"batch {row.batch_id} as its last one"
    older = "earliest" if row is None or row.end_offsets is None else str(row.end_offsets)
    why = (
        "begin anew" if older == "earliest" else "it was restored too, and holds no more than that"
    )
    return StreamError(
        "FM-STREAM-036",
        "floodmark_stream has forgotten batches that batch_tracker still has",
        stream=stream,
        found=f"batch_tracker ends with batch {batch_id} at {end}; floodmark_stream has {has}",
        state="nothing was read or written; one of the two tables was restored, or rows deleted",
        next=_reset(stream, str(end))
        + " (the target holds all of these batches), or "
        + _reset(stream, older)
        + f" ({why})",
    )


def parted(stream: str, row: StreamRow, end: Offsets) -> StreamError:
    """FM-STREAM-048: the row and the tracker come from databases that went their own ways."""
    return StreamError(
        "FM-STREAM-048",
        "floodmark_stream and batch_tracker tell of different commits of one batch",
        stream=stream,
        where=f"batch {row.batch_id}",
        found=f"floodmark_stream ends at {row.end_offsets}, batch_tracker at {end}",
        allowed="both tables of one database, from one backup",
        state="nothing was read or written; one of the two tables comes from another copy",
        next="put both back from one backup; or say where the rows of the target end: "
        + _reset(stream, str(row.end_offsets))
        + ", or "
        + _reset(stream, str(end)),
    )


def _reset(stream: str, to: str) -> Next:
    return command("stream", "reset", stream, "--to", to, "--yes")


def disagreeing(stream_id: str, found: str, batch: StreamBatch | None = None) -> StreamError:
    """FM-STREAM-007: a record is in none of the counts, or in two."""
    return StreamError(
        "FM-STREAM-007",
        "not every record of a batch is accounted for",
        stream=stream_id,
        where=None if batch is None else f"batch {batch.batch_id}",
        found=found,
        allowed="received = written + dead-lettered + dropped",
        state=ROLLED_BACK,
        next=command("stream", "run", STREAM) + "; please report it if it happens again",
    )


def unknown(stream_id: str, found: str, then: str) -> StreamError:
    """FM-STREAM-006: neither the answer to COMMIT nor the row could be had."""
    return StreamError(
        "FM-STREAM-006",
        "it could not be learned whether a batch of a stream was committed",
        stream=stream_id,
        found=f"{found}; and when asked again: {then}",
        state="rows and offsets are both there or neither; the stored offsets decide",
        next=command("stream", "run", STREAM),
        retryable=True,
    )


def no_tables(stream_id: str, schema: str, found: str) -> StreamError:
    """FM-STREAM-004: a table of ours is not there as it has to be."""
    return StreamError(
        "FM-STREAM-004",
        "the tables of the stream are missing in the database, or cannot be used",
        stream=stream_id,
        where=f"schema {schema}",
        found=found,
        allowed=", ".join(table.name for table in TABLES),
        state="nothing was written",
        next="as a role that may create tables: "
        + command("stream", "run", STREAM)
        + "; else let somebody run what is shown by: "
        + command("stream", "tables", STREAM),
    )


def first_refused(
    letter: DeadLetter, *, stream: str | None = None, table: str | None = None
) -> StreamError:
    """FM-STREAM-009: failFast, and a record that is not taken."""
    of_table = "" if table is None else f"table {table}, "
    return StreamError(
        "FM-STREAM-009",
        "a record was refused, and the stream is to stop at the first one",
        stream=stream,
        where=f"{of_table}record {letter.topic}-{letter.partition} offset {letter.offset}",
        found=_why(letter),
        allowed="failFast: false, which makes dead letters of such records",
        state=ROLLED_BACK,
        next="mend the record, the table or the setting, then: " + command("stream", "run", STREAM),
    )


def refused_window(stream_id: str, letter: DeadLetter) -> StreamError:
    """FM-STREAM-014: the target refuses the result of a window, which is no record's own."""
    return StreamError(
        "FM-STREAM-014",
        "the target does not take a row of a window",
        stream=stream_id,
        found=_why(letter),
        allowed="a table that takes every row: no dead letter could bring a window back",
        state=ROLLED_BACK,
        next="change the table or the measure, then: " + command("stream", "run", STREAM),
    )


def _why(letter: DeadLetter) -> str:
    column = f"column {letter.column}: " if letter.column else ""
    return f"{letter.reason}: {column}{letter.detail}"


def not_by_spark(stream: str, found: str) -> StreamError:
    """FM-STREAM-043: Spark does not take the query."""
    return StreamError(
        "FM-STREAM-043",
        "Spark does not run such a query",
        stream=stream,
        found=found,
        allowed="columns of the payload, and aggregates of Spark SQL over them",
        state="nothing was read or written",
        next="correct aggregate or deduplicate, then: " + command("stream", "run", STREAM),
    )
